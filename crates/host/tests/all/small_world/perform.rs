//! One operation, as the front end of a host carries it out.

use super::operation::{ByPath, Change, FileState, Operation};
use super::spec::Outcome;
use crate::common::ROOT;
use host::{Durable, Host, HostError, HostWrite, Position};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use store::{AttributeChange, FileId, RenameOver, TimeChange, XattrMode};
use units::Timestamp;

pub const FILE_NAMES: [&str; 2] = ["a", "moved"];
pub const CREATED: &str = "new";
pub const CREATED_CONTENT: &[u8] = b"mine";
/// Names that no operation changes.
pub const OTHER_NAMES: [&str; 12] =
    ["f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9", "fa", "fb"];

/// State cached by a host's kernel, and what its programs hold.
#[derive(Default)]
pub struct Kernel {
    /// Size of the file.
    pub size: Cell<u64>,
    /// Names that a reader of the directory has seen, and its cursor.
    listed: RefCell<Option<(BTreeSet<Vec<u8>>, u64)>>,
}

/// A change of one host's own file.
#[derive(Clone)]
pub struct Performer {
    pub host: Rc<Host>,
    pub kernel: Rc<Kernel>,
    pub file: FileId,
}

type Work<'a> = Pin<Box<dyn Future<Output = Result> + 'a>>;
type Result<T = ()> = std::result::Result<T, HostError>;

impl Performer {
    pub async fn perform(&self, operation: Operation, step: u8) -> Outcome {
        match self.try_perform(operation, step).await {
            Ok(seen) => Outcome::Done(seen),
            Err(HostError::SetAside(_)) => Outcome::SetAside,
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }

    async fn try_perform(&self, operation: Operation, step: u8) -> Result<Option<FileState>> {
        let changes = operation.changes(step);
        if let Operation::AppendBeside(by_path, later) = operation {
            return self.append_beside(by_path, later, changes).await;
        }
        if changes.is_empty() {
            return self.perform_other(operation).await;
        }
        for change in changes {
            self.change(operation, change).await?;
        }
        Ok(None)
    }

    /// Two programs, neither of which waits for the other.
    async fn append_beside(
        &self,
        by_path: ByPath,
        later: u64,
        changes: Vec<Change>,
    ) -> Result<Option<FileState>> {
        let (now, appended) = (Operation::AppendNow, changes.last().cloned().expect("an append"));
        self.host.close_file(self.file).await?;
        let one: Work<'_> = Box::pin(async {
            match by_path {
                ByPath::Mode => self.change(now, changes[0].clone()).await,
                ByPath::Attribute => {
                    let value = Some(&b"1"[..]);
                    self.host.set_xattr(self.file, b"user.a", value, XattrMode::Set).await
                }
                ByPath::Name => self.perform_other(Operation::Rename).await.map(drop),
            }
        });
        let other: Work<'_> = Box::pin(async {
            self.host.pause_for(Duration::from_millis(later)).await;
            self.host.open_file(self.file).await?;
            self.change(now, appended).await
        });
        runtime::join_window(vec![one, other], 2).await?;
        Ok(None)
    }

    async fn change(&self, operation: Operation, change: Change) -> Result {
        let durable = if operation.promises() { Durable::Now } else { Durable::Soon };
        let set = AttributeChange::default();
        match change {
            Change::Write(at, bytes) => {
                self.write(Position::of_descriptor(at as u64, false), &bytes, durable).await?;
                let end = (at + bytes.len()) as u64;
                self.kernel.size.set(self.kernel.size.get().max(end));
                Ok(())
            }
            Change::Append(bytes) => {
                let believed = self.kernel.size.get();
                self.write(Position::of_descriptor(believed, true), &bytes, durable).await?;
                self.kernel.size.set(believed + bytes.len() as u64);
                Ok(())
            }
            Change::Size(size) => {
                self.set(AttributeChange { size: Some(size as u64), ..set }).await
            }
            Change::Mode(mode) => self.set(AttributeChange { mode: Some(mode), ..set }).await,
            Change::Time(seconds) => {
                let modified = TimeChange::To(Timestamp { seconds, nanoseconds: 0 });
                self.set(AttributeChange { modified: Some(modified), ..set }).await
            }
        }
    }
    async fn write(&self, position: Position, bytes: &[u8], durable: Durable) -> Result {
        let write = HostWrite { position, bytes, durable, interrupt: None };
        self.host.write_at(self.file, write).await.map(drop)
    }
    async fn set(&self, change: AttributeChange) -> Result {
        let attributes = self.host.set_attributes(self.file, change).await?;
        self.kernel.size.set(attributes.version.size);
        Ok(())
    }

    async fn perform_other(&self, operation: Operation) -> Result<Option<FileState>> {
        let (host, root) = (&self.host, self.host.root());
        match operation {
            Operation::Sync => host.sync_file(self.file).await?,
            Operation::Read => return self.read().await.map(Some),
            Operation::Rename => {
                let [name, other] = self.name().await?;
                host.rename((root, name), (root, other), RenameOver::Replace).await?;
            }
            Operation::Unlink | Operation::Remove => {
                let [name, _] = self.name().await?;
                if operation == Operation::Remove {
                    host.close_file(self.file).await?;
                }
                host.unlink(root, name).await?;
            }
            Operation::Create => {
                let made = host.create(root, CREATED.as_bytes(), 0o644, ROOT).await?.file;
                host.write(made, 0, CREATED_CONTENT, Durable::Now).await?;
                host.close_file(made).await?;
            }
            Operation::Reopen => {
                host.close_file(self.file).await?;
                host.open_file(self.file).await?;
            }
            Operation::ListBegin => self.begin_list().await?,
            Operation::ListOn => self.end_list().await?,
            _ => unreachable!("{operation}: no operation of a running host"),
        }
        Ok(None)
    }

    async fn read(&self) -> Result<FileState> {
        let content = self.host.read(self.file, 0, 1 << 20).await?;
        let attributes = self.host.attributes(self.file).await?;
        self.kernel.size.set(attributes.version.size);
        let modified = Some(attributes.modified.seconds);
        Ok(FileState { content, mode: attributes.mode, modified })
    }
    /// Returns the file's name, and the one that it does not have.
    async fn name(&self) -> Result<[&'static [u8]; 2]> {
        let [first, second] = FILE_NAMES.map(str::as_bytes);
        match self.host.lookup(self.host.root(), first).await {
            Ok(_) => Ok([first, second]),
            Err(HostError::Store(store::StoreError::Refused(store::Refusal::NotFound))) => {
                Ok([second, first])
            }
            Err(error) => Err(error),
        }
    }

    /// Lists up to the file that may be renamed or removed, or one half.
    async fn begin_list(&self) -> Result {
        let entries = self.host.list(self.host.root(), 0).await?.entries;
        let named = entries.iter().position(|entry| entry.name == FILE_NAMES[0].as_bytes());
        let taken = named.unwrap_or(entries.len() / 2) + 1;
        let names = entries[..taken].iter().map(|entry| entry.name.clone()).collect();
        *self.kernel.listed.borrow_mut() = Some((names, entries[taken - 1].cursor));
        Ok(())
    }
    /// Ends a listing beside another reader of the host: every name that stays is seen once.
    async fn end_list(&self) -> Result {
        let Some((before, cursor)) = self.kernel.listed.take() else { return Ok(()) };
        self.host.list(self.host.root(), 0).await?;
        let entries = self.host.list(self.host.root(), cursor).await?.entries;
        for name in OTHER_NAMES.map(str::as_bytes) {
            let seen = entries.iter().filter(|entry| entry.name == name).count();
            let expected = usize::from(!before.contains(name));
            assert_eq!(seen, expected, "{:?} listed again", String::from_utf8_lossy(name));
        }
        Ok(())
    }
}
