use std::ops::{Deref, DerefMut};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

const SECTOR: usize = 512;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C, align(512))]
struct Sector([u8; SECTOR]);

/// Heap memory that direct I/O accepts: aligned to 512 bytes, a multiple of 512 long, zeroed when made.
#[derive(Clone)]
pub struct Buffer(Vec<Sector>);

impl Buffer {
    /// `length` in bytes, a multiple of 512.
    pub fn zeroed(length: usize) -> Buffer {
        assert!(length.is_multiple_of(SECTOR), "{length} is not a multiple of {SECTOR}");
        Buffer(Sector::new_vec_zeroed(length / SECTOR).expect("memory for a buffer"))
    }
    /// A copy of `bytes`, whose length is a multiple of 512.
    pub fn copy_of(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }
}
impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}
impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}
