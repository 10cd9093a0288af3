//! ioctls of the whole volume. The kernel passes them on unchecked.

use super::{Result, VolumeFrontEnd};
use crate::error::RequestError;
use crate::ioctl::TrimRange;
use crate::privilege::{self, Capability};
use fuse_session::Reply;
use fuse_session::abi::*;
use zerocopy::FromBytes;

/// linux/fs.h: `FS_IOC_GETFSLABEL`, `FS_IOC_SETFSLABEL`. 256 bytes, of which ext4 stores 16.
pub(super) const GET_LABEL: u32 = 0x8100_9431;
pub(super) const SET_LABEL: u32 = 0x4100_9432;
/// `FS_IOC_SHUTDOWN` (ext4.h). Its number makes the kernel copy a word out and none in, so the word
/// that selects the way, with or without the log, does not arrive.
pub(super) const SHUTDOWN: u32 = 0x8004_587d;
/// `FITRIM` (linux/fs.h).
pub(super) const TRIM: u32 = 0xc018_5879;
const LABEL_BYTES: usize = 256;

impl VolumeFrontEnd {
    pub(super) fn label(&self, arguments: &IoctlIn) -> Result {
        let mut reply = Reply::of(&IoctlOut::default());
        let mut label = self.volume.label();
        label.resize(LABEL_BYTES.min(arguments.out_size as usize), 0);
        reply.append_bytes(&label);
        Ok(reply)
    }

    pub(super) async fn set_label(&self, header: &InHeader, input: &[u8]) -> Result {
        may_administer(header)?;
        let length = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
        self.volume.set_label(&input[..length]).await?;
        Ok(Reply::of(&IoctlOut::default()))
    }

    pub(super) async fn trim(
        &self,
        header: &InHeader,
        arguments: &IoctlIn,
        input: &[u8],
    ) -> Result {
        may_administer(header)?;
        let range =
            TrimRange::read_from_prefix(input).map_err(|_| RequestError::Refused(libc::EINVAL))?.0;
        let size = self.volume.block_size();
        let (blocks, shift) = (self.volume.superblock().blocks, size.shift());
        let (first, shortest) = (range.start >> shift, range.minlen.div_ceil(size.bytes() as u64));
        if first >= blocks
            || range.len < size.bytes() as u64
            || shortest > self.volume.blocks_per_group().into()
        {
            return Err(RequestError::Refused(libc::EINVAL));
        }
        let end = first.saturating_add(range.len >> shift).min(blocks);
        let trimmed = self.volume.trim(first..end, shortest.max(1)).await?;
        let mut reply = Reply::of(&IoctlOut::default());
        if arguments.out_size as usize >= size_of::<TrimRange>() {
            reply.append(&TrimRange { len: trimmed << shift, ..range });
        }
        Ok(reply)
    }

    /// Stops at once. What was done before is durable, as with `EXT4_GOING_FLAGS_LOGFLUSH`: more
    /// durability than requested harms nobody.
    pub(super) async fn shut_down(&self, header: &InHeader) -> Result {
        may_administer(header)?;
        self.reporter.report("shut down by FS_IOC_SHUTDOWN: nothing is written any more");
        self.volume.shut_down().await?;
        Ok(Reply::of(&IoctlOut::default()))
    }
}

fn may_administer(header: &InHeader) -> Result<()> {
    if privilege::holds(header.pid, Capability::SystemAdministration) {
        Ok(())
    } else {
        Err(RequestError::Refused(libc::EPERM))
    }
}
