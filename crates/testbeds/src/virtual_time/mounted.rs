//! Two volumes in one namespace.

use crate::virtual_time::virtual_files::{VirtualFile, VirtualFiles, run_tasks};
use device::World;
use runtime::VirtualWorld;
use std::io;
use units::Instant;
use workloads::{Actor, Files, SyncKind};

/// The files of a volume, with another volume of the same world in place of one of its top
/// directories.
#[derive(Clone)]
pub struct Mounted {
    world: VirtualWorld,
    root: VirtualFiles,
    mount_point: &'static str,
    mounted: VirtualFiles,
}

pub struct MountedFile {
    file: VirtualFile,
    on_root: bool,
}

impl Mounted {
    pub fn new(
        world: VirtualWorld,
        root: VirtualFiles,
        mount_point: &'static str,
        mounted: VirtualFiles,
    ) -> Mounted {
        Mounted { world, root, mount_point, mounted }
    }
    /// Returns the volume, and the path on it.
    fn find<'a>(&self, path: &'a str) -> (&VirtualFiles, &'a str, bool) {
        match path.strip_prefix(self.mount_point) {
            Some(below) if below.is_empty() || below.starts_with('/') => {
                (&self.mounted, below, false)
            }
            _ => (&self.root, path, true),
        }
    }
    fn of(&self, file: &MountedFile) -> &VirtualFiles {
        if file.on_root { &self.root } else { &self.mounted }
    }
}

impl Files for Mounted {
    type File = MountedFile;

    fn now(&self) -> Instant {
        self.world.now()
    }
    async fn sleep_until(&self, at: Instant) {
        self.world.sleep_until(at).await;
    }
    async fn create(&self, path: &str, sync: SyncKind) -> io::Result<MountedFile> {
        let (files, path, on_root) = self.find(path);
        Ok(MountedFile { file: files.create(path, sync).await?, on_root })
    }
    async fn open(&self, path: &str, sync: SyncKind) -> io::Result<MountedFile> {
        let (files, path, on_root) = self.find(path);
        Ok(MountedFile { file: files.open(path, sync).await?, on_root })
    }
    async fn close(&self, file: MountedFile) {
        self.of(&file).close(file.file).await;
    }
    async fn append(&self, file: &mut MountedFile, bytes: &[u8]) -> io::Result<()> {
        self.of(file).append(&mut file.file, bytes).await
    }
    async fn write_at(&self, file: &mut MountedFile, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.of(file).write_at(&mut file.file, offset, bytes).await
    }
    async fn read_at(
        &self,
        file: &MountedFile,
        offset: u64,
        bytes: &mut [u8],
    ) -> io::Result<usize> {
        self.of(file).read_at(&file.file, offset, bytes).await
    }
    async fn sync(&self, file: &MountedFile) -> io::Result<()> {
        self.of(file).sync(&file.file).await
    }
    async fn length(&self, path: &str) -> io::Result<u64> {
        let (files, path, _) = self.find(path);
        files.length(path).await
    }
    async fn unlink(&self, path: &str) -> io::Result<()> {
        let (files, path, _) = self.find(path);
        files.unlink(path).await
    }
    /// Does nothing: the mount point exists already.
    async fn make_directory(&self, path: &str) -> io::Result<()> {
        match self.find(path) {
            (_, "", false) => Err(io::Error::from_raw_os_error(libc::EEXIST)),
            (files, path, _) => files.make_directory(path).await,
        }
    }
    async fn run_actors<A: Actor<Self>>(
        &self,
        actors: Vec<A>,
        watch: impl FnMut(),
    ) -> io::Result<Vec<A::Output>> {
        run_tasks(&self.world, self, None, actors, watch).await
    }
}
