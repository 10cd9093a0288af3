//! The writers: each carries its script out in a directory of its own, and records its progress.

use crate::case::Case;
use crate::model::{Outcome, WriteBounds, directory_name, file_name, inner_name, link_name};
use crate::script::{Action, Offset, Script, Sync, link_target, pattern};
use device::{Buffer, World};
use engine::DataMode;
use ext4::{
    Caller, Error, Existence, Inode, RangeMode, RenameMode, SetXattr, SyncWhat, Volume, WriteData,
    WriteFlags,
};
use runtime::VirtualWorld;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use units::Refusal;
use units::{FileBlock, InodeNumber, TransactionId};

/// Progress of one writer, in actions.
#[derive(Clone, Copy, Default)]
pub struct Progress {
    /// Actions begun.
    pub started: usize,
    /// Actions that came back without an error.
    pub done: usize,
    /// Actions up to and including the last acknowledged sync.
    pub acknowledged: usize,
    /// Actions up to the last acknowledged sync that promises at least a file's data, such as
    /// fdatasync of an overwrite in place.
    pub data_acknowledged: usize,
}

/// Memory, in bytes, that the engine may hold beyond its bound: the blocks of open handles, and of
/// one batch in flight to home.
const MEMORY_BEYOND_BOUND: u64 = 1 << 20;

pub fn check_memory(volume: &Volume) {
    let cache = volume.engine().cache_use();
    assert!(
        cache.bytes <= cache.limit_bytes + MEMORY_BEYOND_BOUND,
        "memory beyond its bound: {cache:?}"
    );
}

pub const ATTRIBUTE: &[u8] = b"user.note";

pub fn directory_of(writer: usize) -> String {
    format!("writer-{writer}")
}

struct Writer {
    volume: Rc<Volume>,
    world: VirtualWorld,
    directory: Rc<Inode>,
    /// Index among the writers of its life, and of all lives.
    index: usize,
    number: usize,
    script: Script,
    progress: Rc<RefCell<Vec<Progress>>>,
    outcomes: Rc<RefCell<Vec<Vec<Outcome>>>>,
    /// The transaction that holds everything up to and including each action.
    transactions: Vec<TransactionId>,
    /// The transaction of the last change that this writer made to each file.
    changed: BTreeMap<InodeNumber, TransactionId>,
    /// Write guarantees, and how the kernel passes writes on.
    bounds: WriteBounds,
    /// Whether actions may be refused for lack of space.
    tight: bool,
    /// Whether the disk will fail, or the volume refuse.
    failing: bool,
    /// Outcome of the action in progress.
    outcome: Cell<Outcome>,
    /// Unlinked while open: orphans until the script ends.
    open: Vec<InodeNumber>,
}

pub struct Writers {
    writers: Vec<Writer>,
    pub progress: Rc<RefCell<Vec<Progress>>>,
    /// Outcomes of the completed actions of each writer.
    pub outcomes: Rc<RefCell<Vec<Vec<Outcome>>>>,
}

impl Writers {
    /// Makes directories, and runs those steps during which nothing fails.
    pub async fn prepare(
        volume: &Rc<Volume>,
        world: &VirtualWorld,
        case: &Case,
    ) -> Result<Writers, Error> {
        Writers::prepare_from(0, volume, world, case).await
    }

    /// Prepares writers whose numbers begin with `first`.
    pub async fn prepare_from(
        first: usize,
        volume: &Rc<Volume>,
        world: &VirtualWorld,
        case: &Case,
    ) -> Result<Writers, Error> {
        let root = volume.inode(InodeNumber(2)).await?;
        let scripts = case.scripts();
        let progress = Rc::new(RefCell::new(vec![Progress::default(); scripts.len()]));
        let outcomes = Rc::new(RefCell::new(vec![Vec::new(); scripts.len()]));
        let mut writers = Vec::new();
        for (number, script) in scripts.into_iter().enumerate() {
            let name = directory_of(first + number);
            let directory = volume.mkdir(&root, name.as_bytes(), &Caller::ROOT, 0o755).await?.value;
            let transactions = vec![directory.last_change.get()];
            writers.push(Writer {
                volume: volume.clone(),
                world: world.clone(),
                directory,
                index: number,
                number: first + number,
                script,
                progress: progress.clone(),
                outcomes: outcomes.clone(),
                transactions,
                changed: BTreeMap::new(),
                bounds: case.write_bounds(),
                tight: case.setup.is_tight(),
                failing: case.fault.is_some() && case.life == 0 || case.hostile,
                outcome: Cell::new(Outcome::Done),
                open: Vec::new(),
            });
        }
        volume.sync().await?;
        for writer in &mut writers {
            for step in 0..case.quiet_steps().min(writer.script.len()) {
                writer.step(step).await?;
            }
        }
        Ok(Writers { writers, progress, outcomes })
    }

    /// Leaves the volume before it is closed in the middle of the scripts.
    pub async fn leave(&mut self) -> Result<(), Error> {
        for writer in &mut self.writers {
            for number in std::mem::take(&mut writer.open) {
                writer.volume.closed(number).await?;
            }
        }
        Ok(())
    }

    /// Continues where the same disks are opened again, with everything durable.
    pub async fn enter(&mut self, volume: &Rc<Volume>) -> Result<(), Error> {
        let root = volume.inode(InodeNumber(2)).await?;
        for writer in &mut self.writers {
            writer.directory = volume.lookup(&root, directory_of(writer.number).as_bytes()).await?;
            writer.volume = volume.clone();
            writer.changed.clear();
        }
        Ok(())
    }

    /// Runs all writers to their ends, or to the first error of each.
    pub async fn run(self, world: &VirtualWorld) -> Vec<Result<(), Error>> {
        let tasks: Vec<_> = self
            .writers
            .into_iter()
            .map(|mut writer| {
                runtime::spawn_with_result(world as &dyn World, async move {
                    for step in writer.transactions.len() - 1..writer.script.len() {
                        writer.step(step).await?;
                    }
                    for number in writer.open {
                        writer.volume.closed(number).await?;
                    }
                    Ok(())
                })
            })
            .collect();
        let mut ends = Vec::new();
        for task in tasks {
            ends.push(task.await.expect("a writer that ends"));
        }
        ends
    }
}

/// Changes of an action.
struct Acted {
    inode: Rc<Inode>,
    transaction: TransactionId,
}

impl Writer {
    fn note(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress.borrow_mut()[self.index]);
    }

    async fn step(&mut self, index: usize) -> Result<(), Error> {
        self.note(|progress| progress.started = index + 1);
        let step = self.script[index].clone();
        if let Action::Unlink { file } = step.action {
            if index % 2 == 0 {
                if let Some(inode) = self.look(&file_name(file)).await? {
                    self.volume.opened(&inode);
                    self.open.push(inode.number);
                }
            }
        }
        self.outcome.set(Outcome::Done);
        let acted = match self.act(index, &step.action).await {
            Err(Error::Refused(Refusal::NoSpace)) if self.tight => {
                self.outcome.set(Outcome::Refused);
                None
            }
            acted => acted?,
        };
        self.note(|progress| progress.done = index + 1);
        check_memory(&self.volume);
        self.outcomes.borrow_mut()[self.index].push(self.outcome.get());
        let before = self.transactions[index];
        let did = acted.is_some();
        let Acted { inode, transaction } =
            acted.unwrap_or_else(|| Acted { inode: self.directory.clone(), transaction: before });
        self.transactions.push(if transaction.is_after(before) { transaction } else { before });
        // fdatasync leaves attributes out, and the name that a file gets after it was written.
        let changes_data =
            !matches!(step.action, Action::Attribute { .. } | Action::Nameless { .. });
        if did && changes_data {
            self.changed.insert(inode.number, transaction);
        }
        let synced = match step.sync {
            Sync::None => return Ok(()),
            Sync::Volume => {
                self.volume.sync().await?;
                index + 1
            }
            Sync::File | Sync::Data => {
                let data_only = step.sync == Sync::Data;
                let promised =
                    if data_only { inode.durable_with() } else { inode.last_change.get() };
                let what = if data_only { SyncWhat::Data } else { SyncWhat::All };
                self.volume.sync_file(&inode, what).await?;
                // The sync covers what it was called for, whatever the inode itself believes; and
                // with it all transactions before.
                let called_for = did && (changes_data || !data_only);
                let called_for = called_for && !matches!(step.action, Action::Wait { .. });
                let committed = self.volume.engine().committed();
                // Data that is logged needs the commit, and so does all but an overwrite; but of
                // that only the data counts.
                let in_place = data_only
                    && !matches!(
                        self.volume.options().engine.data,
                        DataMode::Journal | DataMode::Wasteless
                    )
                    && matches!(step.action, Action::Write { .. })
                    && !committed.is_at_or_after(transaction);
                if called_for && in_place {
                    self.note(|progress| progress.data_acknowledged = index + 1);
                    self.transactions
                        .iter()
                        .rposition(|at| committed.is_at_or_after(*at))
                        .unwrap_or(0)
                } else if called_for {
                    index + 1
                } else {
                    let known = |at: &TransactionId| called_for && transaction.is_at_or_after(*at);
                    let durable = |at: &TransactionId| promised.is_at_or_after(*at) || known(at);
                    self.transactions.iter().rposition(durable).unwrap_or(0)
                }
            }
        };
        self.note(|progress| progress.acknowledged = progress.acknowledged.max(synced));
        Ok(())
    }

    /// Carries one action out; `None` if there was nothing to do, which is when the model does
    /// nothing either.
    async fn act(&self, index: usize, action: &Action) -> Result<Option<Acted>, Error> {
        let (volume, caller) = (&self.volume, Caller::ROOT);
        match action {
            Action::Create { file } => {
                let path = file_name(*file);
                let Some((parent, name)) = self.parent(&path).await? else { return Ok(None) };
                let made = volume.mknod(&parent, name.as_bytes(), &caller, 0o100644, 0).await;
                self.named_in(&parent, made.map(|made| made.transaction))
            }
            Action::Rename { from, to } => {
                let (from, to) = (file_name(*from), file_name(*to));
                match (self.parent(&from).await?, self.parent(&to).await?) {
                    (Some((old, from)), Some((new, to))) => {
                        self.rename((&old, from), (&new, to)).await
                    }
                    _ => Ok(None),
                }
            }
            Action::Unlink { file } => self.unlink(&file_name(*file)).await,
            Action::Link { file, to } => {
                let Some(inode) = self.look(&file_name(*file)).await? else { return Ok(None) };
                let path = file_name(*to);
                let Some((parent, name)) = self.parent(&path).await? else { return Ok(None) };
                let linked = volume.link(&inode, &parent, name.as_bytes(), &caller).await;
                self.named_in(&parent, linked.map(|linked| linked.transaction))
            }
            Action::Nameless { file, length } => {
                self.nameless(index, &file_name(*file), *length).await
            }
            Action::Symlink { .. }
            | Action::MakeDirectory { .. }
            | Action::MoveDirectory { .. }
            | Action::RemoveDirectory { .. } => self.act_on_directories(index, action).await,
            Action::Wait { file, micros } => {
                self.world.sleep_until(self.world.now().plus(Duration::from_micros(*micros))).await;
                let Some(inode) = self.look(&file_name(*file)).await? else { return Ok(None) };
                let transaction =
                    self.changed.get(&inode.number).copied().unwrap_or(self.transactions[0]);
                Ok(Some(Acted { inode, transaction }))
            }
            Action::Trim { .. } | Action::Address { .. } => {
                self.ask(action).await?;
                Ok(None)
            }
            Action::Write { file, .. }
            | Action::Truncate { file, .. }
            | Action::Allocate { file, .. }
            | Action::Punch { file, .. }
            | Action::Attribute { file, .. } => {
                let Some(inode) = self.look(&file_name(*file)).await? else { return Ok(None) };
                let transaction = self.change(index, action, &inode).await?;
                Ok(Some(Acted { inode, transaction }))
            }
        }
    }

    async fn act_on_directories(
        &self,
        index: usize,
        action: &Action,
    ) -> Result<Option<Acted>, Error> {
        let (volume, directory, caller) = (&self.volume, &self.directory, Caller::ROOT);
        match action {
            Action::Symlink { number, length } => {
                let name = link_name(*number);
                let target = link_target(self.number, index, *length);
                match volume.symlink(directory, name.as_bytes(), &caller, &target).await {
                    Err(Error::Refused(Refusal::Exists)) => self.unlink(&name).await,
                    made => self.named(made.map(|made| made.transaction)),
                }
            }
            Action::MakeDirectory { number } => {
                if self.look(&inner_name(*number)).await?.is_some() {
                    return Ok(None);
                }
                let name = directory_name(*number);
                let made = volume.mkdir(directory, name.as_bytes(), &caller, 0o755).await;
                self.named(made.map(|made| made.transaction))
            }
            Action::MoveDirectory { number } => {
                let Some(inner) = self.look(&directory_name(0)).await? else { return Ok(None) };
                let name = directory_name(*number);
                let out = (directory, name.as_str());
                match self.look(&name).await? {
                    Some(_) => self.rename(out, (&inner, &name)).await,
                    None => self.rename((&inner, &name), out).await,
                }
            }
            Action::RemoveDirectory { number } => {
                let removed = volume.rmdir(directory, directory_name(*number).as_bytes()).await;
                match removed {
                    Err(Error::Refused(Refusal::NotEmpty)) => Ok(None),
                    removed => self.named(removed.map(|removed| removed.transaction)),
                }
            }
            _ => unreachable!("{action} is of a file"),
        }
    }

    /// Makes a query that changes nothing that a reader sees.
    async fn ask(&self, action: &Action) -> Result<(), Error> {
        match action {
            Action::Trim { .. } => {
                self.volume.trim(0..u64::MAX, 0).await?;
            }
            Action::Address { file } => {
                if let Some(inode) = self.look(&file_name(*file)).await? {
                    self.volume.exposed_address(&inode, FileBlock(0)).await?;
                }
            }
            _ => unreachable!("an action that changes something"),
        }
        Ok(())
    }

    async fn change(
        &self,
        index: usize,
        action: &Action,
        inode: &Rc<Inode>,
    ) -> Result<TransactionId, Error> {
        let (volume, caller) = (&self.volume, Caller::ROOT);
        match *action {
            Action::Write { place, length, .. } => {
                let (offset, append) = match place {
                    Offset::End => (0, true),
                    Offset::At(at) => (at, false),
                };
                let flags = WriteFlags { append, ..WriteFlags::default() };
                self.write(inode, offset, &pattern(self.number, index, length), flags).await
            }
            Action::Truncate { size, .. } => volume.truncate(inode, size).await,
            Action::Allocate { at, length, .. } => {
                volume.fallocate(inode, &caller, RangeMode::Allocate, false, at, length).await
            }
            Action::Punch { at, length, .. } => {
                volume.fallocate(inode, &caller, RangeMode::PunchHole, true, at, length).await
            }
            Action::Attribute { length, .. } => {
                let value = pattern(self.number, index, length);
                let set = SetXattr {
                    name: ATTRIBUTE,
                    value: &value,
                    existence: Existence::Any,
                    clear_set_group: false,
                };
                volume.set_xattr(inode, &caller, set).await
            }
            _ => unreachable!("{action} changes no file's content or attributes"),
        }
    }

    /// Makes one write(2): a request, or two of which the second comes when the first is answered.
    async fn write(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
    ) -> Result<TransactionId, Error> {
        let at = if flags.append { self.volume.getattr(inode).size } else { offset };
        let Some(first) = self.bounds.first_request(at as usize, bytes.len()) else {
            return self.request(inode, offset, bytes, flags).await;
        };
        let flags = WriteFlags { append: false, ..flags };
        let transaction = self.request(inode, at, &bytes[..first], flags).await?;
        if let Outcome::Short(_) = self.outcome.get() {
            return Ok(transaction);
        }
        // The kernel returns what was written before an error.
        match self.request(inode, at + first as u64, &bytes[first..], flags).await {
            Ok(transaction) => {
                if let Outcome::Short(count) = self.outcome.get() {
                    self.outcome.set(Outcome::Short(first + count));
                }
                Ok(transaction)
            }
            Err(Error::Refused(Refusal::NoSpace)) if self.tight => {
                self.outcome.set(Outcome::Short(first));
                Ok(transaction)
            }
            Err(error) => Err(error),
        }
    }

    async fn request(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
    ) -> Result<TransactionId, Error> {
        // As a front end passes the data of a long request that it does not need any more.
        let memory = (bytes.len() % 512 == 0).then(|| Rc::new(Buffer::copy_of(bytes)));
        let data = WriteData { bytes, memory: memory.as_ref() };
        let written = self.volume.write_data(inode, &Caller::ROOT, offset, &data, flags).await?;
        if written.count < bytes.len() {
            assert!(self.tight || self.failing, "a short write on a volume with room");
            self.outcome.set(Outcome::Short(written.count));
        }
        // Its failure says that the write is not home, and leaves it in the volume.
        self.volume.keep_home(inode).await?;
        Ok(written.transaction)
    }

    async fn nameless(
        &self,
        index: usize,
        name: &str,
        length: usize,
    ) -> Result<Option<Acted>, Error> {
        let (volume, caller) = (&self.volume, Caller::ROOT);
        let Some((parent, name)) = self.parent(name).await? else { return Ok(None) };
        let inode = volume.tmpfile(&parent, &caller, 0o644).await?.value;
        volume.opened(&inode);
        let bytes = pattern(self.number, index, length);
        let written = self.write(&inode, 0, &bytes, WriteFlags::default()).await;
        let linked = match (written, self.outcome.get()) {
            (Err(error), _) => Err(error),
            (Ok(_), Outcome::Done) => volume.link(&inode, &parent, name.as_bytes(), &caller).await,
            (Ok(_), _) => Err(Error::Refused(Refusal::NoSpace)),
        };
        volume.closed(inode.number).await?;
        match self.named(linked.map(|linked| linked.transaction))? {
            Some(Acted { transaction, .. }) => Ok(Some(Acted { inode, transaction })),
            None => Ok(None),
        }
    }

    async fn rename(
        &self,
        from: (&Rc<Inode>, &str),
        to: (&Rc<Inode>, &str),
    ) -> Result<Option<Acted>, Error> {
        // Two names of one file: a rename does nothing.
        let (old, new) = (self.look_in(from.0, from.1).await?, self.look_in(to.0, to.1).await?);
        if old.is_some() && old.map(|inode| inode.number) == new.map(|inode| inode.number) {
            return Ok(None);
        }
        let (from, name) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
        let moved = self.volume.rename(from, name, &Caller::ROOT, RenameMode::Replace).await;
        self.named_in(to.0, moved.map(|moved| moved.transaction))
    }

    async fn unlink(&self, path: &str) -> Result<Option<Acted>, Error> {
        let Some((parent, name)) = self.parent(path).await? else { return Ok(None) };
        let removed = self.volume.unlink(&parent, name.as_bytes()).await;
        self.named_in(&parent, removed.map(|removed| removed.transaction))
    }

    fn named(&self, result: Result<TransactionId, Error>) -> Result<Option<Acted>, Error> {
        self.named_in(&self.directory, result)
    }
    /// Returns what a change of a directory's names did; `None` where there was nothing to do.
    fn named_in(
        &self,
        parent: &Rc<Inode>,
        result: Result<TransactionId, Error>,
    ) -> Result<Option<Acted>, Error> {
        match result {
            Ok(transaction) => Ok(Some(Acted { inode: parent.clone(), transaction })),
            Err(Error::Refused(Refusal::NotFound | Refusal::Exists)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the directory that a path lies in and the name there; `None` if there is none.
    async fn parent<'a>(&self, path: &'a str) -> Result<Option<(Rc<Inode>, &'a str)>, Error> {
        match path.rsplit_once('/') {
            None => Ok(Some((self.directory.clone(), path))),
            Some((parent, name)) => Ok(self.look(parent).await?.map(|found| (found, name))),
        }
    }
    /// Looks a path up; `None` if there is nothing.
    async fn look(&self, path: &str) -> Result<Option<Rc<Inode>>, Error> {
        self.look_in(&self.directory, path).await
    }
    async fn look_in(&self, top: &Rc<Inode>, path: &str) -> Result<Option<Rc<Inode>>, Error> {
        let mut inode = top.clone();
        for name in path.split('/') {
            inode = match self.volume.lookup(&inode, name.as_bytes()).await {
                Ok(inode) => inode,
                Err(Error::Refused(Refusal::NotFound)) => return Ok(None),
                Err(error) => return Err(error),
            };
        }
        Ok(Some(inode))
    }
}
