//! New values in inodes of their own (feature ea_inode): values that fit neither in the inode nor
//! in its block.
//!
//! Such an inode is made as an orphan and filled, by as many handles as needed. The handle that
//! stores the attribute takes it over: so a crash leaves the attribute with its whole value, or an
//! orphan. Its content is metadata, as in the kernel. Equal values are not shared.

use super::names::Name;
use super::outside::{VALUE_MAX, set_count};
use super::stored::Stored;
use crate::{Allocate, Caller, Error, Inode, NewInode, Result, Volume};
use engine::{Credits, Handle};
use format::ext4::checksum::crc32c;
use format::ext4::feature;
use format::ext4::inode::flags;
use format::ext4::xattr::Attribute;
use std::rc::Rc;
use units::FileBlock;
use units::Refusal;

/// Mode of a value's inode: a regular file that only root may read.
const MODE: u16 = 0o100600;
/// Blocks of a value that one handle writes.
const BLOCKS_PER_HANDLE: u32 = 16;

impl Volume {
    pub(super) fn takes_values_outside(&self, value: &[u8]) -> bool {
        self.has(feature::EA_INODE) && !value.is_empty() && value.len() <= VALUE_MAX as usize
    }

    /// Adds the attribute to `after`, with its value in an inode that is an orphan until it is
    /// adopted. The caller holds the owner's lock.
    pub(super) async fn set_outside(
        self: &Rc<Self>,
        owner: &Rc<Inode>,
        caller: &Caller<'_>,
        name: Name<'_>,
        value: &[u8],
        after: &mut Stored,
    ) -> Result<Rc<Inode>> {
        let space = self.xattr_space(owner);
        let checksum = crc32c(self.superblock.borrow().checksum_seed, value);
        let attribute =
            |inode| Attribute::outside(name.index, name.rest, inode, value.len() as u32, checksum);
        // The entry has to fit before anything is created.
        after.clone().set_attribute(attribute(owner.number), space)?;
        let holder = self.make_holder(owner, checksum).await?;
        if let Err(error) = self.fill_holder(&holder, caller, value).await {
            self.free_if_unused(&holder).await?;
            return Err(error);
        }
        after.set_attribute(attribute(holder.number), space)?;
        Ok(holder)
    }

    async fn make_holder(&self, owner: &Inode, checksum: u32) -> Result<Rc<Inode>> {
        let (uid, gid) = (owner.fields.borrow().uid, owner.fields.borrow().gid);
        let credits = self.credits_create_inode() + self.credits_inode() + self.credits_orphan();
        let mut handle = self.engine().start(credits).await?;
        let new = NewInode { parent: owner, mode: MODE, uid, gid, rdev: 0 };
        let holder = self.create_inode(&mut handle, new).await?;
        {
            let mut fields = holder.fields.borrow_mut();
            fields.flags &= flags::EXTENTS;
            fields.links = 0;
            // Signed, as 32 bits hold it: an inode without the extra bits clamps greater values.
            fields.accessed.seconds = i64::from(checksum as i32);
            fields.accessed.nanoseconds = 0;
        }
        self.orphan_add(&mut handle, &holder);
        self.store(&mut handle, &holder).await?;
        handle.stop();
        Ok(holder)
    }

    async fn fill_holder(
        self: &Rc<Self>,
        holder: &Rc<Inode>,
        caller: &Caller<'_>,
        value: &[u8],
    ) -> Result<()> {
        let _lock = holder.lock.write().await;
        let _table = self.hold(&[holder]).await?;
        let (mut done, mut attempt) = (0, 0);
        while done < value.len() {
            let credits = self.credits_map(holder) + Credits(BLOCKS_PER_HANDLE);
            let mut handle = self.engine().start(credits).await?;
            let filled = self.fill_run(&mut handle, holder, caller, done, value).await;
            handle.stop();
            match filled {
                Ok(to) => (done, attempt) = (to, 0),
                Err(Error::Refused(Refusal::NoSpace)) if self.retry_allocation(attempt).await? => {
                    attempt += 1
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes one run of blocks from byte `done` on, which begins a block. Returns its end.
    async fn fill_run(
        &self,
        handle: &mut Handle,
        holder: &Inode,
        caller: &Caller<'_>,
        done: usize,
        value: &[u8],
    ) -> Result<usize> {
        let size = self.block_size().bytes();
        let first = FileBlock((done / size) as u32);
        let wanted = (value.len() - done).div_ceil(size).min(BLOCKS_PER_HANDLE as usize) as u32;
        let allocated = self
            .map_or_allocate(handle, holder, caller, first, wanted, Allocate::Directory)
            .await?;
        let home = allocated.mapping.home().expect("an allocated block has a home");
        let end = value.len().min(done + allocated.mapping.count as usize * size);
        for (index, part) in value[done..end].chunks(size).enumerate() {
            let block = handle.create(home.plus(index as u64));
            handle.change_within(&block, self.block_size().whole(), |bytes| {
                bytes[..part.len()].copy_from_slice(part);
            });
        }
        holder.fields.borrow_mut().size = end as u64;
        holder.last_data_change.set(handle.transaction());
        self.store(handle, holder).await?;
        Ok(end)
    }

    /// Removes the holder of a new value from the orphans: one attribute refers to it. Credits:
    /// [`Volume::credits_reference`].
    pub(super) async fn take_over(&self, handle: &mut Handle, holder: &Inode) -> Result<()> {
        self.orphan_remove(handle, holder).await?;
        {
            let mut fields = holder.fields.borrow_mut();
            fields.links = 1;
            // Set only now: not every kernel frees an orphan with the flag.
            fields.flags |= flags::EA_INODE;
        }
        set_count(holder, 1);
        self.store(handle, holder).await
    }
}
