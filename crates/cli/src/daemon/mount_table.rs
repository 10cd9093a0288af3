//! The table of mounts: `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use rustix::fs::{StatFs, statfs};
use rustix::process::geteuid;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Subtype of our mounts, or its beginning.
const SUBTYPE: &str = "okeanos";

/// Returns the subtype of a mount. The mode follows, as in `fuseblk.okeanos.selective`: the kernel
/// has no other place for it.
pub fn subtype(mode: Option<&str>) -> String {
    mode.map_or_else(|| SUBTYPE.to_owned(), |mode| format!("{SUBTYPE}.{mode}"))
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Number of the mount, unique while it exists.
    pub id: u64,
    /// `st_dev` of every file in it.
    pub device: (u32, u32),
    pub directory: PathBuf,
    /// Whether it is no bind mount of a directory alone.
    pub is_whole: bool,
    pub kind: String,
    pub source: PathBuf,
    /// Options of this mount, with commas: `rw,nosuid,relatime`.
    pub options: String,
    /// Options of the file system: `rw,user_id=0,default_permissions`.
    pub of_file_system: String,
}

impl Mount {
    /// Whether it is an Okeanos mount, by the [`subtype`] after the type.
    pub fn is_okeanos(&self) -> bool {
        let mut words = self.kind.split('.');
        matches!(words.next(), Some("fuse" | "fuseblk")) && words.next() == Some(SUBTYPE)
    }

    /// Whether both are one mount, whatever a remount has changed.
    pub fn is_same(&self, other: &Mount) -> bool {
        (self.id, self.device, &self.directory) == (other.id, other.device, &other.directory)
    }

    /// Whether its source is a block device that cannot be written.
    pub fn is_write_protected(&self) -> bool {
        let path = format!("/sys/dev/block/{}:{}/ro", self.device.0, self.device.1);
        std::fs::read_to_string(path).is_ok_and(|text| text.trim() != "0")
    }

    /// Returns the user who mounted it.
    pub fn user(&self) -> Option<u32> {
        self.of_file_system.split(',').find_map(|word| word.strip_prefix("user_id=")?.parse().ok())
    }

    /// Whether an ordinary user other than this one mounted it, who may call its source anything.
    pub fn is_of_another_user(&self) -> bool {
        let is_named_freely = self.kind == "fuse" || self.kind.starts_with("fuse.");
        let trusted = [Some(0), Some(geteuid().as_raw())];
        is_named_freely && !trusted.contains(&self.user())
    }

    /// Returns the source as its user named it: the image file, if a loop device stands on one.
    pub fn image(&self) -> PathBuf {
        behind(&self.source)
    }

    /// Whether its daemon has died. Waits for a daemon no longer than [`PATIENCE`].
    pub fn is_dead(&self) -> bool {
        self.liveness() == Liveness::Dead
    }

    pub fn liveness(&self) -> Liveness {
        self.liveness_within(PATIENCE)
    }

    pub fn liveness_within(&self, patience: Duration) -> Liveness {
        match self.statfs(patience) {
            None => Liveness::Silent,
            Some(Err(error)) if has_no_daemon(&error) => Liveness::Dead,
            Some(_) => Liveness::Answers,
        }
    }

    /// Returns its size; zeros if this user may not look at it.
    pub fn space(&self) -> Option<Space> {
        let found = self.statfs(PATIENCE)?.ok()?;
        Some(Space {
            unit: found.f_frsize.try_into().ok()?,
            blocks: found.f_blocks,
            free: found.f_bfree,
        })
    }

    fn statfs(&self, patience: Duration) -> Option<io::Result<StatFs>> {
        let (directory, owner) = (self.directory.clone(), self.owner_to_ask());
        within(patience, move || match owner {
            None => Ok(statfs(&directory)?),
            Some(owner) => become_owner(owner).and_then(|()| Ok(statfs(&directory)?)),
        })
    }

    /// Returns user and group of an ordinary user's mount, for root: without `allow_other` the
    /// kernel answers root itself, with zeros, whether or not there is a daemon.
    fn owner_to_ask(&self) -> Option<(u32, u32)> {
        let is_root = geteuid().is_root();
        let user = self.user().filter(|user| is_root && *user != 0)?;
        let mut words = self.of_file_system.split(',');
        let group = words.find_map(|word| word.strip_prefix("group_id=")?.parse().ok())?;
        Some((user, group))
    }
}

/// State of a mount's daemon, as its calls show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liveness {
    Answers,
    Dead,
    /// No answer in time.
    Silent,
}

/// Time limit for a daemon's answer to a call of the kernel.
const PATIENCE: Duration = Duration::from_secs(3);

/// Returns the result of a call that may wait for a daemon for ever; `None` after `patience`. The
/// thread of such a call ends with the process.
fn within<T, F>(patience: Duration, call: F) -> Option<T>
where
    T: Send + 'static,
    F: Fn() -> T + Clone + Send + 'static,
{
    const STACK_BYTES: usize = 256 << 10;
    let (sender, receiver) = channel();
    let called = call.clone();
    let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        // The receiver may have stopped waiting.
        let _ = sender.send(called());
    });
    // A user who may have no more threads waits.
    let Ok(thread) = thread else { return Some(call()) };
    let answer = receiver.recv_timeout(patience).ok()?;
    // A process that forks behind this call has one thread again.
    let _ = thread.join();
    Some(answer)
}

/// Gives this thread alone the user and group, for good.
fn become_owner((user, group): (u32, u32)) -> io::Result<()> {
    // SAFETY: the calls take integers, and change the rights of this thread; the C library's own
    // would change those of all.
    let changed = unsafe {
        libc::syscall(libc::SYS_setresgid, group, group, group) == 0
            && libc::syscall(libc::SYS_setresuid, user, user, user) == 0
    };
    if changed { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns whether a call failed because the daemon has died. A call that the kernel had queued
/// for a daemon that is shutting down fails with ECONNABORTED, a later one with ENOTCONN.
fn has_no_daemon(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

/// Space in units of `unit` bytes.
pub struct Space {
    pub unit: u64,
    pub blocks: u64,
    pub free: u64,
}

/// Returns all mounts that this process sees, later ones on top of earlier ones.
pub fn mounts() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// Parses the bytes of a `mountinfo`.
pub fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// Returns the image file on which a loop device stands; any other source unchanged.
pub fn behind(source: &Path) -> PathBuf {
    let backing = || {
        let number = source.to_str()?.strip_prefix("/dev/loop")?.parse::<u32>().ok()?;
        let path = std::fs::read(format!("/sys/block/loop{number}/loop/backing_file")).ok()?;
        Some(PathBuf::from(OsString::from_vec(path.trim_ascii_end().to_vec())))
    };
    backing().unwrap_or_else(|| source.to_owned())
}

/// Returns the uppermost mount on exactly `directory`, which need not answer.
pub fn mount_on(directory: &Path) -> io::Result<Option<Mount>> {
    let directory = resolve(directory)?;
    Ok(mounts()?.into_iter().rfind(|mount| mount.directory == directory))
}

/// Returns the mount that `path` lies in, which need not answer.
pub fn mount_around(path: &Path) -> io::Result<Option<Mount>> {
    let path = resolve(path)?;
    let above = mounts()?.into_iter().filter(|mount| path.starts_with(&mount.directory));
    // The longest path is the innermost; of equals the last is on top.
    Ok(above.max_by_key(|mount| mount.directory.as_os_str().len()))
}

/// Returns the Okeanos mount whose image file, device or directory `path` is.
pub fn mount_of(path: &Path) -> Option<Mount> {
    let at = resolve(path).ok()?;
    let found = std::fs::metadata(path).ok();
    let device = found.as_ref().filter(|found| found.file_type().is_block_device());
    let device = device.map(|found| (libc::major(found.rdev()), libc::minor(found.rdev())));
    // Any user may name a mount after somebody else's image.
    let believed = [Some(0), Some(geteuid().as_raw()), found.as_ref().map(MetadataExt::uid)];
    let is_named = |mount: &Mount| {
        mount.user().is_some_and(|user| believed.contains(&Some(user)))
            && (mount.image() == at || mount.source == at)
    };
    let is_it =
        |mount: &Mount| mount.directory == at || Some(mount.device) == device || is_named(mount);
    mounts().ok()?.into_iter().rfind(|mount| mount.is_okeanos() && mount.is_whole && is_it(mount))
}

/// Returns an absolute path without links, as far as it can be resolved: a mount whose daemon has
/// died or is stopped does not answer.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let absolute = match std::path::absolute(path) {
        // The current directory may lie on a dead mount.
        Err(_) if path.is_relative() => {
            PathBuf::from(std::env::var_os("PWD").unwrap_or_else(|| "/".into())).join(path)
        }
        absolute => absolute?,
    };
    let mut below = PathBuf::new();
    let mut looked_at = absolute.as_path();
    let mut patience = PATIENCE;
    loop {
        let found = canonicalized(looked_at, patience);
        if found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            // The directories above, of the same mount, are not waited for as long each.
            patience = PATIENCE / 30;
        }
        match (found, looked_at.parent(), looked_at.file_name()) {
            (Ok(path), ..) if below.as_os_str().is_empty() => return Ok(path),
            (Ok(path), ..) => return Ok(path.join(below)),
            (Err(error), Some(parent), Some(name))
                if has_no_daemon(&error) || error.kind() == io::ErrorKind::TimedOut =>
            {
                below = if below.as_os_str().is_empty() {
                    name.into()
                } else {
                    Path::new(name).join(below)
                };
                looked_at = parent;
            }
            (Err(error), ..) => return Err(error),
        }
    }
}

fn canonicalized(path: &Path, patience: Duration) -> io::Result<PathBuf> {
    let path = path.to_owned();
    let found = within(patience, move || path.canonicalize());
    found.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = std::str::from_utf8(fields.nth(1)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let is_whole = fields.next()? == b"/";
    let directory = unescape(fields.next()?);
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    Some(Mount {
        id,
        device: (major.parse().ok()?, minor.parse().ok()?),
        directory: directory.into(),
        is_whole,
        kind: String::from_utf8_lossy(fields.next()?).into_owned(),
        source: unescape(fields.next()?).into(),
        options,
        of_file_system: String::from_utf8_lossy(fields.next().unwrap_or_default()).into_owned(),
    })
}

/// Decodes space, tab, newline and backslash, which are written as `\040` and so on.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, behind)) = rest.split_first() {
        let octal = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) if byte == b'\\' => {
                bytes.push(value);
                rest = &behind[3..];
            }
            _ => {
                bytes.push(byte);
                rest = behind;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_a_space_is_read() {
        let line =
            br"36 35 7:3 / /mnt/my\040disk rw,noatime shared:1 master:2 - fuseblk.okeanos.ordered /dev/loop3 rw,x=1";
        let mount = parse_line(line).unwrap();
        assert_eq!(mount.directory, Path::new("/mnt/my disk"));
        assert_eq!(mount.id, 36);
        assert_eq!((mount.device, mount.source.as_path()), ((7, 3), Path::new("/dev/loop3")));
        assert!(
            mount.is_okeanos() && mount.options == "rw,noatime" && mount.of_file_system == "rw,x=1"
        );
    }

    #[test]
    fn a_users_name_for_a_source_is_not_believed() {
        for (kind, user, is_foreign) in
            [("fuse", 1000, true), ("fuse.x", 1000, true), ("fuse.x", 0, false), ("ext4", 0, false)]
        {
            let line = format!("36 35 0:50 / /mnt rw - {kind} /dev/loop3 rw,user_id={user}");
            let mount = parse_line(line.as_bytes()).unwrap();
            assert_eq!(mount.is_of_another_user(), is_foreign, "{line}");
        }
        let device = parse_line(b"36 35 7:3 / /mnt rw - ext4 /dev/loop3 rw").unwrap();
        assert!(!device.is_of_another_user());
    }

    #[test]
    fn our_subtypes_are_known_again() {
        for subtype in [subtype(None), subtype(Some("selective"))] {
            let line = format!("36 35 0:50 / /mnt rw - fuse.{subtype} a b");
            assert!(parse_line(line.as_bytes()).unwrap().is_okeanos(), "{line}");
        }
    }

    #[test]
    fn nonsense_is_passed_over() {
        for line in [
            &b""[..],
            b"36",
            b"x 35 7:3 / /mnt rw - ext4 a b",
            b"36 35 7:x / /mnt rw - ext4 a b",
            b"36 35 7:3 / /mnt rw",
        ] {
            assert_eq!(parse_line(line), None);
        }
        assert_eq!(unescape(br"a\04\0401"), OsString::from("a\\04 1"));
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(mounts().unwrap().iter().any(|mount| mount.directory == Path::new("/")));
    }
}
