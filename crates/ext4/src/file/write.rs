//! Writing a file's content.
//!
//! A write is cut into updates of single blocks. One handle takes as many as it may: those of a
//! mebibyte if the journal is large enough. The allocation they need, and the new size and times,
//! go into the same handle. After a crash all of them are applied or none (as far as the mode
//! journals data). What the handle will need is known before it starts ([`WritePlan`]). An
//! overwrite or append within blocks already mapped changes nothing but the inode, and waits for
//! nothing once the caches are warm.
//!
//! Rare branches of a write are boxed: every write in flight takes as much memory as its longest
//! branch.

use super::plan::WritePlan;
use super::{
    KillPrivileges, WriteFlags, WriteOrigin, Written, check_changeable, clear_set_id_bits,
    has_set_id_bits, may_have_capabilities,
};
use crate::{Allocate, Caller, Error, Inode, Mapping, MappingState, Result, Volume};
use device::Buffer;
use engine::{Base, Credits, FileRun, FileUpdate, Handle};
use std::ops::Range;
use std::rc::Rc;
use units::Refusal;
use units::{BlockRange, FileBlock, HomeBlock, TransactionId};

/// Divisor of a sequential stream's bytes: a run of at least that part goes past the cache, since a
/// short request costs the disk as much.
const PAST_CACHE_PART: u64 = 16;

/// Data of a write.
pub struct WriteData<'a> {
    pub bytes: &'a [u8],
    /// A buffer with exactly these bytes, if it may be kept until they are on the disk.
    pub memory: Option<&'a Rc<Buffer>>,
}

/// One write(2), as it is passed to the parts of a write.
struct WriteRequest<'a> {
    inode: &'a Inode,
    caller: &'a Caller<'a>,
    /// Bytes of the whole request.
    length: u64,
    kill_privileges: KillPrivileges,
    clear_capabilities: bool,
    write_back: bool,
    /// A buffer with all of its bytes, if it may be kept until they are on the disk.
    memory: Option<&'a Rc<Buffer>>,
}

/// The part of a write that one handle did.
struct Part {
    count: usize,
    transaction: TransactionId,
    /// An error ended it. The rest would be in another transaction, so the write ends, too.
    ends: bool,
}

/// The part of a write that falls into one block.
struct PartOfBlock<'a> {
    /// Length in bytes.
    length: usize,
    /// The change; `None`: nothing.
    update: Option<FileUpdate<'a>>,
}

impl Volume {
    /// Writes the bytes. An error is returned only if nothing could be written: otherwise a failure
    /// is reported as a short write. Pages written back are written whole, or there is an error,
    /// since the kernel does not look at their count.
    pub async fn write(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        caller: &Caller<'_>,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
    ) -> Result<Written> {
        self.write_data(inode, caller, offset, &WriteData { bytes, memory: None }, flags).await
    }

    /// Writes as [`Volume::write`] does, from data that may be kept.
    pub async fn write_data(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        caller: &Caller<'_>,
        offset: u64,
        data: &WriteData<'_>,
        flags: WriteFlags,
    ) -> Result<Written> {
        let _guard = inode.lock.write().await;
        let size = inode.fields.borrow().size;
        let offset = if flags.append { size } else { offset };
        if flags.origin == WriteOrigin::WriteBack {
            return Box::pin(self.write_back_locked(inode, caller, offset, data.bytes, flags))
                .await;
        }
        check_changeable(inode, offset >= size)?;
        let written = self.write_locked(inode, caller, offset, data, flags).await?;
        inode.pages.written_back();
        let range = offset..offset + written.count as u64;
        match flags.origin {
            WriteOrigin::PastCache => inode.pages.written_past(range),
            _ if units::fault!("written-pages-not-held") => inode.pages.agreed(range),
            _ => inode.pages.filled(range),
        }
        Ok(written)
    }

    /// Writes the parts of the pages that are not older than the file. Flags that forbid changes
    /// were set after the mapping was made.
    async fn write_back_locked(
        &self,
        inode: &Inode,
        caller: &Caller<'_>,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
    ) -> Result<Written> {
        if !inode.is_regular() {
            return Err(Refusal::Invalid.into());
        }
        let mut written = Written { count: bytes.len(), transaction: inode.durable_with() };
        for piece in inode.pages.not_older(offset..offset.saturating_add(bytes.len() as u64)) {
            let mut at = piece.start;
            // A short write hides its reason. Repeated, it waits for freed space, or returns the
            // reason.
            while at < piece.end {
                let part = &bytes[(at - offset) as usize..(piece.end - offset) as usize];
                let data = WriteData { bytes: part, memory: None };
                let done = self.write_locked(inode, caller, at, &data, flags).await?;
                if done.count < part.len() && units::fault!("write-back-not-repeated") {
                    return Err(Refusal::NoSpace.into());
                }
                at += done.count as u64;
                written.transaction = done.transaction;
            }
        }
        Ok(written)
    }

    /// Writes the bytes; also the content of long symbolic links.
    pub(crate) async fn write_locked(
        &self,
        inode: &Inode,
        caller: &Caller<'_>,
        offset: u64,
        data: &WriteData<'_>,
        flags: WriteFlags,
    ) -> Result<Written> {
        let bytes = data.bytes;
        let remaining = self.file_size_max(inode).saturating_sub(offset);
        if remaining == 0 && !bytes.is_empty() {
            return Err(Refusal::FileTooLarge.into());
        }
        let bytes = &bytes[..bytes.len().min(usize::try_from(remaining).unwrap_or(usize::MAX))];
        if !bytes.is_empty() {
            self.read_durability(inode).await;
            if self.is_inline(inode) {
                Box::pin(self.leave_inline(inode, caller)).await?;
            }
            if offset + bytes.len() as u64 > inode.fields.borrow().size {
                self.finish_cut(inode).await?;
            }
        }
        let write_back = flags.origin == WriteOrigin::WriteBack;
        let request = WriteRequest {
            inode,
            caller,
            length: bytes.len() as u64,
            kill_privileges: match has_set_id_bits(inode) {
                true => flags.kill_privileges,
                false => KillPrivileges::No,
            },
            clear_capabilities: !write_back && may_have_capabilities(inode),
            write_back,
            memory: data.memory,
        };
        let mut written = Written { count: 0, transaction: inode.durable_with() };
        self.prepare_ends(inode, offset, bytes.len() as u64).await;
        let mut attempt = 0;
        while written.count < bytes.len() {
            let at = offset + written.count as u64;
            match self.write_handle(&request, at, &bytes[written.count..]).await {
                Ok(Part { count, transaction, ends }) => {
                    written = Written { count: written.count + count, transaction };
                    if ends {
                        break;
                    }
                    attempt = 0;
                }
                Err(Error::Refused(Refusal::NoSpace)) => {
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
            return Err(Refusal::NoSpace.into());
        }
        Ok(written)
    }

    /// Reads the blocks that the write changes in part into the cache, so that its handle waits for
    /// no read. The write itself reports a block that cannot be read.
    async fn prepare_ends(&self, inode: &Inode, at: u64, length: u64) {
        let size = self.block_size().bytes() as u64;
        let (end, exists) = (at + length, inode.fields.borrow().size);
        let first = at..end.min(at - at % size + size);
        let last = first.end.max(end - end % size)..end;
        // Bytes behind the old end are zeroed when the end moves.
        let behind = exists..at.min(exists.next_multiple_of(size));
        let is_part = |part: &Range<u64>| !part.is_empty() && part.end - part.start < size;
        for part in [behind, first, last].into_iter().filter(is_part) {
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

    /// Writes as much as fits into one handle, or comes before an error. Returns the error if
    /// nothing was written.
    async fn write_handle(
        &self,
        request: &WriteRequest<'_>,
        at: u64,
        bytes: &[u8],
    ) -> Result<Part> {
        let inode = request.inode;
        let (first, block_size) =
            (at >> self.block_size().shift(), self.block_size().bytes() as u64);
        let wanted = (at + bytes.len() as u64 - 1) / block_size - first + 1;
        // Clearing capabilities may change attributes.
        let attributes = match request.clear_capabilities {
            true => Some(Box::pin(self.xattr_change(inode)).await?),
            false => None,
        };
        let besides = attributes.as_ref().map_or(Credits(0), |change| change.credits);
        let wanted = wanted.min(u32::MAX.into()) as u32;
        let plan = self.plan_write(inode, self.block_of(at), wanted, besides).await?;
        if plan.touched.holes > 0 {
            Box::pin(self.await_space(request.caller, plan.touched.holes)).await?;
        }
        let planned = (first + u64::from(plan.touched.blocks)) * block_size - at;
        let bytes = &bytes[..bytes.len().min(planned as usize)];
        if units::fault!("size-first") {
            let mut handle = self.engine().start(self.credits_inode()).await?;
            let end = at + bytes.len() as u64;
            let size = inode.fields.borrow().size;
            inode.fields.borrow_mut().size = size.max(end);
            self.store(&mut handle, inode).await?;
            inode.fields.borrow_mut().size = size;
            handle.stop();
            let soon = self.engine().world().now().plus(std::time::Duration::from_micros(20));
            self.engine().world().sleep_until(soon).await;
        }
        let _table = self.hold(&[inode]).await?;
        let mut handle = self.engine().start_writing(plan.credits, plan.touched.blocks + 1).await?;
        let mut count = 0;
        let result = self.write_blocks(&mut handle, request, &plan, at, bytes, &mut count).await;
        if count > 0 {
            if request.write_back && inode.pages.keep_time(self.engine().world().now()) {
                self.note_change(inode);
            } else {
                self.note_modification(inode);
            }
            let mut fields = inode.fields.borrow_mut();
            if at + count as u64 > fields.size {
                fields.size = at + count as u64;
                inode.last_data_change.set(handle.transaction());
            }
        }
        let row = &inode.mapping_cache.row;
        row.set(row.get().after(handle.transaction(), at, count as u64));
        // Also after an error: the tree may have grown before it, and its root is in the inode.
        let stored = if units::fault!("inode-not-stored") {
            Ok(())
        } else {
            self.store(&mut handle, inode).await
        };
        let transaction = handle.stop();
        stored?;
        match result {
            Err(error) if count == 0 => Err(error),
            result => Ok(Part { count, transaction, ends: plan.ends || result.is_err() }),
        }
    }

    /// Writes the plan's blocks; `count` returns the number of bytes written, also after an error.
    async fn write_blocks(
        &self,
        handle: &mut Handle,
        request: &WriteRequest<'_>,
        plan: &WritePlan,
        at: u64,
        bytes: &[u8],
        count: &mut usize,
    ) -> Result<()> {
        let inode = request.inode;
        clear_set_id_bits(inode, request.kill_privileges);
        if request.clear_capabilities {
            Box::pin(self.clear_capabilities(handle, inode)).await?;
        }
        let row = inode.mapping_cache.row.get();
        let sequential = row.is_sequential(handle.transaction(), at);
        let row = row.bytes_before(handle.transaction(), at);
        let past_cache_from = self.engine().options().past_cache_from;
        let past_cache_from = past_cache_from.filter(|from| !request.write_back && row >= *from);
        self.zero_behind_end(handle, inode, at).await?;
        for planned in &plan.mappings {
            let mut done = 0;
            while let Some(rest) = planned.part(FileBlock(planned.at.get() + done), u32::MAX) {
                let (home, run, base) = self.make_writable(handle, request, rest).await?;
                let mut index = 0;
                if let Some(from) = past_cache_from {
                    let (at, bytes) = (at + *count as u64, &bytes[*count..]);
                    let shortest = from / PAST_CACHE_PART;
                    index = self.write_past_cache(
                        handle,
                        request,
                        (home, run, base),
                        at,
                        bytes,
                        shortest,
                    )?;
                    *count += (index as usize) << self.block_size().shift();
                }
                for index in index..run {
                    let (home, rest) = (home.plus(index.into()), &bytes[*count..]);
                    let part = self.part_of_block(
                        request,
                        sequential,
                        (home, base),
                        at + *count as u64,
                        rest,
                    );
                    if let Some(update) = part.update {
                        // The common case. A future for each block would cost more than the block
                        // does.
                        let is_logged = match handle.try_write_file_data(&update)? {
                            Some(is_logged) => is_logged,
                            None => handle.write_file_data(update).await?,
                        };
                        let last = match is_logged {
                            _ if base == Base::Zero => &inode.last_data_change,
                            true => &inode.last_logged_data,
                            false => &inode.last_home_data,
                        };
                        last.set(handle.transaction());
                    }
                    *count += part.length;
                }
                done += run;
            }
        }
        Ok(())
    }

    /// Writes as many whole blocks of a run home past the cache as `bytes`, from byte `at` on,
    /// cover. Returns their number; 0 if they belong in the cache. `shortest`: in bytes.
    fn write_past_cache(
        &self,
        handle: &mut Handle,
        request: &WriteRequest<'_>,
        (home, run, base): (HomeBlock, u32, Base),
        at: u64,
        bytes: &[u8],
        shortest: u64,
    ) -> Result<u32> {
        let (inode, shift) = (request.inode, self.block_size().shift());
        let whole = (bytes.len() >> shift).min(run as usize);
        let is_long = whole > 0 && (whole << shift) as u64 >= shortest;
        if !is_long || self.place_of(at) != 0 || self.is_durable_only(inode) {
            return Ok(0);
        }
        let bytes = &bytes[..whole << shift];
        let in_place = base == Base::Home && at + bytes.len() as u64 <= inode.fields.borrow().size;
        let owner = inode.number.into();
        // A part of the request is copied.
        let memory = request.memory.filter(|memory| {
            memory.len() == bytes.len() || units::fault!("long-write-of-all-memory")
        });
        let run = FileRun {
            owner,
            home,
            bytes,
            memory,
            request: request.length,
            sequential: true,
            in_place,
        };
        if !handle.file_run_past_cache(&run)? {
            return Ok(0);
        }
        let last = if base == Base::Zero { &inode.last_data_change } else { &inode.last_home_data };
        last.set(handle.transaction());
        Ok(whole as u32)
    }

    /// The part of `bytes` that falls into the block of byte `at`.
    fn part_of_block<'a>(
        &self,
        request: &WriteRequest<'_>,
        sequential: bool,
        (home, base): (HomeBlock, Base),
        at: u64,
        bytes: &'a [u8],
    ) -> PartOfBlock<'a> {
        let start = self.place_of(at) as usize;
        let length = bytes.len().min(self.block_size().bytes() - start);
        let changed = match base {
            Base::Home if request.write_back => self.changed_part(home, start, &bytes[..length]),
            _ => 0..length,
        };
        let update = (!changed.is_empty()).then(|| FileUpdate {
            owner: request.inode.number.into(),
            home,
            range: BlockRange::new((start + changed.start) as u32, (start + changed.end) as u32),
            bytes: &bytes[changed],
            base,
            request: request.length,
            sequential,
            in_place: base == Base::Home
                && (at + length as u64 <= request.inode.fields.borrow().size
                    || units::fault!("append-in-place")),
            durable_only: self.is_durable_only(request.inode),
        });
        PartOfBlock { length, update }
    }

    /// The range of `bytes`, at `start` in the block, that differs from its content. A page is
    /// written back whole, whichever of its bytes were changed.
    fn changed_part(&self, home: HomeBlock, start: usize, bytes: &[u8]) -> Range<usize> {
        let Some(block) = self.engine().cached_data(home) else { return 0..bytes.len() };
        differing(&block[start..start + bytes.len()], bytes)
    }

    /// Blocks at the start of `planned` that may be written now: as they are, turned from
    /// unwritten, or allocated.
    async fn make_writable(
        &self,
        handle: &mut Handle,
        request: &WriteRequest<'_>,
        planned: Mapping,
    ) -> Result<(HomeBlock, u32, Base)> {
        let (inode, Mapping { at, count, .. }) = (request.inode, planned);
        let run = match planned.state {
            MappingState::Written(home) => return Ok((home, count, Base::Home)),
            MappingState::Unwritten(home) => {
                let run = Box::pin(self.mark_written(handle, inode, at, count)).await?;
                (run > 0).then_some((home, run))
            }
            MappingState::Hole => {
                let allocated = self.map_or_allocate(
                    handle,
                    inode,
                    request.caller,
                    at,
                    count,
                    Allocate::Written,
                );
                let found = Box::pin(allocated).await?;
                found.mapping.home().filter(|_| found.fresh).map(|home| (home, found.mapping.count))
            }
        };
        let Some((home, run)) = run else {
            // The lock on the inode keeps its mapping fixed; only a block that two trees share can
            // have changed during the await.
            let why = "a block of its mapping belongs to another file as well";
            return Err(self.note_damage(Error::corrupt_inode(inode.number, why)));
        };
        Ok((home, run, Base::Zero))
    }
}

/// The range in which `new` differs from `old`, of equal length, from the first difference to the
/// last; a little more.
fn differing(old: &[u8], new: &[u8]) -> Range<usize> {
    // Slices are compared faster than bytes.
    const TOGETHER: usize = 64;
    let mut pairs = old.chunks(TOGETHER).zip(new.chunks(TOGETHER));
    let differs = |(old, new): (&[u8], &[u8])| old != new;
    let Some(first) = pairs.clone().position(differs) else { return 0..0 };
    let last = pairs.rposition(differs).unwrap_or(first);
    first * TOGETHER..((last + 1) * TOGETHER).min(new.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_of_a_page_is_within_the_part_that_differs() {
        let old = [0; 1000];
        assert_eq!(differing(&old, &old), 0..0);
        for (first, last) in [(0, 0), (0, 999), (63, 64), (500, 500), (960, 999), (999, 999)] {
            let mut new = old;
            (new[first], new[last]) = (1, 1);
            let part = differing(&old, &new);
            assert!(part.contains(&first) && part.contains(&last), "{first}, {last}: {part:?}");
            assert!(part.len() <= last - first + 1 + 2 * 64 && part.end <= 1000, "{part:?}");
        }
    }
}
