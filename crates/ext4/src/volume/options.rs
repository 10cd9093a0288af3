//! Mount options, and the parts of an open volume.

use device::{Disk, World};
use engine::EngineOptions;
use std::rc::Rc;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    ReadOnly,
    #[default]
    ReadWrite,
}

/// Reaction to damage (`errors=`). In any case the superblock notes it, and the caller gets an
/// error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnError {
    #[default]
    Continue,
    /// Stop all writes.
    Stop,
}

/// Options of a mount.
#[derive(Clone, Debug, Default)]
pub struct VolumeOptions {
    pub access: Access,
    pub atime: crate::Atime,
    /// Data mode, journal, write-back. `read_only` follows `access`.
    pub engine: EngineOptions,
    /// Kept in the superblock as the last place of mounting.
    pub mount_point: String,
    pub on_error: OnError,
    /// The computer's name, which others see when they find the volume in use (mmp).
    pub node: String,
    /// New files get their directory's group (`grpid`), whatever its mode.
    pub group_of_directory: bool,
    /// Access control lists are ignored (`noacl`): new files inherit none, and chmod leaves those
    /// of files unchanged.
    pub ignores_access_lists: bool,
    /// Files of which durability is enough; `None`: no attribute counts either.
    pub durable_only: Option<crate::DurableOnly>,
    /// Read-only, as the volume is at home: what only the journal holds is not seen (`noload`).
    pub without_journal: bool,
}

/// The parts of an open volume.
#[derive(Clone)]
pub struct OpenParts {
    pub world: Rc<dyn World>,
    pub home: Rc<dyn Disk>,
    /// The external journal, where the volume has one.
    pub journal: Option<Rc<dyn Disk>>,
    pub options: VolumeOptions,
}
