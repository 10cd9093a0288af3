//! Listing directories.

use super::{Result, VolumeFrontEnd};
use ext4::{DirectoryEntry, FileType};
use fuse_session::abi::*;
use fuse_session::{MAX_WRITE, Reply};

/// Length of the record of an eight-byte name, to estimate how many entries to request.
const ENTRY_TYPICAL: usize = size_of::<Dirent>() + 8;

/// Names, and names with inodes, that are listed before other tasks run: each some hundred
/// microseconds.
const NAMES_AT_ONCE: usize = 1024;
const INODES_AT_ONCE: usize = 256;

impl VolumeFrontEnd {
    pub(super) async fn readdir(&self, header: &InHeader, arguments: ReadIn) -> Result {
        let directory = self.inode(header.nodeid).await?;
        let chunk = Chunk { names: NAMES_AT_ONCE, typical: ENTRY_TYPICAL };
        let read = async |cookie, count| self.volume.readdir(&directory, cookie, count).await;
        fill(arguments, chunk, read, |reply, entry, room| {
            let fits = length_of(entry) <= room;
            fits.then(|| append(reply, entry))
        })
        .await
    }

    pub(super) async fn readdirplus(&self, header: &InHeader, arguments: ReadIn) -> Result {
        let directory = self.inode(header.nodeid).await?;
        let typical = ENTRY_TYPICAL + size_of::<EntryOut>();
        let chunk = Chunk { names: INODES_AT_ONCE, typical };
        let read = async |cookie, count| self.volume.readdirplus(&directory, cookie, count).await;
        fill(arguments, chunk, read, |reply, (entry, inode), room| {
            let fits = size_of::<EntryOut>() + length_of(entry) <= room;
            fits.then(|| {
                // Node 0 gives the name alone; the kernel must not count a reference to `.` and
                // `..`.
                let plus = inode.as_ref().map(|inode| self.entry(inode)).unwrap_or_default();
                reply.append(&plus);
                append(reply, entry)
            })
        })
        .await
    }
}

/// A chunk of a listing, which is read in one step.
struct Chunk {
    names: usize,
    /// Length of the record of one, to estimate how many fit.
    typical: usize,
}

/// Fills a reply with what `read` gives behind a cookie, in chunks: a program may ask for a
/// mebibyte. `append` appends a record that has room, and returns its cookie.
async fn fill<T>(
    arguments: ReadIn,
    chunk: Chunk,
    read: impl AsyncFn(u64, usize) -> ext4::Result<Vec<T>>,
    append: impl Fn(&mut Reply, &T, usize) -> Option<u64>,
) -> Result {
    let size_max = arguments.size.min(MAX_WRITE) as usize;
    let mut reply = Reply::with_capacity(size_max);
    let mut cookie = arguments.offset;
    loop {
        let room = size_max - reply.payload_length();
        let count = (room / chunk.typical + 1).min(chunk.names);
        let listed = match read(cookie, count).await {
            // The next request gets the error.
            Err(_) if reply.payload_length() > 0 => return Ok(reply),
            listed => listed?,
        };
        for one in &listed {
            let room = size_max - reply.payload_length();
            match append(&mut reply, one, room) {
                Some(behind) => cookie = behind,
                None => return Ok(reply),
            }
        }
        // Fewer come where names change, and at the end.
        if listed.len() < chunk.names {
            return Ok(reply);
        }
        runtime::yield_now().await;
    }
}

fn length_of(entry: &DirectoryEntry) -> usize {
    (size_of::<Dirent>() + entry.name.len()).next_multiple_of(RECORD_ALIGNMENT)
}

/// Appends a record; returns its cookie.
fn append(reply: &mut Reply, entry: &DirectoryEntry) -> u64 {
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
    entry.cookie
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
