//! Files mapped shared and for writing.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;

/// A file mapped shared and for writing.
pub struct Map {
    start: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: the memory is touched through atomics alone, or by who has it mutably.
unsafe impl Sync for Map {}
// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Map {}

impl Map {
    pub fn new(file: &File, bytes: usize) -> io::Result<Map> {
        let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let (none, file) = (std::ptr::null_mut(), file.as_raw_fd());
        // SAFETY: a new mapping, unmapped once, by Drop.
        match unsafe { libc::mmap(none, bytes, protection, kind, file, 0) } {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            start => Ok(Map { start, bytes }),
        }
    }
    /// The mapped bytes, of a file that is not cut.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has this length and belongs to this value.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.bytes) }
    }
    /// Returns the word that begins at byte `at`.
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at % 8 == 0 && at < self.bytes);
        // SAFETY: inside the mapping, aligned, and only ever seen as an atomic.
        unsafe { AtomicU64::from_ptr(self.start.cast::<u64>().add(at / 8)) }
    }
    /// Reads all pages, and keeps them in memory as long as the mapping lives.
    pub fn lock(&self) {
        // SAFETY: the mapping belongs to this value.
        assert_eq!(unsafe { libc::mlock(self.start, self.bytes) }, 0);
    }
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the mapping belongs to this value.
        match unsafe { libc::msync(self.start, self.bytes, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no reference outlives this.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}
