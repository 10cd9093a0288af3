//! [`store::Store`] over a helper process.

use super::errors::{Meaning, error_of};
use super::link::{Link, Lost, Notice};
use super::options::Options;
use crate::wire::{Hello, HelloReply, HelperReply, HelperRequest, WIRE_VERSION};
use device::{LocalFuture, World};
use runtime::sync::Event as Condition;
use runtime::{Either, RealWorld, race};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::time::Duration;
use store::{
    Allocation, Answer, AttributeChange, Created, Creator, FileAttributes, FileId, FileLock, Found,
    Identity, LISTING_ENTRIES_MAX, Listing, LockKind, LockOwner, NAME_BYTES_MAX, NewNode, OpenFile,
    OpenMode, Refusal, RenameOver, Space, StoreError, StoreEvent, TARGET_BYTES_MAX,
    TRANSFER_BYTES_MAX, Token, XATTR_BYTES_MAX, XattrMode, size_report_threshold,
};

/// The library gives up on servers that do not answer after half of it.
const CONNECT: Duration = Duration::from_secs(90);
/// Time after which servers end the session of a client that does not renew it, if another client
/// waits for it (Ceph's default). Restarted ones wait for 45 s (`mds_reconnect_timeout`).
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);
/// Object size of the default layout, which an administrator may change.
const OBJECT_BYTES: u64 = 4 << 20;

/// A directory of CephFS. Connected by [`CephStore::connect`].
pub struct CephStore(Rc<Shared>);

struct Shared {
    world: RealWorld,
    options: Options,
    name: String,
    link: RefCell<Rc<Link>>,
    hello_reply: Cell<HelloReply>,
    opens: RefCell<BTreeMap<OpenFile, (FileId, OpenMode)>>,
    last_open: Cell<u64>,
    events: Rc<Events>,
}

#[derive(Default)]
struct Events {
    queue: RefCell<VecDeque<StoreEvent>>,
    changed: Condition,
}

impl Events {
    fn add(&self, event: StoreEvent) {
        self.queue.borrow_mut().push_back(event);
        self.changed.notify();
    }
}

impl CephStore {
    /// Ends any former connection of the identity, and connects.
    pub async fn connect(world: &RealWorld, options: Options) -> Result<CephStore, StoreError> {
        let name = options.name();
        let text = options.identity.0.as_bytes();
        if text.is_empty() || text.len() > 64 || !text.iter().all(u8::is_ascii_graphic) {
            return Err(Refusal::Invalid.into());
        }
        let events = Rc::new(Events::default());
        let (link, hello_reply) = connect(world, &options, &name, &events).await?;
        Ok(CephStore(Rc::new(Shared {
            world: world.clone(),
            options,
            name,
            link: RefCell::new(link),
            hello_reply: Cell::new(hello_reply),
            opens: RefCell::default(),
            last_open: Cell::new(0),
            events,
        })))
    }

    /// Returns the helper's process number, for tests that kill it.
    #[doc(hidden)]
    pub fn helper(&self) -> Option<u32> {
        self.0.link.borrow().process()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.link.borrow().end(Lost { fenced: false, why: "nobody uses it any more".into() });
    }
}

async fn connect(
    world: &RealWorld,
    options: &Options,
    name: &str,
    events: &Rc<Events>,
) -> Result<(Rc<Link>, HelloReply), StoreError> {
    let is_up = Rc::new(Cell::new(false));
    // There are no recalls until the helper has reported how long one may take.
    let recall_ms = Rc::new(Cell::new(0));
    let notify = {
        let (world, events, is_up, recall_ms) =
            (world.clone(), events.clone(), is_up.clone(), recall_ms.clone());
        move |notice| match notice {
            Notice::Recall { file, token } => {
                let deadline = world.now().plus(Duration::from_millis(recall_ms.get()));
                events.add(StoreEvent::Recall { file, token, deadline });
            }
            Notice::Changed { file } => events.add(StoreEvent::Changed { file }),
            Notice::Lost(lost) if is_up.get() => {
                events.add(StoreEvent::Disconnected { fenced: lost.fenced })
            }
            Notice::Lost(_) => {}
        }
    };
    let failed = |what: String, code| StoreError::Failed { store: name.into(), what, code };
    let link = Link::start(world, options, Box::new(notify)).map_err(|error| {
        let what = format!("starting {}", options.program.display());
        failed(what, error.raw_os_error().unwrap_or(libc::EIO))
    })?;
    let hello = Hello {
        version: WIRE_VERSION,
        identity: options.identity.0.clone().into(),
        conf: options.conf.as_os_str().as_bytes().to_vec(),
        user: options.user.clone().into(),
        file_system: options.file_system.clone().into(),
        directory: options.directory.clone().into(),
        keyring: options.keyring.as_os_str().as_bytes().to_vec(),
    };
    let patience = world.sleep_until(world.now().plus(CONNECT));
    let answer = match race(link.ask(HelperRequest::Connect { hello }), patience).await {
        Either::Left(answer) => answer,
        Either::Right(()) => {
            Err(Lost { fenced: false, why: format!("no connection within {CONNECT:?}") })
        }
    };
    match answer {
        Ok(Ok(HelperReply::HelloReply { hello_reply })) => {
            is_up.set(true);
            recall_ms.set(hello_reply.recall_ms);
            Ok((link, hello_reply))
        }
        Ok(other) => {
            link.end(Lost { fenced: false, why: "its helper process does not welcome".into() });
            Err(StoreError::Nonsense { store: name.into(), what: format!("{other:?}") })
        }
        Err(lost) => {
            link.end(lost.clone());
            Err(error_of_lost(name, lost))
        }
    }
}

fn error_of_lost(store: &str, Lost { fenced, why }: Lost) -> StoreError {
    let store = store.to_string();
    if fenced { StoreError::Fenced { store, why } } else { StoreError::Disconnected { store, why } }
}

impl Shared {
    /// Returns how long an answer of the servers proves that they have not ended the session.
    ///
    /// Their patience is `session_timeout`, of which the library says nothing. It is 60 s by
    /// default, and must not be shorter unless `session_autoclose` is, too: this one the library
    /// returns, and the patience for recalls is three quarters of it. The servers' patience begins
    /// with the last renewal that they have, not with a request. The library renews at a clock tick
    /// of a second when a third of the timeout has passed. So two thirds of it are left, less a
    /// tick, when a request is sent; 0.6 of the timeout are the lease. The difference is for the
    /// tick, messages in flight, and clocks.
    fn lease(&self) -> Duration {
        let recall = Duration::from_millis(self.hello_reply.get().recall_ms);
        (recall * 4 / 5).min(SESSION_TIMEOUT * 6 / 10)
    }
    async fn ask(
        &self,
        what: &'static str,
        meaning: Meaning,
        request: HelperRequest,
    ) -> Result<HelperReply, StoreError> {
        let link = self.link.borrow().clone();
        match link.ask(request).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(code)) => Err(error_of(&self.name, what, meaning, code)),
            Err(lost) => Err(error_of_lost(&self.name, lost)),
        }
    }
    fn nonsense(&self, what: &'static str) -> StoreError {
        StoreError::Nonsense { store: self.name.clone(), what: what.into() }
    }
    /// Checks that the helper opened the file over the present link.
    fn opened_by(
        &self,
        link: &Link,
        file: FileId,
        access: OpenMode,
    ) -> Result<OpenFile, StoreError> {
        if let Some(lost) = link.lost() {
            return Err(error_of_lost(&self.name, lost));
        }
        let open = OpenFile(self.last_open.get() + 1);
        self.last_open.set(open.0);
        self.opens.borrow_mut().insert(open, (file, access));
        Ok(open)
    }
    fn opened(&self, open: OpenFile, write: bool) -> Result<FileId, StoreError> {
        match self.opens.borrow().get(&open) {
            Some((_, OpenMode::Read)) | None if write => Err(Refusal::Other(libc::EBADF).into()),
            Some((file, _)) => Ok(*file),
            None => Err(Refusal::Other(libc::EBADF).into()),
        }
    }
}

/// Checks a name that is to stand in a directory.
fn checked(name: &[u8]) -> Result<Vec<u8>, StoreError> {
    match name {
        _ if name.len() > NAME_BYTES_MAX => Err(Refusal::NameTooLong.into()),
        b"" | b"." | b".." => Err(Refusal::Invalid.into()),
        _ if name.iter().any(|byte| matches!(byte, 0 | b'/')) => Err(Refusal::Invalid.into()),
        _ => Ok(name.to_vec()),
    }
}

/// `answer!(self, "what", Meaning, request, pattern => value)`: sends the request when the future
/// is first polled, and expects this reply.
macro_rules! answer {
    ($self:ident, $what:literal, $meaning:ident, $request:expr,
        $reply:pat $(if $check:expr)? => $value:expr) => {{
        let shared = $self.0.clone();
        let request: Result<HelperRequest, StoreError> = $request;
        Box::pin(async move {
            match shared.ask($what, Meaning::$meaning, request?).await? {
                $reply $(if $check)? => Ok($value),
                _ => Err(shared.nonsense(concat!("the reply to ", $what))),
            }
        })
    }};
}

impl store::Store for CephStore {
    fn name(&self) -> &str {
        &self.0.name
    }
    fn identity(&self) -> Identity {
        self.0.options.identity.clone()
    }
    fn store_identity(&self) -> String {
        let HelloReply { cluster_high, cluster_low, file_system, .. } = self.0.hello_reply.get();
        match (cluster_high, cluster_low) {
            (0, 0) => String::new(),
            (high, low) => format!("ceph {high:016x}{low:016x} {file_system}"),
        }
    }
    fn hold_ms(&self) -> u64 {
        self.0.hello_reply.get().hold_ms
    }
    fn held_below(&self, size: u64) -> u64 {
        size_report_threshold(size, OBJECT_BYTES)
    }
    /// The library may drop writes for which the data servers had no space.
    fn keeps_failed_writes(&self) -> bool {
        false
    }
    /// The metadata server never lowers the number, and each set of attributes that it takes from a
    /// client raises it.
    fn counts_every_change(&self) -> bool {
        true
    }
    fn wants_files_closed(&self) -> bool {
        true
    }

    fn lease_ms(&self) -> u64 {
        self.0.lease().as_millis() as u64
    }
    /// Without an answer the connection is given up: the servers may have granted our files to
    /// others.
    fn still_known(&self) -> Answer<()> {
        let shared = self.0.clone();
        Box::pin(async move {
            let link = shared.link.borrow().clone();
            let patience = shared.world.sleep_until(shared.world.now().plus(shared.lease()));
            let asked = shared.ask("a question", Meaning::Usual, HelperRequest::StillKnown);
            match race(asked, patience).await {
                Either::Left(Ok(HelperReply::Done)) => Ok(()),
                Either::Left(Ok(_)) => Err(shared.nonsense("the reply to a question")),
                Either::Left(Err(error)) => Err(error),
                Either::Right(()) => {
                    let why = format!("the servers did not answer for {:?}", shared.lease());
                    let lost = Lost { fenced: false, why };
                    link.end(lost.clone());
                    Err(error_of_lost(&shared.name, lost))
                }
            }
        })
    }

    fn fence(&self, former: &Identity) -> Answer<()> {
        let request = Ok(HelperRequest::Fence { former: former.0.clone().into() });
        answer!(self, "fencing", Usual, request, HelperReply::Done => ())
    }
    /// Kills the helper process: a call into the library may wait for ever.
    fn give_up_connection(&self) {
        let why = "its calls do not return".into();
        self.0.link.borrow().clone().end(Lost { fenced: false, why });
    }
    fn reconnect(&self) -> Answer<()> {
        let shared = self.0.clone();
        Box::pin(async move {
            let former = shared.link.borrow().clone();
            former.end(Lost { fenced: false, why: "it is being replaced".into() });
            shared.opens.borrow_mut().clear();
            // Events of the former link are void.
            shared.events.queue.borrow_mut().clear();
            let (link, hello_reply) =
                connect(&shared.world, &shared.options, &shared.name, &shared.events).await?;
            shared.hello_reply.set(hello_reply);
            *shared.link.borrow_mut() = link;
            Ok(())
        })
    }
    fn next_event(&self) -> LocalFuture<StoreEvent> {
        let events = self.0.events.clone();
        Box::pin(
            async move { events.changed.until(|| events.queue.borrow_mut().pop_front()).await },
        )
    }
    fn disconnect(&self) -> Answer<()> {
        let shared = self.0.clone();
        Box::pin(async move {
            let asked = shared.ask(
                "making everything durable",
                Meaning::Durability,
                HelperRequest::Disconnect,
            );
            let patience = shared.world.sleep_until(shared.world.now().plus(shared.lease()));
            let reply = match race(asked, patience).await {
                Either::Left(reply) => reply?,
                Either::Right(()) => {
                    let why = "the servers did not answer to the end of the connection".into();
                    let lost = Lost { fenced: false, why };
                    shared.link.borrow().end(lost.clone());
                    return Err(error_of_lost(&shared.name, lost));
                }
            };
            shared.link.borrow().end(Lost { fenced: false, why: "it was asked to end".into() });
            shared.events.queue.borrow_mut().clear();
            if reply == HelperReply::Done {
                Ok(())
            } else {
                Err(shared.nonsense("the reply to the last request"))
            }
        })
    }

    fn root(&self) -> FileId {
        self.0.hello_reply.get().root.file
    }
    fn lookup(&self, parent: FileId, name: &[u8]) -> Answer<Found> {
        let request = checked(name).map(|name| HelperRequest::Lookup { parent, name });
        answer!(self, "a lookup", Usual, request,
            HelperReply::Attributes { attributes } => found(attributes))
    }
    fn find(&self, file: FileId) -> Answer<Found> {
        let request = Ok(HelperRequest::Find { file });
        answer!(self, "a search", ByNumber, request,
            HelperReply::Attributes { attributes } if attributes.file == file => found(attributes))
    }
    fn forget(&self, file: FileId) {
        let link = self.0.link.borrow().clone();
        // A hint: no caller waits for an answer.
        self.0
            .world
            .spawn(Box::pin(async move { drop(link.ask(HelperRequest::Forget { file }).await) }));
    }
    fn make(&self, parent: FileId, name: &[u8], node: NewNode, caller: Creator) -> Answer<Found> {
        let request = match &node {
            NewNode::Symlink { target } if target.is_empty() || target.len() > TARGET_BYTES_MAX => {
                Err(Refusal::Invalid.into())
            }
            _ => checked(name).map(|name| HelperRequest::Make { parent, name, node, caller }),
        };
        answer!(self, "making a file", Usual, request,
            HelperReply::Attributes { attributes } => found(attributes))
    }
    fn create(&self, parent: FileId, name: &[u8], mode: u32, caller: Creator) -> Answer<Created> {
        let (shared, name) = (self.0.clone(), checked(name));
        Box::pin(async move {
            let request = HelperRequest::Create { parent, name: name?, mode, caller };
            let link = shared.link.borrow().clone();
            match shared.ask("making a file", Meaning::Usual, request).await? {
                HelperReply::Created { attributes, is_held } => {
                    let open = shared.opened_by(&link, attributes.file, OpenMode::ReadWrite)?;
                    Ok(Created { found: found(attributes), open: Some(open), is_held })
                }
                HelperReply::Attributes { attributes } => {
                    Ok(Created { found: found(attributes), open: None, is_held: false })
                }
                _ => Err(shared.nonsense("the reply to making a file")),
            }
        })
    }
    fn link(&self, file: FileId, parent: FileId, name: &[u8]) -> Answer<FileAttributes> {
        let request = checked(name).map(|name| HelperRequest::Link { file, parent, name });
        answer!(self, "a link", Usual, request,
            HelperReply::Attributes { attributes } if attributes.file == file => attributes)
    }
    fn unlink(&self, parent: FileId, name: &[u8]) -> Answer<()> {
        let request = checked(name).map(|name| HelperRequest::Unlink { parent, name });
        answer!(self, "removing a name", Usual, request, HelperReply::Done => ())
    }
    fn remove_directory(&self, parent: FileId, name: &[u8]) -> Answer<()> {
        let request = checked(name).map(|name| HelperRequest::RemoveDirectory { parent, name });
        answer!(self, "removing a directory", Usual, request, HelperReply::Done => ())
    }
    fn rename(
        &self,
        parent: FileId,
        name: &[u8],
        new_parent: FileId,
        new_name: &[u8],
        mode: RenameOver,
    ) -> Answer<()> {
        let request = match (mode, checked(name), checked(new_name)) {
            // The servers know no such requests.
            (RenameOver::NoReplace | RenameOver::Exchange, ..) => Err(Refusal::Unsupported.into()),
            (_, Ok(name), Ok(new_name)) => {
                Ok(HelperRequest::Rename { parent, name, new_parent, new_name })
            }
            (_, Err(error), _) | (_, _, Err(error)) => Err(error),
        };
        answer!(self, "a rename", Usual, request, HelperReply::Done => ())
    }
    fn read_link(&self, file: FileId) -> Answer<Vec<u8>> {
        let request = Ok(HelperRequest::ReadLink { file });
        answer!(self, "reading a link", Usual, request,
            HelperReply::Bytes { bytes } if bytes.len() <= TARGET_BYTES_MAX => bytes)
    }
    fn list(&self, directory: FileId, cursor: u64) -> Answer<Listing> {
        let request = Ok(HelperRequest::List { directory, cursor });
        answer!(self, "a listing", Usual, request,
            HelperReply::Listing { listing } if is_sound(&listing) => listing)
    }
    fn sync_directory(&self, directory: FileId) -> Answer<()> {
        let request = Ok(HelperRequest::SyncDirectory { directory });
        answer!(self, "making names durable", Durability, request, HelperReply::Done => ())
    }
    fn space(&self) -> Answer<Space> {
        answer!(self, "asking for space", Usual, Ok(HelperRequest::Space),
            HelperReply::Space { space } => space)
    }

    fn attributes(&self, file: FileId) -> Answer<FileAttributes> {
        let request = Ok(HelperRequest::Attributes { file });
        answer!(self, "reading attributes", Usual, request,
            HelperReply::Attributes { attributes } if attributes.file == file => attributes)
    }
    fn set_attributes(&self, file: FileId, change: AttributeChange) -> Answer<FileAttributes> {
        let request = Ok(HelperRequest::SetAttributes { file, change });
        answer!(self, "changing attributes", Token, request,
            HelperReply::Attributes { attributes } if attributes.file == file => attributes)
    }
    fn xattr(&self, file: FileId, name: &[u8]) -> Answer<Vec<u8>> {
        let request = checked_xattr(name).map(|name| HelperRequest::Xattr { file, name });
        answer!(self, "reading an attribute", Usual, request,
            HelperReply::Bytes { bytes } if bytes.len() <= XATTR_BYTES_MAX => bytes)
    }
    fn xattr_names(&self, file: FileId) -> Answer<Vec<u8>> {
        let request = Ok(HelperRequest::XattrNames { file });
        answer!(self, "listing attributes", Usual, request,
            HelperReply::Bytes { bytes } if bytes.len() <= XATTR_BYTES_MAX => bytes)
    }
    fn set_xattr(&self, file: FileId, name: &[u8], value: &[u8], mode: XattrMode) -> Answer<()> {
        let request = match checked_xattr(name) {
            Ok(_) if value.len() > XATTR_BYTES_MAX => Err(Refusal::Invalid.into()),
            Ok(name) => Ok(HelperRequest::SetXattr { file, name, value: value.to_vec(), mode }),
            Err(error) => Err(error),
        };
        answer!(self, "setting an attribute", Usual, request, HelperReply::Done => ())
    }
    fn remove_xattr(&self, file: FileId, name: &[u8]) -> Answer<()> {
        let request = checked_xattr(name).map(|name| HelperRequest::RemoveXattr { file, name });
        answer!(self, "removing an attribute", Usual, request, HelperReply::Done => ())
    }

    fn open(&self, file: FileId, access: OpenMode) -> Answer<OpenFile> {
        let shared = self.0.clone();
        Box::pin(async move {
            let request = HelperRequest::Open { file, write: access == OpenMode::ReadWrite };
            let link = shared.link.borrow().clone();
            let reply = shared.ask("opening a file", Meaning::Usual, request).await?;
            if reply != HelperReply::Done {
                return Err(shared.nonsense("the reply to opening a file"));
            }
            shared.opened_by(&link, file, access)
        })
    }
    fn close(&self, open: OpenFile) -> Answer<()> {
        let closed = self.0.opens.borrow_mut().remove(&open);
        let request = closed
            .map(|(file, _)| HelperRequest::Close { file })
            .ok_or(Refusal::Other(libc::EBADF).into());
        answer!(self, "closing a file", Durability, request, HelperReply::Done => ())
    }
    fn read(&self, open: OpenFile, at: u64, length: usize) -> Answer<Vec<u8>> {
        let request = match self.0.opened(open, false) {
            Ok(_) if length > TRANSFER_BYTES_MAX => Err(Refusal::Invalid.into()),
            Ok(file) => Ok(HelperRequest::Read { file, at, length: length as u32 }),
            Err(error) => Err(error),
        };
        answer!(self, "a read", Usual, request,
            HelperReply::Bytes { bytes } if bytes.len() <= length => bytes)
    }
    fn write(&self, open: OpenFile, at: u64, bytes: &[u8]) -> Answer<FileAttributes> {
        let request = match self.0.opened(open, true) {
            Ok(_) if bytes.len() > TRANSFER_BYTES_MAX => Err(Refusal::Invalid.into()),
            Ok(file) => Ok(HelperRequest::Write { file, at, bytes: bytes.to_vec() }),
            Err(error) => Err(error),
        };
        answer!(self, "a write", Extension, request,
            HelperReply::Attributes { attributes } => attributes)
    }
    fn append(&self, open: OpenFile, bytes: &[u8]) -> Answer<FileAttributes> {
        let request = match self.0.opened(open, true) {
            Ok(_) if bytes.len() > TRANSFER_BYTES_MAX => Err(Refusal::Invalid.into()),
            Ok(file) => Ok(HelperRequest::Append { file, bytes: bytes.to_vec() }),
            Err(error) => Err(error),
        };
        answer!(self, "an append", Extension, request,
            HelperReply::Attributes { attributes } => attributes)
    }
    fn allocate(
        &self,
        open: OpenFile,
        what: Allocation,
        Range { start, end }: Range<u64>,
    ) -> Answer<FileAttributes> {
        let request = self.0.opened(open, true).map(|file| HelperRequest::Allocate {
            file,
            what,
            start,
            end,
        });
        answer!(self, "allocating", Usual, request,
            HelperReply::Attributes { attributes } => attributes)
    }
    fn make_durable(&self, open: OpenFile) -> Answer<()> {
        let request = self.0.opened(open, false).map(|file| HelperRequest::MakeDurable { file });
        answer!(self, "making a file durable", Durability, request, HelperReply::Done => ())
    }

    fn send_content(&self, open: OpenFile) -> Answer<()> {
        let request = self.0.opened(open, false).map(|file| HelperRequest::SendContent { file });
        answer!(self, "sending a file's content", Durability, request, HelperReply::Done => ())
    }
    fn send_attributes(&self) -> Answer<()> {
        let request = Ok(HelperRequest::SendAttributes);
        answer!(self, "sending attributes", Durability, request, HelperReply::Done => ())
    }

    fn take_token(&self, open: OpenFile, token: Token) -> Answer<FileAttributes> {
        self.take(open, token, false)
    }
    fn take_token_to_recover(&self, open: OpenFile) -> Answer<FileAttributes> {
        self.take(open, Token::ExclusiveWrite, true)
    }
    fn acknowledge_recall(&self, file: FileId) -> Answer<()> {
        let request = Ok(HelperRequest::AcknowledgeRecall { file });
        answer!(self, "acknowledging a recall", Usual, request, HelperReply::Done => ())
    }
    fn return_token(&self, file: FileId) -> Answer<()> {
        let request = Ok(HelperRequest::ReturnToken { file });
        answer!(self, "returning a token", Durability, request, HelperReply::Done => ())
    }

    fn lock(&self, open: OpenFile, lock: FileLock) -> Answer<()> {
        let FileLock { owner, mode, range } = lock;
        let request = self.lockable(open, owner).map(|file| HelperRequest::Lock {
            file,
            owner: owner.number,
            mode,
            start: range.start,
            end: range.end,
        });
        answer!(self, "locking", Lock, request, HelperReply::Done => ())
    }
    fn test_lock(&self, open: OpenFile, lock: FileLock) -> Answer<Option<FileLock>> {
        let FileLock { owner, mode, range } = lock;
        let mode = mode.ok_or(Refusal::Invalid);
        let request = self.lockable(open, owner).and_then(|file| {
            let (mode, start, end) = (mode?, range.start, range.end);
            Ok(HelperRequest::TestLock { file, owner: owner.number, mode, start, end })
        });
        answer!(self, "looking for a lock", Lock, request,
        HelperReply::Lock { mode, start, end } if start <= end => mode.map(|mode| FileLock {
            owner: LockOwner { number: 0, ..owner }, mode: Some(mode), range: start..end,
        }))
    }
}

impl CephStore {
    fn take(&self, open: OpenFile, token: Token, to_recover: bool) -> Answer<FileAttributes> {
        let request = self.0.opened(open, token != Token::SharedRead);
        let request = request.map(|file| HelperRequest::TakeToken { file, token, to_recover });
        answer!(self, "taking a token", Token, request,
            HelperReply::Attributes { attributes } => attributes)
    }
    /// Whether the file can be locked. `ceph_flock` takes a descriptor of a file that was opened by
    /// its path; libcephfs has no call for flock(2) of one that was opened by its inode number.
    fn lockable(&self, open: OpenFile, owner: LockOwner) -> Result<FileId, StoreError> {
        match owner.kind {
            LockKind::Bytes => self.0.opened(open, false),
            LockKind::Whole => Err(Refusal::Other(libc::ENOLCK).into()),
        }
    }
}

fn found(attributes: FileAttributes) -> Found {
    Found { file: attributes.file, attributes }
}

fn checked_xattr(name: &[u8]) -> Result<Vec<u8>, StoreError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&0) {
        return Err(Refusal::Invalid.into());
    }
    Ok(name.to_vec())
}

/// Returns whether a directory may answer so.
fn is_sound(listing: &Listing) -> bool {
    listing.entries.len() <= LISTING_ENTRIES_MAX
        && (listing.is_end || !listing.entries.is_empty())
        && listing.entries.iter().all(|entry| entry.cursor != 0 && checked(&entry.name).is_ok())
}
