//! Writing a file's content.
//!
//! A write is cut into updates of single blocks. As many as a handle may have, at least those of a mebibyte if the
//! journal is large enough, go with the allocation they need and the new size and times into one handle: after
//! a crash all of them are there or none (as far as the mode journals data). An overwrite or append within blocks already mapped changes nothing but the inode, and
//! waits for nothing once the caches are warm.

use super::{WriteFlags, WriteOrigin, Written, check_changeable};
use crate::{Allocate, Caller, Error, Inode, MappingState, Result, Volume, errno};
use engine::{Base, Credits, FileUpdate, Handle};
use std::ops::Range;
use std::rc::Rc;
use units::{BlockRange, FileBlock, HomeBlock, TransactionId};

/// Blocks per handle in modes that do not log data.
const BLOCKS_UNLOGGED: u32 = 256;

/// One write(2), as it is passed down.
struct Request<'a> {
    inode: &'a Inode,
    caller: &'a Caller,
    /// Bytes of the whole request.
    length: u64,
    sequential: bool,
    kill_privileges: bool,
    write_back: bool,
}

impl Volume {
    /// An error only if nothing could be written: what a failure leaves of a write is told as a shorter one.
    /// Pages written back are written whole, or there is an error: nobody asks how many bytes of them were.
    pub async fn write(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        caller: &Caller,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
    ) -> Result<Written> {
        let _guard = inode.lock.write().await;
        let size = inode.fields.borrow().size;
        let offset = if flags.append { size } else { offset };
        if flags.origin == WriteOrigin::WriteBack {
            return self.write_back_locked(inode, caller, offset, bytes).await;
        }
        check_changeable(inode, offset >= size)?;
        let written = self.write_locked(inode, caller, offset, bytes, flags.kill_privileges).await?;
        inode.pages.written_back();
        let range = offset..offset + written.count as u64;
        match flags.origin {
            WriteOrigin::PastCache => inode.pages.written_past(range),
            _ => inode.pages.agreed(range),
        }
        Ok(written)
    }

    /// What of the pages is not older than the file. Flags that forbid changes came after the mapping.
    async fn write_back_locked(
        &self,
        inode: &Inode,
        caller: &Caller,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Written> {
        if !inode.is_regular() {
            return Err(Error::Refused(errno::EINVAL));
        }
        let mut written = Written { count: bytes.len(), transaction: inode.last_data_change.get() };
        for piece in inode.pages.not_older(offset..offset.saturating_add(bytes.len() as u64)) {
            let part = &bytes[(piece.start - offset) as usize..(piece.end - offset) as usize];
            let done = self.write_part(inode, caller, piece.start, part, false, true).await?;
            if done.count < part.len() {
                return Err(Error::Refused(errno::ENOSPC));
            }
            written.transaction = done.transaction;
        }
        Ok(written)
    }

    /// Also for the content of long symbolic links.
    pub(crate) async fn write_locked(
        &self,
        inode: &Inode,
        caller: &Caller,
        offset: u64,
        bytes: &[u8],
        kill_privileges: bool,
    ) -> Result<Written> {
        self.write_part(inode, caller, offset, bytes, kill_privileges, false).await
    }

    async fn write_part(
        &self,
        inode: &Inode,
        caller: &Caller,
        offset: u64,
        bytes: &[u8],
        kill_privileges: bool,
        write_back: bool,
    ) -> Result<Written> {
        let room = self.file_size_max(inode).saturating_sub(offset);
        if room == 0 && !bytes.is_empty() {
            return Err(Error::Refused(errno::EFBIG));
        }
        let bytes = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        let sequential = inode.mapping_cache.write_end.get() == offset;
        let kill_privileges = kill_privileges && self.may_have_privileges(inode);
        let length = bytes.len() as u64;
        let request = Request { inode, caller, length, sequential, kill_privileges, write_back };
        let mut written = Written { count: 0, transaction: inode.last_data_change.get() };
        self.prepare_ends(inode, offset, bytes.len() as u64).await;
        let mut attempt = 0;
        while written.count < bytes.len() {
            let at = offset + written.count as u64;
            match self.write_handle(&request, at, &bytes[written.count..]).await {
                Ok((count, transaction)) => {
                    written = Written { count: written.count + count, transaction };
                    attempt = 0;
                }
                Err(Error::Refused(errno::ENOSPC)) => {
                    if !self.retry_allocation(attempt).await? {
                        break;
                    }
                    attempt += 1;
                }
                Err(error) if written.count == 0 => return Err(error),
                Err(_) => break,
            }
        }
        if written.count == 0 && !bytes.is_empty() {
            return Err(Error::Refused(errno::ENOSPC));
        }
        inode.mapping_cache.write_end.set(offset + written.count as u64);
        Ok(written)
    }

    /// Brings what is needed of the blocks that the write changes in part into memory. What cannot be read the write will
    /// meet where it comes to it.
    async fn prepare_ends(&self, inode: &Inode, at: u64, length: u64) {
        let size = self.block_size().bytes() as u64;
        let end = at + length;
        let first = at..end.min(at - at % size + size);
        let last = first.end.max(end - end % size)..end;
        let exists = inode.fields.borrow().size;
        let is_part = |part: &Range<u64>| !part.is_empty() && part.end - part.start < size;
        for part in [first, last].into_iter().filter(is_part) {
            let block = self.block_of(part.start);
            if part.start - part.start % size >= exists {
                continue;
            }
            let found = self.map(inode, block, 1).await.map(|mapping| mapping.state);
            if let Ok(MappingState::Written(home)) = found {
                let start = self.place_of(part.start);
                let range = BlockRange::new(start, start + (part.end - part.start) as u32);
                let _ = self.engine().prepare_data(home, range, length).await;
            }
        }
    }

    /// As much of the write as fits into one handle, or comes before an error. How much; the error if nothing.
    async fn write_handle(
        &self,
        request: &Request<'_>,
        at: u64,
        bytes: &[u8],
    ) -> Result<(usize, TransactionId)> {
        let inode = request.inode;
        let _table = self.hold(&[inode]).await?;
        let credits = self.credits_write(request, at, bytes.len());
        let mut handle = self.engine().start_writing(credits, self.data_blocks(at, bytes.len())).await?;
        let mut count = 0;
        let result = self.write_blocks(&mut handle, request, at, bytes, &mut count).await;
        if count > 0 {
            if request.write_back && inode.pages.keep_time(self.engine().world().now()) {
                self.note_change(inode);
            } else {
                self.note_modification(inode);
            }
            let mut fields = inode.fields.borrow_mut();
            fields.size = fields.size.max(at + count as u64);
        }
        // Also after an error: the tree may have grown before it, and its root is in the inode.
        let stored = self.store(&mut handle, inode).await;
        let transaction = handle.stop();
        stored?;
        match result {
            Err(error) if count == 0 => Err(error),
            _ => Ok((count, transaction)),
        }
    }

    /// `count` tells how many bytes were written, also when an error ended it.
    async fn write_blocks(
        &self,
        handle: &mut Handle,
        request: &Request<'_>,
        at: u64,
        bytes: &[u8],
        count: &mut usize,
    ) -> Result<()> {
        let inode = request.inode;
        if request.kill_privileges {
            self.kill_privileges(handle, inode).await?;
        }
        self.zero_behind_end(handle, inode, at).await?;
        let first = u64::from(self.block_of(at).get());
        let last = (at + bytes.len() as u64 - 1) >> self.block_size().shift();
        let last = last.min(first + u64::from(self.blocks_per_handle()) - 1);
        let mut block = first;
        while block <= last {
            let (from, wanted) = (FileBlock(block as u32), (last - block + 1) as u32);
            if block > first
                && self.written_in_memory(inode, from, wanted).is_none()
                && !handle.extend(self.credits_map(inode))
            {
                return Ok(());
            }
            let (home, run, base) = self.block_to_write(handle, request, from, wanted).await?;
            for index in 0..run {
                let (home, rest) = (home.plus(index.into()), &bytes[*count..]);
                *count += self.write_block(handle, request, home, base, at + *count as u64, rest).await?;
            }
            block += u64::from(run);
        }
        Ok(())
    }

    /// The part of `bytes` that falls into the block of byte `at`. How much that is.
    async fn write_block(
        &self,
        handle: &mut Handle,
        request: &Request<'_>,
        home: HomeBlock,
        base: Base,
        at: u64,
        bytes: &[u8],
    ) -> Result<usize> {
        let start = self.place_of(at) as usize;
        let length = bytes.len().min(self.block_size().bytes() - start);
        let update = FileUpdate {
            inode: request.inode.number,
            home,
            range: BlockRange::new(start as u32, (start + length) as u32),
            bytes: &bytes[..length],
            base,
            request: request.length,
            sequential: request.sequential,
        };
        handle.file_data(update).await?;
        request.inode.last_data_change.set(handle.transaction());
        Ok(length)
    }

    /// A run of blocks that may be written now: found, turned from unwritten, or allocated.
    async fn block_to_write(
        &self,
        handle: &mut Handle,
        request: &Request<'_>,
        at: FileBlock,
        count: u32,
    ) -> Result<(HomeBlock, u32, Base)> {
        let (inode, caller) = (request.inode, request.caller);
        if let Some((home, count)) = self.written_in_memory(inode, at, count) {
            return Ok((home, count, Base::Home));
        }
        let found = self.map_or_allocate(handle, inode, caller, at, count, Allocate::Written).await?;
        let run = found.mapping.count;
        match found.mapping.state {
            MappingState::Written(home) if found.fresh => Ok((home, run, Base::Zero)),
            MappingState::Written(home) => Ok((home, run, Base::Home)),
            MappingState::Unwritten(home) => {
                let run = self.mark_written(handle, inode, at, run).await?;
                assert!(run > 0, "the extent that was just found");
                Ok((home, run, Base::Zero))
            }
            MappingState::Hole => unreachable!("holes are filled"),
        }
    }

    fn written_in_memory(&self, inode: &Inode, at: FileBlock, count: u32) -> Option<(HomeBlock, u32)> {
        let mapping = self.map_from_memory(inode, at, count)?;
        match mapping.state {
            MappingState::Written(home) => Some((home, mapping.count)),
            _ => None,
        }
    }

    /// One of the engine's blocks is for the zeros behind the old end.
    fn blocks_per_handle(&self) -> u32 {
        match self.engine().data_blocks_per_handle() {
            0 => BLOCKS_UNLOGGED,
            blocks => blocks.saturating_sub(1).max(1),
        }
    }

    /// Blocks of file data that one handle of the write changes, with the one whose zeros may come behind the old end.
    fn data_blocks(&self, at: u64, length: usize) -> u32 {
        let shift = self.block_size().shift();
        let touched = ((at + length as u64 - 1) >> shift) - (at >> shift) + 1;
        touched.min(self.blocks_per_handle().into()) as u32 + 1
    }

    /// The inode alone when the write's first blocks are known to be mapped, else one change of the mapping;
    /// further ones extend the handle. Clearing capabilities may change attributes.
    fn credits_write(&self, request: &Request<'_>, at: u64, length: usize) -> Credits {
        let inode = request.inode;
        let blocks = (length >> self.block_size().shift()) as u32 + 2;
        let mapped = match self.written_in_memory(inode, self.block_of(at), blocks) {
            Some(_) => self.credits_inode(),
            None => self.credits_map(inode),
        };
        if request.kill_privileges { mapped + self.credits_xattr() } else { mapped }
    }
}
