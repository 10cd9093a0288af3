//! How to mount, and what an open volume stands on.

use device::{Disk, World};
use engine::EngineOptions;
use std::rc::Rc;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    ReadOnly,
    #[default]
    ReadWrite,
}

/// What happens when damage is found (`errors=`). In any case it is noted in the superblock, and
/// the caller told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnError {
    #[default]
    Continue,
    /// Nothing is written any more.
    Stop,
}

/// How to mount.
#[derive(Clone, Debug, Default)]
pub struct VolumeOptions {
    pub access: Access,
    pub atime: crate::Atime,
    /// Data mode, journal, write-back. `read_only` follows `access`.
    pub engine: EngineOptions,
    /// Kept in the superblock as the last place of mounting.
    pub mount_point: String,
    pub on_error: OnError,
    /// The computer's name, for whoever finds the volume in use (mmp).
    pub node: String,
    /// New files get their directory's group (`grpid`), whatever its mode.
    pub group_of_directory: bool,
    /// Access control lists count for nothing (`noacl`): new files inherit none, and chmod leaves
    /// those that files have as they are.
    pub ignores_access_lists: bool,
    /// Files of which durability is enough; `None`: no attribute counts either.
    pub durable_only: Option<crate::DurableOnly>,
    /// Read-only, as the volume is at home: what only the journal holds is not seen (`noload`).
    pub without_journal: bool,
}

/// What an open volume stands on.
#[derive(Clone)]
pub struct OpenParts {
    pub world: Rc<dyn World>,
    pub home: Rc<dyn Disk>,
    /// The external journal, where the volume has one.
    pub journal: Option<Rc<dyn Disk>>,
    pub options: VolumeOptions,
}
