//! ioctl(2) and FIBMAP.

use super::files::is_writable;
use super::{Result, VolumeFrontEnd, whole_volume};
use crate::error::RequestError;
use crate::ioctl::Fsxattr;
use crate::privilege::{self, Capability};
use ext4::{Inode, SyncWhat, flags};
use fuse_session::Reply;
use fuse_session::abi::{self, *};
use units::FileBlock;
use zerocopy::FromBytes;

/// `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS` (linux/fs.h): lsattr and chattr.
const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
/// The numbers by which 32-bit processes know them.
const GETFLAGS_32: u32 = 0x8004_6601;
const SETFLAGS_32: u32 = 0x4004_6602;
/// `FS_IOC_GETVERSION`: the inode's generation.
const GETVERSION: u32 = 0x8008_7601;
const GETVERSION_32: u32 = 0x8004_7601;
/// FS_IOC_FSGETXATTR: the same flags as `struct fsxattr`. The kernel also asks for these before it
/// sets flags.
const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;
/// No project has the number -1 (`projid_valid`).
const NO_PROJECT: u32 = u32::MAX;
/// `_IOW('O', 0xd0, __u32)`, our own call: durability is enough for the file (1), or as attribute
/// and names say (0).
const SET_DURABILITY: u32 = 0x4004_4fd0;
/// The flags that both calls can express, and their bits in each (`FS_XFLAG_...`).
const BOTH_WAYS: [(u32, u32); 6] = [
    (flags::SYNC, 0x20),
    (flags::IMMUTABLE, 0x8),
    (flags::APPEND, 0x10),
    (flags::NO_DUMP, 0x80),
    (flags::NO_ATIME, 0x40),
    (flags::PROJECT_INHERIT, 0x200),
];

impl VolumeFrontEnd {
    pub(super) async fn ioctl(
        &self,
        header: &InHeader,
        arguments: IoctlIn,
        input: &[u8],
    ) -> Result {
        let inode = self.inode(header.nodeid).await?;
        let before = self.volume.flags(&inode);
        let mut reply = Reply::of(&IoctlOut::default());
        let mut changed = false;
        match standard(&arguments) {
            GETFLAGS => {
                // The caller's variable may be as wide as a long.
                let bytes = u64::from(before).to_le_bytes();
                reply.append_bytes(&bytes[..bytes.len().min(arguments.out_size as usize)]);
            }
            FSGETXATTR if arguments.out_size as usize >= size_of::<Fsxattr>() => {
                let projid = self.volume.project(&inode);
                reply.append(&Fsxattr { xflags: xflags_of(before), projid, ..Default::default() });
            }
            SETFLAGS => {
                let wanted = first_word(input)?;
                self.check_flags_change(
                    header,
                    &arguments,
                    &inode,
                    wanted,
                    self.volume.project(&inode),
                )?;
                self.volume.set_flags(&inode, wanted).await?;
                changed = true;
            }
            FSSETXATTR => {
                let wanted = Fsxattr::read_from_prefix(input)
                    .map_err(|_| RequestError::Refused(libc::EINVAL))?
                    .0;
                if (wanted.extsize, wanted.cowextsize) != (0, 0) {
                    return Err(RequestError::Refused(libc::EOPNOTSUPP));
                }
                let (wanted, project) = (flags_of(wanted.xflags, before)?, wanted.projid);
                self.check_flags_change(header, &arguments, &inode, wanted, project)?;
                self.volume.set_flags_and_project(&inode, wanted, Some(project)).await?;
                changed = true;
            }
            GETVERSION => {
                let version = self.volume.getattr(&inode).generation.to_le_bytes();
                // Callers pass an int although the number says long.
                reply.append_bytes(&version[..version.len().min(arguments.out_size as usize)]);
            }
            SET_DURABILITY => {
                let is_enough = match first_word(input)? {
                    0 => false,
                    1 => true,
                    _ => return Err(RequestError::Refused(libc::EINVAL)),
                };
                self.check_may_write(header, &arguments, &inode)?;
                self.volume.request_durability(&inode, is_enough).await?;
            }
            whole_volume::GET_LABEL => return self.label(&arguments),
            whole_volume::SET_LABEL => return self.set_label(header, input).await,
            whole_volume::TRIM => return self.trim(header, &arguments, input).await,
            whole_volume::SHUTDOWN => return self.shut_down(header).await,
            _ => return Err(RequestError::Refused(libc::ENOTTY)),
        }
        match changed {
            true => self.reply_changed(header, &inode, before).await,
            false => Ok(reply),
        }
    }

    /// Replies to a change of flags. It is durable by the flags from `before`, too, as in ext4:
    /// `chattr -S` is synchronous.
    async fn reply_changed(&self, header: &InHeader, inode: &Inode, before: u32) -> Result {
        let asked = (before & flags::SYNC != 0).then_some(SyncWhat::All);
        self.settle_change(inode, inode.last_change.get(), asked).await?;
        // The kernel caches the time of the last change, and does not know the new one.
        Ok(Reply::of(&IoctlOut::default()).with_stale_attributes(header.nodeid))
    }

    /// Checks what the kernel's ext4 demands (`fileattr_set_prepare`), where nobody has checked it.
    fn check_flags_change(
        &self,
        header: &InHeader,
        arguments: &IoctlIn,
        inode: &Inode,
        wanted: u32,
        project: u32,
    ) -> Result<()> {
        let is_moved = project != self.volume.project(inode);
        if is_moved && project == NO_PROJECT {
            return Err(RequestError::Refused(libc::EINVAL));
        }
        if self.options.kernel_checks_flags && is_asked_by_kernel(arguments) {
            return Ok(());
        }
        let changed = self.volume.flags(inode) ^ wanted;
        let is_privileged = changed & (flags::IMMUTABLE | flags::APPEND) != 0;
        if !self.owns(header, inode)
            || is_privileged && !privilege::holds(header.pid, Capability::LinuxImmutable)
        {
            return Err(RequestError::Refused(libc::EPERM));
        }
        // The machine's administrator accounts by projects: an owner in a user namespace of their
        // own does not.
        let is_accounted = is_moved || changed & flags::PROJECT_INHERIT != 0;
        if is_accounted && !privilege::is_of_our_user_namespace(header.pid) {
            return Err(RequestError::Refused(libc::EINVAL));
        }
        Ok(())
    }

    /// Checks that the caller has it open for writing, owns it, or may act as its owner.
    fn check_may_write(&self, header: &InHeader, arguments: &IoctlIn, inode: &Inode) -> Result<()> {
        if is_writable(arguments.fh) || self.owns(header, inode) {
            return Ok(());
        }
        Err(RequestError::Refused(libc::EPERM))
    }

    /// Returns the block of the device that has a block of the file; 0 for a hole. Both in units of
    /// the caller's size.
    pub(super) async fn bmap(&self, header: &InHeader, arguments: BmapIn) -> Result {
        let inode = self.inode(header.nodeid).await?;
        let own = self.volume.block_size().bytes() as u64;
        let asked = u64::from(arguments.blocksize);
        if asked == 0 || own % asked != 0 {
            return Err(RequestError::Refused(libc::EINVAL));
        }
        let within = own / asked;
        let at = u32::try_from(arguments.block / within)
            .map_err(|_| RequestError::Refused(libc::EFBIG))?;
        let home = self.volume.exposed_address(&inode, FileBlock(at)).await?;
        let block = home.map_or(0, |home| home.get() * within + arguments.block % within);
        Ok(Reply::of(&BmapOut { block }))
    }
}

/// Returns the command by its 64-bit number. A 64-bit process that uses a number of 32-bit ones
/// gets ENOTTY, as from the kernel's ext4: such a number would bypass the checks of the kernel.
fn standard(arguments: &IoctlIn) -> u32 {
    let compatible = arguments.flags & abi::ioctl::COMPAT != 0;
    match arguments.cmd {
        GETFLAGS_32 if compatible => GETFLAGS,
        SETFLAGS_32 if compatible => SETFLAGS,
        GETVERSION_32 if compatible => GETVERSION,
        command => command,
    }
}

/// Returns whether the kernel itself asks: with its own structure, and so without an address. A
/// caller may pass the address zero, too, but then as many bytes as the number says, which is a
/// long for flags. The kernel passes 32 bits.
fn is_asked_by_kernel(arguments: &IoctlIn) -> bool {
    let own_size = match arguments.cmd {
        SETFLAGS => size_of::<u32>(),
        _ => size_of::<Fsxattr>(),
    };
    arguments.arg == 0 && arguments.in_size as usize == own_size
}

fn first_word(input: &[u8]) -> Result<u32> {
    let bytes = input.first_chunk().ok_or(RequestError::Refused(libc::EINVAL))?;
    Ok(u32::from_le_bytes(*bytes))
}

fn xflags_of(flags: u32) -> u32 {
    BOTH_WAYS.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, xflag)| xflag).sum()
}

/// Returns flags with those that `xflags` can express as it says, the others as before.
fn flags_of(xflags: u32, before: u32) -> Result<u32> {
    let known: u32 = BOTH_WAYS.iter().map(|(_, xflag)| xflag).sum();
    if xflags & !known != 0 {
        return Err(RequestError::Refused(libc::EOPNOTSUPP));
    }
    Ok(BOTH_WAYS.iter().fold(before, |flags, (flag, xflag)| {
        if xflags & xflag != 0 { flags | flag } else { flags & !flag }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_survive_conversion_to_the_other_form() {
        let (immutable, extents) = (flags::IMMUTABLE | flags::NO_DUMP, flags::EXTENTS);
        assert_eq!(
            flags_of(xflags_of(immutable), extents | flags::APPEND).unwrap(),
            immutable | extents
        );
        assert!(flags_of(0x8000, 0).is_err(), "dax");
    }
}
