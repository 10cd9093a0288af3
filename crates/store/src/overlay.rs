//! The writes that a client has not sent to the servers yet, over the servers' content.
//!
//! Invariants: pieces neither overlap nor are empty. Nothing of the servers' content is valid from
//! `base_end` on. A read returns exactly what a file with the same writes would return.

use std::collections::BTreeMap;

/// Neighbours are joined up to this length.
const PIECE_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Default, Debug)]
pub(crate) struct Overlay {
    pieces: BTreeMap<u64, Vec<u8>>,
    /// Total length of all pieces.
    bytes: u64,
    base_end: u64,
    size: u64,
}

impl Overlay {
    /// Creates an overlay over content of `size` bytes.
    pub fn over(size: u64) -> Overlay {
        Overlay { pieces: BTreeMap::new(), bytes: 0, base_end: size, size }
    }
    pub fn size(&self) -> u64 {
        self.size
    }
    /// Returns the bytes to send, each counted once however often it was written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// Returns the end of the servers' content, which is truncated there before the pieces are
    /// sent.
    pub fn base_end(&self) -> u64 {
        self.base_end
    }
    pub fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pieces.iter().map(|(at, bytes)| (*at, &bytes[..]))
    }

    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = at + bytes.len() as u64;
        self.clear(at, end);
        self.bytes += end - at;
        self.size = self.size.max(end);
        if let Some((before, piece)) = self.pieces.range_mut(..at).next_back() {
            if before + piece.len() as u64 == at && piece.len() + bytes.len() <= PIECE_BYTES_MAX {
                piece.extend_from_slice(bytes);
                return;
            }
        }
        self.pieces.insert(at, bytes.to_vec());
    }

    /// Puts this overlay over `older`, on which it was made: both are to be sent again.
    pub fn put_over(&mut self, mut older: Overlay) {
        let newer = std::mem::replace(self, Overlay::over(0));
        newer.pieces().for_each(|(at, bytes)| older.write(at, bytes));
        *self = older;
    }

    /// Removes the bytes `start..end` from all pieces.
    fn clear(&mut self, start: u64, end: u64) {
        if let Some((at, piece)) = self.pieces.range_mut(..start).next_back() {
            if *at + piece.len() as u64 > start {
                let after = piece.split_off((start - at) as usize);
                let behind_end = start + after.len() as u64;
                self.bytes -= behind_end.min(end) - start;
                if behind_end > end {
                    let kept = after[(end - start) as usize..].to_vec();
                    self.pieces.insert(end, kept);
                }
            }
        }
        while let Some((&at, _)) = self.pieces.range(start..end).next() {
            let piece = self.pieces.remove(&at).expect("it is there");
            self.bytes -= end.min(at + piece.len() as u64) - at;
            if at + piece.len() as u64 > end {
                self.pieces.insert(end, piece[(end - at) as usize..].to_vec());
            }
        }
    }

    /// Reads bytes `at..` up to `length`; `base` is the servers' content of that range, perhaps
    /// shorter.
    pub fn read(&self, at: u64, length: usize, mut base: Vec<u8>) -> Vec<u8> {
        let end = self.size.min(at.saturating_add(length as u64));
        if at >= end {
            return Vec::new();
        }
        base.truncate(self.base_end.saturating_sub(at).min(end - at) as usize);
        base.resize((end - at) as usize, 0);
        let first = self.pieces.range(..=at).next_back().map_or(at, |(first, _)| *first);
        for (&piece_at, piece) in self.pieces.range(first..end) {
            let from = piece_at.max(at);
            let to = end.min(piece_at + piece.len() as u64);
            if from < to {
                base[(from - at) as usize..(to - at) as usize]
                    .copy_from_slice(&piece[(from - piece_at) as usize..(to - piece_at) as usize]);
            }
        }
        base
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::SplitMix;

    #[test]
    fn reading_through_gives_what_a_file_would() {
        for seed in 0..200 {
            let random = SplitMix::new(seed);
            let below = |limit: u64| random.next() % limit;
            let base: Vec<u8> = (0..below(300)).map(|byte| byte as u8).collect();
            let (mut overlay, mut file) = (Overlay::over(base.len() as u64), base.clone());
            for step in 0..60 {
                let at = below(400);
                let bytes = vec![200 + step as u8 % 50; below(90) as usize];
                overlay.write(at, &bytes);
                let end = at as usize + bytes.len();
                if !bytes.is_empty() {
                    file.resize(file.len().max(end), 0);
                    file[at as usize..end].copy_from_slice(&bytes);
                }
                let (at, length) = (below(450), below(200) as usize);
                let part = |of: &[u8]| {
                    of.iter().skip(at as usize).take(length).copied().collect::<Vec<u8>>()
                };
                assert_eq!(
                    overlay.read(at, length, part(&base)),
                    part(&file),
                    "seed {seed} step {step}"
                );
                let bytes: usize = overlay.pieces().map(|(_, bytes)| bytes.len()).sum();
                assert_eq!(overlay.bytes(), bytes as u64, "seed {seed} step {step}");
                // The servers get the same content.
                let mut given = base.clone();
                given.truncate(overlay.base_end() as usize);
                for (at, bytes) in overlay.pieces() {
                    let end = at as usize + bytes.len();
                    given.resize(given.len().max(end), 0);
                    given[at as usize..end].copy_from_slice(bytes);
                }
                given.resize(overlay.size() as usize, 0);
                assert_eq!(given, file, "seed {seed} step {step}");
            }
        }
    }
}
