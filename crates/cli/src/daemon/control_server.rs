//! The daemon's side of the control socket, on its ring.

use crate::daemon::control::{Ask, End, make_directory, socket_directory, socket_name, user_of};
use crate::error::CliError;
use device::{LocalFuture, World};
use runtime::{File, RealWorld, race};
use rustix::fs::{AtFlags, renameat, statat, unlinkat};
use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use units::Instant;

/// Maximum length of a request line.
const LINE_MAX: usize = 1024;
/// Maximum number of connections.
const CLIENTS_MAX: usize = 64;
/// Maximum number of public connections among these.
const PUBLIC_CLIENTS_MAX: usize = 8;
/// Time for which a public reply is served from memory, so that frequent queries cost nothing.
const FRESH: Duration = Duration::from_secs(1);
/// Pause after a failed accept(2), as without a free descriptor.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);
/// Interval between public connections, all users together.
const PUBLIC_PAUSE: Duration = Duration::from_millis(20);
/// Time limit of a public query.
const PUBLIC_PATIENCE: Duration = Duration::from_secs(2);
/// Descriptors of one connection: the socket, and the copy that the ring watches.
const CLIENT_DESCRIPTORS: usize = 2;

/// Function that gives the first reply to each request.
pub type Answers = dyn Fn(Ask) -> LocalFuture<serde_json::Value>;

/// A listening socket under a temporary name. What it needs is open: the mount may cover its
/// directory.
pub struct ControlSocket {
    listener: UnixListener,
    directory: fs::File,
    /// Name in the directory.
    name: CString,
    is_public: bool,
}

/// Returns the reason not to mount: no unmount could be requested.
pub fn no_control(error: io::Error) -> CliError {
    let remedy = match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => "Close some files, or allow more: see `ulimit -n`.",
        _ => {
            "See who may write to the directory of the sockets, and whether its file system has \
             room."
        }
    };
    let at = socket_directory();
    CliError::system(format!("control socket in {}", at.display()), error).with_remedy(remedy)
}

pub struct ControlServer {
    world: RealWorld,
    socket: ControlSocket,
    /// Inode of the socket's file. The next mount may have got this device number, and put its own
    /// socket there.
    inode: u64,
    answers: Box<Answers>,
    clients: Cell<usize>,
    clients_max: usize,
    /// Users connected through the public socket: one connection each.
    users: RefCell<Vec<u32>>,
    /// Fresh replies of the public socket.
    answered: RefCell<Vec<Answered>>,
    /// Clients that wait for the end.
    waiting: RefCell<Vec<Rc<UnixStream>>>,
}

/// A cached reply.
struct Answered {
    ask: Ask,
    line: Vec<u8>,
    until: Instant,
}

impl ControlSocket {
    /// Binds a socket in `directory`, for a mount that has no number yet.
    pub fn bind(directory: &Path) -> io::Result<ControlSocket> {
        ControlSocket::bind_with(directory, false)
    }

    /// Binds a socket for everybody, for queries alone.
    pub fn bind_public(directory: &Path) -> io::Result<ControlSocket> {
        ControlSocket::bind_with(directory, true)
    }

    fn bind_with(directory: &Path, is_public: bool) -> io::Result<ControlSocket> {
        let (directory_mode, mode) = if is_public { (0o755, 0o666) } else { (0o700, 0o600) };
        make_directory(directory, directory_mode)?;
        let name = format!("mounting-{}.sock", std::process::id());
        let path = directory.join(&name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        sweep(directory);
        // Opened first: without a descriptor for it, no socket is left behind.
        let opened = fs::File::open(directory)?;
        // The directory belongs to this user alone, so nobody connects before the mode is set.
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        listener.set_nonblocking(true)?;
        Ok(ControlSocket { listener, directory: opened, name: CString::new(name)?, is_public })
    }

    /// Renames the socket, replacing that of a killed daemon.
    fn rename(&mut self, name: &str) -> io::Result<()> {
        let new = CString::new(name)?;
        renameat(&self.directory, &self.name, &self.directory, &new)?;
        self.name = new;
        Ok(())
    }

    /// Returns the inode that has this name now.
    fn inode(&self) -> io::Result<u64> {
        Ok(statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW)?.st_ino)
    }

    fn remove(&self) {
        let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}

/// Removes the sockets of daemons that were killed while they mounted. A daemon of another process
/// namespace, which has no process here, listens on its own.
fn sweep(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process =
            name.to_str().and_then(|it| it.strip_prefix("mounting-")?.strip_suffix(".sock"));
        let has_ended = process.is_some_and(|it| !Path::new("/proc").join(it).exists());
        let is_refused = || {
            UnixStream::connect(entry.path())
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        if has_ended && is_refused() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Removes the temporary name when the mount has failed.
impl Drop for ControlSocket {
    fn drop(&mut self) {
        if self.name.as_bytes().starts_with(b"mounting-") {
            self.remove();
        }
    }
}

impl ControlServer {
    /// Starts serving under the mount's device number.
    pub fn start(
        world: &RealWorld,
        mut socket: ControlSocket,
        device: (u32, u32),
        answers: Box<Answers>,
    ) -> io::Result<Rc<ControlServer>> {
        let watched = watched(&socket.listener)?;
        // An unmount must get through, whatever limit there is.
        let all = spare_descriptors(CLIENTS_MAX * CLIENT_DESCRIPTORS) / CLIENT_DESCRIPTORS;
        let clients_max = match if socket.is_public {
            all.saturating_sub(CLIENTS_MAX - PUBLIC_CLIENTS_MAX)
        } else {
            all
        } {
            0 => return Err(io::Error::from_raw_os_error(libc::EMFILE)),
            clients => clients,
        };
        socket.rename(&socket_name(device))?;
        let inode = socket.inode()?;
        let server = Rc::new(ControlServer {
            world: world.clone(),
            socket,
            inode,
            answers,
            clients: Cell::new(0),
            clients_max,
            users: RefCell::default(),
            answered: RefCell::default(),
            waiting: RefCell::default(),
        });
        world.spawn(Box::pin(server.clone().accept(watched)));
        Ok(server)
    }

    /// Answers the waiting clients, and removes the socket.
    pub fn end(&self, end: End) {
        if self.socket.inode().is_ok_and(|found| found == self.inode) {
            self.socket.remove();
        }
        let line = line_of(&end);
        for stream in self.waiting.take() {
            let _ = (&*stream).write_all(&line);
        }
    }

    async fn accept(self: Rc<Self>, watched: File) {
        let mut ready = self.world.ring().poll(&watched, libc::POLLIN);
        loop {
            loop {
                let pause = match self.socket.listener.accept() {
                    Ok((stream, _)) => {
                        let has_room = self.clients.get() < self.clients_max;
                        if has_room && stream.set_nonblocking(true).is_ok() {
                            self.admit(stream);
                        }
                        self.socket.is_public.then_some(PUBLIC_PAUSE)
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // Others wait, and no new edge reports them.
                    Err(_) => Some(FAILURE_PAUSE),
                };
                if let Some(pause) = pause {
                    self.world.sleep_until(self.world.now().plus(pause)).await;
                }
            }
            if ready.next().await.is_err() {
                return;
            }
        }
    }

    fn admit(self: &Rc<Self>, stream: UnixStream) {
        let user = if self.socket.is_public {
            let Ok(user) = user_of(&stream) else { return };
            if self.users.borrow().contains(&user) {
                return;
            }
            self.users.borrow_mut().push(user);
            Some(user)
        } else {
            None
        };
        self.clients.set(self.clients.get() + 1);
        self.world.spawn(Box::pin(self.clone().converse(Rc::new(stream), user)));
    }

    async fn converse(self: Rc<Self>, stream: Rc<UnixStream>, user: Option<u32>) {
        // A failure of a client's connection concerns that client alone.
        if user.is_some() {
            let late = self.world.sleep_until(self.world.now().plus(PUBLIC_PATIENCE));
            drop(race(Box::pin(self.answer_lines(&stream)), late).await);
        } else {
            let _ = self.answer_lines(&stream).await;
        }
        self.waiting.borrow_mut().retain(|waiting| !Rc::ptr_eq(waiting, &stream));
        self.users.borrow_mut().retain(|asking| Some(*asking) != user);
        self.clients.set(self.clients.get() - 1);
    }

    /// Returns one reply, which every client gets for a while.
    async fn answer_everybody(&self, ask: Ask) -> Vec<u8> {
        let now = self.world.now();
        let is_fresh =
            |answered: &Answered| answered.until > now && !units::fault!("public-answer-made-anew");
        self.answered.borrow_mut().retain(is_fresh);
        let kept = |answered: &Answered| (answered.ask == ask).then(|| answered.line.clone());
        if let Some(line) = self.answered.borrow().iter().find_map(kept) {
            return line;
        }
        let line = line_of(&(self.answers)(ask).await);
        let (kept, until) = (line.clone(), self.world.now().plus(FRESH));
        self.answered.borrow_mut().push(Answered { ask, line: kept, until });
        line
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
                if self.socket.is_public {
                    if !matches!(ask, Ask::About | Ask::Stats) {
                        return Err(io::ErrorKind::PermissionDenied.into());
                    }
                    // One reply, and the next connection may begin.
                    return (&**stream).write_all(&self.answer_everybody(ask).await);
                }
                if ask == Ask::End {
                    self.waiting.borrow_mut().push(stream.clone());
                }
                // The reply fits the socket's buffer; a client that does not read loses it.
                let answer = (self.answers)(ask).await;
                (&**stream).write_all(&line_of(&answer))?;
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

/// Returns a descriptor of the same socket that the ring may own.
fn watched(socket: &impl std::os::fd::AsFd) -> io::Result<File> {
    Ok(Rc::new(socket.as_fd().try_clone_to_owned()?))
}

/// Returns how many more descriptors, up to `most`, this process may have.
fn spare_descriptors(most: usize) -> usize {
    let Ok(first) = UnixStream::pair() else { return 0 };
    let copies = std::iter::repeat_with(|| first.0.try_clone()).map_while(Result::ok);
    copies.take(most - 2).collect::<Vec<_>>().len() + 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    #[test]
    fn the_socket_of_the_next_mount_with_our_number_stays() {
        let directory = tempfile::tempdir().unwrap();
        let private = directory.path().join("private");
        let path = private.join("1-2.sock");
        let world = RealWorld::new().unwrap();
        let start = || {
            let socket = ControlSocket::bind(&private).unwrap();
            ControlServer::start(
                &world,
                socket,
                (1, 2),
                Box::new(|_| Box::pin(async { serde_json::Value::Null })),
            )
            .unwrap()
        };
        let (old, new) = (start(), start());
        let ended = || End { clean: true };
        old.end(ended());
        assert!(path.exists());
        new.end(ended());
        assert!(!path.exists());
        world.end();
    }

    #[test]
    fn a_mount_that_failed_leaves_no_socket() {
        let directory = tempfile::tempdir().unwrap();
        let private = directory.path().join("private");
        let socket = ControlSocket::bind(&private).unwrap();
        assert_eq!(fs::read_dir(&private).unwrap().count(), 1);
        drop(socket);
        assert_eq!(fs::read_dir(&private).unwrap().count(), 0);
    }

    #[test]
    fn clients_get_answers_and_notice_of_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let private = directory.path().join("private");
        let path = private.join("1-2.sock");
        let world = RealWorld::new().unwrap();
        let answers: Box<Answers> = Box::new(|ask| {
            Box::pin(async move { serde_json::json!({ "asked": format!("{ask:?}") }) })
        });
        let socket = ControlSocket::bind(&private).unwrap();
        let server = ControlServer::start(&world, socket, (1, 2), answers).unwrap();
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
    #[test]
    fn the_public_socket_answers_from_memory_and_drops_the_silent() {
        let directory = tempfile::tempdir().unwrap();
        let public = directory.path().join("public");
        let path = public.join("1-2.sock");
        let world = RealWorld::new().unwrap();
        let asked = Rc::new(Cell::new(0));
        let counted = asked.clone();
        let answers: Box<Answers> = Box::new(move |_| {
            counted.set(counted.get() + 1);
            let number = counted.get();
            Box::pin(async move { serde_json::json!({ "number": number }) })
        });
        let socket = ControlSocket::bind_public(&public).unwrap();
        let server = ControlServer::start(&world, socket, (1, 2), answers).unwrap();
        let client = std::thread::spawn(move || {
            let converse = |line: &[u8]| {
                let mut stream = UnixStream::connect(&path).unwrap();
                // Of two connections of one user one may end before its query.
                let _ = stream.write_all(line);
                let mut heard = String::new();
                let _ = BufReader::new(stream).read_line(&mut heard);
                heard
            };
            let begun = std::time::Instant::now();
            let heard: Vec<String> = (0..20).map(|_| converse(b"{\"ask\":\"stats\"}\n")).collect();
            let took = begun.elapsed();
            let silent = UnixStream::connect(&path).unwrap();
            // The second connection of the same user.
            std::thread::sleep(Duration::from_millis(100));
            let second = converse(b"{\"ask\":\"stats\"}\n");
            let ended = (&silent).read(&mut [0; 9]).unwrap();
            let order = converse(b"{\"ask\":\"end\"}\n");
            let again = converse(b"{\"ask\":\"stats\"}\n");
            (heard, took, second, ended, order, again)
        });
        let inner = world.clone();
        let (heard, took, second, ended, order, again) = world.run(async move {
            while !client.is_finished() {
                inner.sleep_until(inner.now().plus(Duration::from_millis(5))).await;
            }
            client.join().unwrap()
        });
        drop(server);
        world.end();
        let answered = heard.iter().filter(|line| !line.is_empty()).count();
        assert!(answered > 10, "{heard:?}");
        let fresh = 2 + (took.as_millis() / FRESH.as_millis()) as usize;
        assert!(asked.get() <= fresh + 1, "{} answers were made in {took:?}", asked.get());
        assert_eq!((second.as_str(), ended, order.as_str()), ("", 0, ""));
        assert!(again.contains("number"), "{again}");
    }
}
