//! What a daemon has to tell, and where: it never waits for whoever should read it, and nothing that goes wrong with
//! telling harms the mount. All that it needs is open from the beginning.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::rc::Rc;

/// Facility daemon (3), severity error (3): syslog(3).
const PRIORITY: &str = "<27>";
/// A pipe that can be written to at all takes this much (PIPE_BUF).
const TEXT_MAX: usize = 4096;
const STANDARD_ERROR: libc::c_int = 2;

/// Tells the system's log; in the foreground, standard error.
#[derive(Clone)]
pub struct Reporter(Rc<State>);

struct State {
    way: Way,
    /// Reports that nobody took.
    lost: Cell<u64>,
}

enum Way {
    Log {
        syslog: Option<UnixDatagram>,
        kernel: Option<File>,
    },
    /// The same pipe or terminal, opened anew: whether a write waits is a property of the open file, which others share.
    Own(File),
    Shared,
}

impl Reporter {
    pub fn open(background: bool) -> Reporter {
        let way = if background {
            let kernel = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
            Way::Log { syslog: syslog().ok(), kernel: kernel.ok() }
        } else {
            reopened(STANDARD_ERROR).map_or(Way::Shared, Way::Own)
        };
        Reporter(Rc::new(State { way, lost: Cell::new(0) }))
    }

    pub fn tell(&self, text: &str) {
        let State { way, lost } = &*self.0;
        let before = match lost.get() {
            0 => String::new(),
            lost => format!(" ({lost} reports before were lost)"),
        };
        let text = format!("okeanos[{}]: {text}{before}", std::process::id());
        let told = match way {
            Way::Log { syslog, kernel } => {
                let line = format!("{PRIORITY}{text}\n");
                let told = syslog.as_ref().map(|socket| socket.send(line.trim_end().as_bytes()));
                match (told, kernel) {
                    (Some(Ok(_)), _) => true,
                    (_, Some(log)) => (&*log).write(line.as_bytes()).is_ok(),
                    _ => false,
                }
            }
            Way::Own(file) => (&*file).write(line_of(&text).as_bytes()).is_ok(),
            Way::Shared => write_if_ready(&line_of(&text), 0).is_ok(),
        };
        lost.set(if told { 0 } else { lost.get() + 1 });
    }
}

/// Tells the user by standard error. Waits for a reader for a moment, and does without.
pub fn complain(text: &str) {
    const PATIENCE_MILLISECONDS: libc::c_int = 1000;
    let _ = write_if_ready(&line_of(text), PATIENCE_MILLISECONDS);
}

fn line_of(text: &str) -> String {
    let end = (0..TEXT_MAX.min(text.len() + 1)).rev().find(|&end| text.is_char_boundary(end));
    format!("{}\n", &text[..end.unwrap_or(0)])
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

fn write_if_ready(line: &str, patience: libc::c_int) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: STANDARD_ERROR, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one live structure.
    if unsafe { libc::poll(&raw mut poll, 1, patience) } != 1 {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the bytes are live and as long as said.
    if unsafe { libc::send(STANDARD_ERROR, line.as_ptr().cast(), line.len(), flags) } >= 0 {
        return Ok(());
    }
    // SAFETY: the descriptor is open or the write fails; it is not closed here.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(STANDARD_ERROR) });
    debug_assert_eq!(file.as_raw_fd(), STANDARD_ERROR);
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOTSOCK) => (&*file).write(line.as_bytes()).map(drop),
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_full_pipe_costs_reports_and_no_time_and_the_next_reader_learns_of_it() {
        let (mut reader, writer) = io::pipe().unwrap();
        let way = Way::Own(reopened(writer.as_raw_fd()).unwrap());
        let reporter = Reporter(Rc::new(State { way, lost: Cell::new(0) }));
        let text = "x".repeat(TEXT_MAX);
        for _ in 0..1000 {
            reporter.tell(&text);
        }
        assert!(reporter.0.lost.get() > 900);
        let mut taken = vec![0; 1 << 20];
        assert!(reader.read(&mut taken).unwrap() > TEXT_MAX);
        reporter.tell("again");
        assert_eq!(reporter.0.lost.get(), 0);
        let length = reader.read(&mut taken).unwrap();
        let said = String::from_utf8_lossy(&taken[..length]);
        assert!(said.contains("again (9") && said.ends_with("reports before were lost)\n"), "{said}");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(line_of(""), "\n");
        assert_eq!(line_of("told"), "told\n");
        let line = line_of(&"é".repeat(TEXT_MAX));
        assert!(line.len() <= TEXT_MAX && line.len() > TEXT_MAX - 4, "{}", line.len());
    }
}
