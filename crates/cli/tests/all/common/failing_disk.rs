//! A disk that can be unplugged: a file on a FUSE mount of the test's own. The mount passes
//! everything through to a real image until it is made to fail. It may have a cache, which only an
//! FSYNC request empties: writes with O_DSYNC or RWF_DSYNC are cached as all others are.

use super::c_path;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const ROOT: u64 = 1;
const DISK: u64 = 2;
/// Maximum bytes of one WRITE request.
const TRANSFER_MAX: usize = 1 << 20;

pub struct FailingDisk {
    directory: PathBuf,
    state: Arc<State>,
}

/// Requests that can fail (`enum fuse_opcode`).
#[derive(Clone, Copy, Debug)]
pub enum Request {
    Write = 16,
    Flush = 20,
}

#[derive(Default)]
struct State {
    unplugged: AtomicBool,
    /// Bytes of which no read succeeds.
    unreadable: Mutex<Range<u64>>,
    /// Number of the request that fails next; 0: none.
    fails_once: AtomicU32,
    cache: Option<Mutex<Vec<Unsynced>>>,
    /// Flags of the answer to OPEN.
    open_flags: u32,
}

/// Bytes that a write not yet covered by FSYNC replaced, and their offset.
struct Unsynced(u64, Vec<u8>);

/// Way in which the kernel passes on direct writes to a file on a FUSE mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Like most file systems: direct writes are asynchronous if the program's are.
    Plain,
    /// The server asks for `FOPEN_DIRECT_IO`: the kernel adds no fsync, not even to synchronous
    /// writes.
    PastTheCache,
}

impl FailingDisk {
    /// Shows `image` as the file `disk` in `directory`, in this thread's mount namespace.
    pub fn new(image: &Path, directory: &Path) -> FailingDisk {
        FailingDisk::with(image, directory, State::default())
    }
    /// Shows the image through a cache, which [`FailingDisk::lose_cache`] loses.
    pub fn cached(image: &Path, directory: &Path, kind: FileKind) -> FailingDisk {
        const PAST_THE_CACHE: u32 = 1;
        let open_flags = if kind == FileKind::PastTheCache { PAST_THE_CACHE } else { 0 };
        let cache = Some(Mutex::default());
        FailingDisk::with(image, directory, State { cache, open_flags, ..State::default() })
    }
    fn with(image: &Path, directory: &Path, state: State) -> FailingDisk {
        let fuse_device = OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,max_read={TRANSFER_MAX}\0",
            fuse_device.as_raw_fd()
        );
        let target = c_path(directory);
        // SAFETY: all strings end with zero bytes and outlive the call.
        let mounted = unsafe {
            libc::mount(
                c"disk".as_ptr(),
                target.as_ptr(),
                c"fuse".as_ptr(),
                0,
                options.as_ptr().cast(),
            )
        };
        assert_eq!(mounted, 0, "mount: {}", std::io::Error::last_os_error());
        let backing = OpenOptions::new().read(true).write(true).open(image).unwrap();
        let state = Arc::new(state);
        let shared = state.clone();
        std::thread::spawn(move || serve(fuse_device, &backing, &shared));
        FailingDisk { directory: directory.to_owned(), state }
    }
    pub fn path(&self) -> PathBuf {
        self.directory.join("disk")
    }
    /// Makes every read, write and flush fail from now on.
    pub fn unplug(&self) {
        self.state.unplugged.store(true, Ordering::SeqCst);
    }
    pub fn plug_in(&self) {
        self.state.unplugged.store(false, Ordering::SeqCst);
    }
    /// Makes every read of any of these bytes fail.
    pub fn make_unreadable(&self, bytes: Range<u64>) {
        *self.state.unreadable.lock().unwrap() = bytes;
    }
    /// Makes the next request of this kind fail, and only that one.
    pub fn fail_once(&self, request: Request) {
        self.state.fails_once.store(request as u32, Ordering::SeqCst);
    }
    /// Takes back, in `image`, all writes that no FSYNC has covered, as a power cut may. Nobody
    /// writes any more.
    pub fn lose_cache(&self, image: &Path) {
        let cache = self.state.cache.as_ref().expect("a disk with a cache");
        let backing = OpenOptions::new().write(true).open(image).unwrap();
        for Unsynced(at, bytes) in cache.lock().unwrap().drain(..).rev() {
            backing.write_all_at(&bytes, at).unwrap();
        }
    }
    pub fn has_failed(&self) -> bool {
        self.state.fails_once.load(Ordering::SeqCst) == 0
    }
}

impl Drop for FailingDisk {
    fn drop(&mut self) {
        let target = c_path(&self.directory);
        // SAFETY: the string ends with a zero byte.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    }
}

impl State {
    fn cannot_read(&self, at: u64, size: u32) -> bool {
        let unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        at < unreadable.end && unreadable.start < at + u64::from(size)
    }
    fn note_write(&self, backing: &File, at: u64, size: u32) -> std::io::Result<()> {
        let Some(cache) = &self.cache else { return Ok(()) };
        let mut bytes = vec![0; size as usize];
        backing.read_exact_at(&mut bytes, at)?;
        cache.lock().unwrap_or_else(PoisonError::into_inner).push(Unsynced(at, bytes));
        Ok(())
    }
}

/// Answers requests until the mount is gone (linux/fuse.h, version 7.31).
fn serve(mut fuse_device: File, backing: &File, state: &State) {
    let mut request = vec![0; TRANSFER_MAX + 4096];
    while let Ok(length) = fuse_device.read(&mut request) {
        let (header, body) = request[..length].split_at(40);
        let opcode = u32_at(header, 4);
        // FORGET, BATCH_FORGET and INTERRUPT get no answer.
        if [2, 42, 36].contains(&opcode) {
            continue;
        }
        let gone = state.unplugged.load(Ordering::SeqCst)
            || state
                .fails_once
                .compare_exchange(opcode, 0, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok();
        let (error, answer) = match answer(opcode, u64_at(header, 16), body, backing, state, gone) {
            Ok(answer) => (0, answer),
            Err(error) => (-error, Vec::new()),
        };
        let mut message = Vec::with_capacity(16 + answer.len());
        message.extend((16 + answer.len() as u32).to_le_bytes());
        message.extend(error.to_le_bytes());
        message.extend(&header[8..16]);
        message.extend(answer);
        // The requester may have been killed before the reply.
        let _ = fuse_device.write(&message);
    }
}

fn answer(
    opcode: u32,
    node: u64,
    body: &[u8],
    backing: &File,
    state: &State,
    gone: bool,
) -> Result<Vec<u8>, i32> {
    if gone && [15, 16, 20, 43].contains(&opcode) {
        return Err(libc::EIO);
    }
    let failed = |_| libc::EIO;
    Ok(match opcode {
        1 if node == ROOT && body == b"disk\0" => {
            let mut entry = Vec::from(DISK.to_le_bytes());
            entry.resize(40, 0);
            entry.extend(attributes(DISK, backing));
            entry
        }
        1 => return Err(libc::ENOENT),
        3 => [vec![0; 16], attributes(node, backing)].concat(),
        // OPEN, OPENDIR
        14 => [&[0; 8][..], &state.open_flags.to_le_bytes(), &[0; 4]].concat(),
        27 => vec![0; 16],
        15 => {
            let (at, size) = (u64_at(body, 8), u32_at(body, 16));
            if state.cannot_read(at, size) {
                return Err(libc::EIO);
            }
            let mut bytes = vec![0; size as usize];
            let read = backing.read_at(&mut bytes, at).map_err(failed)?;
            bytes.truncate(read);
            bytes
        }
        16 => {
            let (at, size) = (u64_at(body, 8), u32_at(body, 16));
            state.note_write(backing, at, size).map_err(failed)?;
            backing.write_all_at(&body[40..40 + size as usize], at).map_err(failed)?;
            [size.to_le_bytes(), [0; 4]].concat()
        }
        17 => vec![0; 80],
        20 => {
            if let Some(cache) = &state.cache {
                cache.lock().unwrap_or_else(PoisonError::into_inner).clear();
            }
            Vec::new()
        }
        // RELEASE, FLUSH, RELEASEDIR, DESTROY
        18 | 25 | 29 | 38 => Vec::new(),
        26 => init(),
        _ => return Err(libc::ENOSYS),
    })
}

fn init() -> Vec<u8> {
    const ASYNC_READ: u32 = 1;
    const BIG_WRITES: u32 = 1 << 5;
    const ASYNC_DIRECT: u32 = 1 << 15;
    const MAX_PAGES: u32 = 1 << 22;
    let mut bytes = vec![0; 64];
    let mut put = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    put(0, 7);
    put(4, 31);
    put(12, ASYNC_READ | BIG_WRITES | ASYNC_DIRECT | MAX_PAGES);
    put(20, TRANSFER_MAX as u32);
    put(24, 1);
    put(28, (TRANSFER_MAX / 4096) as u32);
    bytes
}

/// `struct fuse_attr`.
fn attributes(node: u64, backing: &File) -> Vec<u8> {
    let (mode, links, size) = match node {
        ROOT => (libc::S_IFDIR | 0o755, 2, 0),
        _ => (libc::S_IFREG | 0o600, 1u32, backing.metadata().map_or(0, |metadata| metadata.len())),
    };
    let mut bytes = vec![0; 88];
    bytes[..8].copy_from_slice(&node.to_le_bytes());
    bytes[8..16].copy_from_slice(&size.to_le_bytes());
    bytes[16..24].copy_from_slice(&(size / 512).to_le_bytes());
    bytes[60..64].copy_from_slice(&mode.to_le_bytes());
    bytes[64..68].copy_from_slice(&links.to_le_bytes());
    bytes[80..84].copy_from_slice(&4096u32.to_le_bytes());
    bytes
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}
