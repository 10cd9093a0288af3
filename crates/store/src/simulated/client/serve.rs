//! The connection as a store.

use super::{SimulatedStore, names, new_session};
use crate::attributes::{Allocation, AttributeChange, FileAttributes, FileId};
use crate::error::{Refusal, StoreError};
use crate::event::{HostPhase, Identity, StoreEvent, Token};
use crate::lock::FileLock;
use crate::names::{Created, Creator, Found, Listing, NewNode, RenameOver, Space, XattrMode};
use crate::open_file::{OpenFile, OpenMode};
use crate::simulated::servers::{Inode, NAME, ROOT, RequestKind};
use crate::store::{Answer, Store};
use device::LocalFuture;
use std::ops::Range;

impl Store for SimulatedStore {
    fn name(&self) -> &str {
        NAME
    }
    fn identity(&self) -> Identity {
        self.0.identity.clone()
    }
    fn store_identity(&self) -> String {
        format!("simulated {:016x}", self.0.state.number)
    }
    /// Milliseconds to hold writes: nothing is sent unasked.
    fn hold_ms(&self) -> u64 {
        u64::MAX
    }
    /// A client that wants a file may have begun to wait a little before its request arrives.
    fn lease_ms(&self) -> u64 {
        (self.0.state.network.lease * 9 / 10).as_millis() as u64
    }
    fn still_known(&self) -> Answer<()> {
        self.start(|client| async move {
            let answer = client.exchange(RequestKind::StillKnown, 0, || ());
            client.within_lease(answer).await
        })
    }
    fn held_below(&self, size: u64) -> u64 {
        self.0.held_below(size)
    }
    fn keeps_failed_writes(&self) -> bool {
        true
    }
    fn counts_every_change(&self) -> bool {
        true
    }
    fn wants_files_closed(&self) -> bool {
        true
    }
    fn fence(&self, former: &Identity) -> Answer<()> {
        let former = former.clone();
        self.start(|client| async move { client.fence_former(former).await })
    }
    fn give_up_connection(&self) {
        let session = self.0.session();
        session.given_up.set(true);
        session.gave_up.notify();
    }
    fn reconnect(&self) -> Answer<()> {
        let client = self.0.clone();
        Box::pin(async move {
            let old = client.session.replace(new_session(&client.state, &client.identity));
            client.files.borrow_mut().clear();
            client.opens.borrow_mut().clear();
            client.recalls.borrow_mut().clear();
            client.leases.borrow_mut().clear();
            client.exchange(RequestKind::Change, 0, || client.state.fence(&old)).await
        })
    }
    fn next_event(&self) -> LocalFuture<StoreEvent> {
        let client = self.0.clone();
        Box::pin(async move {
            let session = client.session();
            let next = session.changed.until(|| session.next_event(client.state.world.now())).await;
            if let StoreEvent::Recall { file, .. } = next {
                client.begin_recall(file);
            }
            next
        })
    }
    fn disconnect(&self) -> Answer<()> {
        self.start(|client| async move {
            let end = async {
                let held: Vec<FileId> = client.files.borrow().keys().copied().collect();
                for file in held {
                    client.return_token(file).await?;
                }
                let session = client.session();
                let fence = || client.state.fence(&session);
                match client.exchange(RequestKind::Change, 0, fence).await {
                    // That is what was asked for.
                    Err(StoreError::Fenced { .. }) => Ok(()),
                    ended => ended,
                }
            };
            client.within_lease(end).await
        })
    }

    fn root(&self) -> FileId {
        ROOT
    }
    fn lookup(&self, parent: FileId, name: &[u8]) -> Answer<Found> {
        let name = name.to_vec();
        self.start(|client| async move {
            if let Some(known) = client.known_name(parent, &name) {
                return Ok(known);
            }
            let found = names::lookup(&client, parent, name).await?;
            Ok(client.as_seen(found))
        })
    }
    fn find(&self, file: FileId) -> Answer<Found> {
        self.start(move |client| async move {
            let look = |inode: &mut Inode| match inode.attributes.links {
                0 => Err(Refusal::Stale),
                _ => Ok(inode.attributes),
            };
            let attributes = client.ask(file, RequestKind::Lookup, 0, look).await?;
            Ok(client.as_seen(Found { file, attributes }))
        })
    }
    fn forget(&self, _file: FileId) {}
    fn make(&self, parent: FileId, name: &[u8], node: NewNode, caller: Creator) -> Answer<Found> {
        let name = name.to_vec();
        self.start(move |client| async move {
            names::make(&client, parent, name, node, caller, None).await
        })
    }
    fn create(&self, parent: FileId, name: &[u8], mode: u32, caller: Creator) -> Answer<Created> {
        let name = name.to_vec();
        self.start(move |client| async move { client.create(parent, name, mode, caller).await })
    }
    fn link(&self, file: FileId, parent: FileId, name: &[u8]) -> Answer<FileAttributes> {
        let name = name.to_vec();
        self.start(move |client| async move { names::link(&client, file, parent, name).await })
    }
    fn unlink(&self, parent: FileId, name: &[u8]) -> Answer<()> {
        let name = name.to_vec();
        self.start(move |client| async move { names::unlink(&client, parent, name, false).await })
    }
    fn remove_directory(&self, parent: FileId, name: &[u8]) -> Answer<()> {
        let name = name.to_vec();
        self.start(move |client| async move { names::unlink(&client, parent, name, true).await })
    }
    fn rename(
        &self,
        parent: FileId,
        name: &[u8],
        new_parent: FileId,
        new_name: &[u8],
        mode: RenameOver,
    ) -> Answer<()> {
        let (name, new_name) = (name.to_vec(), new_name.to_vec());
        self.start(move |client| async move {
            names::rename(&client, (parent, name), (new_parent, new_name), mode).await
        })
    }
    fn read_link(&self, file: FileId) -> Answer<Vec<u8>> {
        self.start(move |client| async move {
            client.ask(file, RequestKind::Lookup, 0, |inode| Ok(inode.target.clone())).await
        })
    }
    fn list(&self, directory: FileId, cursor: u64) -> Answer<Listing> {
        self.start(move |client| async move { names::list(&client, directory, cursor).await })
    }
    fn sync_directory(&self, directory: FileId) -> Answer<()> {
        self.start(move |client| async move {
            client.ask(directory, RequestKind::Change, 0, |_| Ok(())).await
        })
    }
    fn space(&self) -> Answer<Space> {
        self.start(|client| async move {
            let files = client
                .exchange(RequestKind::Lookup, 0, || client.state.inodes.borrow().len() as u64)
                .await?;
            let blocks = 1 << 30;
            let (blocks_free, blocks_available, files_free) = (blocks, blocks, 1 << 32);
            Ok(Space {
                block_bytes: 4096,
                blocks,
                blocks_free,
                blocks_available,
                files,
                files_free,
            })
        })
    }

    fn attributes(&self, file: FileId) -> Answer<FileAttributes> {
        self.start(move |client| async move { client.attributes(file).await })
    }
    fn set_attributes(&self, file: FileId, change: AttributeChange) -> Answer<FileAttributes> {
        self.start(move |client| async move { client.set_attributes(file, change).await })
    }
    fn xattr(&self, file: FileId, name: &[u8]) -> Answer<Vec<u8>> {
        let name = name.to_vec();
        self.start(move |client| async move {
            client
                .ask(file, RequestKind::Lookup, 0, |inode| {
                    inode.xattrs.get(&name).cloned().ok_or(Refusal::NoAttribute)
                })
                .await
        })
    }
    fn xattr_names(&self, file: FileId) -> Answer<Vec<u8>> {
        self.start(move |client| async move {
            let list = |inode: &mut Inode| {
                Ok(inode.xattrs.keys().flat_map(|name| name.iter().copied().chain([0])).collect())
            };
            client.ask(file, RequestKind::Lookup, 0, list).await
        })
    }
    fn set_xattr(&self, file: FileId, name: &[u8], value: &[u8], mode: XattrMode) -> Answer<()> {
        let (name, value) = (name.to_vec(), value.to_vec());
        self.start(move |client| async move {
            client
                .ask(file, RequestKind::Change, 0, |inode| {
                    match (mode, inode.xattrs.contains_key(&name)) {
                        (XattrMode::Create, true) => return Err(Refusal::Exists),
                        (XattrMode::Replace, false) => return Err(Refusal::NoAttribute),
                        _ => {}
                    }
                    inode.xattrs.insert(name.clone(), value.clone());
                    Ok(())
                })
                .await
        })
    }
    fn remove_xattr(&self, file: FileId, name: &[u8]) -> Answer<()> {
        let name = name.to_vec();
        self.start(move |client| async move {
            client
                .ask(file, RequestKind::Change, 0, |inode| {
                    inode.xattrs.remove(&name).map(drop).ok_or(Refusal::NoAttribute)
                })
                .await
        })
    }

    fn open(&self, file: FileId, _access: OpenMode) -> Answer<OpenFile> {
        self.start(move |client| async move {
            client.ask(file, RequestKind::Open, 0, |_| Ok(())).await?;
            Ok(client.new_open(file))
        })
    }
    fn close(&self, open: OpenFile) -> Answer<()> {
        self.start(move |client| async move {
            let file = client.opens.borrow_mut().remove(open)?;
            if let Some(inode) = client.state.inodes.borrow_mut().get_mut(&file) {
                inode.opens -= 1;
                inode.drop_unreachable();
            }
            Ok(())
        })
    }
    fn read(&self, open: OpenFile, at: u64, length: usize) -> Answer<Vec<u8>> {
        self.start(move |client| async move { client.read(open, at, length).await })
    }
    fn write(&self, open: OpenFile, at: u64, bytes: &[u8]) -> Answer<FileAttributes> {
        let bytes = bytes.to_vec();
        self.start(move |client| async move { client.write(open, Some(at), bytes).await })
    }
    fn append(&self, open: OpenFile, bytes: &[u8]) -> Answer<FileAttributes> {
        let bytes = bytes.to_vec();
        self.start(move |client| async move { client.write(open, None, bytes).await })
    }
    fn allocate(
        &self,
        open: OpenFile,
        what: Allocation,
        range: Range<u64>,
    ) -> Answer<FileAttributes> {
        self.start(move |client| async move { client.allocate(open, what, range).await })
    }
    fn make_durable(&self, open: OpenFile) -> Answer<()> {
        self.start(move |client| async move {
            let file = client.file_of(open)?;
            client.answer_recall(file);
            client.flush(file).await?;
            if client.is_kernel || units::fault!("store-fenced-sync-believed") {
                return Ok(());
            }
            // A fenced client has flushed nothing.
            client.exchange(RequestKind::StillKnown, 0, || ()).await
        })
    }
    /// Sends the attributes with the contents.
    fn send_attributes(&self) -> Answer<()> {
        self.start(|client| async move { client.flush_all().await })
    }
    fn take_token(&self, open: OpenFile, token: Token) -> Answer<FileAttributes> {
        self.start(move |client| async move { client.take_token(open, token).await })
    }
    fn take_token_to_recover(&self, open: OpenFile) -> Answer<FileAttributes> {
        self.start(move |client| async move {
            let taken = client.take_token(open, Token::ExclusiveWrite).await?;
            if let Some(held) = client.files.borrow_mut().get_mut(&taken.file) {
                held.is_recovered = !units::fault!("store-recovery-written-late");
            }
            Ok(taken)
        })
    }
    fn acknowledge_recall(&self, file: FileId) -> Answer<()> {
        self.start(move |client| async move {
            client.answer_recall(file);
            Ok(())
        })
    }
    fn return_token(&self, file: FileId) -> Answer<()> {
        self.start(move |client| async move { client.return_token(file).await })
    }

    fn register_host(&self, phase: HostPhase) -> Answer<()> {
        self.start(move |client| async move {
            if phase == HostPhase::Running {
                return Ok(());
            }
            let register = || client.state.hosts.borrow_mut().insert(client.identity.clone());
            client.exchange(RequestKind::Change, 0, register).await.map(drop)
        })
    }
    fn unregister_host(&self) -> Answer<()> {
        self.start(|client| async move {
            let unregister = || client.state.hosts.borrow_mut().remove(&client.identity);
            client.exchange(RequestKind::Change, 0, unregister).await.map(drop)
        })
    }
    /// Clients are called back before the attributes of the root change, and need not ask.
    fn may_have_dead_owner(&self, _file: FileId) -> Answer<bool> {
        self.start(|client| async move {
            let hosts = client.state.hosts.borrow();
            Ok(hosts.iter().any(|host| *host != client.identity))
        })
    }

    fn lock(&self, open: OpenFile, lock: FileLock) -> Answer<()> {
        self.start(move |client| async move {
            let (file, state) = (client.file_of(open)?, client.state.clone());
            let session = client.session().number;
            let set = |_: &mut Inode| {
                let mut locks = state.locks.borrow_mut();
                if lock.mode.is_some() && locks.against(file, session, &lock).is_some() {
                    return Err(Refusal::Other(libc::EAGAIN));
                }
                locks.set(file, session, &lock);
                Ok(())
            };
            client.ask(file, RequestKind::Change, 0, set).await
        })
    }
    fn test_lock(&self, open: OpenFile, lock: FileLock) -> Answer<Option<FileLock>> {
        self.start(move |client| async move {
            let (file, state) = (client.file_of(open)?, client.state.clone());
            let session = client.session().number;
            let look = |_: &mut Inode| Ok(state.locks.borrow().against(file, session, &lock));
            client.ask(file, RequestKind::Lookup, 0, look).await
        })
    }
}
