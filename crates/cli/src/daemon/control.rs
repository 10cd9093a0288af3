//! Control connection to a running daemon: a socket named after the mount's device number, one JSON
//! object a line.
//!
//! Requests: `{"ask":"about"}` identifies the daemon; `{"ask":"stats"}`; `{"ask":"end"}` is
//! answered like about and, when the daemon ends, with `{"clean":true}` if everything is home. The
//! socket belongs to the user who mounted (mode 0600).

use crate::daemon::mount_table::{self, Liveness, Mount};
use crate::daemon::own_namespace;
use crate::error::CliError;
use crate::look::has_no_journal;
use crate::text::shell::word;
use nbd::Backend;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
pub enum Ask {
    About,
    Stats,
    End,
    /// Begins a checkpoint, behind one that is running; answered at once, with its number and the
    /// progress of the running one.
    Checkpoint,
    Checkpointing,
    /// Takes all of a disk that has become longer; answered with `{"exported_bytes":N}`, or with
    /// `{"error":"…"}`.
    Grow,
    /// `{"ask":"change",…}`: changes what may change while the volume is mounted; answered like
    /// about, or with `{"error":"…"}`.
    Change(Live),
}

/// Settings that may change while the volume is mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Live {
    pub read_only: bool,
    pub atime: AccessTimes,
    pub stop_on_error: bool,
    pub commit: Duration,
    /// Whether barriers are kept.
    pub barrier: bool,
}

/// Reply to [`Ask::Change`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Changed {
    Refused { error: String },
    Done(About),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessTimes {
    Never,
    Relative,
    Always,
}

/// Mode that a host's daemon reports: it has no `data=`.
pub const HOST: &str = "host";

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct About {
    pub process: u32,
    pub version: String,
    /// Path in readable form: JSON holds no paths that are not UTF-8.
    pub source: String,
    pub directory: String,
    pub data: String,
    /// Options behind `-o` that the volume was mounted with.
    #[serde(default)]
    pub options: Vec<String>,
    #[serde(default)]
    pub live: Option<Live>,
}

impl About {
    /// Returns the public part: what `/proc/mounts` shows of the mount, where its device is called
    /// `source`.
    pub fn for_everybody(self, source: &str) -> About {
        About { process: 0, source: source.to_owned(), options: Vec::new(), live: None, ..self }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct End {
    pub clean: bool,
}

/// Returns this user's socket directory: the first place that belongs to the user, or can.
pub fn socket_directory() -> PathBuf {
    let user = geteuid().as_raw();
    if user == 0 {
        return PathBuf::from("/run/okeanos");
    }
    // After su(1) it may belong to another user.
    let is_ours =
        |directory: &PathBuf| fs::metadata(directory).is_ok_and(|found| found.uid() == user);
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(is_ours) {
        Some(directory) => directory.join("okeanos"),
        None => usual_place(Path::new(TEMPORARY), user),
    }
}

/// Returns the directory of attached block volumes' files.
pub fn blocks_directory() -> PathBuf {
    socket_directory().join("blocks")
}

/// Paths of ublk devices without their numbers: of the block device, and of the daemon's.
const UBLK: &str = "/dev/ublkb";
const UBLK_OF_DAEMON: &str = "/dev/ublkc";
/// Extension of the link that names a volume's ublk device.
const UBLK_LINK: &str = "ublk";
/// Extension of the link whose text identifies the disk behind that device.
const DISK_LINK: &str = "disk";

/// Extension of the link that names a driver's device which was made over a volume that lacked some
/// of what was committed.
const UNCHECKED_LINK: &str = "unchecked";

/// Path of devices of the kernel's NBD client without their numbers.
const NBD: &str = "/dev/nbd";

/// A block device whose driver passes the requests to the daemon, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriverDevice {
    Ublk(u32),
    Nbd(u32),
}

impl DriverDevice {
    pub fn path(self) -> PathBuf {
        PathBuf::from(match self {
            DriverDevice::Ublk(number) => format!("{UBLK}{number}"),
            DriverDevice::Nbd(number) => format!("{NBD}{number}"),
        })
    }
}

/// The directory in which the file of an attached block volume appears.
pub struct Place(pub PathBuf);

impl Place {
    /// Returns the directory of an attached volume by its mount.
    pub fn of_mount(mount: &Mount) -> Option<Place> {
        let is_ours = mount.directory.starts_with(blocks_directory());
        is_ours.then(|| Place(mount.directory.clone()))
    }

    /// Returns the directory of the volume attached as this block device.
    pub fn behind(device: &Path) -> Option<Place> {
        let of_driver = Place::behind_ublk(device).or_else(|| Place::behind_nbd(device));
        if of_driver.is_some() {
            return of_driver;
        }
        let file = mount_table::behind(device);
        let directory = file.parent().filter(|_| file != device)?;
        directory.starts_with(blocks_directory()).then(|| Place(directory.into()))
    }

    /// Returns the loop device on its file, whether or not the file answers.
    pub fn loop_device(&self) -> Option<PathBuf> {
        let found = std::fs::read_dir("/sys/block").ok()?.filter_map(Result::ok);
        let devices = found.map(|entry| Path::new("/dev").join(entry.file_name()));
        let mut loops = devices.filter(|device| {
            device.to_string_lossy().starts_with("/dev/loop")
                && mount_table::behind(device).parent() == Some(&self.0)
        });
        loops.next()
    }

    /// Returns the block device of the volume, whether or not it answers.
    pub fn block_device(&self) -> Option<PathBuf> {
        let of_driver = self.driver_device().map(DriverDevice::path).filter(|path| path.exists());
        of_driver.or_else(|| self.loop_device())
    }

    /// Returns the driver device that was made for the volume, if it may still be there. The kernel
    /// names the volume of an NBD device; a link beside the directory names the ublk device.
    pub fn driver_device(&self) -> Option<DriverDevice> {
        let nbd = || Backend::of_volume(&self.uuid()).map(DriverDevice::Nbd);
        self.ublk_number().map(DriverDevice::Ublk).or_else(nbd)
    }

    /// Returns the number of the ublk device that was made for the volume, if there is one with
    /// this number.
    pub fn ublk_number(&self) -> Option<u32> {
        let linked = fs::read_link(self.ublk_link()).ok()?;
        let number: u32 = linked.to_str()?.strip_prefix(UBLK)?.parse().ok()?;
        Path::new(&format!("{UBLK_OF_DAEMON}{number}")).exists().then_some(number)
    }

    /// Names the ublk device of the volume, and records which disk is behind it.
    pub fn link_ublk(&self, number: u32, disk: &str) -> io::Result<()> {
        self.unlink_ublk();
        std::os::unix::fs::symlink(disk, self.0.with_extension(DISK_LINK))?;
        std::os::unix::fs::symlink(DriverDevice::Ublk(number).path(), self.ublk_link())
    }

    /// Returns the disk that [`Place::link_ublk`] recorded.
    pub fn disk_of_ublk(&self) -> Option<String> {
        let disk = fs::read_link(self.0.with_extension(DISK_LINK)).ok()?;
        disk.to_str().map(str::to_owned)
    }

    pub fn unlink_ublk(&self) {
        // There may be none.
        let _ = fs::remove_file(self.ublk_link());
        let _ = fs::remove_file(self.0.with_extension(DISK_LINK));
    }

    /// Records that the volume lacked some of what was committed when this device was made over it:
    /// the device has acknowledged nothing of that.
    pub fn mark_unchecked(&self, device: DriverDevice) -> io::Result<()> {
        if self.is_marked_unchecked(device) {
            return Ok(());
        }
        self.unmark_unchecked();
        std::os::unix::fs::symlink(device.path(), self.0.with_extension(UNCHECKED_LINK))
    }

    /// Returns whether [`Place::mark_unchecked`] has recorded that of this device.
    pub fn is_marked_unchecked(&self, device: DriverDevice) -> bool {
        let marked = fs::read_link(self.0.with_extension(UNCHECKED_LINK));
        marked.is_ok_and(|marked| marked == device.path())
    }

    pub fn unmark_unchecked(&self) {
        // It may not be marked.
        let _ = fs::remove_file(self.0.with_extension(UNCHECKED_LINK));
    }

    /// Path of the link, beside the directory, which a mount covers.
    fn ublk_link(&self) -> PathBuf {
        self.0.with_extension(UBLK_LINK)
    }

    fn behind_ublk(device: &Path) -> Option<Place> {
        let device = device.canonicalize().ok().filter(|path| path.starts_with("/dev"))?;
        let links = fs::read_dir(blocks_directory()).ok()?.flatten().map(|entry| entry.path());
        let mut links = links.filter(|path| path.extension().is_some_and(|it| it == UBLK_LINK));
        let link = links.find(|path| fs::read_link(path).is_ok_and(|linked| linked == device))?;
        Some(Place(link.with_extension("")))
    }

    fn behind_nbd(device: &Path) -> Option<Place> {
        let device = device.canonicalize().ok()?;
        let number = device.to_str()?.strip_prefix(NBD)?.parse().ok()?;
        let backend = Backend::of_device(number)?;
        Some(Place(blocks_directory().join(backend.volume)))
    }

    /// Returns the UUID of the volume, which names the directory.
    pub fn uuid(&self) -> String {
        self.0.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns the mark of the volume's ublk device: half of the UUID.
    pub fn mark(&self) -> u64 {
        let name = self.uuid();
        let digits = name.chars().filter_map(|digit| digit.to_digit(16)).take(16);
        digits.fold(0, |mark, digit| mark << 4 | u64::from(digit))
    }

    /// Returns ` as /dev/loopN`, or another device; nothing of a volume that has no device.
    pub fn attached_as(&self) -> String {
        let device = self.block_device();
        device.map_or(String::new(), |device| format!(" as {}", device.display()))
    }

    /// Returns the error that `source`, whose volume is attached, is in use.
    pub fn in_use(&self, source: &Path) -> CliError {
        let (name, at) = (source.display(), self.attached_as());
        CliError::new(format!("{name} is in use: it is attached{at}"))
            .with_remedy(format!("Detach it first: okeanos blocks detach {}.", word(source)))
    }
}

const TEMPORARY: &str = "/tmp";

/// Returns `okeanos-USER` where everybody may make directories; if that is another user's, who
/// would deny this user every mount, a name that was not in use before.
fn usual_place(parent: &Path, user: u32) -> PathBuf {
    let usual = parent.join(format!("okeanos-{user}"));
    let is_free = fs::symlink_metadata(&usual)
        .map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |found| is_of(&found, user));
    if is_free || units::fault!("socket-place-of-another") {
        return usual;
    }
    let others = unusual_places(parent, user).next();
    others.unwrap_or_else(|| parent.join(format!("okeanos-{user}-{}", std::process::id())))
}

/// Returns the user's directories beside the usual one.
fn unusual_places(parent: &Path, user: u32) -> impl Iterator<Item = PathBuf> + use<> {
    let prefix = format!("okeanos-{user}-");
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named =
        entries.filter(move |entry| entry.file_name().as_bytes().starts_with(prefix.as_bytes()));
    named.map(|entry| entry.path()).filter(move |path| is_owned(path, user))
}

fn is_owned(path: &Path, user: u32) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| is_of(&found, user))
}
fn is_of(found: &fs::Metadata, user: u32) -> bool {
    found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0
}

/// Returns [`socket_directory`] for a mount that will lie at `mounted`: if that covers the
/// directory, another where commands look, too. Root's commands look beneath the mount; others' may
/// not.
pub fn socket_directory_beside(mounted: &Path) -> PathBuf {
    let usual = socket_directory();
    let user = geteuid().as_raw();
    if user == 0 || !usual.starts_with(mounted) {
        return usual;
    }
    let is_free =
        |place: &PathBuf| !place.starts_with(mounted) && place.parent().is_some_and(Path::is_dir);
    let places = [login_place(user), usual_place(Path::new(TEMPORARY), user)];
    places.into_iter().find(is_free).unwrap_or(usual)
}

fn login_place(user: u32) -> PathBuf {
    PathBuf::from(format!("/run/user/{user}/okeanos"))
}

/// Returns candidate directories of an ordinary user's sockets, whatever the login session says.
fn places_of(user: u32) -> impl Iterator<Item = PathBuf> {
    let temporary = Path::new(TEMPORARY);
    [login_place(user), temporary.join(format!("okeanos-{user}"))]
        .into_iter()
        .chain(unusual_places(temporary, user))
}

/// Returns the directory of daemons that answer queries alone: those of root that admit others
/// (`allow_other`).
pub fn public_directory() -> PathBuf {
    PathBuf::from("/run/okeanos-public")
}

pub fn socket_name(device: (u32, u32)) -> String {
    format!("{}-{}.sock", device.0, device.1)
}

/// Makes the sockets' directory, in which no other user can create entries. It has this mode
/// whatever the umask of the first user to mount.
pub fn make_directory(directory: &Path, mode: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(mode).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(directory)?;
    if !is_of(&found, geteuid().as_raw()) {
        let why = format!("{} belongs to somebody else", directory.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    if found.mode() & 0o777 != mode {
        fs::set_permissions(directory, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Connects to the socket of a mount's daemon. One whose queue is full, as of a stopped daemon or
/// of a user who means harm, is waited for until `until`.
///
/// A user's socket may be a link to that of another daemon. So the process behind it must be of the
/// user who mounted.
fn connect(mount: &Mount, path: &Path, until: Instant) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new(path)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(PATIENCE / 100),
            connected => break connected?,
        }
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    match mount.user() {
        Some(user) if user != user_of(&stream)? => Err(io::ErrorKind::PermissionDenied.into()),
        _ => Ok(stream),
    }
}

/// Connects to a socket that the mount itself covers: a thread looks without the mount.
fn connect_beneath(mount: &Mount, path: &Path, until: Instant) -> io::Result<UnixStream> {
    let look = || {
        own_namespace::enter()?;
        own_namespace::detach(&mount.directory)?;
        connect(mount, path, until)
    };
    std::thread::scope(|scope| scope.spawn(look).join().expect("no panic"))
}

/// A connection to a daemon.
pub struct Client {
    stream: BufReader<UnixStream>,
    /// Maximum time for one reply as a whole; `None` for no limit.
    patience: Option<Duration>,
}

/// Maximum reply; counts and histograms take some kilobytes, so a longer one comes from another
/// program.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Time limit for a reply to a query.
const PATIENCE: Duration = Duration::from_secs(3);

impl Client {
    pub fn connect(mount: &Mount) -> Result<Client, CliError> {
        let directory = socket_directory();
        let path = directory.join(socket_name(mount.device));
        // For all places together: a user may have any number of them.
        let until = Instant::now() + PATIENCE;
        let connected = refuse_foreign(&directory).and_then(|()| connect(mount, &path, until));
        let connected = connected.or_else(|error| {
            let is_covered = path.starts_with(&mount.directory);
            if is_covered { connect_beneath(mount, &path, until) } else { Err(error) }
        });
        // A login has a directory of its own for sockets, and cron has none. Root may do with a
        // user's mount what the user may.
        let user = geteuid().as_raw();
        let is_ours = user == 0 || mount.user() == Some(user);
        let connected = connected.or_else(|error| {
            let elsewhere = is_ours.then(|| connect_elsewhere(mount, until)).flatten();
            elsewhere.ok_or(error)
        });
        connected.map(Client::over).map_err(|error| no_answer(mount, Some((&path, error))))
    }

    /// Connects to a daemon for queries alone: also to root's, if it admits other users, and as
    /// root to any.
    pub fn connect_to_look(mount: &Mount) -> Result<Client, CliError> {
        let client = match Client::connect(mount) {
            Ok(client) => client,
            Err(error) => {
                let until = Instant::now() + PATIENCE;
                Client::over(connect_elsewhere(mount, until).ok_or(error)?)
            }
        };
        Ok(Client { patience: Some(PATIENCE), ..client })
    }

    fn over(stream: UnixStream) -> Client {
        Client { stream: BufReader::new(stream), patience: None }
    }

    /// Sends a daemon one query. Each user has one connection at a time to a daemon of root's:
    /// other programs of the user wait.
    pub fn look<T: for<'de> Deserialize<'de>>(mount: &Mount, ask: Ask) -> Result<T, CliError> {
        const ATTEMPTS: u32 = 20;
        for _ in 0..ATTEMPTS {
            match Client::connect_to_look(mount)?.ask(ask) {
                Ok(answer) => return Ok(answer),
                Err(error) if is_end(&error) => std::thread::sleep(Duration::from_millis(50)),
                Err(error) => return Err(unanswered(mount, &error)),
            }
        }
        Err(no_answer(mount, None))
    }

    pub fn say(&mut self, ask: Ask) -> io::Result<()> {
        let mut line = serde_json::to_vec(&ask)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)
    }

    /// Returns the next reply; `None` when the daemon has ended.
    pub fn hear<T: for<'de> Deserialize<'de>>(&mut self) -> io::Result<Option<T>> {
        let mut line = Vec::new();
        let until = self.patience.map(|patience| Instant::now() + patience);
        while line.last() != Some(&b'\n') {
            if let Some(until) = until {
                // None would mean no limit.
                let left = until.saturating_duration_since(Instant::now());
                let left = if left.is_zero() { Duration::from_nanos(1000) } else { left };
                self.stream.get_ref().set_read_timeout(Some(left))?;
            }
            let found = match self.stream.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                found => found?,
            };
            let length =
                found.iter().position(|byte| *byte == b'\n').map_or(found.len(), |at| at + 1);
            line.extend_from_slice(&found[..length]);
            self.stream.consume(length);
            match length {
                0 if line.is_empty() => return Ok(None),
                0 => break,
                _ if line.len() > ANSWER_BYTES_MAX => return Err(io::ErrorKind::InvalidData.into()),
                _ => {}
            }
        }
        Ok(Some(serde_json::from_slice(&line)?))
    }

    /// Sends a request that the daemon answers at once, and waits no longer than for a query.
    pub fn ask_in_time<T: for<'de> Deserialize<'de>>(&mut self, ask: Ask) -> io::Result<T> {
        let patience = self.patience.replace(PATIENCE);
        let answer = self.ask(ask);
        self.patience = patience;
        self.stream.get_ref().set_read_timeout(patience)?;
        answer
    }

    pub fn ask<T: for<'de> Deserialize<'de>>(&mut self, ask: Ask) -> io::Result<T> {
        self.say(ask)?;
        self.hear()?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Refuses a directory in which others can create a socket that impersonates a daemon.
fn refuse_foreign(directory: &Path) -> io::Result<()> {
    if is_of(&fs::symlink_metadata(directory)?, geteuid().as_raw()) {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

fn connect_elsewhere(mount: &Mount, until: Instant) -> Option<UnixStream> {
    let name = socket_name(mount.device);
    places_to_look(mount).find_map(|place| connect(mount, &place.join(&name), until).ok())
}

/// Returns the user at the other end, as the kernel knows it: unix(7).
pub fn user_of(stream: &UnixStream) -> io::Result<u32> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    Ok(peer.uid.as_raw())
}

/// Returns directories whose owner is the user who mounted.
fn places_to_look(mount: &Mount) -> impl Iterator<Item = PathBuf> + use<> {
    let user = mount.user().unwrap_or(0);
    let places = match user {
        0 => vec![public_directory()],
        _ => places_of(user).collect(),
    };
    places.into_iter().filter(move |place| is_owned(place, user))
}

/// Explains why a query got no answer.
pub fn unanswered(mount: &Mount, error: &io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => silent(mount),
        _ => no_answer(mount, None),
    }
}

/// Explains why a daemon does not answer, and what to do. `tried`: the socket, and the failure.
pub fn no_answer(mount: &Mount, tried: Option<(&Path, io::Error)>) -> CliError {
    let is_there = |mounts: Vec<Mount>| mounts.iter().any(|found| found.is_same(mount));
    if !mount_table::mounts().map_or(true, is_there) {
        let (source, at) = (mount.image(), mount.directory.display());
        return CliError::new(format!("{} was unmounted from {at}", source.display()))
            .with_remedy("See what is mounted: okeanos list.");
    }
    match mount.liveness() {
        Liveness::Dead => return died(mount),
        Liveness::Silent => return silent(mount),
        Liveness::Answers => {}
    }
    let why = format!("no answer from the daemon of {}", mount.directory.display());
    let other = mount.user().filter(|&user| user != geteuid().as_raw());
    if let (Some(user), Some(_)) = (other, &tried) {
        let user = if user == 0 { "root".into() } else { format!("user {user}") };
        return CliError::new(format!("{} was mounted by {user}", mount.directory.display()))
            .with_remedy(format!("Only {user} may do that; who may look: okeanos stats --help."));
    }
    match tried {
        Some((path, error)) => CliError::system(format!("{why} ({})", path.display()), error)
            .with_remedy("Ask as the user who mounted it."),
        None => CliError::new(why)
            .with_remedy("Was it unmounted? See okeanos list, and the system log."),
    }
}

/// Refuses mounts whose daemon, stopped for example, answers neither the kernel nor a query:
/// whatever looks into such a mount waits as long as the daemon is stopped.
pub fn refuse_silent(mounts: &[Mount]) -> Result<(), CliError> {
    let answers = |mount: &Mount| {
        Client::connect_to_look(mount)
            .is_ok_and(|mut client| client.ask::<About>(Ask::About).is_ok())
    };
    // The store of a host may be away, or the daemon busy; it answers queries all the same.
    let is_silent =
        |mount: &&Mount| mount.liveness_within(PATIENCE / 3) == Liveness::Silent && !answers(mount);
    mounts.iter().find(is_silent).map_or(Ok(()), |mount| Err(silent(mount)))
}

/// Returns the error for a mount whose daemon runs and does not answer.
fn silent(mount: &Mount) -> CliError {
    let (source, at) = (mount.image(), mount.directory.display());
    CliError::new(format!("the daemon of {} on {at} does not answer", source.display()))
        .with_remedy(format!(
            "Is its process stopped, or does its disk not answer? To cut the connection: okeanos \
             umount --force {}. What was not synced is lost then; the next mount recovers the \
             rest.",
            word(&mount.directory)
        ))
        .specific()
}

/// Returns the error for a mount whose daemon has died.
pub fn died(mount: &Mount) -> CliError {
    let (source, at) = (mount.image(), mount.directory.display());
    let (named, source) = (word(&source), source.display());
    if Place::of_mount(mount).is_some() {
        return CliError::new(format!("the daemon of {source} has died; what was synced is safe"))
            .with_remedy(format!(
                "Detach it (okeanos blocks detach {named}), or attach it again, which recovers \
                 the volume: okeanos blocks attach {named}."
            ));
    }
    let directory = word(&mount.directory);
    let away = format!(
        "Take the dead mount away (okeanos umount {directory}, or umount -l {directory}), and"
    );
    match Again::of(mount) {
        Again::Serve => CliError::new(format!("the daemon of {source} on {at} has died"))
            .with_remedy(format!(
                "{away} serve the drive again: see okeanos-lab disk serve --help."
            )),
        Again::Check(command) => CliError::new(format!(
            "the daemon of {source} on {at} has died, and the volume has no journal: what was \
             synced may be missing"
        ))
        .with_remedy(format!("{away} repair the volume: {command}.")),
        Again::Mount(command) => CliError::new(format!(
            "the daemon of {source} on {at} has died; what was synced is safe"
        ))
        .with_remedy(format!(
            "Mount again, which takes the dead mount away and recovers the volume: {command}. \
             To take it away alone: okeanos umount {directory}."
        )),
    }
}

/// The way in which what was mounted comes back.
pub enum Again {
    /// The command that mounts and recovers.
    Mount(String),
    /// The command that repairs a volume without a journal.
    Check(String),
    /// An emulated drive.
    Serve,
}

impl Again {
    pub fn of(mount: &Mount) -> Again {
        let (source, at) = (mount.image(), word(&mount.directory));
        let (named, source) = (word(&source), source.display().to_string());
        match source.split_once(':') {
            Some(("dir" | "ceph", _)) => {
                Again::Mount(format!("okeanos host mount --store {named} --journal JOURNAL {at}"))
            }
            _ if Place::of_mount(mount).is_some() => {
                Again::Mount(format!("okeanos blocks attach {named}"))
            }
            _ if has_no_journal(&mount.image()) => Again::Check(format!("e2fsck -f {named}")),
            _ if source.starts_with('/') => Again::Mount(format!("okeanos mount {named} {at}")),
            _ => Again::Serve,
        }
    }
}

/// Returns the okeanos mount that `path` lies in, on it exactly or anywhere below; or that of the
/// block volume attached as this device.
pub fn find_mount(path: &Path) -> Result<Mount, CliError> {
    let system = |error| CliError::system(path.display(), error);
    let attached = Place::behind(path);
    let path = attached.as_ref().map_or(path, |place| &place.0);
    let exact = mount_table::mount_on(path).map_err(system)?;
    let found = match exact.or_else(|| mount_table::mount_of(path)) {
        Some(mount) => Some(mount),
        None => mount_table::mount_around(path).map_err(system)?,
    };
    match found {
        Some(mount) if mount.is_okeanos() => Ok(mount),
        _ => Err(CliError::new(format!("{}: no okeanos volume is mounted there", path.display()))
            .with_remedy("See what is mounted: okeanos list")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_and_answers_are_lines_of_json() {
        assert_eq!(serde_json::to_string(&Ask::Stats).unwrap(), r#"{"ask":"stats"}"#);
        assert_eq!(serde_json::from_str::<Ask>(r#"{"ask":"end"}"#).unwrap(), Ask::End);
        let (atime, commit) = (AccessTimes::Relative, Duration::from_millis(1500));
        let live = Live { read_only: true, atime, stop_on_error: false, commit, barrier: true };
        let line = serde_json::to_string(&Ask::Change(live)).unwrap();
        assert!(line.len() < 200, "{line}");
        assert_eq!(serde_json::from_str::<Ask>(&line).unwrap(), Ask::Change(live));
        let refused = serde_json::from_str(r#"{"error":"no"}"#).unwrap();
        assert_eq!(Changed::Refused { error: "no".into() }, refused);
        assert!(serde_json::from_str::<Ask>(r#"{"ask":"money"}"#).is_err());
        assert_eq!(serde_json::to_string(&End { clean: true }).unwrap(), r#"{"clean":true}"#);
    }

    /// Ends at all: the caller may be root, and the socket a user's who means harm.
    #[test]
    fn nobody_who_accepts_no_connection_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _listening = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let user = geteuid().as_raw();
        let line = format!("36 35 0:50 / /mnt rw - fuse.okeanos a rw,user_id={user}");
        let mount = mount_table::parse(line.as_bytes()).remove(0);
        let mut waiting = Vec::new();
        let refused = loop {
            match connect(&mount, &path, Instant::now() + PATIENCE) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }

    /// Ends at all: each byte comes in time, and the reply never.
    #[test]
    fn a_reply_that_drips_is_not_waited_for() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let dripping = std::thread::spawn(move || {
            while theirs.write_all(b" ").is_ok() {
                std::thread::sleep(PATIENCE / 10);
            }
        });
        let mut client = Client { patience: Some(PATIENCE), ..Client::over(ours) };
        assert!(client.hear::<About>().is_err());
        drop(client);
        dripping.join().unwrap();
    }

    /// Covers a first user whose umask was 077.
    #[test]
    fn the_sockets_directory_has_its_mode_again() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("sockets");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
        make_directory(&path, 0o755).unwrap();
        assert_eq!(mode(), 0o755);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        make_directory(&path, 0o755).unwrap();
        assert_eq!(mode(), 0o755);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make_directory(&path, 0o755).is_err(), "anybody may have put something there");
    }

    #[test]
    fn a_place_that_another_took_is_passed_over() {
        let parent = tempfile::tempdir().unwrap();
        let user = geteuid().as_raw();
        let usual = usual_place(parent.path(), user);
        assert_eq!(usual, parent.path().join(format!("okeanos-{user}")));
        // Unusable: others may write to it, or it is no directory.
        fs::write(&usual, "").unwrap();
        let other = usual_place(parent.path(), user);
        assert_ne!(other, usual);
        make_directory(&other, 0o700).unwrap();
        assert_eq!(
            unusual_places(parent.path(), user).collect::<Vec<_>>(),
            std::slice::from_ref(&other)
        );
        let foreign = parent.path().join(format!("okeanos-{user}-0"));
        make_directory(&foreign, 0o700).unwrap();
        fs::set_permissions(&foreign, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(usual_place(parent.path(), user), other);
    }

    #[test]
    fn what_is_no_volume_of_ours_is_refused() {
        assert!(find_mount(Path::new("/proc")).is_err());
        assert!(find_mount(Path::new("/no/such/place")).is_err());
    }
}
