//! Storage of an inode's attributes: as many as fit in the inode, the others in one block.

use crate::groups::Bits;
use crate::xattr::names::{ACL_ACCESS, ACL_DEFAULT, Name};
use crate::{AllocationRequest, Error, Inode, Purpose, Result, Volume};
use engine::{Block, Contents, Credits, Handle};
use format::ext4::feature;
use format::ext4::xattr::{self, Attribute, Outside, XattrBlock};
use units::Refusal;
use units::{FileBlock, HomeBlock};

/// Attributes of an inode, by place.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stored {
    pub(super) area: Vec<Attribute>,
    pub(super) block: Vec<Attribute>,
}

/// The sizes that limit what can be stored, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct AttributeSpace {
    /// 0 in inodes without an area.
    pub area: usize,
    pub block: usize,
}

impl Stored {
    /// The value, which is empty if it lies outside.
    pub fn get(&self, name: Name) -> Option<&[u8]> {
        self.find(name).map(|attribute| attribute.value.as_slice())
    }
    pub fn find(&self, name: Name) -> Option<&Attribute> {
        self.all().find(|attribute| name.is_of(attribute))
    }
    /// Whether this very attribute is stored, in either place.
    pub fn has(&self, attribute: &Attribute) -> bool {
        self.all().any(|other| other == attribute)
    }
    /// An attribute whose value lies outside; one of the inode's own first.
    pub fn first_outside(&self) -> Option<Attribute> {
        self.all().find(|attribute| attribute.outside.is_some()).cloned()
    }
    /// The values outside, one for each reference.
    pub fn outside(&self) -> Vec<Outside> {
        self.all().filter_map(|attribute| attribute.outside).collect()
    }
    pub fn all(&self) -> impl Iterator<Item = &Attribute> {
        self.area.iter().chain(&self.block)
    }
    pub fn remove(&mut self, name: Name) {
        self.area.retain(|attribute| !name.is_of(attribute));
        self.block.retain(|attribute| !name.is_of(attribute));
    }
    /// Stores or replaces an attribute: in the inode if it fits, else in the block. ENOSPC when it
    /// fits in neither; nothing has changed then.
    pub fn set(&mut self, name: Name, value: &[u8], space: AttributeSpace) -> Result<()> {
        self.set_attribute(Attribute::new(name.index, name.rest, value), space)
    }
    /// Stores or replaces as [`Stored::set`] does, wherever the value lies.
    pub fn set_attribute(&mut self, attribute: Attribute, space: AttributeSpace) -> Result<()> {
        let mut others = self.clone();
        others.remove(Name { index: attribute.index, rest: &attribute.name });
        let mut changed = others.clone();
        changed.area.push(attribute.clone());
        if xattr::serialize_area(&changed.area, space.area).is_none() {
            changed = others;
            changed.block.push(attribute);
            let block = XattrBlock { references: 1, attributes: changed.block.clone() };
            xattr::serialize_block(&block, space.block).ok_or(Error::Refused(Refusal::NoSpace))?;
        }
        *self = changed;
        Ok(())
    }
}

impl Volume {
    /// [`Volume::store_xattrs`] of an inode without values outside, else [`Volume::xattr_change`]:
    /// inode + block changed or new + shared block left + one allocated, one freed.
    pub fn credits_xattr(&self) -> Credits {
        self.credits_inode() + Credits(1 + 1) + self.credits_allocate(1) + self.credits_free(1, 1)
    }

    pub(crate) fn xattr_space(&self, inode: &Inode) -> AttributeSpace {
        let fields = inode.fields.borrow();
        // The kernel uses the area only where the inode says how long its fields are.
        let area = if fields.extra_size == 0 { 0 } else { fields.xattr_area.len() };
        AttributeSpace { area, block: self.block_size().bytes() }
    }

    /// Reads all attributes. The caller holds the inode's lock.
    pub(crate) async fn stored_xattrs(&self, inode: &Inode) -> Result<Stored> {
        let (area, at) = {
            let fields = inode.fields.borrow();
            let area = match fields.extra_size {
                0 => Vec::new(),
                _ => xattr::parse_area(&fields.xattr_area).map_err(|error| {
                    Error::corrupt_inode(inode.number, format!("its extended attributes: {error}"))
                })?,
            };
            (area, fields.xattr_block)
        };
        let block = match at {
            HomeBlock(0) => Vec::new(),
            _ => parse(&self.xattr_block(at).await?)?.attributes,
        };
        let stored = Stored { area, block };
        let twice =
            |attribute: &Attribute| stored.block.iter().any(|other| same_name(attribute, other));
        // A list that long is not examined, rather than ignored.
        let is_list = |attribute: &Attribute| matches!(attribute.index, ACL_ACCESS | ACL_DEFAULT);
        if stored.all().any(|attribute| is_list(attribute) && attribute.outside.is_some()) {
            return Err(Refusal::Unsupported.into());
        }
        if stored.area.iter().any(twice) {
            return Err(Error::corrupt_inode(
                inode.number,
                "an extended attribute stands there twice",
            ));
        }
        Ok(stored)
    }

    /// Makes `after` the inode's attributes, and stores the inode with its time of change. `before`
    /// is the result of [`Volume::stored_xattrs`]. ENOSPC: no block is free; nothing has changed.
    /// Credits: [`Volume::xattr_change`].
    pub(crate) async fn store_xattrs(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        before: &Stored,
        after: &Stored,
    ) -> Result<()> {
        inode.has_no_capabilities.set(false);
        // Every step that may fail comes before the first change. Attributes without padding may
        // not fit once padded.
        let (space, packed) =
            (self.xattr_space(inode), "its extended attributes lack the required padding");
        let area = xattr::serialize_area(&after.area, space.area);
        let block = XattrBlock { references: 1, attributes: after.block.clone() };
        if before.area != after.area && area.is_none()
            || before.block != after.block && xattr::serialize_block(&block, space.block).is_none()
        {
            return Err(self.note_damage(Error::corrupt_inode(inode.number, packed)));
        }
        let (mut alone, mut with_others) = (None, None);
        if before.all().any(|attribute| attribute.outside.is_some()) {
            alone = Some(self.references(inode, before, after, false).await?);
            // The others may have left the block before this inode does; none comes.
            if self.shares_block(inode).await? {
                with_others = Some(self.references(inode, before, after, true).await?);
            }
        }
        let is_shared =
            before.block != after.block && self.store_block(handle, inode, &after.block).await?;
        if let Some(area) = area.filter(|_| before.area != after.area) {
            inode.fields.borrow_mut().xattr_area = area.into();
        }
        if let Some(references) = if is_shared { with_others } else { alone } {
            self.count_references(handle, references).await?;
        }
        self.charge_values(inode, before, after);
        self.note_change(inode);
        self.store(handle, inode).await
    }

    /// Whether other inodes share the inode's attribute block.
    pub(super) async fn shares_block(&self, inode: &Inode) -> Result<bool> {
        let at = inode.fields.borrow().xattr_block;
        Ok(at != HomeBlock(0) && parse(&self.xattr_block(at).await?)?.references > 1)
    }

    /// Releases the inode's attribute block, which other inodes may share, before the inode is
    /// freed. The caller stores the inode. Credits: [`Volume::credits_drop_xattrs`].
    pub async fn drop_xattrs(&self, handle: &mut Handle, inode: &Inode) -> Result<()> {
        let at = inode.fields.borrow().xattr_block;
        if at != HomeBlock(0) {
            let block = self.xattr_block(at).await?;
            self.drop_block(handle, inode, &block).await?;
        }
        Ok(())
    }
    /// Releases the inode's attribute block in a handle of its own, if others share it at that
    /// moment: they keep the values that its entries refer to.
    pub(super) async fn drop_shared_block(&self, inode: &Inode) -> Result<()> {
        let _table = self.hold(&[inode]).await?;
        let Some((block, _bits)) = self.hold_xattrs(inode).await? else { return Ok(()) };
        let credits = self.credits_inode() + self.credits_drop_xattrs();
        let mut handle = self.engine().start(credits).await?;
        let dropped = match parse(&block)?.references > 1 {
            true => self.drop_block(&mut handle, inode, &block).await.map(drop),
            false => Ok(()),
        };
        let stored = self.store(&mut handle, inode).await;
        handle.stop();
        dropped.and(stored)
    }
    async fn drop_block(&self, handle: &mut Handle, inode: &Inode, block: &Block) -> Result<bool> {
        let shared = self.leave_block(handle, block).await?;
        let mut fields = inode.fields.borrow_mut();
        fields.xattr_block = HomeBlock(0);
        fields.sectors = fields.sectors.saturating_sub(self.sectors_per_block());
        Ok(shared)
    }
    /// Holds what [`Volume::drop_xattrs`] changes, as [`Volume::hold`] does.
    pub(crate) async fn hold_xattrs(&self, inode: &Inode) -> Result<Option<(Block, Vec<Bits>)>> {
        let at = inode.fields.borrow().xattr_block;
        if at == HomeBlock(0) {
            return Ok(None);
        }
        Ok(Some((self.xattr_block(at).await?, self.hold_bitmaps(at, 1).await?)))
    }
    /// [`Volume::drop_xattrs`]: a shared block, or the freeing of one.
    pub fn credits_drop_xattrs(&self) -> Credits {
        Credits(1) + self.credits_free(1, 1)
    }

    /// Returns whether other inodes keep the block as it was.
    async fn store_block(
        &self,
        handle: &mut Handle,
        inode: &Inode,
        attributes: &[Attribute],
    ) -> Result<bool> {
        let at = inode.fields.borrow().xattr_block;
        let old = match at {
            HomeBlock(0) => None,
            _ => Some(self.xattr_block(at).await?),
        };
        if attributes.is_empty() {
            return match old {
                Some(block) => self.drop_block(handle, inode, &block).await,
                None => Ok(false),
            };
        }
        if let Some(block) = &old {
            if parse(block)?.references == 1 {
                self.fill_block(handle, block, attributes);
                return Ok(false);
            }
        }
        // No block yet, or one that others share: they keep it.
        let run = self.allocate_xattr_block(handle, inode).await?;
        let new = handle.create(run);
        self.fill_block(handle, &new, attributes);
        let shared = match old {
            Some(block) => self.leave_block(handle, &block).await?,
            None => {
                inode.fields.borrow_mut().sectors += self.sectors_per_block();
                false
            }
        };
        inode.fields.borrow_mut().xattr_block = run;
        Ok(shared)
    }

    async fn allocate_xattr_block(&self, handle: &mut Handle, inode: &Inode) -> Result<HomeBlock> {
        // Without the feature, e2fsck takes the block's number in the inode for damage.
        if !self.has(feature::EXT_ATTR) {
            return Err(Refusal::Unsupported.into());
        }
        let request = AllocationRequest {
            inode,
            goal: None,
            count: 1,
            at: FileBlock(0),
            purpose: Purpose::Metadata,
            use_reserve: false,
        };
        Ok(self.allocate_blocks(handle, request).await?.start)
    }

    /// Drops the inode's reference to the block; the last one frees it. Returns whether there are
    /// others.
    async fn leave_block(&self, handle: &mut Handle, block: &Block) -> Result<bool> {
        let references = parse(block)?.references;
        if references == 1 {
            self.free_blocks(handle, block.number(), 1, Contents::Metadata).await?;
            return Ok(false);
        }
        let seed = self.checksum_seed();
        handle.change_within(block, self.block_size().whole(), |bytes| {
            xattr::set_references(bytes, references - 1);
            set_checksum(seed, block.number(), bytes);
        });
        Ok(true)
    }

    fn fill_block(&self, handle: &mut Handle, block: &Block, attributes: &[Attribute]) {
        let content = XattrBlock { references: 1, attributes: attributes.to_vec() };
        let content = xattr::serialize_block(&content, self.block_size().bytes());
        let content = content.expect("store_xattrs made sure it fits");
        let seed = self.checksum_seed();
        handle.change_within(block, self.block_size().whole(), |bytes| {
            bytes.copy_from_slice(&content);
            set_checksum(seed, block.number(), bytes);
        });
    }

    /// The attribute block, checked.
    async fn xattr_block(&self, at: HomeBlock) -> Result<Block> {
        if !self.block_is_usable(at, 1) {
            return Err(Error::corrupt_block(
                "an extended attribute block",
                at,
                "no file may own this block",
            ));
        }
        let block = self.engine().metadata(at).await?;
        if !block.is_verified() {
            parse(&block)?;
            let wrong = |seed| !xattr::block_checksum_is_right(seed, at, &block.bytes());
            if self.checksum_seed().is_some_and(wrong) {
                return Err(corrupt(at, "its checksum is wrong"));
            }
            self.note_owned_blocks(at, 1);
            block.set_verified();
        }
        Ok(block)
    }

    pub(super) fn sectors_per_block(&self) -> u64 {
        self.block_size().bytes() as u64 / 512
    }
}

fn parse(block: &Block) -> Result<XattrBlock> {
    xattr::parse_block(&block.bytes()).map_err(|error| corrupt(block.number(), &error.to_string()))
}

fn corrupt(at: HomeBlock, why: &str) -> Error {
    Error::corrupt_block("an extended attribute block", at, why)
}

fn set_checksum(seed: Option<u32>, at: HomeBlock, bytes: &mut [u8]) {
    if let Some(seed) = seed {
        xattr::set_block_checksum(seed, at, bytes);
    }
}

fn same_name(one: &Attribute, other: &Attribute) -> bool {
    one.index == other.index && one.name == other.name
}
