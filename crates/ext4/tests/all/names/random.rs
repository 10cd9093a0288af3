//! Several tasks at once, each making random changes to its own names, some of them in directories
//! that all share, compared with models.

use crate::names::kernel;
use crate::names::model::{Model, NodeId, SHARED, TreeState, What, walk};
use crate::names::support::*;
use device::World;
use ext4::{Caller, RenameMode, SyncWhat, Volume};
use runtime::VirtualWorld;
use runtime::sync::Event;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use units::TransactionId;

const TASKS: usize = 4;

type Changed = Rc<dyn Fn(&Model, TransactionId)>;

pub struct Task {
    pub volume: Rc<Volume>,
    pub world: VirtualWorld,
    pub model: Model,
    pub number: usize,
    /// Called after every change, with the model and the transaction that holds the change.
    pub changed: Changed,
}

impl Task {
    fn below(&self, limit: usize) -> usize {
        (self.world.random() % limit as u64) as usize
    }
    fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
    /// Mostly few names, so that they meet; some long ones.
    fn name(&self) -> String {
        let number = self.below(25);
        let tail = if self.below(5) == 0 { "-".repeat(self.below(200)) } else { String::new() };
        format!("task-{}-{number}{tail}", self.number)
    }
    async fn inode(&self, id: NodeId) -> Rc<ext4::Inode> {
        self.volume.inode(self.model.inode(id)).await.unwrap()
    }

    /// Lets others go on; now and then waits for a commit.
    async fn pause(&self) {
        let until = self.world.now().plus(Duration::from_micros(self.world.random() % 50));
        self.world.sleep_until(until).await;
        if self.below(40) == 0 {
            let directory = self.inode(self.pick(&self.model.directories())).await;
            self.volume.sync_file(&directory, SyncWhat::All).await.unwrap();
        }
    }

    pub async fn step(&mut self) {
        let directory = self.pick(&self.model.directories());
        let name = self.name();
        match self.below(20) {
            0..4 => self.make(directory, &name, 'f').await,
            4..6 => self.make(directory, &name, 'd').await,
            6 => self.make(directory, &name, 'l').await,
            7 => self.link(directory, &name).await,
            8..10 => self.remove(directory, &name, false).await,
            10 => self.remove(directory, &name, true).await,
            11 => self.burst(directory).await,
            12..19 => self.rename(directory, &name).await,
            _ => self.look(directory, &name).await,
        }
    }

    async fn make(&mut self, directory: NodeId, name: &str, kind: char) {
        let parent = self.inode(directory).await;
        let (caller, bytes) = (Caller::ROOT, name.as_bytes());
        let target = "to/".repeat(1 + self.below(60));
        let made = match kind {
            'f' => self.volume.mknod(&parent, bytes, &caller, REGULAR, 0).await,
            'd' => self.volume.mkdir(&parent, bytes, &caller, 0o755).await,
            _ => self.volume.symlink(&parent, bytes, &caller, target.as_bytes()).await,
        };
        let what = match kind {
            'f' => What::File { links: 1 },
            'd' => What::Directory { parent: directory, children: Default::default() },
            _ => What::Link { target },
        };
        match self.model.refuses_make(directory, name) {
            Some(refusal) => assert_refused(made, refusal),
            None => {
                let made = made.unwrap();
                self.model.make(directory, name, made.value.number, what);
                (self.changed)(&self.model, made.transaction);
            }
        }
    }

    async fn link(&mut self, directory: NodeId, name: &str) {
        let files = self.model.files();
        if files.is_empty() {
            return;
        }
        let file = self.pick(&files);
        let (inode, parent) = (self.inode(file).await, self.inode(directory).await);
        let made = self.volume.link(&inode, &parent, name.as_bytes(), &Caller::ROOT).await;
        match self.model.refuses_make(directory, name) {
            Some(refusal) => assert_refused(made, refusal),
            None => {
                let made = made.unwrap();
                self.model.link(directory, name, file);
                (self.changed)(&self.model, made.transaction);
            }
        }
    }

    async fn remove(&mut self, directory: NodeId, name: &str, as_directory: bool) {
        let parent = self.inode(directory).await;
        let removed = match as_directory {
            true => self.volume.rmdir(&parent, name.as_bytes()).await,
            false => self.volume.unlink(&parent, name.as_bytes()).await,
        };
        match self.model.refuses_remove(directory, name, as_directory) {
            Some(refusal) => assert_refused(removed, refusal),
            None => {
                let removed = removed.unwrap();
                self.model.remove(directory, name);
                (self.changed)(&self.model, removed.transaction);
            }
        }
    }

    /// Creates or removes many names in one directory.
    async fn burst(&mut self, directory: NodeId) {
        let first = self.below(8) * 10;
        for number in first..first + 20 {
            let name = format!("task-{}-burst-{number}-with-a-tail", self.number);
            match self.model.find(directory, &name) {
                None => self.make(directory, &name, 'f').await,
                Some(_) => self.remove(directory, &name, false).await,
            }
        }
    }

    async fn rename(&mut self, from: NodeId, name: &str) {
        // Half of the sources exist.
        let existing: Vec<&String> = self.model.children(from).keys().collect();
        let old = match existing.is_empty() || self.below(2) == 0 {
            true => name.to_string(),
            false => self.pick(&existing).clone(),
        };
        let to = self.pick(&self.model.directories());
        let new = self.name();
        let mode = self.pick(&[RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
        let (from_inode, to_inode) = (self.inode(from).await, self.inode(to).await);
        let ends = ((&from_inode, old.as_bytes()), (&to_inode, new.as_bytes()));
        let renamed = self.volume.rename(ends.0, ends.1, &Caller::ROOT, mode).await;
        match self.model.refuses_rename((from, &old), (to, &new), mode) {
            Some(refusal) => assert_refused(renamed, refusal),
            None => {
                let renamed = renamed.unwrap();
                self.model.rename((from, &old), (to, &new), mode);
                (self.changed)(&self.model, renamed.transaction);
            }
        }
    }

    async fn look(&mut self, directory: NodeId, name: &str) {
        let parent = self.inode(directory).await;
        let found = self.volume.lookup(&parent, name.as_bytes()).await;
        match self.model.find(directory, name) {
            Some(id) => assert_eq!(found.unwrap().number, self.model.inode(id)),
            None => assert_refused(found, units::Refusal::NotFound),
        }
    }
}

pub async fn run(volume: Rc<Volume>, world: VirtualWorld, steps: usize) -> TreeState {
    let root = volume.inode(ROOT).await.unwrap();
    let mut state = TreeState::new();
    let mut shared = [ROOT; SHARED];
    let mut links = [2; SHARED];
    for (index, number) in shared.iter_mut().enumerate() {
        *number = make_directory(&volume, &root, &format!("shared-{index}")).await.number;
    }
    let done = Rc::new((Event::default(), RefCell::new(Vec::new())));
    for number in 0..TASKS {
        let model = Model::new(shared);
        let mut task = Task {
            volume: volume.clone(),
            world: world.clone(),
            model,
            number,
            changed: Rc::new(|_, _| ()),
        };
        let done = done.clone();
        world.spawn(Box::pin(async move {
            for _ in 0..steps {
                task.step().await;
                task.pause().await;
            }
            done.1.borrow_mut().push(task.model);
            done.0.notify();
        }));
    }
    done.0.until(|| (done.1.borrow().len() == TASKS).then_some(())).await;
    for model in done.1.borrow().iter() {
        for (index, links) in links.iter_mut().enumerate() {
            let mut below = TreeState::new();
            model.record(index, &format!("/shared-{index}"), &mut below);
            *links += below
                .iter()
                .filter(|(path, it)| it.0 == 'd' && path.matches('/').count() == 2)
                .count() as u32;
            state.extend(below);
        }
    }
    for (index, links) in links.into_iter().enumerate() {
        state.insert(format!("/shared-{index}"), ('d', shared[index].get(), links, String::new()));
    }
    state
}

#[test]
fn tasks_at_once_leave_the_names_that_each_expects() {
    for (number, kind) in ALL.into_iter().enumerate() {
        for seed in [1, 2, 3] {
            let seed = number as u64 * 100 + seed;
            println!("seed {seed} on {}", kind.0);
            let image = TestImage::of_inodes(kind, "24M", 6000);
            let expected = image.with(seed, move |volume, world| async move {
                let expected = run(volume.clone(), world, 400).await;
                assert_eq!(walk(&volume).await, expected);
                expected
            });
            let again = image.with(seed, |volume, _| async move { walk(&volume).await });
            assert_eq!(again, expected, "after opening it again");
            if seed % 100 == 1 {
                assert_eq!(kernel::walk(&image), expected, "in the kernel's eyes");
            }
        }
    }
}
