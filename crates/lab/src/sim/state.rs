//! The state file of the crash explorer: the next seed in the first line, then, as JSON, the
//! explored cases.

use super::SimArguments;
use crate::error::CliError;
use sim::proof::Proof;
use std::path::{Path, PathBuf};

/// Reads the state file if there is one.
pub fn read(arguments: &SimArguments) -> Result<(u64, Proof), CliError> {
    let Some(path) = &arguments.state else { return Ok((arguments.seed, Proof::default())) };
    Ok(read_file(path)?.unwrap_or((arguments.seed, Proof::default())))
}

fn read_file(path: &Path) -> Result<Option<(u64, Proof)>, CliError> {
    let wrong = |what| CliError::new(format!("{}: {what}; remove it", path.display()));
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let (seed, proof) = text.split_once('\n').unwrap_or((&text, ""));
            let seed = seed.trim().parse().map_err(|_| wrong("holds no seed"))?;
            let proof = match proof.trim() {
                "" => Proof::default(),
                proof => serde_json::from_str(proof).map_err(|_| wrong("holds no counts"))?,
            };
            Ok(Some((seed, proof)))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CliError::system(path.display().to_string(), error)),
    }
}

/// Writes a new file that replaces the old one, so that a kill leaves one of the two.
pub fn write(arguments: &SimArguments, seed: u64, proof: &mut Proof) -> Result<(), CliError> {
    let Some(path) = &arguments.state else { return Ok(()) };
    proof.programs.insert(crate::VERSION.to_owned());
    proof.add_stalls();
    let counts = serde_json::to_string(proof).expect("numbers and names");
    let mut new = path.clone().into_os_string();
    new.push(".new");
    std::fs::write(&new, format!("{seed}\n{counts}\n"))
        .and_then(|()| std::fs::rename(&new, path))
        .map_err(|error| CliError::system(path.display().to_string(), error))
}

/// Prints the content of these files as a page, or writes that.
pub fn print_proof(files: &[PathBuf], page: Option<&Path>) -> Result<(), CliError> {
    let mut all = Proof::default();
    for path in files {
        all.merge(read_proof(path)?);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = all.page(&format!("okeanos-lab {}", arguments.join(" ")));
    match page {
        None => crate::text::output::print(&text),
        Some(page) => std::fs::write(page, text)
            .map_err(|error| CliError::system(page.display().to_string(), error)),
    }
}

/// Reads a state file, or the records of an explorer in a test.
fn read_proof(path: &Path) -> Result<Proof, CliError> {
    let system = |error| CliError::system(path.display().to_string(), error);
    let text = std::fs::read_to_string(path).map_err(system)?;
    if !text.starts_with('{') {
        return Ok(read_file(path)?.map(|(_, proof)| proof).unwrap_or_default());
    }
    let mut proof = Proof::default();
    for line in text.lines() {
        let explored = serde_json::from_str(line)
            .map_err(|error| CliError::new(format!("{}: {error}; remove it", path.display())))?;
        proof.add_explored(explored);
    }
    Ok(proof)
}
