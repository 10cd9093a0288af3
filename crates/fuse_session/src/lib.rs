//! A FUSE session: everything between the kernel and a file system in user space.
//!
//! [`mount`] puts a directory under a new [`Connection`] to the kernel. A [`Session`] serves the
//! connection: it negotiates, takes requests, and gives each as a [`Request`] to a [`FileSystem`],
//! which reads the parsed [`Operation`] and returns a [`Reply`]. The session knows how requests
//! come and how replies go; it knows nothing about files.
//!
//! - Requests are tasks on one thread. [`FileSystem::serve`] is asynchronous and needs no `Send`
//!   and no locks, and thousands of requests may wait for one event, such as a commit.
//! - Requests come by reads of `/dev/fuse`, or over io_uring (Linux 6.14): see [`Transport`].
//! - Requests in flight hold at most 64 MiB; others wait in the kernel. The data of a large WRITE
//!   are not copied: [`Operation::Write`] lends them, or shares their buffer.
//! - A request that contradicts itself is a [`MalformedRequest`], never a panic.
//!
//! # Example
//!
//! One file, `/hello`, that only LOOKUP, GETATTR and READ know of. `examples/hello.rs` is the whole
//! of it, with a listing of the directory.
//!
//! ```no_run
//! use fuse_session::abi::{Attr, AttrOut, EntryOut, ROOT_NODE};
//! use fuse_session::{
//!     FileSystem, MountKind, MountOptions, Operation, RealWorld, Reply, Request, Session,
//!     Transport, mount,
//! };
//! use std::{error::Error, path::Path, rc::Rc};
//!
//! const TEXT: &[u8] = b"Hello, world!\n";
//!
//! struct Hello;
//!
//! fn attributes(node: u64) -> Attr {
//!     let (mode, size) = match node {
//!         ROOT_NODE => (libc::S_IFDIR | 0o755, 0),
//!         _ => (libc::S_IFREG | 0o444, TEXT.len() as u64),
//!     };
//!     Attr { ino: node, mode, size, nlink: 1, blksize: 4096, ..Default::default() }
//! }
//!
//! impl FileSystem for Hello {
//!     async fn serve(self: Rc<Self>, request: Request) -> Reply {
//!         let node = request.header.nodeid;
//!         match request.operation() {
//!             Ok(Operation::Lookup { name: b"hello" }) => {
//!                 let attr = attributes(2);
//!                 Reply::of(&EntryOut { nodeid: 2, attr, ..Default::default() })
//!             }
//!             Ok(Operation::Lookup { .. }) => Reply::error(libc::ENOENT),
//!             Ok(Operation::Getattr) => {
//!                 Reply::of(&AttrOut { attr: attributes(node), ..Default::default() })
//!             }
//!             Ok(Operation::Read(read)) => {
//!                 Reply::bytes(TEXT.get(read.offset as usize..).unwrap_or_default())
//!             }
//!             // The kernel opens and closes the file by itself from now on.
//!             _ => Reply::error(libc::ENOSYS),
//!         }
//!     }
//!     async fn end(self: Rc<Self>) {}
//! }
//!
//! fn main() -> Result<(), Box<dyn Error>> {
//!     let options = MountOptions {
//!         kind: MountKind::Plain { name: "hello".into() },
//!         subtype: "hello".into(),
//!         flags: libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV,
//!         allow_other: false,
//!     };
//!     let connection = mount(Path::new("/mnt"), &options)?;
//!     let world = RealWorld::new()?;
//!     let session = Session::new(world.clone(), connection, Rc::new(Hello), Transport::Auto);
//!     // Until `umount /mnt`.
//!     Ok(world.run(async move { session.serve().await })?)
//! }
//! ```
//!
//! # What the session negotiates
//!
//! INIT is the session's own. Some of what it accepts, where the kernel offers it, is a duty of the
//! file system ([`abi::init`] has the flags):
//!
//! - Permissions are the kernel's business: each mount has `default_permissions`. With `POSIX_ACL`
//!   the kernel reads access control lists by GETXATTR (ENODATA: the file has none; ENOSYS: no file
//!   has one), unless [`Session::disable_acls`] was called.
//! - `DONT_MASK`: CREATE, MKDIR, MKNOD and TMPFILE carry the umask, and the file system applies it.
//! - `HANDLE_KILLPRIV_V2`: the file system clears set-user-ID and set-group-ID bits and file
//!   capabilities when the owner changes, and where a request has a `KILL_SUIDGID` flag.
//! - `DO_READDIRPLUS`: READDIRPLUS is served wherever READDIR is. An entry with node zero gives no
//!   attributes.
//! - `EXPLICIT_INVAL_DATA`: cached pages stay valid until the file system says otherwise. Files
//!   whose content changes behind the kernel's back are opened with [`abi::fopen::DIRECT_IO`].
//!   Attributes and listings that change so are dropped from its cache by
//!   [`Session::invalidate_attributes`], [`Reply::with_stale_attributes`] and
//!   [`Reply::with_stale_listing`]. A file that one descriptor writes with `DIRECT_IO` while
//!   another reads it without needs Linux 6.19, or a stable kernel of 2026: others may keep old
//!   pages.
//! - `DIRECT_IO_ALLOW_MMAP`, unless [`Session::disable_shared_mappings`] was called: such files can
//!   be mapped shared (Linux 6.6). A page that is written back may be older than a write beside it.
//! - `PARALLEL_DIROPS`, `ASYNC_DIO`: requests for one directory or file come concurrently.
//! - `EXPORT_SUPPORT`: where NFS exports the mount, LOOKUP of `.` and `..` finds a node by its
//!   number alone.
//! - `SECURITY_CTX`, from FUSE 7.38 on (Linux 6.3) and with [`FileSystem::SECURITY_LABELS`]: new
//!   files come with the label of a security module.
//! - `ALLOW_IDMAP`, after [`Session::allow_idmapped_mounts`]: requests have [`abi::NO_ID`] as user
//!   and group unless they make a file.
//! - Locks stay in the kernel unless [`FileSystem::REMOTE_LOCKS`] says otherwise.
//!
//! Never accepted are `WRITEBACK_CACHE`, since a synchronous write would not show in `stat`, and
//! `ATOMIC_O_TRUNC`. A session needs FUSE 7.31, Linux 5.4.
//!
//! # Units
//!
//! Offsets, sizes and lengths are in bytes, but for [`abi::Attr::blocks`], in units of 512 bytes.
//! Times are seconds and nanoseconds since 1970; how long the kernel may cache a reply is given in
//! the same way. An errno is positive, except within [`abi::OutHeader`]. Numbers of the protocol
//! are in the byte order of the machine.
//!
//! # Threads and processes
//!
//! A [`RealWorld`] is made on the thread that runs it, and after any fork. The session starts one
//! thread of its own, once 64 requests are in flight: it sends batches of short replies, and ends
//! with the session. Time and tasks come from the world; [`World`] is its trait.
//!
//! # Sources
//!
//! The protocol is that of Linux: `include/uapi/linux/fuse.h`, whose names [`abi`] keeps without
//! their prefix. In `Documentation/filesystems/`, or its folder `fuse/` in newer kernels:
//! `fuse.rst` (mount options, interrupts, aborting a connection), `fuse-io.rst` (I/O modes) and
//! `fuse-io-uring.rst`. Manual pages: fuse(4), mount(2), fusermount3(1).
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

pub mod abi;
pub mod descriptor;
mod file_system;
mod message;
mod mount;
mod reply;
mod request;
mod ring_queue;
mod session;

pub use device::{Buffer, World};
pub use file_system::FileSystem;
pub use mount::{
    Connection, MountError, MountKind, MountOptions, mount, page_bytes, possible_processors,
};
pub use reply::Reply;
pub use request::{MalformedRequest, Operation, Request, SecurityLabel};
pub use ring_queue::WaitPermit;
pub use runtime::{RealWorld, Slice};
pub use session::{
    InitError, MAX_WRITE, Negotiated, Session, SessionError, SessionStatistics, Transport,
};
