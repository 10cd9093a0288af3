//! Operations on names.

use super::Errno;
use super::abi::{DirResult, Statx, UserPerm};
use super::mount::Mount;
use super::objects::{Inode, WANTED, ask, attributes_of};
use crate::wire::kind_of;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ptr;
use store::{
    Creator, Entry, FileAttributes, FileId, LISTING_ENTRIES_MAX, Listing, NewNode, TARGET_BYTES_MAX,
};

/// The user for whom a file is created; the library's own copy.
struct Credentials<'a>(&'a Mount, *mut UserPerm);

impl Credentials<'_> {
    fn of(mount: &Mount, caller: Creator) -> Result<Credentials<'_>, Errno> {
        // SAFETY: no list of groups is passed.
        let raw =
            unsafe { (mount.call.ceph_userperm_new)(caller.uid, caller.gid, 0, ptr::null_mut()) };
        if raw.is_null() { Err(Errno(libc::ENOMEM)) } else { Ok(Credentials(mount, raw)) }
    }
}
impl Drop for Credentials<'_> {
    fn drop(&mut self) {
        // SAFETY: made by this type, and used only during calls.
        unsafe { (self.0.call.ceph_userperm_destroy)(self.1) };
    }
}

impl Inode {
    pub fn lookup(&self, name: &CStr) -> Result<(Inode, FileAttributes), Errno> {
        // SAFETY: the reference keeps the directory, the name ends with zero, the pointers are to
        // places for the answers.
        self.answered(|inode, statx| unsafe {
            ask!(self, ceph_ll_lookup(name.as_ptr(), inode, statx, WANTED, 0), as user)
        })
    }

    pub fn make(
        &self,
        name: &CStr,
        node: &NewNode,
        caller: Creator,
    ) -> Result<(Inode, FileAttributes), Errno> {
        let credentials = Credentials::of(self.mount, caller)?;
        let (name, by) = (name.as_ptr(), credentials.1.cast_const());
        let make_node = |mode: u32, rdev: u32| {
            // SAFETY: as above; the credentials live until this function's end.
            self.answered(|inode, statx| unsafe {
                ask!(self, ceph_ll_mknod(name, mode, rdev.into(), inode, statx, WANTED, 0, by))
            })
        };
        // Access lists are off.
        let allowed = |mode: u32| mode & 0o7777 & !caller.umask;
        match node {
            NewNode::Regular { mode } => make_node(libc::S_IFREG | allowed(*mode), 0),
            NewNode::Special { kind, mode, rdev } => {
                make_node(kind & libc::S_IFMT | allowed(*mode), *rdev)
            }
            // SAFETY: as above.
            NewNode::Directory { mode } => self.answered(|inode, statx| unsafe {
                ask!(self, ceph_ll_mkdir(name, allowed(*mode), inode, statx, WANTED, 0, by))
            }),
            NewNode::Symlink { target } => {
                let target = CString::new(&target[..]).map_err(|_| Errno::INVALID)?;
                // SAFETY: as above.
                self.answered(|inode, statx| unsafe {
                    let target = target.as_ptr();
                    ask!(self, ceph_ll_symlink(name, target, inode, statx, WANTED, 0, by))
                })
            }
        }
    }

    fn answered(
        &self,
        ask: impl FnOnce(*mut *mut super::abi::RawInode, *mut Statx) -> Result<i32, Errno>,
    ) -> Result<(Inode, FileAttributes), Errno> {
        let (mut raw, mut statx) = (ptr::null_mut(), MaybeUninit::<Statx>::zeroed());
        ask(&raw mut raw, statx.as_mut_ptr())?;
        // SAFETY: a structure of numbers, of which zeros are valid.
        let attributes = attributes_of(unsafe { statx.assume_init_ref() });
        Ok((Inode::of(self.mount, raw), attributes))
    }

    pub fn link(&self, parent: &Inode, name: &CStr) -> Result<(), Errno> {
        // SAFETY: both references keep their files, the name ends with zero.
        unsafe { ask!(self, ceph_ll_link(parent.raw, name.as_ptr()), as user) }.map(drop)
    }
    pub fn unlink(&self, name: &CStr) -> Result<(), Errno> {
        // SAFETY: as above.
        unsafe { ask!(self, ceph_ll_unlink(name.as_ptr()), as user) }.map(drop)
    }
    pub fn remove_directory(&self, name: &CStr) -> Result<(), Errno> {
        // SAFETY: as above.
        unsafe { ask!(self, ceph_ll_rmdir(name.as_ptr()), as user) }.map(drop)
    }
    pub fn rename(&self, name: &CStr, new_parent: &Inode, new_name: &CStr) -> Result<(), Errno> {
        let (from, to) = (name.as_ptr(), new_name.as_ptr());
        // SAFETY: as above.
        unsafe { ask!(self, ceph_ll_rename(from, new_parent.raw, to), as user) }.map(drop)
    }

    pub fn read_link(&self) -> Result<Vec<u8>, Errno> {
        let mut target = vec![0u8; TARGET_BYTES_MAX];
        let place = target.as_mut_ptr().cast();
        // SAFETY: the library writes at most as many bytes as the place has.
        let length = unsafe { ask!(self, ceph_ll_readlink(place, target.len()), as user) }?;
        target.truncate(length as usize);
        Ok(target)
    }

    pub fn list(&self, cursor: u64) -> Result<Listing, Errno> {
        let directory = Directory::open(self)?;
        if cursor != 0 {
            directory.seek(cursor);
        }
        let mut listing = Listing::default();
        while listing.entries.len() < LISTING_ENTRIES_MAX {
            match directory.next()? {
                Some(entry) if entry.name == b"." || entry.name == b".." => {}
                Some(entry) => listing.entries.push(entry),
                None => {
                    listing.is_end = true;
                    break;
                }
            }
        }
        Ok(listing)
    }
}

struct Directory<'a> {
    inode: &'a Inode,
    raw: *mut DirResult,
}

impl Directory<'_> {
    fn open(inode: &Inode) -> Result<Directory<'_>, Errno> {
        let mut directory = ptr::null_mut();
        // SAFETY: the reference keeps the directory; the pointer is to a place for the answer.
        unsafe { ask!(inode, ceph_ll_opendir(&raw mut directory), as user) }?;
        Ok(Directory { inode, raw: directory })
    }
    fn seek(&self, cursor: u64) {
        let mount = self.inode.mount;
        // SAFETY: the directory is open. A cursor that the library did not give finds some entry,
        // or the end.
        unsafe { (mount.call.ceph_seekdir)(mount.raw, self.raw, cursor as i64) };
    }
    fn next(&self) -> Result<Option<Entry>, Errno> {
        let (mount, mut entry) = (self.inode.mount, MaybeUninit::<libc::dirent64>::zeroed());
        // SAFETY: the place is of the library's type, and zeros are valid. The name ends within it:
        // the library ends each name with zero, and the last byte of zeros stays if it did not.
        unsafe {
            if Errno::check((mount.call.ceph_readdir_r)(mount.raw, self.raw, entry.as_mut_ptr()))?
                == 0
            {
                return Ok(None);
            }
            let entry = entry.assume_init_ref();
            let bytes =
                std::slice::from_raw_parts(entry.d_name.as_ptr().cast::<u8>(), entry.d_name.len());
            let name = CStr::from_bytes_until_nul(bytes).map_err(|_| Errno(libc::EIO))?;
            Ok(Some(Entry {
                name: name.to_bytes().to_vec(),
                file: FileId(entry.d_ino),
                kind: kind_of(u32::from(entry.d_type) << 12),
                cursor: entry.d_off as u64,
            }))
        }
    }
}
impl Drop for Directory<'_> {
    fn drop(&mut self) {
        let mount = self.inode.mount;
        // SAFETY: opened by this type, and used by nobody else.
        unsafe { (mount.call.ceph_ll_releasedir)(mount.raw, self.raw) };
    }
}
