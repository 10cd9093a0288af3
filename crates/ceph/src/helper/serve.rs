//! Turns requests into calls, and results into reports.

use super::file_queues::CallOrder;
use super::files::{File, Files, lock};
use super::long_reads::LongReads;
use super::output::Output;
use super::recent_lookups::{RecentLookups, watched};
use crate::library::{Errno, Inode, Mount, Settings, end_process};
use crate::wire::{HelperReply, HelperRequest, Report};
use std::ffi::CString;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use store::{
    AttributeChange, FileAttributes, FileId, FileKind, LOCK_END, NewNode, TRANSFER_BYTES_MAX,
    TimeChange, Token, XATTR_BYTES_MAX,
};

/// Copying more takes longer than waking a thread for it.
const SHORT_BYTES: usize = 64 << 10;

/// Time that the daemon has to journal the reported states of a file whose token is about to be
/// returned.
const NOTING: Duration = Duration::from_millis(20);
/// Interval between checks for files that end.
const ENDING: Duration = Duration::from_millis(1);

pub struct Server {
    pub files: Arc<Files>,
    pub output: Arc<Output>,
    pub settings: Settings,
    /// Number of files without a name that are closed after the answer.
    ending: AtomicUsize,
    /// Reads of held files: whether the library had the content.
    reads: Mutex<RecentLookups>,
    long_reads: Arc<LongReads<Arc<File>>>,
}

/// Counts a call of the file in the library until it is dropped.
struct Busy<'a>(&'a File);
impl Busy<'_> {
    fn with(file: &File) -> Busy<'_> {
        file.state().busy += 1;
        Busy(file)
    }
}
impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.state().busy -= 1;
    }
}

/// Counts a call that makes the file durable, with states that the daemon's journal has.
struct Syncing<'a>(&'a File);
impl<'a> Syncing<'a> {
    /// Acknowledges a recall that came before; one that comes later finds the count.
    fn of(file: &'a File, files: &Files) -> Syncing<'a> {
        file.state().syncing += 1;
        files.acknowledge_recall(file.id);
        Syncing(file)
    }
}
impl Drop for Syncing<'_> {
    fn drop(&mut self) {
        self.0.state().syncing -= 1;
    }
}

/// A change, counted when it begins and when it ends: a sync in between may not have it.
struct Change<'a>(&'a File);
impl Change<'_> {
    fn of(file: &File) -> Change<'_> {
        file.state().changes += 1;
        Change(file)
    }
}
impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.state().changes += 1;
    }
}

impl Server {
    pub fn new(files: Arc<Files>, output: Arc<Output>, settings: Settings) -> Server {
        let long_reads = LongReads::watched();
        Server {
            files,
            output,
            settings,
            ending: AtomicUsize::new(0),
            reads: Mutex::default(),
            long_reads,
        }
    }

    pub fn order_of(&self, request: &HelperRequest) -> CallOrder {
        let (file, shares) = match request {
            HelperRequest::Attributes { file }
            | HelperRequest::Xattr { file, .. }
            | HelperRequest::XattrNames { file }
            | HelperRequest::Read { file, .. } => (*file, true),
            HelperRequest::Forget { file }
            | HelperRequest::SetAttributes { file, .. }
            | HelperRequest::SetXattr { file, .. }
            | HelperRequest::RemoveXattr { file, .. }
            | HelperRequest::Open { file, .. }
            | HelperRequest::Close { file }
            | HelperRequest::Write { file, .. }
            | HelperRequest::Append { file, .. }
            | HelperRequest::Allocate { file, .. }
            | HelperRequest::MakeDurable { file }
            | HelperRequest::SendContent { file }
            | HelperRequest::TakeToken { file, .. }
            | HelperRequest::Lock { file, .. }
            | HelperRequest::TestLock { file, .. }
            | HelperRequest::ReturnToken { file } => (*file, false),
            _ => return CallOrder::free(),
        };
        // Calls for which others wait must not wait behind a call that waits for others.
        let is_return = matches!(
            request,
            HelperRequest::MakeDurable { .. } | HelperRequest::ReturnToken { .. }
        );
        let is_awaited = is_return && self.files.known(file).is_some_and(|file| file.is_recalled());
        CallOrder { file: Some(file), shares, is_awaited }
    }

    /// Returns whether the library usually answers from memory. Reads are judged by the last ones
    /// of any file. It may still wait: for a recall that it knows of already, for space in its
    /// buffer, for its one lock, or for changes of another client.
    pub fn is_short(&self, request: &HelperRequest) -> bool {
        if self.files.gate.keeps_any() {
            return false;
        }
        let (file, is_look) = match request {
            HelperRequest::Write { file, bytes, .. } | HelperRequest::Append { file, bytes }
                if bytes.len() <= SHORT_BYTES =>
            {
                (file, false)
            }
            HelperRequest::SetAttributes { file, change } if change.size.is_none() => (file, false),
            HelperRequest::Attributes { file } | HelperRequest::Xattr { file, .. } => (file, true),
            HelperRequest::Lookup { parent, .. } => (parent, true),
            HelperRequest::Read { file, .. } if lock(&self.reads).are_short() => (file, false),
            // The library reports to the servers later.
            HelperRequest::Forget { .. } => return true,
            _ => return false,
        };
        let any_token = is_look || matches!(request, HelperRequest::Read { .. });
        let Some(file) = self.files.known(*file) else { return false };
        let state = file.state();
        match &state.held {
            Some(held) => {
                held.recalled.is_none() && (any_token || held.token == Token::ExclusiveWrite)
            }
            None => is_look && state.recent_lookups.are_short(),
        }
    }

    /// Returns the errno of a lost connection if that is why a call failed. The library answers
    /// EPERM to every call of a client that is refused a new session, and to a call without rights:
    /// only the servers know which.
    fn is_lost_with(&self, errno: Errno) -> Option<Errno> {
        match errno {
            Errno(libc::ESHUTDOWN | libc::ENOTCONN) => Some(errno),
            Errno(libc::EPERM) if !units::fault!("ceph-refused-client-believed") => {
                let asked = self.files.session.ask().err();
                asked.filter(|asked| matches!(asked, Errno(libc::ESHUTDOWN | libc::ENOTCONN)))
            }
            _ => None,
        }
    }

    pub fn carry_out(&self, request: u64, what: HelperRequest) -> Report {
        let is_last = what == HelperRequest::Disconnect;
        let report = match self.call(what) {
            Ok(reply) => Report::Success { request, reply },
            Err(errno) => match self.is_lost_with(errno) {
                Some(lost) => self.lost(lost),
                None => Report::Failure { request, code: errno.0 },
            },
        };
        if is_last {
            self.output.send(&report);
            end_process(0);
        }
        report
    }

    fn call(&self, request: HelperRequest) -> Result<HelperReply, Errno> {
        let files = &self.files;
        match request {
            HelperRequest::Connect { .. } => return Err(Errno::INVALID),
            HelperRequest::Fence { former } => {
                let identity = text(former)?;
                // Connecting ended this identity's own former connection.
                if identity != self.settings.identity {
                    Mount::fence(&Settings { identity, ..self.settings.clone() })?;
                }
            }
            HelperRequest::Disconnect => self.disconnect()?,
            HelperRequest::Lookup { parent, name } => {
                let (parent, name) = (files.get(parent)?, text(name)?);
                let found = parent.look(|| parent.inode.lookup(&name))?;
                return Ok(self.found(found));
            }
            HelperRequest::Find { file } => {
                let attributes = files.get(file)?.inode.attributes()?;
                // This client may still know a file that has lost its last name.
                if attributes.links == 0 {
                    return Err(Errno(libc::ESTALE));
                }
                return Ok(HelperReply::Attributes { attributes });
            }
            HelperRequest::Forget { file } => files.forget(file),
            HelperRequest::AcknowledgeRecall { file } => files.acknowledge_recall(file),
            HelperRequest::Make { parent, name, node, caller } => {
                let found = files.get(parent)?.inode.make(&text(name)?, &node, caller)?;
                return Ok(self.found(found));
            }
            HelperRequest::Create { parent, name, mode, caller } => {
                // Not by the library's combined call: it looks the name up first, at the servers.
                let node = NewNode::Regular { mode };
                let (inode, made) = files.get(parent)?.inode.make(&text(name)?, &node, caller)?;
                let file = files.keep(inode, made.file);
                let _busy = Busy::with(&file);
                if file.open(true).is_err() {
                    // It is made; a later write gets the error.
                    return Ok(HelperReply::Attributes { attributes: made });
                }
                let is_held = files.hold_new(&file);
                // As with a token that is taken: the file's state from now on counts.
                let attributes = if is_held { file.inode.attributes()? } else { made };
                return Ok(HelperReply::Created { attributes, is_held });
            }
            HelperRequest::Link { file, parent, name } => {
                let (file, parent, name) = (files.get(file)?, files.get(parent)?, text(name)?);
                files.without_token(Some(file.clone()), &self.output, false, || {
                    file.inode.link(&parent.inode, &name)
                })?;
                return self.attributes(&file);
            }
            HelperRequest::Unlink { parent, name } => {
                let (parent, name) = (files.get(parent)?, text(name)?);
                let (target, is_going) = self.target(&parent.inode, &name)?;
                files
                    .without_token(target, &self.output, is_going, || parent.inode.unlink(&name))?;
            }
            HelperRequest::RemoveDirectory { parent, name } => {
                files.get(parent)?.inode.remove_directory(&text(name)?)?;
            }
            HelperRequest::Rename { parent, name, new_parent, new_name } => {
                let (parent, new_parent) = (files.get(parent)?, files.get(new_parent)?);
                let (name, new_name) = (text(name)?, text(new_name)?);
                // The files that lose and change their names: the library waits for the tokens of
                // both.
                let (victim, is_going) = self.target(&new_parent.inode, &new_name)?;
                let (moved, _) = self.target(&parent.inode, &name)?;
                let moved = moved
                    .filter(|moved| victim.as_ref().is_none_or(|victim| victim.id != moved.id));
                files.without_token(victim, &self.output, is_going, || {
                    files.without_token(moved, &self.output, false, || {
                        parent.inode.rename(&name, &new_parent.inode, &new_name)
                    })
                })?;
                files.note_move(parent.id, new_parent.id);
            }
            HelperRequest::ReadLink { file } => {
                return Ok(HelperReply::Bytes { bytes: files.get(file)?.inode.read_link()? });
            }
            HelperRequest::List { directory, cursor } => {
                return Ok(HelperReply::Listing {
                    listing: files.get(directory)?.inode.list(cursor)?,
                });
            }
            HelperRequest::SyncDirectory { directory } => {
                files.sync_names(directory)?;
                // Of names that a lost session had answered and not made durable, the library
                // reports nothing.
                files.session.ask()?;
            }
            HelperRequest::StillKnown => files.session.ask()?,
            HelperRequest::SendAttributes => files.mount.send_attributes()?,
            HelperRequest::Space => {
                return Ok(HelperReply::Space { space: files.mount.root()?.space()? });
            }
            request => return self.call_on_file(request),
        }
        Ok(HelperReply::Done)
    }

    /// Carries out requests that keep their file's order.
    fn call_on_file(&self, request: HelperRequest) -> Result<HelperReply, Errno> {
        let files = &self.files;
        match request {
            HelperRequest::Attributes { file } => {
                let file = files.get(file)?;
                let _busy = Busy::with(&file);
                return file.look(|| self.attributes(&file));
            }
            HelperRequest::SetAttributes { file, change } => {
                let file = files.get(file)?;
                // Truncating a file sets its times, too: the given times are set after it. The
                // library, where it resizes by itself, takes the time of the change from here.
                let modified = change.size.map(|_| TimeChange::Now);
                let cut =
                    AttributeChange { size: change.size, modified, ..AttributeChange::default() };
                let rest = AttributeChange { size: None, ..change };
                let resizes = match change.size {
                    Some(new) => new != file.inode.attributes()?.version.size,
                    None => false,
                };
                return self.change(&file, || {
                    // The library truncates at the servers. Its buffer beyond the end must not
                    // follow.
                    if resizes {
                        files.sync(&file)?;
                    }
                    for change in
                        [cut, rest].iter().filter(|change| **change != AttributeChange::default())
                    {
                        file.inode.set_attributes(change)?;
                    }
                    if resizes { files.sync(&file) } else { Ok(()) }
                });
            }
            HelperRequest::Xattr { file, name } => {
                let (file, name) = (files.get(file)?, text(name)?);
                let _busy = Busy::with(&file);
                let bytes = file.look(|| file.inode.xattr(&name, XATTR_BYTES_MAX))?;
                return Ok(HelperReply::Bytes { bytes });
            }
            HelperRequest::XattrNames { file } => {
                let file = files.get(file)?;
                let _busy = Busy::with(&file);
                return Ok(HelperReply::Bytes { bytes: file.inode.xattr_names(XATTR_BYTES_MAX)? });
            }
            HelperRequest::SetXattr { file, name, value, mode } => {
                let (file, name) = (files.get(file)?, text(name)?);
                self.change(&file, || file.inode.set_xattr(&name, &value, mode))?;
            }
            HelperRequest::RemoveXattr { file, name } => {
                let (file, name) = (files.get(file)?, text(name)?);
                self.change(&file, || file.inode.remove_xattr(&name))?;
            }
            HelperRequest::Open { file, write } => {
                let file = files.get(file)?;
                let _busy = Busy::with(&file);
                file.open(write)?;
            }
            HelperRequest::Close { file } => {
                if let Some(file) = files.known(file) {
                    if file.close() {
                        if file.begin_end() {
                            self.ending.fetch_add(1, Ordering::SeqCst);
                            return Ok(HelperReply::Done);
                        }
                        // The token belongs to the open file.
                        let returned = files.give_back(&file);
                        file.release();
                        returned?;
                    }
                }
            }
            HelperRequest::Read { file, at, length } => {
                let file = files.get(file)?;
                let _busy = Busy::with(&file);
                let length = (length as usize).min(TRANSFER_BYTES_MAX);
                let handle = file.handle(false)?;
                let _reading = self.long_reads.begin(file.clone());
                let (bytes, has_waited) = watched(|| handle.read(at, length));
                let bytes = bytes?;
                lock(&self.reads).note(has_waited || bytes.len() > SHORT_BYTES);
                return Ok(HelperReply::Bytes { bytes });
            }
            HelperRequest::Write { file, at, bytes } => {
                return self.write(&*files.get(file)?, Some(at), &bytes);
            }
            HelperRequest::Append { file, bytes } => {
                return self.write(&*files.get(file)?, None, &bytes);
            }
            HelperRequest::Allocate { file, what, start, end } => {
                let file = files.get(file)?;
                // The library changes the servers' objects at once. Its buffer of them must not
                // follow.
                return self.change(&file, || {
                    files.sync(&file)?;
                    file.handle(true)?.allocate(what, &(start..end))?;
                    files.sync(&file)
                });
            }
            HelperRequest::MakeDurable { file } => {
                let file = files.get(file)?;
                let _syncing = Syncing::of(&file, files);
                files.sync(&file)?;
            }
            HelperRequest::SendContent { file } => files.sync_content(&*files.get(file)?)?,
            HelperRequest::TakeToken { file, token, to_recover } => {
                let file = files.get(file)?;
                if file.state().opens == 0 {
                    return Err(Errno(libc::EBADF));
                }
                {
                    let _busy = Busy::with(&file);
                    files.take_token(&file, token, to_recover)?;
                }
                // T6: between the end of the former connection and this grant any client may have
                // changed the file. Its state from now on counts, with the token.
                return self.attributes(&file);
            }
            HelperRequest::ReturnToken { file } => {
                if let Some(file) = files.known(file) {
                    let _syncing = Syncing::of(&file, files);
                    files.give_back(&file)?;
                }
            }
            request => return self.call_on_locks(request),
        }
        Ok(HelperReply::Done)
    }

    fn call_on_locks(&self, request: HelperRequest) -> Result<HelperReply, Errno> {
        match request {
            HelperRequest::Lock { file, owner, mode, start, end } => {
                let file = self.files.get(file)?;
                let _busy = Busy::with(&file);
                let range = start..end;
                file.handle_for_locks()?.lock(owner, mode, &range)?;
                file.note_lock(owner, mode.is_some(), range == (0..LOCK_END));
                Ok(HelperReply::Done)
            }
            HelperRequest::TestLock { file, owner, mode, start, end } => {
                let file = self.files.get(file)?;
                let _busy = Busy::with(&file);
                let found = file.handle_for_locks()?.lock_against(owner, mode, &(start..end))?;
                let (mode, Range { start, end }) =
                    found.map_or((None, 0..0), |(mode, range)| (Some(mode), range));
                Ok(HelperReply::Lock { mode, start, end })
            }
            _ => Err(Errno::INVALID),
        }
    }

    /// Writes at an offset; `None`: at the end. EAGAIN: another client extends the file, and
    /// nothing was written.
    fn write(&self, file: &File, at: Option<u64>, bytes: &[u8]) -> Result<HelperReply, Errno> {
        if file.is_recovered() {
            let at = at.map_or_else(|| file.inode.size(), Ok)?;
            return self.change(file, || file.handle(true)?.write(at, bytes));
        }
        // Before the write begins: an append has not looked at the end yet, and needs no lock in
        // the token's place. An offset that is given belongs to the state under the token, which is
        // then returned under the lock.
        if at.is_none() {
            self.return_recalled(file)?;
        }
        self.files.begin_write(file);
        let written = self.write_alone(file, at, bytes);
        if let Err(errno) = self.files.end_write(file) {
            // The lock must not outlive the write, and ends with the session.
            self.lost(errno);
        }
        written
    }
    fn write_alone(
        &self,
        file: &File,
        at: Option<u64>,
        bytes: &[u8],
    ) -> Result<HelperReply, Errno> {
        if !file.has(Token::ExclusiveWrite) {
            // The answer comes when no client has the exclusive token any more: none that must get
            // the lock before it returns its token waits for this one.
            let size = file.inode.size()?;
            if at.is_none_or(|at| at.saturating_add(bytes.len() as u64) > size) {
                self.files.lock_extension(file)?;
            }
        }
        let changed = self.change(file, || {
            let at = at.map_or_else(|| file.inode.size(), Ok)?;
            file.handle(true)?.write(at, bytes)
        });
        // From here on a part of it may have been written.
        changed.map_err(|errno| if errno == Errno(libc::EAGAIN) { Errno(libc::EIO) } else { errno })
    }

    /// Returns the token of a recalled file. T1: a change would wait for that. The servers get the
    /// state before it then, so the daemon journals that first.
    fn return_recalled(&self, file: &File) -> Result<(), Errno> {
        let since = Instant::now();
        while file.is_unacknowledged() && since.elapsed() < NOTING {
            std::thread::sleep(ENDING);
        }
        if file.is_recalled() { self.files.give_back(file) } else { Ok(()) }
    }

    /// Changes content or attributes: buffered under the exclusive token, otherwise at the servers
    /// when it answers. EAGAIN: the file is recovered and its token recalled, and nothing was
    /// changed.
    fn change(
        &self,
        file: &File,
        call: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<HelperReply, Errno> {
        let is_recovered = file.is_recovered() && !units::fault!("ceph-recovery-written-late");
        // A recall that comes before the answer finds it busy.
        let _busy = is_recovered.then(|| Busy::with(file));
        if !is_recovered {
            self.return_recalled(file)?;
        }
        {
            let _busy = Busy::with(file);
            self.files.begin_change(file);
            let _change = Change::of(file);
            // Counted before: a recall that comes later is not answered unasked.
            if is_recovered && self.files.meets_recall(file) {
                return Err(Errno(libc::EAGAIN));
            }
            call()?;
        }
        if !file.has(Token::ExclusiveWrite) {
            self.files.sync(file)?;
        }
        self.attributes(file)
    }

    fn attributes(&self, file: &File) -> Result<HelperReply, Errno> {
        let attributes = file.inode.attributes()?;
        file.state().is_gone = attributes.links == 0;
        Ok(HelperReply::Attributes { attributes })
    }

    /// Ends a file after the answer to its last close, so that no caller waits for that.
    pub fn end(&self, file: FileId) {
        let Some(file) = self.files.known(file).filter(|file| file.ends()) else { return };
        if let Err(errno @ Errno(libc::ESHUTDOWN | libc::ENOTCONN)) = self.files.discard(&file) {
            self.lost(errno);
        }
        file.release();
        self.ending.fetch_sub(1, Ordering::SeqCst);
    }
    /// Ends the process (T4): nothing more is asked of a lost connection, and a process ends more
    /// surely than an unmount.
    fn lost(&self, errno: Errno) -> ! {
        match errno {
            Errno(libc::ESHUTDOWN) => {
                self.output.lost(true, "the servers have excluded this client")
            }
            _ => self.output.lost(false, "the library has cut itself off"),
        }
    }

    fn found(&self, (inode, attributes): (Inode, FileAttributes)) -> HelperReply {
        self.files.keep(inode, attributes.file);
        HelperReply::Attributes { attributes }
    }

    /// Returns the file of a name, if its token may be ours; and whether this is its last name.
    fn target(&self, parent: &Inode, name: &CString) -> Result<(Option<Arc<File>>, bool), Errno> {
        match parent.lookup(name) {
            Ok((_, FileAttributes { file, links, kind, .. })) => {
                let is_going = links <= 1 && kind != FileKind::Directory;
                Ok((self.files.known(file), is_going))
            }
            Err(Errno(libc::ENOENT)) => Ok((None, false)),
            Err(errno) => Err(errno),
        }
    }

    fn disconnect(&self) -> Result<(), Errno> {
        while self.ending.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(ENDING);
        }
        let mut result = Ok(());
        for file in self.files.all() {
            result = result.and(self.files.give_back(&file));
        }
        result.and(self.files.mount.unmount())
    }
}

fn text(bytes: Vec<u8>) -> Result<CString, Errno> {
    CString::new(bytes).map_err(|_| Errno::INVALID)
}
