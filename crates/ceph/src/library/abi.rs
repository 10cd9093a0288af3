//! The declarations of libcephfs.h and ceph_ll_client.h that are used here.

use std::ffi::{c_char, c_int, c_void};

/// Declares types of which only pointers are known.
macro_rules! opaque {
    ($($(#[$reason:meta])* $name:ident),*) => { $( $(#[$reason])* #[repr(C)] pub struct $name([u8; 0]); )* };
}
opaque!(MountInfo, RawInode, RawHandle, DirResult, UserPerm);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct InodeNumber {
    pub value: u64,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SnapshotInode {
    pub inode: InodeNumber,
    pub snapshot: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Statx {
    pub mask: u32,
    pub block_size: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub mode: u16,
    pub inode: u64,
    pub size: u64,
    pub blocks: u64,
    pub device: libc::dev_t,
    pub rdev: libc::dev_t,
    pub accessed: libc::timespec,
    pub changed: libc::timespec,
    pub modified: libc::timespec,
    pub born: libc::timespec,
    pub version: u64,
}
const _: () = assert!(size_of::<Statx>() == 136 && std::mem::offset_of!(Statx, version) == 128);

pub const STATX_SIZE: u32 = 0x0200;
pub const STATX_BASIC: u32 = 0x07ff;
pub const STATX_VERSION: u32 = 0x1000;

pub const SETATTR_MODE: c_int = 1;
pub const SETATTR_UID: c_int = 1 << 1;
pub const SETATTR_GID: c_int = 1 << 2;
pub const SETATTR_MTIME: c_int = 1 << 3;
pub const SETATTR_ATIME: c_int = 1 << 4;
pub const SETATTR_SIZE: c_int = 1 << 5;

pub const DELEGATION_NONE: u32 = 0;
pub const DELEGATION_READ: u32 = 1;
pub const DELEGATION_WRITE: u32 = 2;

pub const RECLAIM_RESET: u32 = 1;

pub type RecallCallback = unsafe extern "C" fn(*mut RawHandle, *mut c_void);
type InodeCallback = unsafe extern "C" fn(*mut c_void, SnapshotInode, i64, i64);

/// Null callbacks are not called.
#[repr(C)]
pub struct Callbacks {
    pub handle: *mut c_void,
    pub inode_changed: Option<InodeCallback>,
    pub others: [*mut c_void; 5],
}

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }
        impl Functions {
            /// Loads the library, for as long as the process lives. A static program cannot.
            pub fn load() -> Result<Functions, String> {
                if cfg!(target_feature = "crt-static") {
                    return Err(STATIC.to_owned());
                }
                Functions::load_shared().map_err(|error| format!("{error}; install libcephfs2"))
            }
            fn load_shared() -> Result<Functions, libloading::Error> {
                // SAFETY: libcephfs may be loaded at any time by any thread, and is never unloaded.
                let library = unsafe { libloading::Library::new(LIBRARY) }?;
                let functions = Functions {
                    // SAFETY: the types are those of the header of the library's version number.
                    $($name: *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }?,)*
                };
                std::mem::forget(library);
                Ok(functions)
            }
        }
    };
}

/// The number changes when a function changes.
const LIBRARY: &str = "libcephfs.so.2";
const STATIC: &str = "this okeanos is linked statically and cannot load libcephfs.so.2: take the \
                      package, or build it with make";

functions! {
    ceph_create(*mut *mut MountInfo, *const c_char) -> c_int;
    ceph_conf_read_file(*mut MountInfo, *const c_char) -> c_int;
    ceph_conf_parse_env(*mut MountInfo, *const c_char) -> c_int;
    ceph_conf_set(*mut MountInfo, *const c_char, *const c_char) -> c_int;
    ceph_conf_get(*mut MountInfo, *const c_char, *mut c_char, usize) -> c_int;
    ceph_init(*mut MountInfo) -> c_int;
    ceph_select_filesystem(*mut MountInfo, *const c_char) -> c_int;
    ceph_mount(*mut MountInfo, *const c_char) -> c_int;
    ceph_unmount(*mut MountInfo) -> c_int;
    ceph_release(*mut MountInfo) -> c_int;
    ceph_get_fs_cid(*mut MountInfo) -> i64;
    ceph_mount_perms(*mut MountInfo) -> *mut UserPerm;
    ceph_userperm_new(libc::uid_t, libc::gid_t, c_int, *mut libc::gid_t) -> *mut UserPerm;
    ceph_userperm_destroy(*mut UserPerm);
    ceph_set_uuid(*mut MountInfo, *const c_char);
    ceph_start_reclaim(*mut MountInfo, *const c_char, u32) -> c_int;
    ceph_finish_reclaim(*mut MountInfo);
    ceph_get_cap_return_timeout(*mut MountInfo) -> u32;
    ceph_set_deleg_timeout(*mut MountInfo, u32) -> c_int;
    ceph_ll_register_callbacks(*mut MountInfo, *mut Callbacks);
    ceph_ll_delegation(*mut MountInfo, *mut RawHandle, u32, Option<RecallCallback>,
        *mut c_void) -> c_int;
    ceph_ll_lookup_root(*mut MountInfo, *mut *mut RawInode) -> c_int;
    ceph_ll_lookup_inode(*mut MountInfo, InodeNumber, *mut *mut RawInode) -> c_int;
    ceph_ll_lookup(*mut MountInfo, *mut RawInode, *const c_char, *mut *mut RawInode, *mut Statx,
        u32, u32, *const UserPerm) -> c_int;
    ceph_ll_put(*mut MountInfo, *mut RawInode) -> c_int;
    ceph_ll_getattr(*mut MountInfo, *mut RawInode, *mut Statx, u32, u32, *const UserPerm) -> c_int;
    ceph_ll_setattr(*mut MountInfo, *mut RawInode, *mut Statx, c_int, *const UserPerm) -> c_int;
    ceph_ll_sync_inode(*mut MountInfo, *mut RawInode, c_int) -> c_int;
    ceph_ll_open(*mut MountInfo, *mut RawInode, c_int, *mut *mut RawHandle,
        *const UserPerm) -> c_int;
    ceph_ll_close(*mut MountInfo, *mut RawHandle) -> c_int;
    ceph_ll_read(*mut MountInfo, *mut RawHandle, i64, u64, *mut c_char) -> c_int;
    ceph_ll_write(*mut MountInfo, *mut RawHandle, i64, u64, *const c_char) -> c_int;
    ceph_ll_fallocate(*mut MountInfo, *mut RawHandle, c_int, i64, i64) -> c_int;
    ceph_ll_getlk(*mut MountInfo, *mut RawHandle, *mut libc::flock, u64) -> c_int;
    ceph_ll_setlk(*mut MountInfo, *mut RawHandle, *mut libc::flock, u64, c_int) -> c_int;
    ceph_ll_fsync(*mut MountInfo, *mut RawHandle, c_int) -> c_int;
    ceph_sync_fs(*mut MountInfo) -> c_int;
    ceph_ll_lazyio(*mut MountInfo, *mut RawHandle, c_int) -> c_int;
    ceph_ll_mknod(*mut MountInfo, *mut RawInode, *const c_char, libc::mode_t, libc::dev_t,
        *mut *mut RawInode, *mut Statx, u32, u32, *const UserPerm) -> c_int;
    ceph_ll_mkdir(*mut MountInfo, *mut RawInode, *const c_char, libc::mode_t, *mut *mut RawInode,
        *mut Statx, u32, u32, *const UserPerm) -> c_int;
    ceph_ll_symlink(*mut MountInfo, *mut RawInode, *const c_char, *const c_char,
        *mut *mut RawInode, *mut Statx, u32, u32, *const UserPerm) -> c_int;
    ceph_ll_link(*mut MountInfo, *mut RawInode, *mut RawInode, *const c_char,
        *const UserPerm) -> c_int;
    ceph_ll_unlink(*mut MountInfo, *mut RawInode, *const c_char, *const UserPerm) -> c_int;
    ceph_ll_rmdir(*mut MountInfo, *mut RawInode, *const c_char, *const UserPerm) -> c_int;
    ceph_ll_rename(*mut MountInfo, *mut RawInode, *const c_char, *mut RawInode, *const c_char,
        *const UserPerm) -> c_int;
    ceph_ll_readlink(*mut MountInfo, *mut RawInode, *mut c_char, usize, *const UserPerm) -> c_int;
    ceph_ll_opendir(*mut MountInfo, *mut RawInode, *mut *mut DirResult, *const UserPerm) -> c_int;
    ceph_ll_releasedir(*mut MountInfo, *mut DirResult) -> c_int;
    ceph_seekdir(*mut MountInfo, *mut DirResult, i64);
    ceph_readdir_r(*mut MountInfo, *mut DirResult, *mut libc::dirent64) -> c_int;
    ceph_ll_statfs(*mut MountInfo, *mut RawInode, *mut libc::statvfs) -> c_int;
    ceph_ll_getxattr(*mut MountInfo, *mut RawInode, *const c_char, *mut c_void, usize,
        *const UserPerm) -> c_int;
    ceph_ll_setxattr(*mut MountInfo, *mut RawInode, *const c_char, *const c_void, usize, c_int,
        *const UserPerm) -> c_int;
    ceph_ll_listxattr(*mut MountInfo, *mut RawInode, *mut c_char, usize, *mut usize,
        *const UserPerm) -> c_int;
    ceph_ll_removexattr(*mut MountInfo, *mut RawInode, *const c_char, *const UserPerm) -> c_int;
}
