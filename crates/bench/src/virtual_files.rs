//! A volume's files in virtual time.

use crate::files::{Actor, Files, SyncKind};
use ext4::{Inode, Volume};
use runtime::VirtualWorld;
use std::io;
use std::rc::Rc;
use units::Instant;

/// The files of a volume as a program sees them that calls the kernel, without the kernel: no time passes but the
/// disks'.
#[derive(Clone)]
pub struct VirtualFiles {
    #[allow(dead_code)]
    world: VirtualWorld,
    #[allow(dead_code)]
    volume: Rc<Volume>,
}

pub struct VirtualFile {
    #[allow(dead_code)]
    inode: Rc<Inode>,
    #[allow(dead_code)]
    sync: SyncKind,
}

impl Files for VirtualFiles {
    type File = VirtualFile;

    fn now(&self) -> Instant {
        todo!()
    }
    async fn sleep_until(&self, _at: Instant) {
        todo!()
    }
    async fn create(&self, _path: &str, _sync: SyncKind) -> io::Result<VirtualFile> {
        todo!()
    }
    async fn open(&self, _path: &str, _sync: SyncKind) -> io::Result<VirtualFile> {
        todo!()
    }
    async fn close(&self, _file: VirtualFile) {
        todo!()
    }
    async fn append(&self, _file: &mut VirtualFile, _bytes: &[u8]) -> io::Result<()> {
        todo!()
    }
    async fn write_at(&self, _file: &mut VirtualFile, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        todo!()
    }
    async fn read_at(&self, _file: &VirtualFile, _offset: u64, _bytes: &mut [u8]) -> io::Result<usize> {
        todo!()
    }
    async fn sync(&self, _file: &VirtualFile) -> io::Result<()> {
        todo!()
    }
    async fn length(&self, _path: &str) -> io::Result<u64> {
        todo!()
    }
    async fn unlink(&self, _path: &str) -> io::Result<()> {
        todo!()
    }
    async fn make_directory(&self, _path: &str) -> io::Result<()> {
        todo!()
    }
    async fn run_actors<A: Actor<Self>>(
        &self,
        _actors: Vec<A>,
        _watch: impl FnMut(),
    ) -> io::Result<Vec<A::Output>> {
        todo!()
    }
}
