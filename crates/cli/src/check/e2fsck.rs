//! The verdict of e2fsck(8), which is run without changing anything (`-fn`).
//!
//! The image may be hostile, and some make e2fsck loop: time, memory and the retained output are
//! bounded. The volume is its standard input, which it opens again by `/proc/self/fd/0`: no file
//! name can be taken for an option or for a label.

use super::PROBLEMS_MAX;
use crate::error::CliError;
use crate::programs;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Exit codes of e2fsck: errors were left, and it could not do its work.
const ERRORS_LEFT: i32 = 4;
const OPERATIONAL: i32 = 8;

const PATIENCE_LEAST: Duration = Duration::from_secs(60);
/// Bytes of the volume for which the time limit grows by one second.
const BYTES_A_SECOND: u64 = 64 << 20;
/// Address space for an empty volume, and bytes of the volume for each further byte.
const MEMORY_LEAST: u64 = 1 << 30;
const BYTES_A_BYTE: u64 = 1 << 10;
const PAUSE: Duration = Duration::from_millis(10);
/// Bytes after which a line is cut.
const LINE_BYTES_MAX: u64 = 4096;

/// Bytes after which no line is added to a sentence.
const SENTENCE_BYTES_MAX: usize = 400;

const VOLUME: &str = "/proc/self/fd/0";

#[derive(Debug, PartialEq, Eq)]
pub enum Judgement {
    Clean,
    /// Lines that e2fsck printed, and the number of further ones.
    Errors(PrintedLines),
    /// No verdict: e2fsck could not do its work, or did not end.
    NoVerdict {
        why: String,
        printed: PrintedLines,
        /// Whether it found errors, too.
        errors: bool,
    },
    NotInstalled,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct PrintedLines {
    pub lines: Vec<String>,
    pub more: usize,
}

/// Runs e2fsck on an unmounted volume that the caller has claimed.
pub fn judge(path: &Path, journal_device: Option<&Path>) -> Result<Judgement, CliError> {
    let Ok(program) = programs::find("e2fsck") else { return Ok(Judgement::NotInstalled) };
    let system = |error| CliError::system("e2fsck", error);
    let mut volume = File::open(path).map_err(|error| CliError::system(path.display(), error))?;
    let bytes = volume.seek(SeekFrom::End(0)).map_err(system)?;
    let patience = PATIENCE_LEAST + Duration::from_secs(bytes / BYTES_A_SECOND);
    let (reader, writer) = UnixStream::pair().map_err(system)?;
    let mut command = Command::new(program);
    command.args(["-f", "-n"]);
    if let Some(device) = journal_device {
        command.arg("-j").arg(std::path::absolute(device).map_err(system)?);
    }
    // Without the administrator's configuration for boots: no log files, no other answers.
    command.arg(VOLUME).env("E2FSCK_CONFIG", "/dev/null").env("LC_ALL", "C");
    let output = writer.try_clone().map_err(system)?;
    command.stdin(volume).stdout(OwnedFd::from(output)).stderr(OwnedFd::from(writer));
    limit(&mut command, MEMORY_LEAST + bytes / BYTES_A_BYTE);
    let mut child = command.spawn().map_err(system)?;
    // The command holds the other end of the connection, which must close when the child ends.
    drop(command);
    let name = path.display().to_string();
    let reading = std::thread::spawn(move || read_lines(reader, &name));
    let ended = wait(&mut child, patience).map_err(system)?;
    let printed = reading.join().expect("reading lines does not panic");
    Ok(verdict(ended, printed, patience))
}

/// Limits the child's memory, and ends it with this process.
fn limit(command: &mut Command, memory: u64) {
    let limit = libc::rlimit { rlim_cur: memory, rlim_max: memory };
    // SAFETY: between fork and exec only calls are made that a signal handler may make.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0
                || libc::setrlimit(libc::RLIMIT_AS, &raw const limit) != 0
            {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

/// Waits. `None` if it did not end in time; it is killed then.
fn wait(child: &mut Child, patience: Duration) -> std::io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() >= patience {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(PAUSE);
    }
}

fn verdict(ended: Option<ExitStatus>, printed: PrintedLines, patience: Duration) -> Judgement {
    let no_verdict = |why: String, printed, errors| Judgement::NoVerdict { why, printed, errors };
    let Some(status) = ended else {
        let why = format!("e2fsck did not end within {} seconds", patience.as_secs());
        return no_verdict(why, printed, false);
    };
    match status.code() {
        Some(0) => Judgement::Clean,
        Some(_) if units::fault!("e2fsck-verdict-ignored") => Judgement::Clean,
        Some(ERRORS_LEFT) => Judgement::Errors(printed),
        Some(code) => {
            let why = match code & OPERATIONAL {
                0 => format!("e2fsck ended with exit code {code}"),
                _ => "e2fsck could not check it to the end".into(),
            };
            no_verdict(why, printed, code & ERRORS_LEFT != 0)
        }
        None => no_verdict(format!("e2fsck was killed ({status})"), printed, false),
    }
}

fn read_lines(reader: UnixStream, name: &str) -> PrintedLines {
    let (mut reader, mut printed) = (BufReader::new(reader), PrintedLines::default());
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return printed,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line).replace(VOLUME, name);
        match (problem_in(&text), printed.lines.len()) {
            (None, _) => {}
            // The rest of a sentence that e2fsck has broken.
            (Some(rest), 1..) if continues(&rest, name) && has_room(&printed) => {
                let last = printed.lines.len() - 1;
                printed.lines[last] += &format!(" {rest}");
            }
            (Some(_), PROBLEMS_MAX..) => printed.more += 1,
            (Some(problem), _) => printed.lines.push(problem),
        }
    }
}

/// Whether the last line is short enough to be the beginning of a sentence.
fn has_room(printed: &PrintedLines) -> bool {
    printed.lines.last().is_some_and(|line| line.len() < SENTENCE_BYTES_MAX)
}

fn continues(line: &str, name: &str) -> bool {
    line.starts_with(|first: char| first.is_ascii_lowercase()) && !line.starts_with(name)
}

/// Returns the problem in a line of e2fsck's, without the question that it answers itself.
fn problem_in(line: &str) -> Option<String> {
    let mut line = line.trim();
    let is_answered = line.ends_with("? no") || line.ends_with("? yes");
    if is_answered {
        let question = line.rfind(". ").or_else(|| line.rfind("  ")).map_or(0, |at| at + 1);
        line = line[..question].trim_end();
    }
    let is_idle = line.is_empty()
        || line == "IGNORED."
        || line.starts_with("Pass ")
        || line.starts_with("e2fsck ")
        || line.contains("Filesystem still has errors")
        || (line.contains(" files (") && line.ends_with(" blocks"));
    (!is_idle).then(|| line.chars().filter(|character| !character.is_control()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_line_gives_its_problem_without_the_question() {
        let line = "Inode 12 ref count is 2, should be 1.  Fix? no\n";
        assert_eq!(problem_in(line).unwrap(), "Inode 12 ref count is 2, should be 1.");
        assert_eq!(
            problem_in("Block bitmap differences:  -10\n").unwrap(),
            "Block bitmap differences:  -10"
        );
        for idle in [
            "\n",
            "Fix? no\n",
            "IGNORED.\n",
            "Pass 1: Checking inodes, blocks, and sizes\n",
            "e2fsck 1.47.0 (5-Feb-2023)\n",
            "x: ********** WARNING: Filesystem still has errors **********\n",
            "x: 12/64 files (0.0% non-contiguous), 24/512 blocks\n",
        ] {
            assert_eq!(problem_in(idle), None, "{idle}");
        }
    }

    #[test]
    fn every_exit_code_but_zero_is_a_fault() {
        let of =
            |raw| verdict(Some(ExitStatus::from_raw(raw)), PrintedLines::default(), PATIENCE_LEAST);
        assert_eq!(of(0), Judgement::Clean);
        assert_eq!(of(4 << 8), Judgement::Errors(PrintedLines::default()));
        let errors = |judgement| match judgement {
            Judgement::NoVerdict { errors, .. } => errors,
            other => panic!("{other:?}"),
        };
        assert!(errors(of(12 << 8)));
        for raw in [1 << 8, 8 << 8, 16 << 8, 32 << 8, libc::SIGKILL] {
            assert!(!errors(of(raw)), "{raw}");
        }
        assert!(!errors(verdict(None, PrintedLines::default(), PATIENCE_LEAST)));
    }

    #[test]
    fn what_does_not_end_is_killed_and_long_output_is_bounded() {
        let (reader, writer) = UnixStream::pair().unwrap();
        let mut command = Command::new("yes");
        command.arg("a problem").stdout(OwnedFd::from(writer));
        let mut child = command.spawn().unwrap();
        drop(command);
        let reading = std::thread::spawn(move || read_lines(reader, "x"));
        assert_eq!(wait(&mut child, Duration::from_millis(300)).unwrap(), None);
        let printed = reading.join().unwrap();
        assert!(printed.lines.len() == PROBLEMS_MAX && printed.more > 0);
    }
}
