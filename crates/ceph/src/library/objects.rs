//! Files and open files of the library.

use super::Errno;
use super::abi::{self, RawHandle, RawInode, Statx};
use super::listener;
use super::mount::Mount;
use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use store::{
    Allocation, AttributeChange, FileAttributes, FileId, LOCK_END, LockMode, Space, TimeChange,
    Token, Version, XattrMode,
};
use units::Timestamp;

use crate::wire::kind_of;

/// Fields requested of a file: all that a [`Version`] needs come at once.
pub(super) const WANTED: u32 = abi::STATX_BASIC | abi::STATX_VERSION;

/// The greatest offset of a file (Linux).
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Attempts of one read of a file whose end keeps moving.
const READS_MAX: u32 = 100;

/// Calls a function of the library about a file or an open file, and checks its answer; `as user`
/// passes what the mount's user may.
macro_rules! ask {
    ($of:ident, $function:ident($($argument:expr),* $(,)?)) => {{
        let mount = $of.mount();
        Errno::check((mount.call.$function)(mount.raw, $of.raw, $($argument),*))
    }};
    ($of:ident, $function:ident($($argument:expr),* $(,)?), as user) => {
        ask!($of, $function($($argument,)* $of.mount().permissions))
    };
}
pub(super) use ask;

/// A reference to a file; keeps the file in the library's memory.
pub struct Inode {
    pub(super) mount: &'static Mount,
    pub(super) raw: *mut RawInode,
}
// SAFETY: the library takes a file from any thread; the pointer stays valid until the reference is
// given back.
unsafe impl Send for Inode {}
// SAFETY: as above.
unsafe impl Sync for Inode {}

impl Drop for Inode {
    fn drop(&mut self) {
        // SAFETY: this is the one reference that `raw` came with.
        unsafe { (self.mount.call.ceph_ll_put)(self.mount.raw, self.raw) };
    }
}

impl Inode {
    pub(super) fn of(mount: &'static Mount, raw: *mut RawInode) -> Inode {
        Inode { mount, raw }
    }

    pub(super) fn mount(&self) -> &'static Mount {
        self.mount
    }

    pub fn attributes(&self) -> Result<FileAttributes, Errno> {
        self.look(WANTED).map(|statx| attributes_of(&statx))
    }
    pub fn size(&self) -> Result<u64, Errno> {
        self.look(abi::STATX_SIZE).map(|statx| statx.size)
    }
    fn look(&self, wanted: u32) -> Result<Statx, Errno> {
        let mut statx = MaybeUninit::<Statx>::zeroed();
        // SAFETY: the reference keeps the file; the answer's place is as long as the library's
        // structure, and zeros are valid.
        unsafe {
            ask!(self, ceph_ll_getattr(statx.as_mut_ptr(), wanted, 0), as user)?;
            Ok(statx.assume_init())
        }
    }

    pub fn set_attributes(&self, change: &AttributeChange) -> Result<(), Errno> {
        // SAFETY: a structure of numbers, of which zeros are valid.
        let mut statx: Statx = unsafe { std::mem::zeroed() };
        let mut mask = 0;
        if let Some(size) = change.size {
            (statx.size, mask) = (size, mask | abi::SETATTR_SIZE);
        }
        if let Some(mode) = change.mode {
            (statx.mode, mask) = (mode as u16 & 0o7777, mask | abi::SETATTR_MODE);
        }
        if let Some(uid) = change.uid {
            (statx.uid, mask) = (uid, mask | abi::SETATTR_UID);
        }
        if let Some(gid) = change.gid {
            (statx.gid, mask) = (gid, mask | abi::SETATTR_GID);
        }
        if let Some(time) = change.accessed {
            (statx.accessed, mask) = (timespec(time)?, mask | abi::SETATTR_ATIME);
        }
        if let Some(time) = change.modified {
            (statx.modified, mask) = (timespec(time)?, mask | abi::SETATTR_MTIME);
        }
        // SAFETY: the reference keeps the file; the structure is only read.
        unsafe { ask!(self, ceph_ll_setattr(&raw mut statx, mask), as user) }.map(drop)
    }

    /// Makes content and attributes durable; of a directory, its names.
    pub fn sync(&self) -> Result<(), Errno> {
        self.sync_what(0)
    }
    pub fn sync_content(&self) -> Result<(), Errno> {
        self.sync_what(1)
    }
    fn sync_what(&self, content_alone: c_int) -> Result<(), Errno> {
        // SAFETY: the reference keeps the file.
        unsafe { ask!(self, ceph_ll_sync_inode(content_alone)) }.map(drop)
    }

    pub fn space(&self) -> Result<Space, Errno> {
        let mut space = MaybeUninit::<libc::statvfs>::zeroed();
        // SAFETY: the place for the answer is of the library's type, and zeros are valid.
        let space = unsafe {
            ask!(self, ceph_ll_statfs(space.as_mut_ptr()))?;
            space.assume_init()
        };
        Ok(Space {
            block_bytes: space.f_frsize.try_into().unwrap_or(4096),
            blocks: space.f_blocks,
            blocks_free: space.f_bfree,
            blocks_available: space.f_bavail,
            files: space.f_files,
            files_free: space.f_ffree,
        })
    }

    pub fn xattr(&self, name: &CStr, bytes_max: usize) -> Result<Vec<u8>, Errno> {
        let mut value = vec![0u8; bytes_max];
        let (name, place) = (name.as_ptr(), value.as_mut_ptr().cast());
        // SAFETY: the library writes at most `bytes_max` bytes to the place.
        let length = unsafe { ask!(self, ceph_ll_getxattr(name, place, bytes_max), as user) }?;
        value.truncate(length as usize);
        Ok(value)
    }

    /// Returns the UUID of the cluster; zero if it is unknown.
    pub fn cluster(&self) -> u128 {
        let reported = self.xattr(c"ceph.cluster_fsid", 64).unwrap_or_default();
        let digits: String =
            reported.iter().map(|byte| char::from(*byte)).filter(char::is_ascii_hexdigit).collect();
        u128::from_str_radix(&digits, 16).unwrap_or(0)
    }

    pub fn xattr_names(&self, bytes_max: usize) -> Result<Vec<u8>, Errno> {
        let (mut names, mut length) = (vec![0u8; bytes_max], 0);
        let place = names.as_mut_ptr().cast();
        // SAFETY: as above.
        unsafe { ask!(self, ceph_ll_listxattr(place, bytes_max, &raw mut length), as user) }?;
        names.truncate(length);
        Ok(names)
    }

    pub fn set_xattr(&self, name: &CStr, value: &[u8], mode: XattrMode) -> Result<(), Errno> {
        let flags = match mode {
            XattrMode::Set => 0,
            XattrMode::Create => libc::XATTR_CREATE,
            XattrMode::Replace => libc::XATTR_REPLACE,
        };
        let (name, place, length) = (name.as_ptr(), value.as_ptr().cast(), value.len());
        // SAFETY: the value is only read, and as long as is said.
        unsafe { ask!(self, ceph_ll_setxattr(name, place, length, flags), as user) }.map(drop)
    }

    pub fn remove_xattr(&self, name: &CStr) -> Result<(), Errno> {
        // SAFETY: the reference keeps the file, the name ends with zero.
        unsafe { ask!(self, ceph_ll_removexattr(name.as_ptr()), as user) }.map(drop)
    }

    pub fn open(self: &Arc<Inode>, write: bool) -> Result<Handle, Errno> {
        let mut handle = ptr::null_mut();
        let flags = if write { libc::O_RDWR } else { libc::O_RDONLY };
        // SAFETY: the reference keeps the file; the pointer is to a place for the answer.
        unsafe { ask!(self, ceph_ll_open(flags, &raw mut handle), as user) }?;
        Ok(Handle { inode: self.clone(), raw: handle })
    }
}

impl Mount {
    pub fn root(&'static self) -> Result<Inode, Errno> {
        let mut raw = ptr::null_mut();
        // SAFETY: the connection is mounted, the pointer is to a place for the answer.
        Errno::check(unsafe { (self.call.ceph_ll_lookup_root)(self.raw, &raw mut raw) })?;
        Ok(Inode::of(self, raw))
    }
    pub fn find(&'static self, number: u64) -> Result<Inode, Errno> {
        let (mut raw, number) = (ptr::null_mut(), abi::InodeNumber { value: number });
        // SAFETY: as above.
        Errno::check(unsafe { (self.call.ceph_ll_lookup_inode)(self.raw, number, &raw mut raw) })?;
        Ok(Inode::of(self, raw))
    }
}

/// An open file of the library. Closed when the last reference is dropped.
pub struct Handle {
    inode: Arc<Inode>,
    raw: *mut RawHandle,
}
// SAFETY: the library takes an open file from any thread; it is closed by nobody but its drop.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        let mount = self.inode.mount;
        // SAFETY: no other reference to the handle is left. A failure here had happened before, and
        // the last sync reported it.
        unsafe { (mount.call.ceph_ll_close)(mount.raw, self.raw) };
    }
}

impl Handle {
    fn mount(&self) -> &'static Mount {
        self.inode.mount
    }

    /// Reads; shorter than `length` only at the end of the file. T11: over a moving end the library
    /// may return the last piece as if it were the beginning, or zeros for what follows. So it is
    /// asked for what was there before, and for all of that.
    pub fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        for _ in 0..READS_MAX {
            let wanted = self.inode.size()?.saturating_sub(at).min(length as u64) as usize;
            if wanted == 0 || self.read_once(at, wanted, &mut bytes)? == wanted {
                bytes.truncate(wanted);
                return Ok(bytes);
            }
        }
        Err(Errno(libc::EIO))
    }
    fn read_once(&self, at: u64, length: usize, bytes: &mut Vec<u8>) -> Result<usize, Errno> {
        bytes.clear();
        bytes.reserve(length);
        let (at, place) = (offset(at, 0)?, bytes.spare_capacity_mut().as_mut_ptr());
        // SAFETY: the place has `length` bytes.
        let count = unsafe { ask!(self, ceph_ll_read(at, length as u64, place.cast())) }?;
        let count = (count as usize).min(length);
        // SAFETY: the library has filled `count` bytes, and no more than the place has.
        unsafe { bytes.set_len(count) };
        Ok(count)
    }

    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes.len() {
            let (at, rest) = (offset(at, done)?, &bytes[done..]);
            let (place, left) = (rest.as_ptr().cast(), rest.len() as u64);
            // SAFETY: the library reads `left` bytes at the place, and copies them.
            match unsafe { ask!(self, ceph_ll_write(at, left, place)) }? {
                0 => return Err(Errno(libc::EIO)),
                count => done += count as usize,
            }
        }
        Ok(())
    }

    pub fn allocate(&self, what: Allocation, range: &Range<u64>) -> Result<(), Errno> {
        let mode = match what {
            Allocation::Reserve => 0,
            Allocation::ReserveKeepingSize => libc::FALLOC_FL_KEEP_SIZE,
            Allocation::PunchHole => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
        };
        let length = range.end.checked_sub(range.start).and_then(|length| length.try_into().ok());
        let (at, length) = (offset(range.start, 0)?, length.ok_or(Errno(libc::EFBIG))?);
        // SAFETY: the handle is open.
        unsafe { ask!(self, ceph_ll_fallocate(mode, at, length)) }.map(drop)
    }

    pub fn sync(&self) -> Result<(), Errno> {
        self.sync_what(0)
    }
    pub fn sync_content(&self) -> Result<(), Errno> {
        self.sync_what(1)
    }
    fn sync_what(&self, content_alone: c_int) -> Result<(), Errno> {
        // SAFETY: the handle is open.
        unsafe { ask!(self, ceph_ll_fsync(content_alone)) }.map(drop)
    }

    /// Sends the file's attributes to the servers, without waiting. T10: there is no call for that.
    /// Changing how the file is opened makes the library report everything that it holds back. The
    /// handle can only be closed afterwards.
    pub fn send_attributes(&self) -> Result<(), Errno> {
        // SAFETY: the handle is open.
        unsafe { ask!(self, ceph_ll_lazyio(1)) }.map(drop)
    }

    /// Asks whether the servers still know this client. T7: an excluded library drops its buffer,
    /// and syncs with success. A request for a lock is the one question about a file that it never
    /// answers by itself.
    pub fn ask_servers(&self) -> Result<(), Errno> {
        let asked = self.get_lock(0, flock_of(Some(LockMode::Shared), &(0..1)));
        asked.map(drop).map_err(Errno::of_question)
    }

    fn set_lock(&self, owner: u64, mut lock: libc::flock) -> Result<(), Errno> {
        // SAFETY: the handle is open; the library reads the lock.
        unsafe { ask!(self, ceph_ll_setlk(&raw mut lock, owner, 0)) }.map(drop)
    }
    /// Returns the lock that stands against this one, or this one with F_UNLCK.
    fn get_lock(&self, owner: u64, mut lock: libc::flock) -> Result<libc::flock, Errno> {
        // SAFETY: the handle is open; the library reads the lock, and writes the other there.
        unsafe { ask!(self, ceph_ll_getlk(&raw mut lock, owner)) }?;
        Ok(lock)
    }

    /// Sets a lock. EAGAIN: a conflicting lock exists. Locks end with the handle.
    pub fn lock(
        &self,
        owner: u64,
        mode: Option<LockMode>,
        range: &Range<u64>,
    ) -> Result<(), Errno> {
        self.set_lock(owner, flock_of(mode, range))
    }
    /// Returns a conflicting lock.
    pub fn lock_against(
        &self,
        owner: u64,
        mode: LockMode,
        range: &Range<u64>,
    ) -> Result<Option<(LockMode, Range<u64>)>, Errno> {
        let lock = self.get_lock(owner, flock_of(Some(mode), range))?;
        let mode = match lock.l_type as c_int {
            libc::F_RDLCK => LockMode::Shared,
            libc::F_WRLCK => LockMode::Exclusive,
            _ => return Ok(None),
        };
        let (start, length) = (lock.l_start.max(0) as u64, lock.l_len.max(0) as u64);
        let end = start.saturating_add(length);
        let end = if length == 0 || end >= OFFSET_MAX { LOCK_END } else { end };
        Ok(Some((mode, start.min(end)..end)))
    }

    /// Locks a byte for readers; `at` may lie beyond [`LOCK_END`]: the servers' numbers have no
    /// sign.
    pub fn lock_byte(&self, owner: u64, at: u64) -> Result<(), Errno> {
        self.set_lock(owner, flock(libc::F_RDLCK, at as i64, 1))
    }
    /// Locks a byte for one owner alone. EAGAIN: another owner has it.
    pub fn lock_byte_alone(&self, owner: u64, at: u64) -> Result<(), Errno> {
        self.set_lock(owner, flock(libc::F_WRLCK, at as i64, 1))
    }
    pub fn unlock_byte(&self, owner: u64, at: u64) -> Result<(), Errno> {
        self.set_lock(owner, flock(libc::F_UNLCK, at as i64, 1))
    }
    /// Returns whether another owner has a lock on the byte.
    pub fn is_byte_locked(&self, owner: u64, at: u64) -> Result<bool, Errno> {
        let lock = self.get_lock(owner, flock(libc::F_WRLCK, at as i64, 1))?;
        Ok(lock.l_type as c_int != libc::F_UNLCK)
    }

    /// Takes a token. EAGAIN: another client has the file open. `number` identifies the recall.
    pub fn take_token(&self, token: Token, number: u64) -> Result<(), Errno> {
        let kind = match token {
            Token::SharedRead => abi::DELEGATION_READ,
            Token::ExclusiveWrite => abi::DELEGATION_WRITE,
            Token::SharedWrite => return Err(Errno::INVALID),
        };
        self.delegation(kind, number)
    }
    pub fn return_token(&self) -> Result<(), Errno> {
        self.delegation(abi::DELEGATION_NONE, 0)
    }
    fn delegation(&self, kind: u32, number: u64) -> Result<(), Errno> {
        let number = ptr::without_provenance_mut(number as usize);
        // SAFETY: the handle is open; what is passed to the callback is a number and points to
        // nothing.
        unsafe { ask!(self, ceph_ll_delegation(kind, Some(listener::recalled), number)) }.map(drop)
    }
}

fn flock_of(mode: Option<LockMode>, range: &Range<u64>) -> libc::flock {
    let kind = match mode {
        Some(LockMode::Shared) => libc::F_RDLCK,
        Some(LockMode::Exclusive) => libc::F_WRLCK,
        None => libc::F_UNLCK,
    };
    // Not by a length of zero, which would reach those of sessions, too.
    let (start, end) = (range.start.min(OFFSET_MAX - 1), range.end.min(OFFSET_MAX));
    flock(kind, start as i64, end.saturating_sub(start).max(1) as i64)
}

fn flock(kind: c_int, start: i64, length: i64) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}

fn offset(at: u64, done: usize) -> Result<i64, Errno> {
    at.checked_add(done as u64).and_then(|at| at.try_into().ok()).ok_or(Errno(libc::EFBIG))
}

pub(super) fn attributes_of(statx: &Statx) -> FileAttributes {
    let changed = timestamp(&statx.changed);
    let mode = u32::from(statx.mode);
    // T2: the number is a client's own count while it holds the file, so that two histories reach
    // the same one. With size and time of change, a state is mistaken for another only if both were
    // made in the same nanosecond.
    let version = Version {
        number: statx.version,
        ctime_ns: u64::try_from(changed.seconds).unwrap_or(0).saturating_mul(1_000_000_000)
            + u64::from(changed.nanoseconds),
        size: statx.size,
    };
    FileAttributes {
        file: FileId(statx.inode),
        kind: kind_of(mode),
        version,
        mode: mode & 0o7777,
        links: statx.links,
        uid: statx.uid,
        gid: statx.gid,
        rdev: statx.rdev as u32,
        blocks: statx.blocks,
        accessed: timestamp(&statx.accessed),
        modified: timestamp(&statx.modified),
        changed,
    }
}

fn timestamp(time: &libc::timespec) -> Timestamp {
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec.clamp(0, 999_999_999) as u32 }
}
fn timespec(change: TimeChange) -> Result<libc::timespec, Errno> {
    match change {
        TimeChange::To(time) => {
            Ok(libc::timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds as c_int as i64 })
        }
        TimeChange::Now => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let now = now.map_err(|_| Errno::INVALID)?;
            Ok(libc::timespec { tv_sec: now.as_secs() as i64, tv_nsec: now.subsec_nanos().into() })
        }
    }
}
