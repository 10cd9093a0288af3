//! The daemon's end of the control socket, on the same ring as everything else.

use crate::control::{Ask, End, make_directory};
use device::World;
use runtime::{File, RealWorld};
use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::rc::Rc;

/// Longer lines are no asks of ours.
const LINE_MAX: usize = 1024;
/// Conversations at a time.
const CLIENTS_MAX: usize = 64;

/// Gives the first answer to each ask.
pub type Answers = dyn Fn(Ask) -> serde_json::Value;

pub struct ControlServer {
    world: RealWorld,
    path: PathBuf,
    /// Of the socket's file. The next mount may have got our device number, and put its own socket there.
    inode: u64,
    answers: Box<Answers>,
    clients: Cell<usize>,
    /// Those who wait for the end.
    waiting: RefCell<Vec<Rc<UnixStream>>>,
}

impl ControlServer {
    /// Listens on `path` from now on. A socket left behind by a daemon that was killed is replaced.
    pub fn start(world: &RealWorld, path: PathBuf, answers: Box<Answers>) -> io::Result<Rc<ControlServer>> {
        make_directory(&path)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The directory is ours alone, so nobody comes in before the mode is set.
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let inode = std::fs::metadata(&path)?.ino();
        let server = Rc::new(ControlServer {
            world: world.clone(),
            path,
            inode,
            answers,
            clients: Cell::new(0),
            waiting: RefCell::default(),
        });
        world.spawn(Box::pin(server.clone().accept(listener)));
        Ok(server)
    }

    /// Tells those who wait, and takes the socket away.
    pub fn end(&self, end: End) {
        if std::fs::metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
        let line = line_of(&end);
        for stream in self.waiting.take() {
            let _ = (&*stream).write_all(&line);
        }
    }

    async fn accept(self: Rc<Self>, listener: UnixListener) {
        let Ok(watched) = watched(&listener) else { return };
        let mut ready = self.world.ring().poll(&watched, libc::POLLIN);
        loop {
            while let Ok((stream, _)) = listener.accept() {
                if self.clients.get() < CLIENTS_MAX && stream.set_nonblocking(true).is_ok() {
                    self.clients.set(self.clients.get() + 1);
                    self.world.spawn(Box::pin(self.clone().converse(Rc::new(stream))));
                }
            }
            if ready.next().await.is_err() {
                return;
            }
        }
    }

    async fn converse(self: Rc<Self>, stream: Rc<UnixStream>) {
        // Whatever goes wrong with a client is the client's problem.
        let _ = self.answer_lines(&stream).await;
        self.waiting.borrow_mut().retain(|waiting| !Rc::ptr_eq(waiting, &stream));
        self.clients.set(self.clients.get() - 1);
    }

    async fn answer_lines(&self, stream: &Rc<UnixStream>) -> io::Result<()> {
        let watched = watched(&**stream)?;
        let mut ready = self.world.ring().poll(&watched, libc::POLLIN);
        let mut lines = Vec::new();
        loop {
            let mut chunk = [0; LINE_MAX];
            match (&**stream).read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(count) => lines.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.next().await?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            while let Some(end) = lines.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = lines.drain(..=end).collect();
                let ask = serde_json::from_slice(&line)?;
                if ask == Ask::End {
                    self.waiting.borrow_mut().push(stream.clone());
                }
                // The answer fits the socket's buffer; a client that does not read loses it.
                (&**stream).write_all(&line_of(&(self.answers)(ask)))?;
            }
            if lines.len() > LINE_MAX {
                return Ok(());
            }
        }
    }
}

fn line_of(value: &impl serde::Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("plain values become JSON");
    line.push(b'\n');
    line
}

/// A descriptor of the same socket that the ring may hold on to.
fn watched(socket: &impl std::os::fd::AsFd) -> io::Result<File> {
    Ok(Rc::new(socket.as_fd().try_clone_to_owned()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    #[test]
    fn the_socket_of_the_next_mount_with_our_number_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("private/1-2.sock");
        let world = RealWorld::new().unwrap();
        let start =
            || ControlServer::start(&world, path.clone(), Box::new(|_| serde_json::Value::Null)).unwrap();
        let (old, new) = (start(), start());
        let ended = || End { clean: true };
        old.end(ended());
        assert!(path.exists());
        new.end(ended());
        assert!(!path.exists());
        world.end();
    }

    #[test]
    fn clients_are_answered_and_told_of_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("private/1-2.sock");
        let world = RealWorld::new().unwrap();
        let answers = |ask| serde_json::json!({ "asked": format!("{ask:?}") });
        let server = ControlServer::start(&world, path.clone(), Box::new(answers)).unwrap();
        let client = std::thread::spawn({
            let path = path.clone();
            move || {
                let mut stream = UnixStream::connect(&path).unwrap();
                let mut garbage = UnixStream::connect(&path).unwrap();
                garbage.write_all(b"what?\n").unwrap();
                stream.write_all(b"{\"ask\":\"stats\"}\n{\"ask\":\"end\"}\n").unwrap();
                let lines = BufReader::new(stream).lines().take(3);
                lines.map(Result::unwrap).collect::<Vec<_>>()
            }
        });
        let inner = (world.clone(), server.clone());
        world.run(async move {
            let (world, server) = inner;
            for _ in 0..1000 {
                if !server.waiting.borrow().is_empty() {
                    return;
                }
                let soon = world.now().plus(std::time::Duration::from_millis(5));
                world.sleep_until(soon).await;
            }
            panic!("nobody waits for the end");
        });
        server.end(End { clean: true });
        world.end();
        drop(server);
        let heard = client.join().unwrap();
        assert_eq!(heard, [r#"{"asked":"Stats"}"#, r#"{"asked":"End"}"#, r#"{"clean":true}"#]);
        assert!(!path.exists());
    }
}
