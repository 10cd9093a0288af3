//! Start in the background, and obligations of a daemon in the kernel's write-back path.

pub mod control;
pub mod control_server;
mod descriptors;
pub mod file_size;
pub mod held_mount;
pub mod holders;
pub mod io_path;
pub mod memory;
pub mod mount_helper;
pub mod mount_table;
pub mod mounted;
mod own_namespace;
pub mod privileges;
pub mod reporter;

use crate::error::CliError;
use descriptors::close_all_but;
use fuse_session::SessionError;
use runtime::standard_error;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, setsid};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Returns the error of a session that ended before the kernel's first request was answered.
pub fn ended_at_once(ended: &Option<Result<(), SessionError>>) -> CliError {
    match ended {
        Some(Err(error)) => CliError::new(error.to_string()),
        _ => CliError::new("the mount was taken away, or its connection aborted, before it began"),
    }
}

/// Returns the error of a daemon that ended before everything was on its disk.
pub fn not_home(source: impl std::fmt::Display) -> CliError {
    CliError::new(format!("{source}: not everything was written home"))
}

/// Reports how the start went to the process that started the daemon.
pub struct StartNotifier {
    background: Option<Background>,
    /// Write end of the pipe to the process that [`accompany`] made.
    companion: Option<File>,
    /// systemd, for a unit of Type=notify: sd_notify(3).
    manager: Option<UnixDatagram>,
    warnings: Vec<String>,
}

struct Background {
    to_starter: File,
    /// `/dev/null`, opened before the mount may cover it.
    null: Option<File>,
}

/// The two processes that [`detach`] makes of one.
pub enum Side {
    /// The process that waits for the other.
    Starter(Starter),
    Daemon(StartNotifier),
}

/// The process that the user started, waiting.
pub struct Starter(File);

/// Forks. Call it before anything that a fork does not share: rings, threads.
pub fn detach() -> Result<Side, CliError> {
    let system = |error| CliError::system("cannot start the daemon", error);
    let (from_daemon, to_starter) = pipe().map_err(system)?;
    let starter = std::process::id();
    // SAFETY: the process has one thread, so the child finds everything in order.
    match unsafe { libc::fork() } {
        -1 => Err(system(io::Error::last_os_error())),
        0 => {
            end_with(starter);
            // Descriptors of the caller belong to the caller: its locks, and the ends of its pipes.
            close_all_but(to_starter.as_raw_fd());
            std::mem::forget(from_daemon);
            // Cannot fail right after a fork.
            let _ = setsid();
            let null = OpenOptions::new().read(true).write(true).open("/dev/null").ok();
            Ok(Side::Daemon(StartNotifier {
                background: Some(Background { to_starter, null }),
                companion: None,
                manager: None,
                warnings: Vec::new(),
            }))
        }
        _ => Ok(Side::Starter(Starter(from_daemon))),
    }
}

/// Has this process get SIGTERM when its starter ends: a user who interrupts a long recovery finds
/// nothing mounted later.
fn end_with(starter: u32) {
    // SAFETY: the calls take integers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
        // It may have ended before the call.
        if libc::getppid() as u32 != starter {
            libc::_exit(1);
        }
    }
}

/// Ends the effect of [`end_with`], once the volume is mounted.
fn outlive_the_starter() {
    // SAFETY: the call takes integers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
}

/// Forks a companion that waits until this process, which stays in the foreground, is up. Nobody
/// has to wait for the companion. It, not the daemon, reports to the service
/// manager. Call it before anything that a fork does not share: rings, threads.
pub fn accompany() -> Result<Side, CliError> {
    let system = |error| CliError::system("cannot start the daemon", error);
    let (from_daemon, to_companion) = pipe().map_err(system)?;
    // SAFETY: the process has one thread, so each child finds everything in order.
    match unsafe { libc::fork() } {
        -1 => Err(system(io::Error::last_os_error())),
        // SAFETY: as above; the process between the two only ends.
        0 => match unsafe { libc::fork() } {
            0 => Ok(Side::Starter(Starter(from_daemon))),
            // SAFETY: _exit runs nothing of this process.
            child => unsafe { libc::_exit(i32::from(child < 0)) },
        },
        between => {
            let mut status = 0;
            // SAFETY: the status outlives the call.
            let ended = unsafe { libc::waitpid(between, &raw mut status, 0) };
            if ended != between || status != 0 {
                return Err(CliError::new("cannot start the daemon: no process could be made"));
            }
            Ok(Side::Daemon(StartNotifier {
                background: None,
                companion: Some(to_companion),
                manager: None,
                warnings: Vec::new(),
            }))
        }
    }
}

/// Begins the daemon's message if it is up. No error does.
const UP: &str = "\0";

impl Starter {
    /// Waits until the daemon is up, or has failed.
    pub fn wait(mut self) -> Result<(), CliError> {
        let mut message = String::new();
        let read = self.0.read_to_string(&mut message);
        match (read, message.strip_prefix(UP)) {
            (Ok(_), Some(warnings)) => {
                warnings
                    .lines()
                    .for_each(|line| reporter::complain(&format!("okeanos: warning: {line}")));
                Ok(())
            }
            (Ok(_), _) if !message.is_empty() => Err(CliError::new(message)),
            _ => Err(CliError::new("the daemon died before the volume was mounted")
                .with_remedy("Mount with -f to see why.")),
        }
    }
}

impl StartNotifier {
    /// Returns the notifier of a foreground program: no process waits, but a service manager may.
    pub fn foreground() -> StartNotifier {
        let warnings = Vec::new();
        StartNotifier { background: None, companion: None, manager: manager(), warnings }
    }
    pub fn is_background(&self) -> bool {
        self.background.is_some()
    }
    /// Adds a warning of one line for the process that waits. A daemon in the background has no
    /// terminal.
    pub fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }
    /// Reports that the volume is mounted. From here on the daemon has no terminal. The waiting
    /// process gets these warnings and those added before, a line each.
    pub fn up(mut self, warnings: &[String]) {
        self.warnings.extend_from_slice(warnings);
        if let Some(manager) = &self.manager {
            let _ = manager.send(b"READY=1");
        }
        if let Some(mut companion) = self.companion {
            let _ = companion.write_all(UP.as_bytes());
        }
        if let Some(Background { mut to_starter, null }) = self.background {
            if let Some(null) = null {
                for standard in 0..3 {
                    // SAFETY: both descriptors are open, and nobody owns the standard ones.
                    unsafe { libc::dup2(null.as_raw_fd(), standard) };
                }
            }
            outlive_the_starter();
            // A starter that is killed now reads nothing; the mount stands all the same.
            let _ = to_starter.write_all(format!("{UP}{}", self.warnings.join("\n")).as_bytes());
        }
    }
    /// Sends the error to the process that will print it.
    pub fn failed(self, error: CliError) -> Result<(), CliError> {
        match self.background {
            None => Err(error),
            Some(Background { mut to_starter, .. }) => {
                let _ = to_starter.write_all(error.to_string().as_bytes());
                std::process::exit(1)
            }
        }
    }
}

fn manager() -> Option<UnixDatagram> {
    let address = std::env::var_os("NOTIFY_SOCKET")?;
    let address = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name).ok()?,
        None => SocketAddr::from_pathname(address).ok()?,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&address).ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

/// Prepares a daemon in the kernel's write-back path: requests precedence, and locks memory. Call
/// it before the mount, which may cover `/proc`. Returns a warning of what root was refused.
pub fn settle_in_for_write_back() -> Option<String> {
    let refused: Vec<&str> = settle_in().into_iter().chain(memory::lock()).collect();
    memory::warning(&refused)
}

/// Prepares like [`settle_in_for_write_back`], without locking memory: for a daemon whose memory is
/// the disk that it serves.
pub fn settle_in() -> Vec<&'static str> {
    standard_error::print_panics_without_waiting();
    // Keeps no file system busy, least of all the daemon's own.
    let _ = std::env::set_current_dir("/");
    memory::ask_for_precedence()
}

/// Raises the limit of open files as far as an ordinary user may; returns the limit.
pub fn allow_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    raised.map_or(limit.current, |()| limit.maximum).unwrap_or(u64::MAX)
}

fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both descriptors are new, so nobody else owns them.
    let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    Ok((read.into(), write.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(say: impl FnOnce(File)) -> Result<(), String> {
        let (read, write) = pipe().unwrap();
        say(write);
        Starter(read).wait().map_err(|error| error.to_string())
    }

    #[test]
    fn the_starter_learns_how_it_went() {
        let heard_text = |text: String| heard(|mut pipe| pipe.write_all(text.as_bytes()).unwrap());
        assert_eq!(heard_text(UP.into()), Ok(()));
        assert_eq!(heard_text(format!("{UP}but be warned")), Ok(()));
        for failure in ["no such volume", "up.img: no such volume"] {
            assert_eq!(heard_text(failure.into()), Err(failure.into()));
        }
        assert!(heard(drop).unwrap_err().contains("died"));
    }
}
