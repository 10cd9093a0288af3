//! A read-only file system with one file. On an empty directory:
//!
//!     cargo run -p fuse_session --example hello -- DIRECTORY &
//!     cat DIRECTORY/hello
//!     umount DIRECTORY
//!
//! An ordinary user needs `fusermount3`, and unmounts with `fusermount3 -u DIRECTORY`.

use fuse_session::abi::{
    Attr, AttrOut, Dirent, EntryOut, OpenOut, RECORD_ALIGNMENT, ROOT_NODE, StatfsOut,
};
use fuse_session::{
    Connection, FileSystem, MalformedRequest, MountKind, MountOptions, Operation, RealWorld, Reply,
    Request, Session, SessionError, Transport, mount,
};
use std::error::Error;
use std::path::Path;
use std::rc::Rc;

const FILE: u64 = 2;
const NAME: &[u8] = b"hello";
pub const TEXT: &[u8] = b"Hello, world!\n";
/// Seconds for which the kernel may cache replies: nothing changes.
const VALID: u64 = 3600;

struct Hello;

impl FileSystem for Hello {
    async fn serve(self: Rc<Self>, request: Request) -> Reply {
        let result = match request.operation() {
            Ok(operation) => reply(request.header.nodeid, operation),
            Err(MalformedRequest) => Err(libc::EINVAL),
        };
        result.unwrap_or_else(Reply::error)
    }
    async fn end(self: Rc<Self>) {}
}

/// Returns the reply to an operation on `node`, or a positive errno.
fn reply(node: u64, operation: Operation<'_>) -> Result<Reply, i32> {
    match operation {
        Operation::Lookup { name } if node == ROOT_NODE && name == NAME => {
            Ok(Reply::of(&entry(FILE)))
        }
        Operation::Lookup { .. } => Err(libc::ENOENT),
        Operation::Getattr => {
            let attr = attributes(node);
            Ok(Reply::of(&AttrOut { attr_valid: VALID, attr, ..Default::default() }))
        }
        Operation::Open(_) | Operation::Opendir => Ok(Reply::of(&OpenOut::default())),
        Operation::Read(asked) => {
            let start = TEXT.len().min(usize::try_from(asked.offset).unwrap_or(usize::MAX));
            let end = TEXT.len().min(start.saturating_add(asked.size as usize));
            Ok(Reply::bytes(&TEXT[start..end]))
        }
        // The whole listing fits into the smallest buffer, and is sent at once.
        Operation::Readdir(asked) if asked.offset == 0 => Ok(listing(false)),
        Operation::Readdirplus(asked) if asked.offset == 0 => Ok(listing(true)),
        Operation::Readdir(_) | Operation::Readdirplus(_) => Ok(Reply::empty()),
        Operation::Statfs => {
            Ok(Reply::of(&StatfsOut { bsize: 4096, namelen: 255, ..Default::default() }))
        }
        Operation::Release(_) | Operation::Releasedir(_) => Ok(Reply::empty()),
        _ => Err(libc::ENOSYS),
    }
}

/// Makes the listing of the root; with `plus`, attributes stand before each name.
fn listing(plus: bool) -> Reply {
    let mut reply = Reply::empty();
    if plus {
        reply.append(&entry(FILE));
    }
    let kind = u32::from(libc::DT_REG);
    reply.append(&Dirent { ino: FILE, off: 1, namelen: NAME.len() as u32, kind });
    reply.append_bytes(NAME);
    reply.pad(RECORD_ALIGNMENT);
    reply
}

fn entry(node: u64) -> EntryOut {
    let attr = attributes(node);
    EntryOut { nodeid: node, entry_valid: VALID, attr_valid: VALID, attr, ..Default::default() }
}

fn attributes(node: u64) -> Attr {
    let (mode, nlink, size) = match node {
        ROOT_NODE => (libc::S_IFDIR | 0o555, 2, 0),
        _ => (libc::S_IFREG | 0o444, 1, TEXT.len() as u64),
    };
    Attr { ino: node, mode, nlink, size, blksize: 4096, ..Default::default() }
}

pub fn mount_hello(directory: &Path) -> Result<Connection, Box<dyn Error>> {
    let options = MountOptions {
        kind: MountKind::Plain { name: "hello".into() },
        subtype: "hello".into(),
        flags: libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV,
        allow_other: false,
    };
    Ok(mount(directory, &options)?)
}

/// Serves until the file system is unmounted.
pub fn serve(connection: Connection, transport: Transport) -> Result<(), SessionError> {
    let world = RealWorld::new()?;
    let session = Session::new(world.clone(), connection, Rc::new(Hello), transport);
    world.run(async move { session.serve().await })
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).ok_or("usage: hello DIRECTORY")?;
    let connection = mount_hello(Path::new(&directory))?;
    Ok(serve(connection, Transport::Auto)?)
}
