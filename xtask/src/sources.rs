//! The files of the workspace: Rust sources as tokens and as syntax trees, pages as text.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One token, with the line on which it stands (from 1). Brackets are tokens of their own.
pub struct Token {
    pub text: String,
    pub line: usize,
}

/// A Rust source file.
pub struct Source {
    /// Path from the root of the workspace, with `/` between its parts.
    pub path: String,
    pub text: String,
    /// Tokens without comments and without what is compiled for tests alone.
    pub tokens: Vec<Token>,
    /// The lines that a text in quotes touches: nothing wraps them.
    pub quoted_lines: BTreeSet<usize>,
    pub syntax: syn::File,
}

impl Source {
    /// The crate that the file belongs to; empty outside `crates/`.
    pub fn crate_name(&self) -> &str {
        let rest = self.path.strip_prefix("crates/").unwrap_or_default();
        rest.split('/').next().unwrap_or_default()
    }

    /// Whether the file is part of its crate's library or program, and no test, bench or example.
    pub fn is_product(&self) -> bool {
        self.path.starts_with("crates/") && self.path.split('/').nth(2) == Some("src")
    }
}

/// Files that the checks read.
pub struct Workspace {
    pub root: PathBuf,
    pub sources: Vec<Source>,
    /// Markdown pages, from the root of the workspace.
    pub pages: Vec<(String, String)>,
    /// Names of the folders in `crates/`.
    pub crates: Vec<String>,
}

impl Workspace {
    /// Reads all files that git tracks or would add.
    ///
    /// # Errors
    /// A text that says which file cannot be read or parsed.
    pub fn read(root: &Path) -> Result<Workspace, String> {
        let (mut sources, mut pages) = (Vec::new(), Vec::new());
        for path in tracked(root)? {
            if path.ends_with(".rs") {
                sources.push(source(root, path)?);
            } else if path.ends_with(".md") {
                let text = read(root, &path)?;
                pages.push((path, text));
            }
        }
        let mut crates: Vec<String> = sources
            .iter()
            .map(|it| it.crate_name().to_owned())
            .filter(|it| !it.is_empty())
            .collect();
        crates.sort();
        crates.dedup();
        Ok(Workspace { root: root.to_owned(), sources, pages, crates })
    }

    /// The sources of the libraries and programs, without tests.
    pub fn product(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| source.is_product())
    }

    /// The text of a page.
    ///
    /// # Errors
    /// A text that names the page.
    pub fn page(&self, name: &str) -> Result<&str, String> {
        let found = self.pages.iter().find(|(path, _)| path == name);
        found.map(|(_, text)| text.as_str()).ok_or_else(|| format!("{name} is gone"))
    }

    /// The text of a file of the workspace.
    ///
    /// # Errors
    /// A text that names the file.
    pub fn file(&self, path: &str) -> Result<String, String> {
        read(&self.root, path)
    }
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
}

fn tracked(root: &Path) -> Result<Vec<String>, String> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("git ls-files: {error}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = text.split('\0').filter(|path| !path.is_empty() && root.join(path).is_file());
    // During a merge an entry stands there several times.
    let mut paths: Vec<String> = paths.map(str::to_owned).collect();
    paths.dedup();
    Ok(paths)
}

fn source(root: &Path, path: String) -> Result<Source, String> {
    let text = read(root, &path)?;
    let syntax = syn::parse_file(&text)
        .map_err(|error| format!("{path}:{}: {error}", error.span().start().line))?;
    let stream: TokenStream = text.parse().map_err(|error| format!("{path}: {error}"))?;
    let (mut tokens, mut quoted_lines) = (Vec::new(), BTreeSet::new());
    quoted(stream.clone(), &mut quoted_lines);
    if !is_test(&syntax.attrs) {
        flatten(stream, &mut tokens);
    }
    Ok(Source { path, text, tokens, quoted_lines, syntax })
}

/// Whether what has these attributes is compiled for tests alone.
pub fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
    })
}

/// Appends the lines that texts in quotes touch. Doc comments are no such texts.
fn quoted(stream: TokenStream, lines: &mut BTreeSet<usize>) {
    let mut is_doc = false;
    for tree in stream {
        match tree {
            TokenTree::Group(group) => quoted(group.stream(), lines),
            TokenTree::Literal(text) if !is_doc && text.to_string().contains('"') => {
                lines.extend(text.span().start().line..=text.span().end().line);
            }
            TokenTree::Ident(word) if word == "doc" => is_doc = true,
            _ => {}
        }
    }
}

/// Appends the tokens of `stream`, without doc comments and items with `#[cfg(test)]`.
fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    let mut rest = stream.into_iter().peekable();
    while let Some(tree) = rest.next() {
        if let (TokenTree::Punct(sign), Some(TokenTree::Group(group))) = (&tree, rest.peek())
            && sign.as_char() == '#'
        {
            let attribute = group.stream().to_string().replace(' ', "");
            if attribute.starts_with("doc=") {
                rest.next();
                continue;
            }
            if attribute == "cfg(test)" {
                rest.next();
                skip_item(&mut rest);
                continue;
            }
        }
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                tokens.push(Token { text: open.to_owned(), line });
                flatten(group.stream(), tokens);
                let line = group.span_close().start().line;
                tokens.push(Token { text: close.to_owned(), line });
            }
            other => tokens.push(Token { text: other.to_string(), line }),
        }
    }
}

/// Passes over one item: up to its semicolon or its braces.
fn skip_item(rest: &mut impl Iterator<Item = TokenTree>) {
    for tree in rest {
        match tree {
            TokenTree::Punct(sign) if sign.as_char() == ';' => return,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            _ => {}
        }
    }
}

/// The tokens of a Rust text.
#[cfg(test)]
pub fn tokens_of(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    flatten(text.parse().expect("a pattern is made of Rust tokens"), &mut tokens);
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_tests_are_left_out() {
        let text = "/// words\nfn a() { b(1) }\n#[cfg(test)]\nmod tests { fn c() {} }\nfn d() {}";
        let words: Vec<_> = tokens_of(text).into_iter().map(|it| (it.text, it.line)).collect();
        assert!(words.contains(&("b".to_owned(), 2)) && words.contains(&("d".to_owned(), 5)));
        assert!(!words.iter().any(|(word, _)| word == "c" || word.contains("words")));
    }
}
