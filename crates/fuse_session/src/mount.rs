//! Mounts a `/dev/fuse` descriptor on a directory: mount(2) as root, the set-user-id helper
//! `fusermount3` as an ordinary user.
//!
//! mount(2) returns with the first request (INIT) queued, so one thread can mount and then serve.
//! Under `fuseblk` the kernel opens the device exclusively. Another exclusive opener makes the
//! mount fail, and from then on nobody else can open it exclusively.

use crate::descriptor;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Linux takes no block device with blocks larger than a page. It only passes on the size it gets
/// here; all requests are in bytes.
const KERNEL_BLOCK_MAX: u32 = 4096;

/// Source of a mount, which decides about the kernel's file system type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountKind {
    /// Mount over a block device: sync, syncfs and umount reach the daemon, and the kernel holds
    /// the device exclusively. Only root mounts so. The type is `fuseblk`.
    Block {
        /// The block device.
        device: PathBuf,
        /// Bytes of a block, a power of two from 512 on. The kernel gets at most 4096.
        block_size: u32,
    },
    /// Mount over anything else. The type is `fuse`.
    Plain {
        /// The source that mountinfo shows.
        name: String,
    },
}

/// Options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Source of the mount.
    pub kind: MountKind,
    /// Name of the file system, shown after the type: mountinfo has `fuse.SUBTYPE` or
    /// `fuseblk.SUBTYPE`.
    pub subtype: String,
    /// `MS_RDONLY`, `MS_NOSUID`, ... as mount(2) takes them. The helper of an ordinary user adds
    /// `MS_NOSUID` and `MS_NODEV`, and takes `MS_RDONLY`, `MS_NOEXEC`, `MS_NOATIME` and
    /// `MS_SYNCHRONOUS`; others are left out.
    pub flags: libc::c_ulong,
    /// Whether users other than the one who mounts have access.
    pub allow_other: bool,
}

/// Reason for a failed mount.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum MountError {
    #[error("cannot open /dev/fuse: {0}; is the fuse module loaded (modprobe fuse)?")]
    OpenDevice(io::Error),
    #[error("cannot mount on {directory}: {error}")]
    Mount { directory: PathBuf, error: io::Error },
    #[error(
        "an ordinary user mounts with the help of fusermount3, which cannot be run ({0}); install fuse3, or mount as root"
    )]
    NoHelper(io::Error),
    #[error("fusermount3 refused to mount on {directory} (its reason stands above)")]
    HelperRefused { directory: PathBuf },
    #[error("fusermount3 gave no descriptor: {0}")]
    HelperSilent(io::Error),
    #[error("{0:?} contains a zero byte")]
    ZeroByte(PathBuf),
}

/// The descriptor of a mounted file system: the channel to the kernel. Non-blocking. Closing it
/// aborts the connection, and accesses to the mount fail with ENOTCONN from then on.
#[derive(Debug)]
pub struct Connection {
    /// The descriptor of `/dev/fuse`.
    pub fuse: OwnedFd,
    /// Number of processors that may ever be present: the kernel keeps a queue for each. Read
    /// before the mount, which may cover the file that has it.
    pub processors: u16,
}

/// Mounts on `directory`. The caller must serve the connection soon, as accesses to the mount wait.
///
/// # Errors
/// `OpenDevice` and `Mount` have the kernel's error. An ordinary user's mounts need `fusermount3`:
/// `NoHelper` if it cannot be run, `HelperRefused` if it fails (it has written its reason to
/// standard error), `HelperSilent` if no descriptor comes of it. `ZeroByte` names the text that
/// mount(2) cannot take.
pub fn mount(directory: &Path, options: &MountOptions) -> Result<Connection, MountError> {
    let processors = possible_processors();
    // SAFETY: geteuid has no preconditions.
    let fuse = if unsafe { libc::geteuid() } == 0 {
        mount_as_root(directory, options)?
    } else {
        mount_with_helper(directory, options)?
    };
    Ok(Connection { fuse, processors })
}

/// Returns the number of processors that may ever be present, at least 1, from
/// `/sys/devices/system/cpu/possible`.
pub fn possible_processors() -> u16 {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    last_of(&list).map_or(1, |last| last + 1)
}

/// Returns the size of a page of this machine, in bytes: a power of two.
pub fn page_bytes() -> u32 {
    // SAFETY: sysconf takes an integer and touches no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u32::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(PAGE_MAX)
}

/// The largest page of any machine with this protocol, in bytes.
const PAGE_MAX: u32 = 64 << 10;

/// Returns the last number of a list such as `0-3,8`.
fn last_of(list: &str) -> Option<u16> {
    list.trim().rsplit(['-', ',']).next()?.parse().ok()
}

fn mount_as_root(directory: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/fuse");
    let fuse = OwnedFd::from(file.map_err(MountError::OpenDevice)?);
    let (source, kind) = match &options.kind {
        MountKind::Block { device, .. } => (device.clone(), format!("fuseblk.{}", options.subtype)),
        MountKind::Plain { name } => (PathBuf::from(name), format!("fuse.{}", options.subtype)),
    };
    let (source, target) = (c_path(&source)?, c_path(directory)?);
    let kind =
        CString::new(kind).map_err(|_| MountError::ZeroByte(options.subtype.clone().into()))?;
    let data = CString::new(data_of(&fuse, options)).expect("no zero byte in the options");
    // SAFETY: all four pointers are strings that end with a zero byte and outlive the call.
    let result = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            options.flags,
            data.as_ptr().cast(),
        )
    };
    match result {
        0 => Ok(fuse),
        _ => Err(MountError::Mount {
            directory: directory.into(),
            error: io::Error::last_os_error(),
        }),
    }
}

/// Returns the data argument of mount(2). The kernel checks permissions by mode and ACL
/// (`default_permissions`).
fn data_of(fuse: &OwnedFd, options: &MountOptions) -> String {
    // SAFETY: these two calls have no preconditions.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let mut data = format!(
        "fd={},rootmode=40000,user_id={user},group_id={group},default_permissions",
        fuse.as_raw_fd()
    );
    if options.allow_other {
        data += ",allow_other";
    }
    if let MountKind::Block { block_size, .. } = options.kind {
        data += &format!(",blksize={}", block_size.min(KERNEL_BLOCK_MAX));
    }
    data
}

/// Mounts by `fusermount3`, which opens and mounts `/dev/fuse` and sends the descriptor over a
/// socket that it inherits.
fn mount_with_helper(directory: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let MountKind::Plain { name } = &options.kind else {
        let error = io::Error::from_raw_os_error(libc::EPERM);
        return Err(MountError::Mount { directory: directory.into(), error });
    };
    let (ours, theirs) = UnixStream::pair().map_err(MountError::HelperSilent)?;
    keep_over_exec(&theirs).map_err(MountError::HelperSilent)?;
    let (name, subtype) = (escaped(name), escaped(&options.subtype));
    let mut list = format!("fsname={name},subtype={subtype},default_permissions");
    for (flag, word) in [
        (libc::MS_RDONLY, "ro"),
        (libc::MS_NOEXEC, "noexec"),
        (libc::MS_NOATIME, "noatime"),
        (libc::MS_SYNCHRONOUS, "sync"),
    ] {
        if options.flags & flag != 0 {
            list += &format!(",{word}");
        }
    }
    if options.allow_other {
        list += ",allow_other";
    }
    let status = Command::new("fusermount3")
        .args(["-o", &list, "--"])
        .arg(directory)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .status()
        .map_err(MountError::NoHelper)?;
    drop(theirs);
    if !status.success() {
        return Err(MountError::HelperRefused { directory: directory.into() });
    }
    let fuse = descriptor::receive(&ours, &mut [0])
        .and_then(|(_, fuse)| fuse.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()))
        .map_err(MountError::HelperSilent)?;
    set_flags(&fuse).map_err(MountError::HelperSilent)?;
    Ok(fuse)
}

/// Returns the text as `fusermount3` takes it in an option: commas and backslashes stand after a
/// backslash.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace(',', "\\,")
}

fn c_path(path: &Path) -> Result<CString, MountError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| MountError::ZeroByte(path.into()))
}

fn keep_over_exec(socket: &UnixStream) -> io::Result<()> {
    // SAFETY: the descriptor is open; F_SETFD takes an integer.
    match unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFD, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_flags(fuse: &OwnedFd) -> io::Result<()> {
    let descriptor = fuse.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open; both commands take an integer.
    let set = unsafe {
        libc::fcntl(descriptor, libc::F_SETFL, libc::O_NONBLOCK) == 0
            && libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) == 0
    };
    if set { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_from_the_kernels_list() {
        assert_eq!(last_of("0-127\n"), Some(127));
        assert_eq!(last_of("0,2-5"), Some(5));
        assert_eq!(last_of("0"), Some(0));
        assert_eq!(last_of(""), None);
    }
}
