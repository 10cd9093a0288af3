//! Listing directories.

use super::{Result, VolumeFrontEnd};
use ext4::{DirectoryEntry, FileType};
use fuse_session::abi::*;
use fuse_session::{MAX_WRITE, Reply};

/// Length of the record of an eight-byte name, to estimate how many entries to request.
const ENTRY_TYPICAL: usize = size_of::<Dirent>() + 8;

impl VolumeFrontEnd {
    pub(super) async fn readdir(&self, header: &InHeader, arguments: ReadIn) -> Result {
        let directory = self.inode(header.nodeid).await?;
        let size_max = arguments.size.min(MAX_WRITE) as usize;
        let entries =
            self.volume.readdir(&directory, arguments.offset, size_max / ENTRY_TYPICAL + 1).await?;
        let mut reply = Reply::with_capacity(size_max);
        for entry in &entries {
            if reply.payload_length() + length_of(entry) > size_max {
                break;
            }
            append(&mut reply, entry);
        }
        Ok(reply)
    }

    pub(super) async fn readdirplus(&self, header: &InHeader, arguments: ReadIn) -> Result {
        let directory = self.inode(header.nodeid).await?;
        let size_max = arguments.size.min(MAX_WRITE) as usize;
        let typical = ENTRY_TYPICAL + size_of::<EntryOut>();
        let entries =
            self.volume.readdirplus(&directory, arguments.offset, size_max / typical + 1).await?;
        let mut reply = Reply::with_capacity(size_max);
        for (entry, inode) in &entries {
            if reply.payload_length() + size_of::<EntryOut>() + length_of(entry) > size_max {
                break;
            }
            // Node 0 gives the name alone; the kernel must not count a reference to `.` and `..`.
            let plus = inode.as_ref().map(|inode| self.entry(inode)).unwrap_or_default();
            reply.append(&plus);
            append(&mut reply, entry);
        }
        Ok(reply)
    }
}

fn length_of(entry: &DirectoryEntry) -> usize {
    (size_of::<Dirent>() + entry.name.len()).next_multiple_of(RECORD_ALIGNMENT)
}

fn append(reply: &mut Reply, entry: &DirectoryEntry) {
    let kind = match entry.file_type {
        FileType::Unknown => libc::DT_UNKNOWN,
        FileType::Regular => libc::DT_REG,
        FileType::Directory => libc::DT_DIR,
        FileType::CharacterDevice => libc::DT_CHR,
        FileType::BlockDevice => libc::DT_BLK,
        FileType::Fifo => libc::DT_FIFO,
        FileType::Socket => libc::DT_SOCK,
        FileType::Symlink => libc::DT_LNK,
    };
    reply.append(&Dirent {
        ino: u64::from(entry.inode.get()),
        off: entry.cookie,
        namelen: entry.name.len() as u32,
        kind: u32::from(kind),
    });
    reply.append_bytes(&entry.name);
    reply.pad(RECORD_ALIGNMENT);
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::InodeNumber;

    #[test]
    fn a_record_has_the_computed_length() {
        for length in 1..=255 {
            let (name, file_type) = (vec![b'n'; length], FileType::Regular);
            let entry = DirectoryEntry { inode: InodeNumber(12), file_type, name, cookie: 1 };
            let mut reply = Reply::empty();
            append(&mut reply, &entry);
            assert_eq!(reply.payload_length(), length_of(&entry));
        }
    }
}
