//! The store that a command line names, and the journal of this host for it.

use crate::disk::open_disk::open_disk;
use crate::error::CliError;
use crate::host::Where;
use device::World;
use disks::Access;
use host::{HostError, Journal};
use runtime::RealWorld;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use store::{Identity, LocalStore, Store, StoreError};

/// What stands behind `--store`.
pub struct StoreName {
    pub directory: PathBuf,
}

impl StoreName {
    /// Made absolute: the daemon has no current directory.
    pub fn parse(text: &str) -> Result<StoreName, CliError> {
        let unknown = || {
            CliError::new(format!("{text}: unknown store"))
                .with_remedy("Give a directory that hosts share: dir:PATH.")
        };
        let directory = Path::new(text.strip_prefix("dir:").ok_or_else(unknown)?);
        let directory =
            std::fs::canonicalize(directory).map_err(|error| CliError::system(directory.display(), error))?;
        Ok(StoreName { directory })
    }
    pub fn full_name(&self) -> String {
        format!("dir:{}", self.directory.display())
    }
    pub fn connect(&self, world: &RealWorld, identity: Identity) -> Result<Rc<dyn Store>, CliError> {
        let world: Rc<dyn World> = Rc::new(world.clone());
        match LocalStore::open(world, &self.directory, identity.clone()) {
            Ok(store) => Ok(Rc::new(store)),
            Err(StoreError::TokenHeld) => Err(CliError::new(format!(
                "{}: a host with the identity {} lives",
                self.full_name(),
                identity.0
            ))
            .with_remedy("Unmount it first, or end its daemon.")),
            Err(error) => Err(CliError::new(format!("{}: {error}", self.full_name()))),
        }
    }
}

pub fn failed(error: HostError) -> CliError {
    CliError::new(error.to_string())
}

/// The journal device, claimed; a journal is made on it if it has none and may get one.
pub async fn open_journal(
    world: &RealWorld,
    place: &Where,
    store: &StoreName,
    format: bool,
    access: Access,
) -> Result<(Journal, disks::FileDisk), CliError> {
    use device::Disk;
    let disk = open_disk(world, &place.journal, access)?;
    let shared: Rc<dyn Disk> = Rc::new(disk.clone());
    let is_one = Journal::is_one(&*shared).await.map_err(failed)?;
    let is_empty = shared.read(0, 4096).await.is_ok_and(|start| start.iter().all(|byte| *byte == 0));
    if format || !is_one && is_empty && access == Access::ReadWrite {
        if is_one {
            refuse_live(&shared).await?;
        }
        let identity = Identity(format!("okeanos-{:016x}", world.random()));
        let made = Journal::format(world, shared, identity, &store.full_name()).await.map_err(failed)?;
        return Ok((made, disk));
    }
    let journal = Journal::open(shared).await.map_err(failed)?;
    journal.check_store(&store.full_name()).map_err(failed)?;
    Ok((journal, disk))
}

/// What is synced and not at the store lives in the journal alone.
async fn refuse_live(disk: &Rc<dyn device::Disk>) -> Result<(), CliError> {
    let Ok(journal) = Journal::open(disk.clone()).await else { return Ok(()) };
    if journal.is_clean().await.unwrap_or(true) {
        return Ok(());
    }
    Err(CliError::new(format!("{} holds records that the store does not have", disk.name()))
        .with_remedy("Mount without --format to recover them; or overwrite its first 4096 bytes with zeros."))
}
