use crate::attributes::FileAttributes;
use crate::overlay::Overlay;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// A file that this client holds exclusively.
pub(super) struct LocalBuffered {
    pub attributes: FileAttributes,
    pub overlay: Overlay,
    /// On its way to the file.
    pub flushing: Option<Overlay>,
    pub clean: bool,
    pub turn: std::rc::Rc<runtime::sync::RwLock>,
    /// Works also when the file has no name any more.
    pub handle: std::rc::Rc<File>,
}

impl LocalBuffered {
    /// Others may have added names, or removed them.
    pub fn links(&self) -> u32 {
        self.handle.metadata().map_or(self.attributes.links, |metadata| metadata.nlink() as u32)
    }
}
