//! A small flat file system in memory, and a way to mount it where no other process sees it.

use device::Buffer;
use fuse_session::abi::*;
use fuse_session::{FileSystem, Operation, Reply, Request};
use runtime::Slice;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Observations of the file system, for the test's own thread.
#[derive(Default, Debug)]
pub struct Seen {
    pub durable_writes: AtomicU64,
    pub fsyncs: AtomicU64,
    pub syncfs: AtomicU64,
    pub destroys: AtomicU64,
    pub ends: AtomicU64,
    /// The most replies to long reads that were in memory at once.
    pub replies_held: AtomicU64,
}

#[derive(Default)]
pub struct Memory {
    pub names: RefCell<BTreeMap<Vec<u8>, u64>>,
    pub files: RefCell<BTreeMap<u64, Vec<u8>>>,
    pub last: Cell<u64>,
    pub seen: Arc<Seen>,
    pub long_replies: RefCell<Vec<Weak<Buffer>>>,
    pub pauses: Cell<u32>,
}

const FOREVER: u64 = 3600;
/// Length, in bytes, from which a reply is in its own buffer.
const LONG: usize = 64 << 10;
/// Pauses in which requests for long replies pile up: a kernel that takes each reply at once would
/// have one for each.
const PAUSES: u32 = 8;

impl FileSystem for Memory {
    async fn serve(self: Rc<Self>, request: Request) -> Reply {
        match request.operation() {
            Ok(operation) => self.reply(request.header.nodeid, operation),
            Err(_) => Reply::error(libc::EINVAL),
        }
    }
    async fn end(self: Rc<Self>) {
        self.seen.ends.fetch_add(1, Ordering::SeqCst);
    }
}

impl Memory {
    fn reply(&self, node: u64, operation: Operation<'_>) -> Reply {
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::SeqCst);
        match operation {
            Operation::Lookup { name } => match self.names.borrow().get(name) {
                Some(&node) => Reply::of(&self.entry(node)),
                None => Reply::error(libc::ENOENT),
            },
            Operation::Create { arguments, name, .. } => {
                let node = self.last.get() + 2;
                self.last.set(node);
                self.names.borrow_mut().insert(name.to_vec(), node);
                self.files.borrow_mut().insert(node, Vec::new());
                let mut reply = Reply::of(&self.entry(node));
                reply.append(&open_out(arguments.flags));
                reply
            }
            Operation::Open(arguments) => Reply::of(&open_out(arguments.flags)),
            Operation::Opendir => Reply::of(&OpenOut::default()),
            Operation::Getattr => Reply::of(&AttrOut {
                attr_valid: FOREVER,
                attr: self.attributes(node),
                ..Default::default()
            }),
            Operation::Write { arguments, data, .. } => {
                let mut files = self.files.borrow_mut();
                let Some(file) = files.get_mut(&node) else { return Reply::error(libc::ENOENT) };
                let start = arguments.offset as usize;
                file.resize(file.len().max(start + data.len()), 0);
                file[start..start + data.len()].copy_from_slice(data);
                if arguments.flags & libc::O_DSYNC as u32 != 0 {
                    count(&self.seen.durable_writes);
                }
                Reply::of(&WriteOut { size: data.len() as u32, padding: 0 })
            }
            Operation::Read(arguments) => {
                let files = self.files.borrow();
                let Some(file) = files.get(&node) else { return Reply::error(libc::ENOENT) };
                let start = file.len().min(arguments.offset as usize);
                let end = file.len().min(start + arguments.size as usize);
                if end - start >= LONG {
                    return self.in_shared_buffer(&file[start..end]);
                }
                Reply::bytes(&file[start..end])
            }
            Operation::Readdir(arguments) if arguments.offset == 0 => self.list(false),
            Operation::Readdirplus(arguments) if arguments.offset == 0 => self.list(true),
            Operation::Readdir(_) | Operation::Readdirplus(_) => Reply::empty(),
            Operation::Statfs => {
                Reply::of(&StatfsOut { bsize: 4096, namelen: 255, ..Default::default() })
            }
            Operation::Fsync(_) => {
                count(&self.seen.fsyncs);
                Reply::empty()
            }
            Operation::Syncfs => {
                count(&self.seen.syncfs);
                Reply::empty()
            }
            Operation::Destroy => {
                count(&self.seen.destroys);
                Reply::empty()
            }
            Operation::Release(_) | Operation::Releasedir(_) | Operation::Flush(_) => {
                Reply::empty()
            }
            _ => Reply::error(libc::ENOSYS),
        }
    }

    fn in_shared_buffer(&self, content: &[u8]) -> Reply {
        let mut buffer = Buffer::zeroed(content.len().next_multiple_of(512));
        buffer[..content.len()].copy_from_slice(content);
        let buffer = Rc::new(buffer);
        let mut held = self.long_replies.borrow_mut();
        held.retain(|reply| reply.strong_count() > 0);
        if held.is_empty() && self.pauses.get() < PAUSES {
            self.pauses.set(self.pauses.get() + 1);
            // The others ask during this time, so that all wait when this thread polls again.
            std::thread::sleep(Duration::from_millis(500));
        }
        held.push(Rc::downgrade(&buffer));
        self.seen.replies_held.fetch_max(held.len() as u64, Ordering::SeqCst);
        Reply::slices(vec![Slice { buffer, range: 0..content.len() }])
    }

    fn list(&self, plus: bool) -> Reply {
        let mut reply = Reply::empty();
        for (index, (name, &node)) in self.names.borrow().iter().enumerate() {
            let off = index as u64 + 1;
            if plus {
                reply.append(&self.entry(node));
            }
            reply.append(&Dirent { ino: node, off, namelen: name.len() as u32, kind: 8 });
            reply.append_bytes(name);
            reply.pad(RECORD_ALIGNMENT);
        }
        reply
    }

    fn attributes(&self, node: u64) -> Attr {
        let (mode, size) = match self.files.borrow().get(&node) {
            Some(file) => (libc::S_IFREG | 0o644, file.len() as u64),
            None => (libc::S_IFDIR | 0o755, 0),
        };
        Attr { ino: node, size, mode, nlink: 1, blksize: 4096, ..Default::default() }
    }
    fn entry(&self, node: u64) -> EntryOut {
        let attr = self.attributes(node);
        EntryOut {
            nodeid: node,
            entry_valid: FOREVER,
            attr_valid: FOREVER,
            attr,
            ..Default::default()
        }
    }
}

fn open_out(flags: u32) -> OpenOut {
    let direct = flags & (libc::O_DSYNC | libc::O_DIRECT) as u32 != 0;
    OpenOut {
        open_flags: if direct { fopen::DIRECT_IO } else { fopen::KEEP_CACHE },
        ..Default::default()
    }
}

/// Gives this thread, and those it starts, their own mounts. Mounting needs root and /dev/fuse; a
/// test without them fails with a message.
pub fn private_mounts() {
    assert!(Path::new("/dev/fuse").exists(), "these tests need /dev/fuse: modprobe fuse");
    // SAFETY: neither call touches memory of ours beyond the strings given, which end with zero
    // bytes.
    unsafe {
        assert_eq!(libc::geteuid(), 0, "these tests mount file systems: run them as root");
        assert_eq!(
            libc::unshare(libc::CLONE_NEWNS),
            0,
            "unshare: {}",
            std::io::Error::last_os_error()
        );
        let flags = libc::MS_REC | libc::MS_PRIVATE;
        let result =
            libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null());
        assert_eq!(result, 0, "private mounts: {}", std::io::Error::last_os_error());
    }
}

#[allow(dead_code, reason = "not every test ends this way")]
pub fn unmount(directory: &Path) -> std::io::Result<()> {
    let path = std::ffi::CString::new(directory.to_str().unwrap()).unwrap();
    // SAFETY: the path ends with a zero byte and outlives the call.
    match unsafe { libc::umount2(path.as_ptr(), 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Keeps FUSE over io_uring enabled, a parameter of the kernel's module for the whole machine,
/// until it is dropped. One test at a time.
pub struct UringEnabled {
    before: String,
    _turn: MutexGuard<'static, ()>,
}

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

impl UringEnabled {
    /// Returns `None` where the kernel has no such transport, or OKEANOS_IO has no ring, which is
    /// printed.
    pub fn new() -> Option<UringEnabled> {
        if std::env::var_os("OKEANOS_IO").is_some_and(|choice| choice == "classic") {
            eprintln!("NOT TESTED: OKEANOS_IO=classic has no io_uring");
            return None;
        }
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(before) = std::fs::read_to_string(PARAMETER) else {
            eprintln!("NOT TESTED: this kernel has no FUSE over io_uring (Linux 6.14 and later)");
            return None;
        };
        std::fs::write(PARAMETER, "Y").unwrap();
        Some(UringEnabled { before, _turn: turn })
    }
}

impl Drop for UringEnabled {
    fn drop(&mut self) {
        let _ = std::fs::write(PARAMETER, self.before.trim());
    }
}
