use crate::attributes::{Allocation, AttributeChange, FileAttributes, FileId};
use crate::error::{Refusal, StoreError};
use crate::event::{HostPhase, Identity, StoreEvent, Token};
use crate::lock::FileLock;
use crate::names::{Created, Creator, Found, Listing, NewNode, RenameOver, Space, XattrMode};
use crate::open_file::{OpenFile, OpenMode};
use device::LocalFuture;
use std::ops::Range;

/// Extended attributes of the root that name the registered hosts begin so.
const HOST_ATTRIBUTE: &str = "user.okeanos.host.";

/// Returns whether an extended attribute registers a host. Programs on a host neither see nor
/// change it: a copied root would register hosts that are gone, or forget those that are there.
pub fn registers_host(name: &[u8]) -> bool {
    name.starts_with(HOST_ATTRIBUTE.as_bytes())
}

pub type Answer<T> = LocalFuture<Result<T, StoreError>>;

/// A shared file system, over one connection. Single-threaded: an implementation with threads hands
/// their answers over. A call copies its arguments when it is made, and starts when its future is
/// first polled; dropping the future then leaves it running, unobserved.
///
/// Rules, for implementations and callers:
/// 1. Calls on one open file or one file are carried out in the order in which they were started.
///    Calls on different files may pass each other.
/// 2. This client sees a buffered write at once. Others see it when the token has been returned, or
///    earlier.
/// 3. **Every state that others, or this client after a restart, may find was reported here**:
///    [`Store::write`], [`Store::set_attributes`] and [`Store::attributes`] return the version
///    after the call. A store that batches them writes back only states that it reported. A store
///    holds attributes back for at least [`Store::hold_ms`], and while the file is shorter than
///    [`Store::held_below`], unless they are made durable. So they can be journaled first.
/// 4. Content may reach the servers before the attributes that describe it, and without them when
///    the client dies. The servers may then set size and time of change after it; the number stays
///    ([`Store::counts_every_change`]).
/// 5. After [`StoreEvent::Recall`] the caller does not write or set attributes of that file (it may
///    deadlock there). It may read and make durable, and must return the token. Calls in flight
///    when the event is reported complete. A store may report the file's attributes to its servers
///    with the recall, before the content is there. It does so after [`Store::acknowledge_recall`];
///    unasked after a second, as another client waits. A change in flight may follow the return of
///    the token: others may have changed the file before it, and between it and its answer.
///    [`Store::take_token_to_recover`] excludes both.
/// 6. An error of [`Store::make_durable`] is final for the buffered writes of that file, unless the
///    store [keeps them](Store::keeps_failed_writes). [`StoreError::ChangedPast`] keeps them, too:
///    they can be read until they are [discarded](Store::discard).
/// 7. After [`StoreEvent::Disconnected`], or an error that [`StoreError::is_lost`], only
///    [`Store::reconnect`] is called. An implementation answers everything else with that error and
///    does not touch the lost connection.
/// 8. A change of a file's names changes its state. The caller returns its token before, or the
///    store takes it away and reports [`StoreEvent::Recall`] before it answers. A client that gets
///    the file in between is always reported. Tokens of other clients are recalled before.
/// 9. Sizes beyond the constants of this crate are [`crate::Refusal::Invalid`]; an answer never
///    exceeds them.
pub trait Store {
    /// Returns a name for errors and tables, such as `dir:/srv/shared`.
    fn name(&self) -> &str;
    /// Returns the identity of this connection, given when it was made.
    fn identity(&self) -> Identity;
    /// Returns the store's own identity, whatever it is called: that of its cluster and file
    /// system, or of the directory. At most 128 printable ASCII characters; empty if it is unknown.
    /// File numbers and versions have a meaning in this store alone.
    fn store_identity(&self) -> String;
    /// Returns the time of rule 3 in milliseconds.
    fn hold_ms(&self) -> u64;
    /// Returns the size of rule 3, in bytes, of a file that had `size` bytes when it was made
    /// durable last, or when the token was taken.
    fn held_below(&self, size: u64) -> u64;
    /// Returns whether writes that [`Store::make_durable`] failed to send stay buffered, so that a
    /// later success covers all of them. See rule 6.
    fn keeps_failed_writes(&self) -> bool;
    /// Returns whether an unchanged number proves that no other client has changed the file since
    /// the durable state that had it, as far as any client saw. Sizes and times of change prove
    /// nothing then. False: others may change files past the store.
    fn counts_every_change(&self) -> bool;
    /// Returns whether a file's number may name another file once the last name is removed and no
    /// client has it open here. The caller keeps applications' files open, so that the number
    /// stays.
    fn reuses_numbers(&self) -> bool {
        false
    }
    /// Returns whether programs of other clients may read a file after its last name is removed and
    /// this client has closed it. Then what was synced has to get there, though nobody can open it.
    fn others_read_removed(&self) -> bool {
        false
    }
    /// Returns whether no client gets an exclusive token of a file that another has open.
    fn wants_files_closed(&self) -> bool {
        false
    }

    /// Returns how long, in milliseconds from when it was sent, an answered request proves that no
    /// other client has what this connection's tokens exclude. `u64::MAX`: for as long as this
    /// process lives.
    ///
    /// A recall that this connection does not answer may end that earlier, but not within this time
    /// after the last request that was sent before the recall.
    fn lease_ms(&self) -> u64;

    // Life of the connection

    /// Asks the servers whether they still know this connection. An answer, or the end of the
    /// connection, comes within [`Store::lease_ms`] or a little more.
    fn still_known(&self) -> Answer<()>;

    /// Ends any connection of `former`: once this answers, nothing of it reaches the servers, its
    /// buffer is lost, and its tokens are free. `former` may be this connection's own identity:
    /// then it means the connection before a restart. Succeeds also when there was none.
    /// Called before the first token is taken.
    fn fence(&self, former: &Identity) -> Answer<()>;
    /// Ends this connection at once, without its servers, which do nothing of it any more that was
    /// not sent. Each call in flight, and every later one until [`Store::reconnect`], returns an
    /// error that [`StoreError::is_lost`]. For a lost connection of which calls do not return. A
    /// store that loses no connection does nothing.
    fn give_up_connection(&self);
    /// Makes a new connection with the same identity, in place of the lost one. Open files and
    /// tokens are void, and buffered writes are lost. It answers within some minutes, whatever the
    /// servers do.
    fn reconnect(&self) -> Answer<()>;
    /// Waits for the next event. One caller at a time. Events of a file come in the order in which
    /// they happened. After [`Store::disconnect`] it is pending forever.
    fn next_event(&self) -> LocalFuture<StoreEvent>;
    /// Makes everything durable, returns all tokens, ends the connection. The last call. Fails if
    /// the servers do not answer within [`Store::lease_ms`].
    fn disconnect(&self) -> Answer<()>;

    // Names: each is at the servers when it answers, though perhaps not yet durable there

    fn root(&self) -> FileId;
    /// Looks up a name of a directory; neither `.` nor `..`.
    fn lookup(&self, parent: FileId, name: &[u8]) -> Answer<Found>;
    /// Finds a file by its number alone, as after a crash. [`crate::Refusal::Stale`]: there is
    /// none.
    fn find(&self, file: FileId) -> Answer<Found>;
    /// Returns one of the file's names, from the root on, for people to read; `None`: unknown.
    fn path_of(&self, _file: FileId) -> Answer<Option<Vec<u8>>> {
        Box::pin(async { Ok(None) })
    }
    /// Notes that this client no longer refers to the file, after any number of lookups: a hint
    /// that memory may be freed.
    fn forget(&self, file: FileId);
    /// Fails if the name exists.
    fn make(&self, parent: FileId, name: &[u8], node: NewNode, caller: Creator) -> Answer<Found>;
    /// Creates a regular file that is to be written next. The answer may include the open file and
    /// the exclusive token, which then need no further request. A recall of the token may be
    /// reported before the answer. Fails if the name exists.
    fn create(&self, parent: FileId, name: &[u8], mode: u32, caller: Creator) -> Answer<Created>;
    fn link(&self, file: FileId, parent: FileId, name: &[u8]) -> Answer<FileAttributes>;
    /// Removes a name of anything but a directory. Open files stay usable.
    fn unlink(&self, parent: FileId, name: &[u8]) -> Answer<()>;
    fn remove_directory(&self, parent: FileId, name: &[u8]) -> Answer<()>;
    fn rename(
        &self,
        parent: FileId,
        name: &[u8],
        new_parent: FileId,
        new_name: &[u8],
        mode: RenameOver,
    ) -> Answer<()>;
    fn read_link(&self, file: FileId) -> Answer<Vec<u8>>;
    /// Returns entries after `cursor` (0: from the beginning), at least one unless that is the end.
    fn list(&self, directory: FileId, cursor: u64) -> Answer<Listing>;
    /// Makes the names of a directory durable.
    fn sync_directory(&self, directory: FileId) -> Answer<()>;
    /// Makes durable that names were removed, or moved away: as of now, in these directories, or
    /// with `None` wherever any client has done so. A directory of these may be gone itself. A
    /// store does nothing whose answer that a file has no name is durable.
    fn make_removals_durable(&self, _directories: Option<Vec<FileId>>) -> Answer<()> {
        Box::pin(async { Ok(()) })
    }
    fn space(&self) -> Answer<Space>;

    // Attributes

    fn attributes(&self, file: FileId) -> Answer<FileAttributes>;
    /// Changes attributes. Buffered under [`Token::ExclusiveWrite`], otherwise at the servers when
    /// it answers, after the buffers of other clients' tokens, which are recalled. A new size is
    /// durable there in any case, as is everything buffered before.
    fn set_attributes(&self, file: FileId, change: AttributeChange) -> Answer<FileAttributes>;
    fn xattr(&self, file: FileId, name: &[u8]) -> Answer<Vec<u8>>;
    /// Returns the names, each followed by a zero byte.
    fn xattr_names(&self, file: FileId) -> Answer<Vec<u8>>;
    fn set_xattr(&self, file: FileId, name: &[u8], value: &[u8], mode: XattrMode) -> Answer<()>;
    fn remove_xattr(&self, file: FileId, name: &[u8]) -> Answer<()>;

    // Content

    fn open(&self, file: FileId, access: OpenMode) -> Answer<OpenFile>;
    /// Closes a file. Buffered writes stay buffered; the token of the file stays while another open
    /// file of this connection carries it.
    fn close(&self, open: OpenFile) -> Answer<()>;
    /// Reads; shorter than `length` only at the end of the file.
    fn read(&self, open: OpenFile, at: u64, length: usize) -> Answer<Vec<u8>>;
    /// Writes all of `bytes`, or fails and may have written some. Buffered under
    /// [`Token::ExclusiveWrite`], otherwise at the servers when it answers. Returns the attributes
    /// after it. Clients extend a file one after the other: without that token
    /// [`StoreError::TokenHeld`] says that another one is about to, and that nothing was written.
    fn write(&self, open: OpenFile, at: u64, bytes: &[u8]) -> Answer<FileAttributes>;
    /// Writes at the end of the file, as [`Store::write`] does. No other client extends the file
    /// between the look at its end and the write, whatever becomes of this client's token.
    fn append(&self, open: OpenFile, bytes: &[u8]) -> Answer<FileAttributes>;
    /// Returns whether the file may end at this byte; false where a change that makes it so long
    /// would be refused as too large. A store that does not know returns true.
    fn may_end_at(&self, _open: OpenFile, _end: u64) -> bool {
        true
    }
    /// Changes the allocation; durable at the servers when it answers, as is everything buffered
    /// before. A store may refuse it as unsupported. After another error the file may be in a state
    /// that was not reported.
    fn allocate(
        &self,
        open: OpenFile,
        what: Allocation,
        range: Range<u64>,
    ) -> Answer<FileAttributes>;
    /// Makes content and attributes of the file, as of now, survive whatever the servers are made
    /// to survive.
    fn make_durable(&self, open: OpenFile) -> Answer<()>;
    /// Drops what is buffered of the file, and returns its token: [`StoreError::ChangedPast`] was
    /// reported, and the caller has set the bytes aside. Other stores have nothing to drop.
    fn discard(&self, file: FileId) -> Answer<()> {
        self.return_token(file)
    }
    /// Returns whether a crash of the servers may lose changes of the file that went there past
    /// the buffer, such as its mode without a token, until [`Store::make_durable`].
    fn is_unsynced(&self, _open: OpenFile) -> bool {
        false
    }
    /// Sends the content of a file to the servers, as of now: the first part of a sync of many
    /// files. An error is as final as that of [`Store::make_durable`]. A store that gains nothing
    /// by it does nothing.
    fn send_content(&self, _open: OpenFile) -> Answer<()> {
        Box::pin(async { Ok(()) })
    }
    /// Sends the attributes of all files to the servers: the second part. Buffered content may be
    /// sent as well, and its errors are lost: the content of all files was sent before, and no
    /// caller writes. Then each file is made durable, which promises it.
    fn send_attributes(&self) -> Answer<()> {
        Box::pin(async { Ok(()) })
    }

    // Tokens

    /// Takes a token of the open file's file, and waits for other clients to return theirs as long
    /// as the store allows for recalls. Replaces the token held before. Returns the attributes as
    /// of then, on which the first change builds.
    fn take_token(&self, open: OpenFile, token: Token) -> Answer<FileAttributes>;
    /// Takes the exclusive token for a recovery. Under it the servers get no state that was not
    /// reported here before: once it is recalled, [`Store::write`], and [`Store::set_attributes`]
    /// without a size, change nothing and answer [`StoreError::TokenHeld`]; and no recall is
    /// reported unasked. A store that cannot keep this up ends the connection.
    fn take_token_to_recover(&self, open: OpenFile) -> Answer<FileAttributes> {
        self.take_token(open, Token::ExclusiveWrite)
    }
    /// States that the caller's journal has every reported state of the recalled file: the servers
    /// may have them. Making the file durable, or returning the token, states the same.
    fn acknowledge_recall(&self, _file: FileId) -> Answer<()> {
        Box::pin(async { Ok(()) })
    }
    /// Returns the token, recalled or not. Buffered writes of the file are made durable before
    /// another client can have it; an error is that of [`Store::make_durable`]. Without a token it
    /// does nothing.
    fn return_token(&self, file: FileId) -> Answer<()>;

    // Hosts: a journal may have changes of files that its host had when it died

    /// Registers this host, durably and beyond its death, before it takes tokens.
    fn register_host(&self, phase: HostPhase) -> Answer<()> {
        if phase == HostPhase::Running {
            // It is registered since its recovery.
            return Box::pin(async { Ok(()) });
        }
        let name = [HOST_ATTRIBUTE.as_bytes(), self.identity().0.as_bytes()].concat();
        let (known, set) = (
            self.xattr_names(self.root()),
            self.set_xattr(self.root(), &name, b"1", XattrMode::Set),
        );
        Box::pin(async move {
            let is_known = known.await?.split(|byte| *byte == 0).any(|one| one == name);
            if is_known { Ok(()) } else { set.await }
        })
    }
    /// Announces that files are looked up by their numbers, as many as a journal has, or that this
    /// is over. Changes nothing at the store. A store that has an index of numbers ignores it.
    fn expect_searches(&self, _are_expected: bool) {}
    /// Ends the registration: the store has everything that the journal has.
    fn unregister_host(&self) -> Answer<()> {
        let name = [HOST_ATTRIBUTE, &self.identity().0].concat();
        let removed = self.remove_xattr(self.root(), name.as_bytes());
        Box::pin(async move {
            match removed.await {
                Err(StoreError::Refused(Refusal::NoAttribute)) => Ok(()),
                removed => removed,
            }
        })
    }
    /// Returns whether the journal of a host that died may have changes of a file of which this
    /// connection has the exclusive token, and did not create. May be true without cause: a store
    /// that does not know which hosts live returns whether others are registered.
    fn may_have_dead_owner(&self, _file: FileId) -> Answer<bool> {
        let own = [HOST_ATTRIBUTE, &self.identity().0].concat();
        let known = self.xattr_names(self.root());
        Box::pin(async move {
            let is_other = |name: &[u8]| registers_host(name) && name != own.as_bytes();
            Ok(known.await?.split(|byte| *byte == 0).any(is_other))
        })
    }

    // Locks of programs. They end with the connection, at the latest

    /// Sets or removes a lock, and does not wait. [`crate::Refusal::Other`] with EAGAIN: another
    /// owner has a conflicting lock; with ENOLCK: the store cannot share such locks. The file stays
    /// open as long as it has locks.
    fn lock(&self, open: OpenFile, lock: FileLock) -> Answer<()>;
    /// Returns a conflicting lock.
    fn test_lock(&self, open: OpenFile, lock: FileLock) -> Answer<Option<FileLock>>;
}
