//! The oldest supported compiler (`rust-version`) takes the sources. Clippy knows since when a
//! function is there (`incompatible_msrv`), not since when a construct of the language is.

use crate::sources::Workspace;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Lines at which a `let` is part of a larger condition: stable since Rust 1.88.
#[derive(Default)]
struct LetChains {
    lines: Vec<usize>,
}

impl<'a> Visit<'a> for LetChains {
    fn visit_expr_binary(&mut self, binary: &'a syn::ExprBinary) {
        let is_let = |side: &syn::Expr| matches!(side, syn::Expr::Let(_));
        if is_let(&binary.left) || is_let(&binary.right) {
            self.lines.push(binary.span().start().line);
        }
        visit::visit_expr_binary(self, binary);
    }
}

pub fn check(workspace: &Workspace, complaints: &mut Vec<String>) {
    for source in workspace.sources.iter().filter(|source| source.path.starts_with("crates/")) {
        let mut found = LetChains::default();
        found.visit_file(&source.syntax);
        let complaint = |line| {
            format!("{}:{line}: chains of `let` need Rust 1.88, Debian 13 has 1.85", source.path)
        };
        complaints.extend(found.lines.into_iter().map(complaint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_let_within_a_condition_is_found_and_one_alone_is_not() {
        let text = "fn f() { if let Some(_) = g() {} while true && let Some(_) = g() {} }";
        let mut found = LetChains::default();
        found.visit_file(&syn::parse_file(text).unwrap());
        assert_eq!(found.lines, [1]);
    }
}
