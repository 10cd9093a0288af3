//! Reports of a daemon, and their destinations. It never waits for a reader, and a failed report
//! does not harm the mount. All files that it needs are open from the beginning.

use crate::text::local_time;
use crate::text::output::harmless;
use runtime::standard_error::{self, line_of};
use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::rc::Rc;
use std::time::Duration;

/// Importance of a report. Reports above a reporter's own level are dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Error,
    Warning,
    Info,
    Debug,
}

impl Level {
    /// Returns facility daemon (3), and the severity: syslog(3).
    fn priority(self) -> &'static str {
        match self {
            Level::Error => "<27>",
            Level::Warning => "<28>",
            Level::Info => "<30>",
            Level::Debug => "<31>",
        }
    }
    pub fn word(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

impl std::str::FromStr for Level {
    type Err = ();
    fn from_str(word: &str) -> Result<Level, ()> {
        let levels = [Level::Error, Level::Warning, Level::Info, Level::Debug];
        levels.into_iter().find(|level| level.word() == word).ok_or(())
    }
}

/// Reports to the system's log; in the foreground, to standard error; or to a file.
#[derive(Clone)]
pub struct Reporter(Rc<State>);

struct State {
    way: Way,
    level: Level,
    /// Number of reports not delivered.
    lost: Cell<u64>,
}

enum Way {
    Log {
        syslog: Option<UnixDatagram>,
        kernel: Option<File>,
    },
    /// A pipe or terminal, opened anew: whether a write waits is a property of the open file, which
    /// others share.
    Own(File),
    Shared,
    /// A file that others may write to as well: each report is one write at its end.
    File(File),
}

impl Reporter {
    pub fn open(background: bool, level: Level, file: Option<File>) -> Reporter {
        let way = if let Some(file) = file {
            // The zone's rules are read now: later no path leads to them.
            local_time::now();
            Way::File(file)
        } else if background {
            let kernel =
                OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
            Way::Log { syslog: syslog().ok(), kernel: kernel.ok() }
        } else {
            reopened(libc::STDERR_FILENO).map_or(Way::Shared, Way::Own)
        };
        Reporter(Rc::new(State { way, level, lost: Cell::new(0) }))
    }

    /// Reports an error.
    pub fn report(&self, text: &str) {
        self.report_at(Level::Error, text);
    }

    pub fn report_at(&self, level: Level, text: &str) {
        let State { way, lost, level: most } = &*self.0;
        if level > *most {
            return;
        }
        let before = match lost.get() {
            0 => String::new(),
            lost => format!(" ({lost} reports before were lost)"),
        };
        let word = match level {
            Level::Error => String::new(),
            level => format!("{}: ", level.word()),
        };
        // Names of files and volumes are in it, and a log is read at a terminal.
        let text = harmless(text);
        let text = format!("okeanos[{}]: {word}{text}{before}", std::process::id());
        let delivered = match way {
            Way::Log { syslog, kernel } => {
                let line = format!("{}{text}\n", level.priority());
                let sent = syslog.as_ref().map(|socket| socket.send(line.trim_end().as_bytes()));
                match (sent, kernel) {
                    (Some(Ok(_)), _) => true,
                    (_, Some(log)) => (&*log).write(line.as_bytes()).is_ok(),
                    _ => false,
                }
            }
            Way::File(file) => {
                let line = format!("{} {}", local_time::now(), line_of(&text));
                (&*file).write(line.as_bytes()).is_ok()
            }
            Way::Own(file) => (&*file).write(line_of(&text).as_bytes()).is_ok(),
            Way::Shared => standard_error::print_line(&text, Duration::ZERO).is_ok(),
        };
        lost.set(if delivered { 0 } else { lost.get() + 1 });
    }
}

/// Reports to the user on standard error. Waits for a reader for a moment, then gives up.
pub fn complain(text: &str) {
    const PATIENCE: Duration = Duration::from_secs(1);
    let _ = standard_error::print_line(&harmless(text), PATIENCE);
}

fn syslog() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect("/dev/log")?;
    Ok(socket)
}

fn reopened(number: libc::c_int) -> Option<File> {
    let path = format!("/proc/self/fd/{number}");
    let kind = std::fs::metadata(&path).ok()?.file_type();
    let can_wait = kind.is_fifo() || kind.is_char_device();
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    can_wait.then(|| OpenOptions::new().write(true).custom_flags(flags).open(&path).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_full_pipe_drops_reports_without_delay_and_counts_them() {
        let (mut reader, writer) = io::pipe().unwrap();
        let way = Way::Own(reopened(writer.as_raw_fd()).unwrap());
        let reporter = Reporter(Rc::new(State { way, level: Level::Error, lost: Cell::new(0) }));
        let text = "x".repeat(4096);
        for _ in 0..1000 {
            reporter.report(&text);
        }
        assert!(reporter.0.lost.get() > 900);
        let mut taken = vec![0; 1 << 20];
        assert!(reader.read(&mut taken).unwrap() > 4096);
        reporter.report("again");
        assert_eq!(reporter.0.lost.get(), 0);
        let length = reader.read(&mut taken).unwrap();
        let said = String::from_utf8_lossy(&taken[..length]);
        assert!(
            said.contains("again (9") && said.ends_with("reports before were lost)\n"),
            "{said}"
        );
    }
}
