//! Listening sockets: a Unix socket, or TCP on this machine.

use crate::connection::Socket;
use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time for which a socket whose server was killed may still answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Connections that wait to be accepted; the kernel's own limit may be lower.
const BACKLOG: i32 = 128;

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(
        "{address}: anybody who reaches that address could read and change the disk, for there is \
         no TLS: listen on 127.0.0.1, ::1 or a Unix socket, and tunnel"
    )]
    NotLoopback { address: String },
    #[error("{address}: {error}")]
    Address { address: String, error: io::Error },
    #[error("{}: another server listens there", .0.display())]
    Taken(PathBuf),
    #[error("{}: {error}", path.display())]
    Path { path: PathBuf, error: io::Error },
}

pub enum Listener {
    /// A socket file, removed at the end if it is still there.
    Unix {
        listener: UnixListener,
        /// Absolute: the server may change its working directory.
        path: PathBuf,
        identity: (u64, u64),
    },
    Tcp(TcpListener),
}

impl Listener {
    /// Replaces a socket that a killed server left behind. Only this user may connect. Two servers
    /// that begin at once may both find the one left behind, and the second then replaces the
    /// socket of the first: let them have something exclusive before.
    pub fn unix(path: &Path) -> Result<Listener, ListenError> {
        let failed = |error| ListenError::Path { path: path.to_owned(), error };
        match std::fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => {
                // The kernel closes the files of a killed process with a ring a while after its
                // end.
                let begun = Instant::now();
                loop {
                    match UnixStream::connect(path) {
                        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => break,
                        // Of another kind of socket nothing shows whether it is used.
                        Err(error) => return Err(failed(error)),
                        Ok(_) if begun.elapsed() > PATIENCE => {
                            return Err(ListenError::Taken(path.to_owned()));
                        }
                        Ok(_) => std::thread::sleep(PATIENCE / 40),
                    }
                }
                std::fs::remove_file(path).map_err(failed)?;
            }
            _ => {}
        }
        let absolute = std::path::absolute(path).map_err(failed)?;
        let listener = bind_for_this_user(path).map_err(failed)?;
        let identity = identity(path).map_err(failed)?;
        Ok(Listener::Unix { listener, path: absolute, identity })
    }

    /// Listens on `HOST:PORT`; all addresses of the host must be this machine's own.
    pub fn tcp(address: &str) -> Result<Listener, ListenError> {
        let failed = |error| ListenError::Address { address: address.to_owned(), error };
        let addresses: Vec<_> = address.to_socket_addrs().map_err(failed)?.collect();
        if addresses.is_empty() || !addresses.iter().all(|address| address.ip().is_loopback()) {
            return Err(ListenError::NotLoopback { address: address.to_owned() });
        }
        let listener = TcpListener::bind(&addresses[..]).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Listener::Tcp(listener))
    }

    /// URI for clients.
    pub fn uri(&self) -> String {
        match self {
            Listener::Unix { path, .. } => format!("nbd+unix:///?socket={}", path.display()),
            Listener::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|_| "nbd://?".to_owned(), |address| format!("nbd://{address}")),
        }
    }

    pub(crate) fn copy(&self) -> io::Result<OwnedFd> {
        Ok(match self {
            Listener::Unix { listener, .. } => listener.try_clone()?.into(),
            Listener::Tcp(listener) => listener.try_clone()?.into(),
        })
    }
    pub(crate) fn accept(&self) -> io::Result<Socket> {
        match self {
            Listener::Unix { listener, .. } => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Socket::Unix(stream))
            }
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                // Replies are small, and a client waits for each.
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix { path, identity: own, .. } = self {
            // Another server may have replaced it, or another process removed it already.
            if identity(path).is_ok_and(|found| found == *own) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Makes a listening socket whose file nobody else may connect to at any time: the file gets the
/// mode that the socket has when it is bound.
fn bind_for_this_user(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Returns device and inode of a socket file.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_listened_to() {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:10809"] {
            assert!(
                matches!(Listener::tcp(address), Err(ListenError::NotLoopback { .. })),
                "{address}"
            );
        }
        assert!(
            Listener::tcp("127.0.0.1:0")
                .is_ok_and(|listener| listener.uri().starts_with("nbd://127.0.0.1:"))
        );
        assert!(matches!(Listener::tcp("nonsense"), Err(ListenError::Address { .. })));
    }
    #[test]
    fn a_socket_in_use_stays_and_one_left_behind_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let first = Listener::unix(&path).unwrap();
        assert!(matches!(Listener::unix(&path), Err(ListenError::Taken(_))));
        drop(first);
        drop(UnixListener::bind(&path).unwrap());
        drop(Listener::unix(&path).unwrap());
        assert!(!path.exists());
        std::fs::write(&path, "a file of somebody").unwrap();
        assert!(Listener::unix(&path).is_err());
        assert!(path.exists());
    }
    #[test]
    fn the_socket_of_another_server_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let first = Listener::unix(&path).unwrap();
        // As a server that began at once with it.
        std::fs::remove_file(&path).unwrap();
        let second = Listener::unix(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }
    #[test]
    fn nobody_else_may_connect_from_the_first_moment_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let bound = bind_for_this_user(&path).unwrap();
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().mode() & 0o777, 0o600);
        drop(bound);
    }
}
