//! Errors of commands: the problem, the remedy, the exit code.

use std::fmt;
use std::process::ExitCode;

/// A problem, its subject and its remedy. The program prints it and exits non-zero.
#[derive(Debug)]
pub struct CliError {
    problem: String,
    remedy: Option<String>,
    code: u8,
    is_specific: bool,
}

/// Exit code of a failure; clap exits with 2 on a wrong command line.
const FAILURE: u8 = 1;

impl CliError {
    pub fn new(problem: impl Into<String>) -> CliError {
        CliError { problem: problem.into(), remedy: None, code: FAILURE, is_specific: false }
    }
    /// Creates an error of the operating system: `subject` names the operation ("open disk.img").
    pub fn system(subject: impl fmt::Display, error: std::io::Error) -> CliError {
        CliError::new(format!("{subject}: {error}"))
    }
    /// Creates the error of a kernel that gave neither an io_uring nor its replacement, or not the
    /// requested `OKEANOS_IO`.
    pub fn no_ring(error: std::io::Error) -> CliError {
        if let Some(refusal) = runtime::RingRefusal::of(&error) {
            return CliError::new(format!("OKEANOS_IO=ring: {refusal}"))
                .with_remedy("Leave OKEANOS_IO unset: threads then do what the ring would.");
        }
        let remedy = match error.raw_os_error() {
            Some(libc::ENOMEM) => "Free some memory, or lock less of it: see `ulimit -l`.",
            Some(libc::EMFILE | libc::ENFILE) => {
                "Close some files, or allow more: see `ulimit -n`."
            }
            Some(_) => "The kernel gives neither io_uring nor epoll.",
            None => return CliError::new(error.to_string()),
        };
        CliError::system("io_uring", error).with_remedy(remedy)
    }
    /// Returns the text without the remedy.
    pub fn problem(&self) -> &str {
        &self.problem
    }
    /// Adds a remedy for the reader: a sentence that begins with a verb.
    pub fn with_remedy(self, remedy: impl Into<String>) -> CliError {
        CliError { remedy: Some(remedy.into()), ..self }
    }
    /// Marks an error that a more general cause, which the program looks for, does not replace.
    pub fn specific(self) -> CliError {
        CliError { is_specific: true, ..self }
    }
    pub fn is_specific(&self) -> bool {
        self.is_specific
    }
    /// Sets the exit code, for commands whose codes others know.
    pub fn with_code(self, code: u8) -> CliError {
        CliError { code, ..self }
    }
    /// Sets the exit code of another error of the same command.
    pub fn with_code_of(self, other: &CliError) -> CliError {
        self.with_code(other.code)
    }
    pub fn code(&self) -> u8 {
        self.code
    }
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)?;
        match &self.remedy {
            Some(remedy) => write!(f, "\n  {remedy}"),
            None => Ok(()),
        }
    }
}
impl std::error::Error for CliError {}
