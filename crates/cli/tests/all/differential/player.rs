//! The system calls of a script, carried out in one directory through the mount of each actor.

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, XattrFlags, copy_file_range,
    fallocate, linkat, mknodat, open, removexattr, renameat_with, setxattr,
};
use std::ffi::CString;
use std::fs::{File, Permissions};
use std::io::{self, Error, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, fchown, symlink};
use std::path::PathBuf;

use crate::common::c_path;
use crate::common::mapping::Map;

/// Bytes of the longest write; a buffer of as many is aligned for O_DIRECT.
const LENGTH_MAX: usize = 8192;
#[repr(align(4096))]
struct Aligned([u8; LENGTH_MAX]);

/// One of the two descriptors of an actor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    X,
    Y,
}

/// A process of the script: the directory as its mount shows it, and its descriptors.
pub struct Actor {
    pub directory: PathBuf,
    pub open: [Option<File>; 2],
    /// The last successful request for a lock by each descriptor.
    pub locks: [&'static str; 2],
}

/// The value that a call returns, for comparison.
pub type Value = io::Result<String>;

fn done(result: i64) -> Value {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result.to_string()) }
}
fn nothing(result: Result<(), impl Into<Error>>) -> Value {
    result.map(|()| "0".into()).map_err(Into::into)
}

impl Actor {
    pub fn new(directory: PathBuf) -> Actor {
        Actor { directory, open: [None, None], locks: [""; 2] }
    }
    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
    fn path(&self, name: &str) -> CString {
        c_path(&self.at(name))
    }
    fn file(&self, slot: Slot) -> io::Result<&File> {
        self.open[slot as usize].as_ref().ok_or_else(|| Error::from_raw_os_error(libc::EBADF))
    }
    fn number(&self, slot: Slot) -> io::Result<i32> {
        self.file(slot).map(AsRawFd::as_raw_fd)
    }

    /// Opens a file; a descriptor that the slot holds is closed before.
    pub fn open(&mut self, slot: Slot, name: &str, flags: i32) -> Value {
        self.close(slot)?;
        let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC;
        let file = open(self.at(name), flags, Mode::from_raw_mode(0o640))?;
        self.open[slot as usize] = Some(file.into());
        Ok("a descriptor".into())
    }
    pub fn close(&mut self, slot: Slot) -> Value {
        self.locks[slot as usize] = "";
        Ok(self.open[slot as usize].take().map_or("nothing open", |_| "closed").into())
    }

    pub fn write(&mut self, slot: Slot, byte: u8, length: usize) -> Value {
        let buffer = Aligned([byte; LENGTH_MAX]);
        self.file(slot)?.write(&buffer.0[..length]).map(|count| count.to_string())
    }
    pub fn write_at(&mut self, slot: Slot, byte: u8, at: u64, length: usize) -> Value {
        let buffer = Aligned([byte; LENGTH_MAX]);
        self.file(slot)?.write_at(&buffer.0[..length], at).map(|count| count.to_string())
    }
    pub fn read_at(&mut self, slot: Slot, at: u64, length: usize) -> Value {
        let mut buffer = Aligned([0; LENGTH_MAX]);
        let count = self.file(slot)?.read_at(&mut buffer.0[..length], at)?;
        Ok(runs(&buffer.0[..count]))
    }
    pub fn seek_end(&mut self, slot: Slot) -> Value {
        self.file(slot)?.seek(SeekFrom::End(0)).map(|at| at.to_string())
    }
    pub fn seek(&mut self, slot: Slot, at: i64, whence: i32) -> Value {
        // SAFETY: lseek takes integers.
        done(unsafe { libc::lseek(self.number(slot)?, at, whence) })
    }
    /// Copies bytes within the kernel, to the same place of the other descriptor's file.
    pub fn copy(&mut self, from: Slot, to: Slot, at: u64, length: usize) -> Value {
        let (mut here, mut there) = (at, at);
        let (from, to) = (self.file(from)?, self.file(to)?);
        let copied = copy_file_range(from, Some(&mut here), to, Some(&mut there), length)?;
        Ok(copied.to_string())
    }

    pub fn truncate(&mut self, name: &str, length: i64) -> Value {
        // SAFETY: the path ends with a zero byte.
        done(unsafe { libc::truncate(self.path(name).as_ptr(), length) }.into())
    }
    pub fn set_length(&mut self, slot: Slot, length: u64) -> Value {
        nothing(self.file(slot)?.set_len(length))
    }
    pub fn allocate(&mut self, slot: Slot, mode: i32, at: u64, length: u64) -> Value {
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        nothing(fallocate(self.file(slot)?, mode, at, length))
    }

    pub fn rename(&mut self, from: &str, to: &str, flags: u32) -> Value {
        let flags = RenameFlags::from_bits_retain(flags);
        nothing(renameat_with(CWD, self.at(from), CWD, self.at(to), flags))
    }
    pub fn link(&mut self, from: &str, to: &str) -> Value {
        nothing(std::fs::hard_link(self.at(from), self.at(to)))
    }
    /// Gives an open file a name, as is done for files made by O_TMPFILE.
    pub fn link_open(&mut self, slot: Slot, to: &str) -> Value {
        let from = format!("/proc/self/fd/{}", self.number(slot)?);
        nothing(linkat(CWD, from, CWD, self.at(to), AtFlags::SYMLINK_FOLLOW))
    }
    pub fn unlink(&mut self, name: &str) -> Value {
        nothing(std::fs::remove_file(self.at(name)))
    }
    pub fn make_directory(&mut self, name: &str) -> Value {
        nothing(std::fs::create_dir(self.at(name)))
    }
    pub fn remove_directory(&mut self, name: &str) -> Value {
        nothing(std::fs::remove_dir(self.at(name)))
    }
    pub fn symlink(&mut self, target: &str, name: &str) -> Value {
        nothing(symlink(target, self.at(name)))
    }
    pub fn make_fifo(&mut self, name: &str) -> Value {
        let mode = Mode::from_raw_mode(0o604);
        nothing(mknodat(CWD, self.at(name), FileType::Fifo, mode, 0))
    }

    pub fn change_mode(&mut self, name: &str, mode: u32) -> Value {
        nothing(std::fs::set_permissions(self.at(name), Permissions::from_mode(mode)))
    }
    pub fn change_open_mode(&mut self, slot: Slot, mode: u32) -> Value {
        nothing(self.file(slot)?.set_permissions(Permissions::from_mode(mode)))
    }
    pub fn change_owner(&mut self, name: &str, user: Option<u32>, group: Option<u32>) -> Value {
        nothing(chown(self.at(name), user, group))
    }
    pub fn change_open_owner(&mut self, slot: Slot, user: u32, group: u32) -> Value {
        nothing(fchown(self.file(slot)?, Some(user), Some(group)))
    }

    pub fn set_attribute(&mut self, name: &str, key: &str, length: usize, flags: i32) -> Value {
        let (value, flags) = (vec![b'v'; length], XattrFlags::from_bits_retain(flags as u32));
        nothing(setxattr(self.at(name), key, &value, flags))
    }
    pub fn remove_attribute(&mut self, name: &str, key: &str) -> Value {
        nothing(removexattr(self.at(name), key))
    }

    /// Stores bytes through a shared mapping of the file's first bytes, which ends with the call.
    pub fn store(&mut self, slot: Slot, byte: u8, at: usize, length: usize, sync: bool) -> Value {
        let file = self.file(slot)?;
        // A store behind the last page would raise a signal.
        let end = file.metadata()?.len() as usize;
        if at + length > end {
            return Ok("not mapped so far".into());
        }
        let mut map = Map::new(file, end)?;
        map.bytes()[at..][..length].fill(byte);
        nothing(if sync { map.sync() } else { Ok(()) })
    }

    /// Asks for a lock of the file by its open file description, without waiting.
    pub fn lock(&mut self, slot: Slot, what: &'static str) -> Value {
        let descriptor = self.number(slot)?;
        let kind = |kind: i32| libc::flock {
            l_type: kind as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: 0,
            l_len: 100,
            l_pid: 0,
        };
        let range = |lock: libc::flock| {
            // SAFETY: the lock lives until the call returns.
            unsafe { libc::fcntl(descriptor, libc::F_OFD_SETLK, &lock) }
        };
        // SAFETY: flock takes integers.
        let whole = |operation: i32| unsafe { libc::flock(descriptor, operation | libc::LOCK_NB) };
        let result = match what {
            "shared" => whole(libc::LOCK_SH),
            "exclusive" => whole(libc::LOCK_EX),
            "none" => whole(libc::LOCK_UN),
            "read range" => range(kind(libc::F_RDLCK)),
            "write range" => range(kind(libc::F_WRLCK)),
            _ => range(kind(libc::F_UNLCK)),
        };
        let value = done(result.into())?;
        self.locks[slot as usize] = what;
        Ok(value)
    }

    pub fn sync(&mut self, slot: Slot) -> Value {
        nothing(self.file(slot)?.sync_all())
    }
    pub fn sync_data(&mut self, slot: Slot) -> Value {
        nothing(self.file(slot)?.sync_data())
    }
    pub fn sync_directory(&mut self) -> Value {
        nothing(File::open(&self.directory).and_then(|directory| directory.sync_all()))
    }
}

/// Describes bytes as runs of equal ones: `a*100 0*4` for a hundred letters and four zero bytes.
pub fn runs(bytes: &[u8]) -> String {
    let mut text = format!("{} bytes:", bytes.len());
    for run in bytes.chunk_by(|one, next| one == next) {
        let byte = run[0];
        let shown = if byte.is_ascii_graphic() { byte as char } else { '0' };
        match byte {
            0 => text.push_str(&format!(" 0*{}", run.len())),
            _ if byte.is_ascii_graphic() => text.push_str(&format!(" {shown}*{}", run.len())),
            _ => text.push_str(&format!(" {byte:#x}*{}", run.len())),
        }
    }
    text
}
