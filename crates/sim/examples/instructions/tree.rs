//! A tree of files, made as tar does and removed as `rm -r` does, through the FUSE front end.

use ext4::Volume;
use fuse::{FrontEndOptions, VolumeFrontEnd};
use fuse_session::abi::{
    CreateIn, EntryOut, ForgetIn, InHeader, MkdirIn, ROOT_NODE, ReleaseIn, SetattrIn, WriteIn,
    fattr, opcode,
};
use fuse_session::{FileSystem, Reply, Request};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use zerocopy::{FromBytes, IntoBytes};

const DIRECTORIES: u64 = 20;
/// Bytes of a file.
const FILE: usize = 20 << 10;
/// Bytes of one write of tar.
const WRITE: usize = 10 << 10;
/// Flags of tar's descriptors: O_WRONLY, O_CREAT and O_EXCL.
const FLAGS: u32 = 0o301;

/// The requests whose instructions a work counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// The difference of two counts of files has all of them, and their share of commits.
    All,
    Create,
    Setattr,
    Write,
    /// UNLINK, and the FORGET that follows and frees the file.
    Unlink,
}

impl Counted {
    /// Returns what the work `name` counts, and its requests for each file.
    pub fn of(name: &str) -> Option<(Counted, u64)> {
        Some(match name {
            "tree" => (Counted::All, 1),
            "create" => (Counted::Create, 1),
            "setattr" => (Counted::Setattr, 3),
            "write-10k" => (Counted::Write, (FILE / WRITE) as u64),
            "unlink" => (Counted::Unlink, 1),
            _ => return None,
        })
    }
}

/// Requests to a volume that is mounted nowhere.
pub struct Tree {
    front_end: Rc<VolumeFrontEnd>,
    counted: Counted,
}

impl Tree {
    pub fn new(volume: &Rc<Volume>, counted: Counted) -> Tree {
        let options = FrontEndOptions {
            synchronous: false,
            synchronous_directories: false,
            kernel_checks_flags: true,
            kernel_strips_set_group: true,
            kernel_drops_written_pages: true,
            without_open: false,
            attributes: Default::default(),
        };
        let report = Box::new(|text: &str| panic!("{text}"));
        Tree { front_end: VolumeFrontEnd::new(volume.clone(), options, report), counted }
    }

    /// Makes `count` files in [`DIRECTORIES`] directories, one after the other, makes them durable,
    /// and removes them.
    pub async fn play(&self, count: u64) {
        let mut directories = Vec::new();
        for number in 0..DIRECTORIES {
            let arguments = MkdirIn { mode: 0o755, umask: 0o022 };
            let body = [arguments.as_bytes(), format!("directory-{number}\0").as_bytes()].concat();
            directories.push(self.node(Counted::All, opcode::MKDIR, ROOT_NODE, &body).await);
        }
        let place = |number: u64| {
            let directory = directories[(number * DIRECTORIES / count) as usize];
            (directory, format!("file-{number}.c\0"))
        };
        let mut files = Vec::new();
        for number in 0..count {
            let (directory, name) = place(number);
            files.push(self.make_file(directory, &name).await);
        }
        self.send(Counted::All, opcode::SYNCFS, ROOT_NODE, &[0; 8]).await;
        for (number, file) in (0..count).zip(files) {
            let (directory, name) = place(number);
            self.send(Counted::Unlink, opcode::UNLINK, directory, name.as_bytes()).await;
            let lookups = ForgetIn { nlookup: 1 };
            self.send(Counted::Unlink, opcode::FORGET, file, lookups.as_bytes()).await;
        }
    }

    /// Makes a file of [`FILE`] bytes, and returns its node.
    async fn make_file(&self, directory: u64, name: &str) -> u64 {
        self.send(Counted::All, opcode::LOOKUP, directory, name.as_bytes()).await;
        let arguments = CreateIn { flags: FLAGS, mode: 0o100600, umask: 0o022, open_flags: 0 };
        let body = [arguments.as_bytes(), name.as_bytes()].concat();
        let node = self.node(Counted::Create, opcode::CREATE, directory, &body).await;
        for at in (0..FILE).step_by(WRITE) {
            let (offset, size) = (at as u64, WRITE as u32);
            let arguments = WriteIn { offset, size, flags: FLAGS, ..Default::default() };
            let body = [arguments.as_bytes(), &[7; WRITE]].concat();
            self.send(Counted::Write, opcode::WRITE, node, &body).await;
        }
        let [times, owner] = [fattr::ATIME_NOW | fattr::MTIME, fattr::UID | fattr::GID];
        for (valid, mtime, mode) in [(times, 1, 0), (owner, 0, 0), (fattr::MODE, 0, 0o100644)] {
            let change = SetattrIn { valid, mtime, mode, uid: 1, gid: 1, ..Default::default() };
            self.send(Counted::Setattr, opcode::SETATTR, node, change.as_bytes()).await;
        }
        let arguments = ReleaseIn { fh: FLAGS.into(), flags: FLAGS, ..Default::default() };
        self.send(Counted::All, opcode::RELEASE, node, arguments.as_bytes()).await;
        node
    }

    /// Sends a request that makes a node, which it returns.
    async fn node(&self, kind: Counted, opcode: u32, nodeid: u64, body: &[u8]) -> u64 {
        let reply = self.send(kind, opcode, nodeid, body).await;
        EntryOut::read_from_prefix(&reply.payload()).expect("an entry").0.nodeid
    }

    async fn send(&self, kind: Counted, opcode: u32, nodeid: u64, body: &[u8]) -> Reply {
        let len = (size_of::<InHeader>() + body.len()) as u32;
        let header = InHeader { len, opcode, nodeid, unique: 2, ..Default::default() };
        let message = [header.as_bytes(), body].concat();
        let request = Request::from_message(&message).expect("a request");
        let served = self.front_end.clone().serve(request);
        let reply = match kind == self.counted && kind != Counted::All {
            true => CountedRequest(Box::pin(served)).await,
            false => served.await,
        };
        assert_eq!(reply.errno(), 0, "{}", opcode::name(opcode));
        reply
    }
}

/// A request that `--toggle-collect='*CountedRequest*poll*'` finds.
struct CountedRequest<F>(Pin<Box<F>>);

impl<F: Future<Output = Reply>> Future for CountedRequest<F> {
    type Output = Reply;

    #[inline(never)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        self.0.as_mut().poll(context)
    }
}
