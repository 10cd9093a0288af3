use super::notes::changed_ns;
use crate::attributes::FileAttributes;
use crate::overlay::Overlay;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use units::Timestamp;

/// Seconds.
const DAY: i64 = 86_400;

/// A file that this client holds exclusively.
pub(super) struct LocalBuffered {
    pub attributes: FileAttributes,
    pub overlay: Overlay,
    /// Changes that are being written to the file.
    pub flushing: Option<Overlay>,
    pub clean: bool,
    /// Whether the file's note may be this client's. A dead client's stays: its journal builds on
    /// the noted state.
    pub was_noted: bool,
    pub flush_lock: std::rc::Rc<runtime::sync::RwLock>,
    /// The file as this client knows it: of when the token was taken, or behind the last change
    /// that went to it from here. What differs from it is another program's change.
    pub seen: Seen,
    /// Works also after the file has lost its last name.
    pub handle: std::rc::Rc<File>,
}

/// A state of a file as the kernel shows it. The time of change is set by every change of content,
/// attributes or names, and no program can set it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    changed_ns: u64,
    size: u64,
}

impl Seen {
    pub fn of(metadata: &Metadata) -> Seen {
        Seen { changed_ns: changed_ns(metadata), size: metadata.size() }
    }
}

impl LocalBuffered {
    /// Records a change of the file's names by this client, before which it was as `before`. A
    /// difference from another program's change stays one.
    pub fn note_own_change(&mut self, before: &Metadata) {
        if self.seen == Seen::of(before) {
            if let Ok(now) = self.handle.metadata() {
                self.seen = Seen::of(&now);
            }
        }
    }
    /// Records a read as a kernel with `relatime` does: the first read after a change counts, and
    /// one a day. The state is the same, so the store gets the time with the next change.
    pub fn note_read(&mut self, now: Timestamp) {
        let FileAttributes { accessed, modified, changed, .. } = self.attributes;
        if accessed <= modified || accessed <= changed || now.seconds - accessed.seconds >= DAY {
            self.attributes.accessed = now;
        }
    }
    /// Returns the number of names. Other clients may have added or removed some.
    pub fn links(&self) -> u32 {
        self.handle.metadata().map_or(self.attributes.links, |metadata| metadata.nlink() as u32)
    }
}
