//! Slices as arrays.

/// Splits `bytes` into arrays of `N` bytes, and the rest. (`slice::as_chunks` needs Rust 1.88.)
pub fn arrays<const N: usize>(bytes: &[u8]) -> (impl ExactSizeIterator<Item = &[u8; N]>, &[u8]) {
    let chunks = bytes.chunks_exact(N);
    let rest = chunks.remainder();
    (chunks.map(|chunk| chunk.try_into().expect("a chunk has N bytes")), rest)
}
