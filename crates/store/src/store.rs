use crate::attributes::{Allocation, AttributeChange, FileAttributes, FileId};
use crate::error::StoreError;
use crate::event::{Identity, StoreEvent, Token};
use crate::lock::FileLock;
use crate::names::{Created, Creator, Found, Listing, NewNode, RenameOver, Space, XattrMode};
use crate::open_file::{OpenFile, OpenMode};
use device::LocalFuture;
use std::ops::Range;

pub type Answer<T> = LocalFuture<Result<T, StoreError>>;

/// A shared file system, over one connection. Single-threaded: an implementation with threads hands
/// their answers over. A call copies its arguments when it is made, and starts when its future is
/// first polled; dropping the future then leaves it running, unobserved.
///
/// Rules, for implementations and callers:
/// 1. Calls on one open file or one file are carried out in the order in which they were started.
///    Calls on different files may pass each other.
/// 2. A buffered write is seen by this client at once. Others see it when the token has been
///    returned, or earlier.
/// 3. **Every state that others, or this client's next life, may find was told here**:
///    [`Store::write`], [`Store::set_attributes`] and [`Store::attributes`] answer the version
///    after the call. A store that batches them at the servers gives up only states which it told.
///    A store holds attributes back for at least [`Store::hold_ms`], and while the file is shorter
///    than [`Store::held_below`], unless they are made durable. So they can be journaled first.
/// 4. Content may reach the servers before the attributes that tell of it, and without them when
///    the client dies. The servers may then set size and time of change after it; the number stays
///    ([`Store::counts_every_change`]).
/// 5. After [`StoreEvent::Recall`] the caller does not write or set attributes of that file (it may
///    deadlock there). It may read and make durable, and must return the token. Calls under way
///    when the event is told complete. A store may tell its servers the file's attributes with the
///    recall, before the content is there. It does so after [`Store::acknowledge_recall`]; unasked
///    after a second, as another waits.
/// 6. An error of [`Store::make_durable`] is final for the buffered writes of that file, unless the
///    store [keeps them](Store::keeps_failed_writes).
/// 7. After [`StoreEvent::Disconnected`], or an error that [`StoreError::is_lost`], only
///    [`Store::reconnect`] is called. An implementation answers everything else with that error and
///    touches the lost connection no more.
/// 8. A change of a file's names changes its state. The caller returns its token before, or the
///    store takes it away and tells [`StoreEvent::Recall`] before it answers. Who has the file in
///    between is never passed over in silence. Tokens of other clients are recalled before.
/// 9. Sizes beyond the constants of this crate are [`crate::Refusal::Invalid`]; an answer never
///    exceeds them.
pub trait Store {
    /// For errors and tables, such as `dir:/srv/shared`.
    fn name(&self) -> &str;
    /// The identity of this connection, given when it was made.
    fn identity(&self) -> Identity;
    /// Which store this is, whatever it is called: of its cluster and file system, or of the
    /// directory. At most 128 printable ASCII characters; empty if it cannot be told. File numbers
    /// and versions mean something in this one alone.
    fn store_identity(&self) -> String;
    /// See rule 3. Milliseconds.
    fn hold_ms(&self) -> u64;
    /// See rule 3. Of a file that had `size` bytes when it was made durable last, or the token was
    /// taken.
    fn held_below(&self, size: u64) -> u64;
    /// Whether what [`Store::make_durable`] failed to bring to the servers stays buffered, so that
    /// a later success of it counts for all of it. See rule 6.
    fn keeps_failed_writes(&self) -> bool;
    /// Whether an unchanged number proves that nobody has changed the file since the durable state
    /// that had it, as far as anybody was told. Sizes and times of change prove nothing then.
    /// False: others may change files past the store.
    fn counts_every_change(&self) -> bool;
    /// Whether a file's number names another file once the last name is gone and nobody has it
    /// open here. The caller opens what an application opens, so that the number stays.
    fn reuses_numbers(&self) -> bool {
        false
    }
    /// Whether nobody gets an exclusive token of a file that another client has open.
    fn wants_files_closed(&self) -> bool {
        false
    }

    /// For how long a question that the servers have answered proves, from when it was asked, that
    /// nobody has what this connection's tokens exclude. Milliseconds. `u64::MAX`: for as long as
    /// this process lives.
    ///
    /// A recall that this connection does not answer may end that earlier. It does not, for this
    /// long after the last question that was asked before the recall.
    fn lease_ms(&self) -> u64;

    // Life of the connection

    /// Asks the servers whether they still know this connection. An answer, or the end of the
    /// connection, comes within [`Store::lease_ms`] or a little more.
    fn still_known(&self) -> Answer<()>;

    /// Ends whatever connection `former` had, or has: from when this answers, nothing of it reaches
    /// the servers, and what it buffered is gone. Its tokens are free. `former` may be this
    /// connection's own identity: then it is the former life's. Answers also when there was none.
    /// Called before the first token is taken.
    fn fence(&self, former: &Identity) -> Answer<()>;
    /// A new connection with the same identity, in place of the lost one. Open files and tokens are
    /// void, and buffered writes are gone.
    fn reconnect(&self) -> Answer<()>;
    /// The next event; waits for it. One caller at a time. Events of a file come in the order in
    /// which they happened. Not after [`Store::disconnect`]: pending forever.
    fn next_event(&self) -> LocalFuture<StoreEvent>;
    /// Makes everything durable, returns all tokens, ends the connection. The last call.
    fn disconnect(&self) -> Answer<()>;

    // Names: each is at the servers when it answers, though perhaps not yet durable there

    fn root(&self) -> FileId;
    /// A name of a directory; neither `.` nor `..`.
    fn lookup(&self, parent: FileId, name: &[u8]) -> Answer<Found>;
    /// A file by its number alone, as after a crash. [`crate::Refusal::Stale`]: there is none.
    fn find(&self, file: FileId) -> Answer<Found>;
    /// One of the file's names, from the root on, for people to read; `None`: it cannot be told.
    fn path_of(&self, _file: FileId) -> Answer<Option<Vec<u8>>> {
        Box::pin(async { Ok(None) })
    }
    /// This client no longer refers to the file, by whatever number of lookups: a hint that memory
    /// may be freed.
    fn forget(&self, file: FileId);
    /// Fails if the name exists.
    fn make(&self, parent: FileId, name: &[u8], node: NewNode, caller: Creator) -> Answer<Found>;
    /// A regular file that is to be written next. What the store gives with the same answer needs
    /// no further question: the open file, and the exclusive token. A recall of it may be told
    /// before the answer. Fails if the name exists.
    fn create(&self, parent: FileId, name: &[u8], mode: u32, caller: Creator) -> Answer<Created>;
    fn link(&self, file: FileId, parent: FileId, name: &[u8]) -> Answer<FileAttributes>;
    /// Anything but a directory. Open files stay usable.
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
    /// Entries behind `cursor` (0: from the beginning), at least one unless that is the end.
    fn list(&self, directory: FileId, cursor: u64) -> Answer<Listing>;
    /// Makes the names of a directory durable.
    fn sync_directory(&self, directory: FileId) -> Answer<()>;
    fn space(&self) -> Answer<Space>;

    // Attributes

    fn attributes(&self, file: FileId) -> Answer<FileAttributes>;
    /// Buffered under [`Token::ExclusiveWrite`], else at the servers when it answers: behind what
    /// another client has buffered under its token, which is recalled. Another size is durable
    /// there in any case, as is what was buffered before.
    fn set_attributes(&self, file: FileId, change: AttributeChange) -> Answer<FileAttributes>;
    fn xattr(&self, file: FileId, name: &[u8]) -> Answer<Vec<u8>>;
    /// Names, each followed by a zero byte.
    fn xattr_names(&self, file: FileId) -> Answer<Vec<u8>>;
    fn set_xattr(&self, file: FileId, name: &[u8], value: &[u8], mode: XattrMode) -> Answer<()>;
    fn remove_xattr(&self, file: FileId, name: &[u8]) -> Answer<()>;

    // Content

    fn open(&self, file: FileId, access: OpenMode) -> Answer<OpenFile>;
    /// Buffered writes stay buffered; the token of the file stays while another open file of this
    /// connection carries it.
    fn close(&self, open: OpenFile) -> Answer<()>;
    /// Shorter than `length` only at the end of the file.
    fn read(&self, open: OpenFile, at: u64, length: usize) -> Answer<Vec<u8>>;
    /// All of `bytes`, or an error and then perhaps some. Buffered under [`Token::ExclusiveWrite`],
    /// else at the servers when it answers. Attributes as they are after it.
    fn write(&self, open: OpenFile, at: u64, bytes: &[u8]) -> Answer<FileAttributes>;
    /// At the servers and durable there when it answers, as is what was buffered before. A store
    /// may refuse it as unsupported. After another error the file may be in a state that was not
    /// told.
    fn allocate(
        &self,
        open: OpenFile,
        what: Allocation,
        range: Range<u64>,
    ) -> Answer<FileAttributes>;
    /// Content and attributes of the file, as of now, survive whatever the servers are made to
    /// survive.
    fn make_durable(&self, open: OpenFile) -> Answer<()>;
    /// First part of a sync of many files: the content of this one, as of now, is with the servers.
    /// An error is as final as that of [`Store::make_durable`]. A store that gains nothing by it
    /// does nothing.
    fn send_content(&self, _open: OpenFile) -> Answer<()> {
        Box::pin(async { Ok(()) })
    }
    /// Second part: the attributes of all files are with the servers. Content that is buffered may
    /// go as well, and its errors are lost: that of all files was sent before, and nobody writes.
    /// Then each file is made durable, which promises it.
    fn send_attributes(&self) -> Answer<()> {
        Box::pin(async { Ok(()) })
    }

    // Tokens

    /// Asks for a token of the open file's file, and waits for others to give way as long as the
    /// store's time for recalls. Replaces the one that is held. Attributes as of then: what the
    /// first change builds on.
    fn take_token(&self, open: OpenFile, token: Token) -> Answer<FileAttributes>;
    /// Every state told of the recalled file is in the caller's journal: the servers may hear of
    /// it. To make the file durable and to return the token say the same.
    fn acknowledge_recall(&self, _file: FileId) -> Answer<()> {
        Box::pin(async { Ok(()) })
    }
    /// Gives the token back, recalled or not. Buffered writes of the file are made durable before
    /// another can have it; an error is that of [`Store::make_durable`]. Without a token: nothing.
    fn return_token(&self, file: FileId) -> Answer<()>;

    // Locks of programs. They end with the connection, at the latest

    /// Sets or removes a lock, and does not wait. [`crate::Refusal::Other`] with EAGAIN: another's
    /// stands against it; with ENOLCK: the store cannot share such locks. The file stays open as
    /// long as it has locks.
    fn lock(&self, open: OpenFile, lock: FileLock) -> Answer<()>;
    /// A lock that stands against this one.
    fn test_lock(&self, open: OpenFile, lock: FileLock) -> Answer<Option<FileLock>>;
}
