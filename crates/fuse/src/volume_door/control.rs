//! ioctl(2) and FIBMAP.

use super::{Result, VolumeDoor};
use crate::Answer;
use crate::abi::*;
use ext4::{Error, MappingState};
use units::FileBlock;

/// `FS_IOC_GETFLAGS` on 64-bit and 32-bit machines (linux/fs.h): what lsattr asks.
const GETFLAGS: [u32; 2] = [0x8008_6601, 0x8004_6601];
/// The flags that lsattr shows (`EXT4_FL_USER_VISIBLE`).
const VISIBLE: u32 = 0x725b_dfff;

impl VolumeDoor {
    pub(super) async fn ioctl(&self, header: &InHeader, arguments: IoctlIn) -> Result {
        if !GETFLAGS.contains(&arguments.cmd) {
            return Err(Error::Refused(libc::ENOTTY));
        }
        let inode = self.inode(header.nodeid).await?;
        let flags = self.volume.getattr(&inode).flags & VISIBLE;
        let mut answer = Answer::of(&IoctlOut::default());
        // The caller's variable may be as wide as a long.
        let bytes = u64::from(flags).to_le_bytes();
        answer.append_bytes(&bytes[..bytes.len().min(arguments.out_size as usize)]);
        Ok(answer)
    }

    /// Where a block of the file lies on the device; 0 for a hole. Blocks are the caller's size.
    pub(super) async fn bmap(&self, header: &InHeader, arguments: BmapIn) -> Result {
        let inode = self.inode(header.nodeid).await?;
        let own = self.volume.block_size().bytes() as u64;
        let asked = u64::from(arguments.blocksize);
        if asked == 0 || !own.is_multiple_of(asked) {
            return Err(Error::Refused(libc::EINVAL));
        }
        let within = own / asked;
        let at = u32::try_from(arguments.block / within).map_err(|_| Error::Refused(libc::EFBIG))?;
        let _lock = inode.lock.read().await;
        let mapping = self.volume.map(&inode, FileBlock(at), 1).await?;
        let block = match mapping.state {
            MappingState::Written(home) => home.get() * within + arguments.block % within,
            _ => 0,
        };
        Ok(Answer::of(&BmapOut { block }))
    }
}
