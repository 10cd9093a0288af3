//! The store beneath two hosts: a simulated cluster, or a directory.

use super::operation::FileState;
use super::perform::{CREATED, FILE_NAMES, OTHER_NAMES};
use super::world::Shared;
use crate::common::*;
use device::{LocalFuture, LongSteps, World};
use runtime::VirtualWorld;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::rc::Rc;
use std::time::Duration;
use store::{FileId, Identity, LocalStore, SimulatedStore, Store};
use tempfile::TempDir;
use units::{Instant, Timestamp};

pub const CONTENT: &[u8] = b"0123456789";
pub const MODE: u32 = 0o644;
/// Real time of a pause in virtual time, in which threads of the directory get on.
const PAUSE: Duration = Duration::from_micros(50);

pub struct SharedStore {
    pub stage: Stage,
    directory: Option<TempDir>,
}

impl SharedStore {
    pub fn new(shared: Shared) -> SharedStore {
        let is_directory = shared == Shared::Directory;
        let directory = is_directory.then(|| tempfile::tempdir().expect("a directory"));
        SharedStore { stage: Stage::new(1), directory }
    }
    pub fn is_directory(&self) -> bool {
        self.directory.is_some()
    }
    /// Returns the name of the store in the head of a journal.
    pub fn name(&self) -> String {
        match &self.directory {
            None => "simulated cluster".into(),
            Some(directory) => format!("dir:{}", directory.path().display()),
        }
    }
    pub fn world(&self) -> Rc<dyn World> {
        match self.directory {
            None => self.stage.world(),
            Some(_) => Rc::new(PatientWorld(self.stage.world.clone())),
        }
    }
    pub fn connect(&self, name: Identity) -> Rc<dyn Store> {
        match &self.directory {
            None => self.stage.connect_as(name),
            Some(directory) => {
                Rc::new(LocalStore::open(self.world(), directory.path(), name).expect("a store"))
            }
        }
    }

    /// Creates the files. Returns the one that is played with.
    pub async fn make_files(&self) -> FileId {
        let names = [FILE_NAMES[0]].into_iter().chain(OTHER_NAMES);
        if let Some(directory) = &self.directory {
            for name in names {
                fs::write(directory.path().join(name), CONTENT).expect("a file");
                let mode = fs::Permissions::from_mode(MODE);
                fs::set_permissions(directory.path().join(name), mode).expect("a mode");
            }
            let found = fs::metadata(directory.path().join(FILE_NAMES[0])).expect("a file");
            return FileId(found.ino());
        }
        let client = self.stage.connect_as(Identity("setup".into()));
        let mut file = None;
        for name in names {
            let node = store::NewNode::Regular { mode: MODE };
            let made = client.make(client.root(), name.as_bytes(), node, ROOT).await.unwrap().file;
            file = file.or(Some(made));
        }
        let file = file.expect("the first");
        peer_writes(&*client, file, 0, CONTENT).await;
        client.disconnect().await.unwrap();
        file
    }

    /// Returns what another host gets when the holder of the file does not answer.
    pub fn has(&self, file: FileId) -> FileState {
        let (Some(attributes), Some((mut content, version))) =
            (self.stage.cluster.attributes(file), self.stage.cluster.content(file))
        else {
            // In a directory all hosts answer.
            return FileState { content: Vec::new(), mode: 0, modified: None };
        };
        let size = content.len().max(version.size as usize);
        content.resize(size, 0);
        FileState { content, mode: attributes.mode, modified: None }
    }

    /// Returns what there is when no host holds anything; `None`: the file is gone.
    pub fn found(&self, file: FileId) -> Option<(FileState, Option<usize>)> {
        if let Some(directory) = &self.directory {
            let at = |name: &str| directory.path().join(name);
            let is_it = |name: &&str| fs::metadata(at(name)).is_ok_and(|it| it.ino() == file.0);
            let name = FILE_NAMES.iter().position(is_it);
            let content = fs::read(at(FILE_NAMES[name?])).ok()?;
            let found = fs::metadata(at(FILE_NAMES[name?])).ok()?;
            let (mode, modified) = (found.mode() & 0o7777, Some(found.mtime()));
            return Some((FileState { content, mode, modified }, name));
        }
        let judge = SimulatedStore::connect(&self.stage.cluster, Identity("judge".into()));
        let names = self.stage.world.run(async move {
            let mut found = Vec::new();
            for name in FILE_NAMES {
                let looked = judge.lookup(judge.root(), name.as_bytes()).await;
                found.push(looked.ok().map(|found| found.file));
            }
            found
        });
        let name = names.iter().position(|found| *found == Some(file));
        let attributes = self.stage.cluster.attributes(file)?;
        let (content, mode) = (self.stage.content(file), attributes.mode);
        let modified = Some(attributes.modified.seconds);
        Some((FileState { content, mode, modified }, name))
    }
    /// Returns the content of the file that an operation creates.
    pub fn created(&self) -> Option<Vec<u8>> {
        if let Some(directory) = &self.directory {
            return fs::read(directory.path().join(CREATED)).ok();
        }
        let judge = SimulatedStore::connect(&self.stage.cluster, Identity("judge".into()));
        let looks = async move { judge.lookup(judge.root(), CREATED.as_bytes()).await };
        Some(self.stage.content(self.stage.world.run(looks).ok()?.file))
    }
    pub fn set_aside(&self, file: FileId) -> Vec<Vec<u8>> {
        if self.is_directory() { Vec::new() } else { self.stage.set_aside(file) }
    }
}

/// Virtual time that lets threads get on at each pause.
struct PatientWorld(VirtualWorld);

impl World for PatientWorld {
    fn now(&self) -> Instant {
        self.0.now()
    }
    fn wall_clock(&self) -> Timestamp {
        self.0.wall_clock()
    }
    #[expect(clippy::disallowed_methods, reason = "the directory's threads wait for a real disk")]
    fn sleep_until(&self, at: Instant) -> LocalFuture<()> {
        std::thread::sleep(PAUSE);
        self.0.sleep_until(at)
    }
    fn spawn(&self, task: LocalFuture<()>) {
        self.0.spawn(task);
    }
    fn random(&self) -> u64 {
        self.0.random()
    }
    fn name_task(&self, name: &'static str) {
        self.0.name_task(name);
    }
    fn long_steps(&self) -> Vec<LongSteps> {
        self.0.long_steps()
    }
}
