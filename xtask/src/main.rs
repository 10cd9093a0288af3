//! `cargo xtask tidy`: what guards the architecture, read from the sources.
//!
//! `cargo xtask tidy` prints each violation with its place and fails if there is one.
//! `cargo xtask tidy --report` prints measures of language and layout.

mod dialect;
mod faults;
mod layers;
mod lines;
mod modules;
mod pages;
mod rules;
mod sources;
mod syntax;
mod types;

use layers::Layers;
use sources::Workspace;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["tidy"] => tidy(),
        ["tidy", "--report"] => root().and_then(Workspace::read).map(|it| lines::report(&it)),
        _ => Err("usage: cargo xtask tidy [--report]".to_owned()),
    };
    match outcome {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> Result<&'static Path, String> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or_else(|| "xtask has no root".to_owned())
}

/// Checks everything.
///
/// # Errors
/// All violations, a line each, or what could not be read.
fn tidy() -> Result<String, String> {
    let workspace = Workspace::read(root()?)?;
    let layers = Layers::read(&workspace.file("ARCHITECTURE.md")?)?;
    let mut complaints = Vec::new();
    layers::check(&workspace, &layers, &mut complaints)?;
    rules::check(&workspace, &layers, &mut complaints);
    modules::check(&workspace, &mut complaints);
    syntax::check(&workspace, &mut complaints);
    types::check(&workspace, &mut complaints);
    pages::check(&workspace, &layers, &mut complaints)?;
    faults::check(&workspace, &mut complaints)?;
    lines::check(&workspace, &mut complaints);
    dialect::check(&workspace, &mut complaints);
    match complaints.is_empty() {
        true => Ok(format!("tidy: {} files\n", workspace.sources.len() + workspace.pages.len())),
        false => Err(format!("{}\n{} violations", complaints.join("\n"), complaints.len())),
    }
}
