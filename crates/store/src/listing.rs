//! Cursors of a directory's entries that do not depend on its other entries. A reader that
//! continues after a cursor gets each name that existed all the time exactly once, whatever was
//! created, removed or listed in between.

use crate::names::Entry;
use runtime::SplitMix;

/// Returns a cursor from 1 to 2^62. Without the seed nobody can choose names with equal ones.
pub(crate) fn cursor_of(seed: u64, name: &[u8]) -> u64 {
    let mix = |state: u64, chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        SplitMix::new(state ^ u64::from_le_bytes(word) ^ chunk.len() as u64).next()
    };
    (name.chunks(8).fold(seed, mix) >> 2) + 1
}

/// Sorts entries by their cursors, which are distinct.
pub(crate) fn in_order(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by(|one, other| (one.cursor, &one.name).cmp(&(other.cursor, &other.name)));
    for at in 1..entries.len() {
        entries[at].cursor = entries[at].cursor.max(entries[at - 1].cursor + 1);
    }
    entries
}

/// Returns the entries after a cursor.
pub(crate) fn after(entries: &[Entry], cursor: u64) -> &[Entry] {
    &entries[entries.partition_point(|entry| entry.cursor <= cursor)..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileId, FileKind};

    #[test]
    fn equal_cursors_are_made_distinct_and_stay_in_order() {
        let entry = |name: &str, cursor| {
            let (name, file) = (name.as_bytes().to_vec(), FileId(1));
            Entry { name, file, kind: FileKind::Regular, cursor }
        };
        let ordered = in_order(vec![entry("c", 7), entry("b", 8), entry("a", 7), entry("d", 20)]);
        let cursors: Vec<_> = ordered.iter().map(|one| (one.name[0], one.cursor)).collect();
        assert_eq!(cursors, [(b'a', 7), (b'c', 8), (b'b', 9), (b'd', 20)]);
        assert_eq!(after(&ordered, 8).len(), 2);
        assert!(after(&ordered, 20).is_empty());
    }

    #[test]
    fn cursors_depend_on_the_whole_name() {
        let names = ["", "a", "a\0", "12345678", "123456789", "12345678\0", "abcdefgh12345678"];
        let mut cursors: Vec<u64> =
            names.iter().map(|name| cursor_of(1, name.as_bytes())).collect();
        assert!(cursors.iter().all(|cursor| (1..=1 << 62).contains(cursor)));
        cursors.sort_unstable();
        cursors.dedup();
        assert_eq!(cursors.len(), names.len());
    }
}
