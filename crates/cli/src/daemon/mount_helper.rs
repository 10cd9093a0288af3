//! The daemon's mount helper: a small process that mounts and unmounts where the caller sees it.
//! The daemon itself lives in a namespace of its own ([`crate::daemon::own_namespace`]).
//!
//! 1. It is forked before anything that a fork does not share, and keeps nothing open but its
//!    socket.
//! 2. It stays in the caller's namespace until it has mounted, and returns for a moment to unmount.
//!    Between, it must not keep that namespace alive.
//! 3. It unmounts *its* mount, by identity: another volume may be mounted on the same path by then.
//! 4. It never serves requests of the mount, so it may look at paths in it.
//! 5. It outlives a daemon that is killed, and ends the connection of its NBD device then, unless
//!    requests are to wait.

use crate::daemon::descriptors::close_all_but;
use crate::daemon::held_mount::{mount_id, open_place};
use crate::daemon::mount_table::{self, Mount};
use crate::daemon::own_namespace;
use crate::error::CliError;
use fuse_session::{
    Connection, FileSystem, MountKind, MountOptions, Session, SessionError, descriptor,
};
use nbd::{ConnectedDevice, NbdClient};
use runtime::{Either, RealWorld, Receiver, Signals, race};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, fchdir, geteuid, getppid};
use serde::{Deserialize, Serialize};
use std::ffi::{CString, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Grace period, after SIGTERM, for processes that still have files open.
const GRACE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
/// Directory of the kernel's read-ahead limits of mounts. The links of `/sys/class/bdi` lead out of
/// it, and so perhaps onto a mount that no daemon serves yet.
const READ_AHEAD_LIMITS: &str = "/sys/devices/virtual/bdi";
/// Maximum length of an order: a path is at most 4096 bytes, and JSON makes up to four characters
/// of a byte.
const MESSAGE_MAX: usize = 32 << 10;

#[derive(Serialize, Deserialize)]
enum Order {
    Mount {
        source: Vec<u8>,
        block_size: Option<u32>,
        subtype: String,
        flags: libc::c_ulong,
        allow_other: bool,
        read_ahead: u64,
        held: bool,
    },
    /// Let the mount be unmounted.
    Release,
    /// Detach what stands on the mount, unless it is in use.
    Detach,
    /// An NBD device whose requests fail when the daemon ends. Sent together with the descriptor of
    /// its connection.
    DisconnectAtEnd {
        number: u32,
    },
    Unmount,
}

#[derive(Serialize, Deserialize)]
enum Reply {
    /// Sent together with the descriptor.
    MountedVolume {
        device: (u32, u32),
    },
    Released,
    Detached(bool),
    Failed(String),
}

/// The daemon's side.
pub struct MountHelper {
    socket: OwnedFd,
    directory: PathBuf,
    processors: u16,
    alone: bool,
    holds: bool,
    /// Reports that what stands on the mount is in use, and that a signal changes nothing.
    in_use: Option<Box<dyn Fn()>>,
}

/// An established mount: the channel to the kernel, and `st_dev` of every file in it.
pub struct EstablishedMount {
    pub connection: Connection,
    pub device: (u32, u32),
}

impl MountHelper {
    /// Forks the mount helper for `directory`, and moves this process into a namespace of its own.
    /// If it has no right to, `report` is called instead. Call it before rings and threads are
    /// made.
    pub fn start(directory: &Path, report: &dyn Fn(&str)) -> Result<MountHelper, CliError> {
        MountHelper::start_beneath(directory, None, report)
    }

    /// Forks the mount helper as [`MountHelper::start`] does, for a mount that something may stand
    /// on: `detach` detaches that, unless it is in use, and returns whether it is gone.
    pub fn start_beneath(
        directory: &Path,
        detach: Option<fn(&Path) -> bool>,
        report: &dyn Fn(&str),
    ) -> Result<MountHelper, CliError> {
        let system = |error| CliError::system("cannot start the daemon", error);
        let (ours, theirs) = socket_pair().map_err(system)?;
        let processors = fuse_session::possible_processors();
        // SAFETY: the process has one thread, so the child finds everything in order.
        match unsafe { libc::fork() } {
            -1 => return Err(system(io::Error::last_os_error())),
            0 => {
                drop(ours);
                close_all_but(theirs.as_raw_fd());
                let served = Child {
                    socket: theirs,
                    directory: directory.into(),
                    detach,
                    mounted: None,
                    connected: None,
                }
                .serve();
                // SAFETY: nothing of the daemon, such as its destructors, is to run here.
                unsafe { libc::_exit(served.is_err().into()) }
            }
            _ => {}
        }
        // Programs that are let into a container find there what its first process sees: its files,
        // and the mount.
        let is_container = std::process::id() == 1;
        let alone = geteuid().is_root()
            && !is_container
            && match own_namespace::enter() {
                Ok(()) => true,
                Err(error) => {
                    report(&format!(
                        "no mount namespace for the daemon alone ({error}): killed as the last \
                         process of the caller's, it would hang"
                    ));
                    false
                }
            };
        let directory = directory.into();
        Ok(MountHelper { socket: ours, directory, processors, alone, holds: false, in_use: None })
    }

    /// Refuses signals as long as what stands on the mount is in use, and calls `report` then:
    /// without the mount no command would find it.
    pub fn refuse_signals_in_use(self, report: impl Fn() + 'static) -> MountHelper {
        MountHelper { in_use: Some(Box::new(report)), ..self }
    }

    /// Whether something on the mount is in use, which is reported; else it is detached. Waits
    /// without blocking, since detaching takes requests of the mount.
    async fn is_in_use(&self, world: &RealWorld) -> bool {
        use device::World;
        let Some(report) = self.in_use.as_ref().filter(|_| self.send(&Order::Detach).is_ok())
        else {
            return false;
        };
        let (now, until) = (Timespec { tv_sec: 0, tv_nsec: 0 }, world.now().plus(GRACE));
        let has_reply = || {
            let mut socket = [PollFd::new(&self.socket, PollFlags::IN)];
            !matches!(poll(&mut socket, Some(&now)), Ok(0))
        };
        while !has_reply() && world.now() < until {
            world.sleep_until(world.now().plus(PAUSE)).await;
        }
        let mut bytes = [0; 64];
        let reply = has_reply().then(|| descriptor::receive(&self.socket, &mut bytes));
        let reply =
            reply.and_then(|received| serde_json::from_slice(&bytes[..received.ok()?.0]).ok());
        let is_used = matches!(reply, Some(Reply::Detached(false)));
        if is_used {
            report();
        }
        is_used
    }

    /// Keeps the mount busy until [`MountHelper::release`]: umount(2) refuses it. For a daemon that
    /// serves more than the mount, whose end would be the end of that.
    pub fn hold(self) -> MountHelper {
        MountHelper { holds: true, ..self }
    }

    /// Ends what [`MountHelper::hold`] began. The mount helper never waits for the mount, so this
    /// thread may wait for it.
    pub fn release(&self) {
        if self.holds && self.send(&Order::Release).is_ok() {
            // A helper that has died holds nothing.
            let _ = descriptor::receive(&self.socket, &mut [0; 64]);
        }
    }

    /// Keeps these paths usable: the daemon's namespace stays a copy of the caller's, without the
    /// mount. Mounts of other daemons leave the copy, except those that the paths lie on: an
    /// unmount of theirs is complete when no namespace has them.
    pub fn keep_paths(self, needed: &[&Path]) -> MountHelper {
        if self.alone {
            for mount in mount_table::mounts().unwrap_or_default().iter().rev() {
                let is_needed = needed.iter().any(|path| path.starts_with(&mount.directory));
                if mount.kind.starts_with("fuse") && !is_needed {
                    // Best effort: an unmount there would wait for this daemon's end.
                    let _ = own_namespace::detach(&mount.directory);
                }
            }
        }
        MountHelper { alone: false, ..self }
    }

    /// Mounts, and sets the kernel's read-ahead in bytes where permitted. From here on paths lead
    /// nowhere: what the daemon needs is open.
    pub fn mount(
        &self,
        options: &MountOptions,
        read_ahead: u64,
    ) -> Result<EstablishedMount, CliError> {
        if self.alone {
            own_namespace::empty(&self.directory)
                .map_err(|error| CliError::system("a mount namespace for the daemon", error))?;
        }
        let (source, block_size) = match &options.kind {
            MountKind::Block { device, block_size } => {
                (device.as_os_str().as_bytes().to_vec(), Some(*block_size))
            }
            MountKind::Plain { name } => (name.as_bytes().to_vec(), None),
        };
        let MountOptions { flags, allow_other, .. } = *options;
        let subtype = options.subtype.clone();
        let mut bytes = vec![0; MESSAGE_MAX];
        let held = self.holds;
        let order =
            Order::Mount { source, block_size, subtype, flags, allow_other, read_ahead, held };
        let heard = self
            .send(&order)
            .and_then(|()| descriptor::receive(&self.socket, &mut bytes))
            .and_then(|(length, fuse)| Ok((serde_json::from_slice(&bytes[..length])?, fuse)));
        match heard.map_err(|error| CliError::system("mount", error))? {
            (Reply::MountedVolume { device }, Some(fuse)) => Ok(EstablishedMount {
                connection: Connection { fuse, processors: self.processors },
                device,
            }),
            (Reply::MountedVolume { .. }, None) => {
                self.unmount();
                Err(CliError::new("mount: no descriptor left for /dev/fuse")
                    .with_remedy("Close some files, or allow more: see `ulimit -n`."))
            }
            (Reply::Failed(why), _) => Err(CliError::new(why)),
            (Reply::Released | Reply::Detached(_), _) => {
                Err(CliError::new("mount: an answer to another order"))
            }
        }
    }

    /// Has requests of this NBD device fail when the daemon ends, however that comes about. Without
    /// it, those that the daemon had read would wait for the next one. Call it before the mount.
    ///
    /// The daemon has opened the device. A helper that opened it later, when its daemon has died,
    /// could find that of the next daemon.
    pub fn disconnect_at_end(&self, device: &ConnectedDevice) {
        // A helper that has died mounts nothing, either.
        let order = Order::DisconnectAtEnd { number: device.number() };
        let _ = self.send_with(&order, Some(device.as_fd()));
    }

    /// Admits no new users; the session ends when the present ones have left. Does not wait:
    /// umount(2) waits for replies of this thread.
    pub fn unmount(&self) {
        let _ = self.send(&Order::Unmount);
    }

    /// Waits for the session's end, which a signal causes. Processes that still use the mount then
    /// get the grace period, however many requests they make.
    pub async fn until_over<F: FileSystem>(
        &self,
        world: &RealWorld,
        session: &Session<F>,
        served: Receiver<Result<(), SessionError>>,
        signals: Signals,
    ) -> Option<Result<(), SessionError>> {
        let never = std::future::pending::<()>();
        self.until_over_or(world, session, (served, signals), never).await.0
    }

    /// Waits as [`MountHelper::until_over`] does. `failure` ends the session, too, and is returned
    /// then.
    pub async fn until_over_or<F: FileSystem, E>(
        &self,
        world: &RealWorld,
        session: &Session<F>,
        (mut served, mut signals): (Receiver<Result<(), SessionError>>, Signals),
        failure: impl Future<Output = E>,
    ) -> (Option<Result<(), SessionError>>, Option<E>) {
        let mut failure = std::pin::pin!(failure);
        let failed = loop {
            let stopped = race(signals.next(), failure.as_mut());
            match race(&mut served, stopped).await {
                Either::Left(result) => return (result, None),
                Either::Right(Either::Left(_)) if self.is_in_use(world).await => {}
                Either::Right(Either::Left(_)) => break None,
                Either::Right(Either::Right(error)) => break Some(error),
            }
        };
        (self.end(world, session, served, signals).await, failed)
    }

    /// Removes the mount and ends the session.
    pub async fn end<F: FileSystem>(
        &self,
        world: &RealWorld,
        session: &Session<F>,
        mut served: Receiver<Result<(), SessionError>>,
        mut signals: Signals,
    ) -> Option<Result<(), SessionError>> {
        use device::World;
        self.unmount();
        let patience = race(world.sleep_until(world.now().plus(GRACE)), signals.next());
        if let Either::Left(result) = race(&mut served, patience).await {
            return result;
        }
        session.stop();
        served.await
    }

    fn send(&self, order: &Order) -> io::Result<()> {
        self.send_with(order, None)
    }
    fn send_with(&self, order: &Order, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        descriptor::send(&self.socket, &serde_json::to_vec(order)?, descriptor)
    }
}

/// State of the mount helper itself.
struct Child {
    socket: OwnedFd,
    directory: PathBuf,
    detach: Option<fn(&Path) -> bool>,
    mounted: Option<MountedVolume>,
    /// An NBD device that the daemon serves, and whose requests fail when that ends.
    connected: Option<ConnectedDevice>,
}

struct MountedVolume {
    mount: Mount,
    /// Current namespace: device and inode of the kernel's file.
    namespace: (u64, u64),
    /// The top of the mount, which keeps it busy.
    top: Option<File>,
}

impl Child {
    /// Serves until the daemon has ended, or no longer needs the helper. Then it fails the requests
    /// of the daemon's device, unless that was disconnected before.
    fn serve(mut self) -> io::Result<()> {
        let obeyed = self.obey();
        let Child { socket, mounted, connected, .. } = self;
        // While it disconnects the device, the kernel may wait for the daemon: that must not wait
        // for a reply then, nor for the end of the mount.
        drop((socket, mounted));
        if let Some(connected) = connected {
            if let Ok(client) = NbdClient::open() {
                // Nobody is left who could act on an error.
                let _ = client.disconnect(&connected);
            }
        }
        obeyed
    }

    /// Carries out the daemon's orders.
    fn obey(&mut self) -> io::Result<()> {
        // No file system is to be kept busy.
        std::env::set_current_dir("/")?;
        let mut bytes = vec![0; MESSAGE_MAX];
        loop {
            let (length, received) = descriptor::receive(&self.socket, &mut bytes)?;
            if length == 0 {
                return Ok(());
            }
            match serde_json::from_slice(&bytes[..length])? {
                Order::Mount {
                    source,
                    block_size,
                    subtype,
                    flags,
                    allow_other,
                    read_ahead,
                    held,
                } => {
                    let source = OsString::from_vec(source);
                    let kind = match block_size {
                        Some(block_size) => MountKind::Block { device: source.into(), block_size },
                        None => MountKind::Plain { name: source.to_string_lossy().into_owned() },
                    };
                    let options = MountOptions { kind, subtype, flags, allow_other };
                    let mounted = self.mount(&options, read_ahead, held);
                    let (reply, fuse) = match &mounted {
                        Ok((connection, device)) => (
                            Reply::MountedVolume { device: *device },
                            Some(connection.fuse.as_fd()),
                        ),
                        Err(error) => (Reply::Failed(error.to_string()), None),
                    };
                    descriptor::send(&self.socket, &serde_json::to_vec(&reply)?, fuse)?;
                }
                Order::Release => {
                    self.mounted.iter_mut().for_each(|mounted| mounted.top = None);
                    descriptor::send(&self.socket, &serde_json::to_vec(&Reply::Released)?, None)?;
                }
                Order::Detach => {
                    let reply = Reply::Detached(self.detach());
                    descriptor::send(&self.socket, &serde_json::to_vec(&reply)?, None)?;
                }
                Order::DisconnectAtEnd { number } => {
                    self.connected = received.map(|file| ConnectedDevice::received(number, file));
                }
                Order::Unmount => return self.unmount(),
            }
        }
    }

    fn mount(
        &mut self,
        options: &MountOptions,
        read_ahead: u64,
        held: bool,
    ) -> Result<(Connection, (u32, u32)), CliError> {
        let open = |path: &str, writes: bool| {
            let file = OpenOptions::new().read(true).write(writes).open(path);
            file.map_err(|error| CliError::system(path, error))
        };
        let daemon = format!("/proc/{}/ns/mnt", Pid::as_raw(getppid()));
        // The mount may cover any of these.
        let (mut table, null) = (open("/proc/self/mountinfo", false)?, open("/dev/null", true)?);
        let (ours, theirs) = (open("/proc/self/ns/mnt", false)?, open(&daemon, false)?);
        let limits = open_directory(READ_AHEAD_LIMITS);
        let namespace =
            identity(&ours).map_err(|error| CliError::system("/proc/self/ns/mnt", error))?;
        let connection = fuse_session::mount(&self.directory, options)
            .map_err(|error| CliError::new(error.to_string()))?;
        let mut text = Vec::new();
        let found = io::Read::read_to_end(&mut table, &mut text).map(|_| {
            let mut mounts = mount_table::parse(&text).into_iter();
            mounts.rfind(|mount| mount.is_okeanos() && mount.directory == self.directory)
        });
        let Ok(Some(mount)) = found else {
            let directory = self.directory.display();
            return Err(CliError::new(format!("{directory}: the mount was taken away at once")));
        };
        let device = mount.device;
        // An ordinary user may not; a volume with less read-ahead is still usable.
        let _ = limits.and_then(|limits| {
            set_read_ahead(
                &limits,
                device,
                matches!(options.kind, MountKind::Block { .. }),
                read_ahead,
            )
        });
        // Nothing is asked of the daemon, which does not answer yet.
        let top = open_directory(&self.directory).ok().filter(|_| held);
        self.mounted = Some(MountedVolume { mount, namespace, top });
        if identity(&theirs).is_ok_and(|theirs| theirs != namespace) {
            // SAFETY: the descriptor is open.
            unsafe { libc::setns(theirs.as_raw_fd(), libc::CLONE_NEWNS) };
        }
        for standard in 0..3 {
            // SAFETY: both descriptors are open, and nobody owns the standard ones.
            unsafe { libc::dup2(null.as_raw_fd(), standard) };
        }
        Ok((connection, device))
    }

    /// Detaches what stands on the mount, unless it is in use. A thread looks where the mount was
    /// made.
    fn detach(&self) -> bool {
        let (Some(detach), Some(mounted)) = (self.detach, &self.mounted) else { return true };
        let look = || {
            // SAFETY: the call takes an integer, and gives this thread a root of its own.
            let alone = unsafe { libc::unshare(libc::CLONE_FS) } == 0;
            // Where nobody is left in that namespace, nobody can use a device by it, either.
            !alone || enter(mounted.namespace).is_err() || detach(&self.directory)
        };
        std::thread::scope(|scope| scope.spawn(look).join().unwrap_or(true))
    }

    fn unmount(&self) -> io::Result<()> {
        let Some(MountedVolume { mount, namespace, .. }) = &self.mounted else { return Ok(()) };
        // Names from here on are looked up in this directory: no other path leads to `/proc` in
        // every namespace.
        let proc = open_directory("/proc")?;
        enter(*namespace)?;
        fchdir(&proc)?;
        // The mount may have been moved.
        let mounts = mount_table::parse(&fs::read("self/mountinfo")?);
        let found =
            mounts.iter().find(|found| found.id == mount.id && found.device == mount.device);
        let Some(Mount { directory, .. }) = found else { return Ok(()) };
        let top = open_place(directory, OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
        if mount_id(Path::new(""), &top)? != mount.id {
            // Something else is mounted over it, which must not be removed.
            return Ok(());
        }
        let path = CString::new(format!("self/fd/{}", top.as_raw_fd()))?;
        // SAFETY: the path ends with a zero byte.
        if unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) } == 0 {
            return Ok(());
        }
        // An ordinary user's helper knows paths only.
        let helper =
            Command::new("fusermount3").args(["-u", "-z", "--"]).arg(directory).status()?;
        if helper.success() { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

/// Sets the mount's own limit, which the kernel sets to 128 KiB whatever is negotiated with the
/// first request; that only lowers it further. `limits` names it by the device.
fn set_read_ahead(
    limits: &File,
    (major, minor): (u32, u32),
    is_block: bool,
    bytes: u64,
) -> io::Result<()> {
    let kind = if is_block { "-fuseblk" } else { "" };
    let path = format!("{major}:{minor}{kind}/read_ahead_kb");
    let opened = openat(limits, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    File::from(opened).write_all((bytes >> 10).to_string().as_bytes())
}

/// Opens a directory only for looking up names.
fn open_directory(path: impl AsRef<Path>) -> io::Result<File> {
    open_place(path, OFlags::DIRECTORY)
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Enters a mount namespace, unless this thread is in it.
fn enter(namespace: (u64, u64)) -> io::Result<()> {
    if identity(&File::open("/proc/thread-self/ns/mnt")?)? == namespace {
        return Ok(());
    }
    let way = way_into(namespace).ok_or(io::ErrorKind::NotFound)?;
    // SAFETY: the descriptor is open.
    match unsafe { libc::setns(way.as_raw_fd(), libc::CLONE_NEWNS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the namespace's file, at a process or thread in it. (An open one of the helper's would
/// keep it alive.)
fn way_into(namespace: (u64, u64)) -> Option<File> {
    let entered = |task: PathBuf| {
        let path = task.join("ns/mnt");
        let found = fs::metadata(&path).is_ok_and(|found| (found.dev(), found.ino()) == namespace);
        // The task may have ended since, and its number be another's.
        let file = if found { File::open(&path).ok()? } else { return None };
        identity(&file).is_ok_and(|found| found == namespace).then_some(file)
    };
    let processes = || numbered(Path::new("/proc"));
    let by_process = processes().find_map(&entered);
    by_process.or_else(|| {
        processes().flat_map(|process| numbered(&process.join("task"))).find_map(&entered)
    })
}

fn numbered(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().as_bytes()[0].is_ascii_digit())
        .map(|entry| entry.path())
}

/// Returns a pair of connected sockets that preserve message boundaries.
fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}
