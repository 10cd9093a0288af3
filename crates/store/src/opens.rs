//! The open files of a connection, by handle and by file. Each sync asks for those of one file, and
//! there may be thousands.

use crate::attributes::FileId;
use crate::error::Refusal;
use crate::open_file::OpenFile;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct Opens<T> {
    by_handle: BTreeMap<OpenFile, (FileId, T)>,
    by_file: BTreeSet<(FileId, OpenFile)>,
}

impl<T> Default for Opens<T> {
    fn default() -> Opens<T> {
        Opens { by_handle: BTreeMap::new(), by_file: BTreeSet::new() }
    }
}

impl<T> Opens<T> {
    pub fn insert(&mut self, handle: OpenFile, file: FileId, open: T) {
        self.by_handle.insert(handle, (file, open));
        self.by_file.insert((file, handle));
    }
    pub fn get(&self, handle: OpenFile) -> Result<(FileId, &T), Refusal> {
        let (file, open) = self.by_handle.get(&handle).ok_or(Refusal::Stale)?;
        Ok((*file, open))
    }
    pub fn remove(&mut self, handle: OpenFile) -> Result<FileId, Refusal> {
        let (file, _) = self.by_handle.remove(&handle).ok_or(Refusal::Stale)?;
        self.by_file.remove(&(file, handle));
        Ok(file)
    }
    pub fn clear(&mut self) {
        *self = Opens::default();
    }
    pub fn of(&self, file: FileId) -> impl Iterator<Item = &T> {
        let handles = self.by_file.range((file, OpenFile(0))..=(file, OpenFile(u64::MAX)));
        handles.map(|(_, handle)| &self.by_handle[handle].1)
    }
    pub fn is_open(&self, file: FileId) -> bool {
        self.of(file).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_open_until_its_last_handle_is_gone() {
        let mut opens = Opens::default();
        for (handle, file) in [(1, 7), (2, 8), (3, 7)] {
            opens.insert(OpenFile(handle), FileId(file), handle);
        }
        assert_eq!(opens.of(FileId(7)).copied().collect::<Vec<_>>(), [1, 3]);
        assert_eq!(opens.remove(OpenFile(1)).unwrap(), FileId(7));
        assert!(opens.is_open(FileId(7)));
        assert_eq!(opens.remove(OpenFile(3)).unwrap(), FileId(7));
        assert!(!opens.is_open(FileId(7)) && opens.is_open(FileId(8)));
        assert!(opens.remove(OpenFile(3)).is_err() && opens.get(OpenFile(3)).is_err());
        opens.clear();
        assert!(!opens.is_open(FileId(8)));
    }
}
