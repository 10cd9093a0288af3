//! The store that a command line names, and the journal of this host for it.

use crate::daemon::privileges::HostPrograms;
use crate::disk::content::{ZEROS, content_of, is_blank, refuse_known_content};
use crate::disk::open_disk::open_disk;
use crate::error::CliError;
use crate::host::Where;
use crate::look::refuse_no_disk;
use device::{Buffer, DeviceError, Disk, Durability, World};
use disks::DiskAccess;
use host::{HostError, HostJournal};
use runtime::RealWorld;
use std::fs::{File, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use store::{Identity, LocalStore, Store, StoreError};

const WRITTEN_AT_ONCE: u64 = 4 << 20;
/// First bytes of a disk by which a journal is known.
const HEAD_BYTES: u64 = 512;
/// Mode bits of the group and others.
const OTHERS: u32 = 0o077;

/// Types of file systems by their magic numbers (statfs(2)).
const INCOHERENT: [(u64, &str); 16] = [
    (0x6573_5546, "FUSE"),
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "CephFS"),
    (0x5346_414f, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    // A file has one inode by the merged name and another by the upper one.
    (0x794c_7630, "overlayfs"),
    (0x786f_4256, "a shared folder of VirtualBox"),
    // The number of a file is another one after each mount.
    (0x4d44, "FAT"),
    (0x2011_bab0, "exFAT"),
];

/// A store named by `--store`.
pub enum StoreName {
    Directory(PathBuf),
    /// A directory of the file system of a cluster, whose location is in the configuration.
    Ceph {
        conf: PathBuf,
        directory: String,
        user: Option<String>,
        file_system: Option<String>,
        keyring: Option<PathBuf>,
    },
}

impl StoreName {
    /// Parses a name. Paths become absolute: the daemon has no current directory.
    pub fn parse(place: &Where) -> Result<StoreName, CliError> {
        let text = place.store.as_str();
        let absolute = |path: &Path| {
            path.canonicalize().map_err(|error| CliError::system(path.display(), error))
        };
        match text.split_once(':') {
            Some(("dir", _))
                if place.user.is_some()
                    || place.file_system.is_some()
                    || place.keyring.is_some() =>
            {
                Err(CliError::new(format!(
                    "{text}: --user, --file-system and --keyring are for ceph: stores"
                )))
            }
            Some(("dir", "")) => Err(CliError::new("dir: names no directory")
                .with_remedy("Give the directory that hosts share: dir:PATH.")),
            Some(("dir", directory)) => Ok(StoreName::Directory(absolute(Path::new(directory))?)),
            Some(("ceph", cluster)) => {
                let (conf, directory) = cluster.split_once(':').unwrap_or((cluster, "/"));
                let conf = if conf.is_empty() { "/etc/ceph/ceph.conf" } else { conf };
                if !directory.starts_with('/') {
                    return Err(CliError::new(format!(
                        "{text}: {directory} is no path from the root of the file system"
                    )));
                }
                Ok(StoreName::Ceph {
                    conf: absolute(Path::new(conf))?,
                    directory: directory.into(),
                    user: place.user.clone(),
                    file_system: place.file_system.clone(),
                    keyring: place.keyring.as_deref().map(absolute).transpose()?,
                })
            }
            _ => Err(CliError::new(format!("{text}: unknown store")).with_remedy(
                "Give a directory that hosts share, dir:PATH, or a cluster, ceph:CONF or \
                 ceph:CONF:/DIR.",
            )),
        }
    }
    pub fn full_name(&self) -> String {
        match self {
            StoreName::Directory(directory) => format!("dir:{}", directory.display()),
            StoreName::Ceph { conf, directory, file_system, .. } => {
                let place = format!("ceph:{}:{directory}", conf.display());
                match file_system {
                    Some(name) => format!("{place}:{name}"),
                    None => place,
                }
            }
        }
    }
    /// Refuses file systems whose locks (our tokens) or change times (which distinguish states)
    /// hold for each machine alone, and a directory within a store, which has other tokens for the
    /// same files.
    pub fn refuse_incoherent(&self) -> Result<(), CliError> {
        let StoreName::Directory(directory) = self else { return Ok(()) };
        if let Some(outer) = directory.ancestors().skip(1).find(|it| LocalStore::was_used(it)) {
            return Err(CliError::new(format!(
                "{}: it lies in the store dir:{}, whose hosts would not see what this one writes",
                self.full_name(),
                outer.display()
            ))
            .with_remedy("Mount that store. --force takes this one all the same."));
        }
        let found = LocalStore::file_system_type(directory)
            .map_err(|error| CliError::new(format!("{}: {error}", self.full_name())))?;
        let kind = INCOHERENT.iter().find(|(magic, _)| *magic == found);
        let kind = kind.filter(|_| !units::fault!("host-incoherent-store"));
        let Some((_, kind)) = kind else { return Ok(()) };
        Err(CliError::new(format!(
            "{}: it lies on {kind}, whose locks, change times or numbers of files need not be the \
             same for all hosts and mounts",
            self.full_name()
        ))
        .with_remedy(
            "Use a local file system, or ceph: for CephFS. --force takes it all the same.",
        ))
    }
    /// Returns which programs a host in front of it starts.
    pub fn programs(&self) -> HostPrograms {
        match self {
            StoreName::Directory(_) => HostPrograms::None,
            StoreName::Ceph { .. } => HostPrograms::Helper,
        }
    }
    /// Returns the path that is used as long as the host runs.
    pub fn path(&self) -> &Path {
        match self {
            StoreName::Directory(path) | StoreName::Ceph { conf: path, .. } => path,
        }
    }
    /// Whether a mount on `directory` would cover the store.
    pub fn lies_below(&self, directory: &Path) -> bool {
        self.path().starts_with(directory)
    }
    /// Checks the store before anything is made in it: a directory that is not mounted must not
    /// become one.
    pub async fn check(&self, journal: &HostJournal) -> Result<(), CliError> {
        let StoreName::Directory(directory) = self else { return Ok(()) };
        let found = LocalStore::identity_of(directory)
            .map_err(|error| CliError::new(format!("{}: {error}", self.full_name())))?;
        let is_used =
            !journal.head.store_identity.is_empty() || !journal.is_clean().await.map_err(failed)?;
        match found {
            Some(found) => journal.check_store_identity(&found).map_err(failed),
            None if is_used && !LocalStore::was_used(directory) => Err(CliError::new(format!(
                "{}: no host ever used this directory, and {} was made for one that was",
                self.full_name(),
                journal.disk.name()
            ))
            .with_remedy(
                "Mount the store's file system there first. If it is lost for good: --format.",
            )),
            None if !journal.head.store_identity.is_empty() => {
                journal.check_store_identity("a directory without an identity").map_err(failed)
            }
            None => Ok(()),
        }
    }
    pub async fn connect(
        &self,
        world: &RealWorld,
        identity: Identity,
    ) -> Result<Rc<dyn Store>, CliError> {
        let shared: Rc<dyn World> = Rc::new(world.clone());
        let connected: Result<Rc<dyn Store>, StoreError> = match self {
            StoreName::Directory(directory) => {
                LocalStore::open(shared, directory, identity.clone())
                    .map(|store| -> Rc<dyn Store> { Rc::new(store) })
            }
            StoreName::Ceph { conf, directory, user, file_system, keyring } => {
                let mut options = ceph::Options::of(identity.clone());
                (options.conf, options.directory) = (conf.clone(), directory.clone());
                options.user = user.clone().unwrap_or(options.user);
                options.file_system = file_system.clone().unwrap_or_default();
                options.keyring = keyring.clone().unwrap_or_default();
                let connected = ceph::CephStore::connect(world, options).await;
                connected.map(|store| -> Rc<dyn Store> { Rc::new(store) })
            }
        };
        match connected {
            Ok(store) => Ok(store),
            Err(StoreError::TokenHeld) => Err(CliError::new(format!(
                "{}: a host with the identity {} lives",
                self.full_name(),
                identity.0
            ))
            .with_remedy("Unmount it first, or end its daemon.")),
            Err(error) => {
                let failed = CliError::new(format!("{}: {error}", self.full_name()));
                Err(match self {
                    StoreName::Directory(_) => failed,
                    StoreName::Ceph { conf, user, .. } => failed.with_remedy(format!(
                        "Ask Ceph's own program: ceph --conf {} --id {} status. A key in another \
                         place: --keyring.",
                        conf.display(),
                        user.as_deref().unwrap_or("admin")
                    )),
                })
            }
        }
    }
}

pub fn failed(error: HostError) -> CliError {
    CliError::new(error.to_string())
}

/// Permission to make a journal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MakeJournal {
    Never,
    /// Formatted without a request, on a disk that begins with zeros.
    OnBlankDisk,
    /// `--format`: over unknown content.
    OverUnknown,
    /// `--format --force`.
    OverAnything,
}

impl MakeJournal {
    pub fn new(format: bool, force: bool) -> MakeJournal {
        match (format, force) {
            (false, _) => MakeJournal::OnBlankDisk,
            (true, false) => MakeJournal::OverUnknown,
            (true, true) => MakeJournal::OverAnything,
        }
    }
}

/// Claims and opens the journal device; makes a journal on it if it has none and may get one.
pub async fn open_journal(
    world: &RealWorld,
    place: &Where,
    store: &StoreName,
    make: MakeJournal,
    access: DiskAccess,
) -> Result<(HostJournal, disks::FileDisk), CliError> {
    refuse_no_disk(&place.journal)?;
    // Before the claim: a user who may read it can lock it, and keeps what is open.
    if access == DiskAccess::ReadWrite && may_be_journal(&place.journal, make) {
        keep_private(&place.journal)?;
    }
    let disk = open_disk(world, &place.journal, access)?;
    let shared: Rc<dyn Disk> = Rc::new(disk.clone());
    let is_one = HostJournal::is_one(&*shared).await.map_err(failed)?;
    let makes = match make {
        MakeJournal::Never => false,
        MakeJournal::OnBlankDisk => !is_one && is_blank(&place.journal, ZEROS)?,
        MakeJournal::OverUnknown | MakeJournal::OverAnything => true,
    };
    if makes {
        let force = make == MakeJournal::OverAnything;
        if is_one {
            refuse_live(&shared, force).await?;
        } else {
            let command = "okeanos host mount --format --force … --journal";
            refuse_known_content(&place.journal, force, command)?;
        }
        keep_private(&place.journal)?;
        write_once(&disk).await.map_err(|error| CliError::new(error.to_string()))?;
        return Ok((make_journal(world, shared, store).await?, disk));
    }
    if let Some(found) = if is_one { None } else { content_of(&place.journal)? } {
        return Err(CliError::new(format!(
            "{} holds {found}, not the journal of a host",
            place.journal.display()
        ))
        .with_remedy("Name another; to overwrite it: okeanos host mount --format --force."));
    }
    let journal = HostJournal::open(shared.clone()).await.map_err(failed)?;
    let matched = journal.check_store(&store.full_name()).map_err(failed);
    if matched.is_err()
        && access == DiskAccess::ReadWrite
        && journal.head.store_identity.is_empty()
        && journal.is_clean().await.map_err(failed)?
    {
        // Made for a store that was never reached: its name was mistyped, for example.
        return Ok((make_journal(world, shared, store).await?, disk));
    }
    matched?;
    Ok((journal, disk))
}

async fn make_journal(
    world: &RealWorld,
    disk: Rc<dyn Disk>,
    store: &StoreName,
) -> Result<HostJournal, CliError> {
    let identity = Identity(format!("okeanos-{:016x}", world.random()));
    HostJournal::format(world, disk, identity, &store.full_name()).await.map_err(failed)
}

/// Returns whether a file has a journal, or may get one unasked. Others keep their modes: the name
/// may be mistyped.
fn may_be_journal(path: &Path, make: MakeJournal) -> bool {
    if !path.is_file() {
        return false;
    }
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut start));
    let is_blank = || make != MakeJournal::Never && is_blank(path, ZEROS).unwrap_or(false);
    read.is_ok() && (HostJournal::is_head(&start) || is_blank())
}

/// Makes the journal private: it holds content of files that their owners alone may read, and its
/// readers may lock it.
fn keep_private(journal: &Path) -> Result<(), CliError> {
    let cannot = |error| CliError::system(journal.display(), error);
    let found = std::fs::metadata(journal).map_err(cannot)?;
    let process = std::fs::metadata("/proc/self").map_err(cannot)?;
    let is_ours = found.uid() == process.uid();
    let is_open = found.mode() & OTHERS != 0 && !units::fault!("host-journal-readable");
    if found.is_file() && is_ours && is_open {
        std::fs::set_permissions(journal, Permissions::from_mode(0o600)).map_err(cannot)?;
    }
    Ok(())
}

/// Allocates all blocks of a journal file now. Otherwise each commit before the log's first wrap
/// would wait for its file system to allocate some, which may fail then. A crash in between leaves
/// no journal.
async fn write_once(disk: &disks::FileDisk) -> Result<(), DeviceError> {
    if disk.is_block_device() {
        return Ok(());
    }
    let (size, zeros) = (disk.geometry().size, Rc::new(Buffer::zeroed(WRITTEN_AT_ONCE as usize)));
    let mut at = 0;
    while at < size {
        let length = (size - at).min(WRITTEN_AT_ONCE);
        let part = match length {
            WRITTEN_AT_ONCE => zeros.clone(),
            _ => Rc::new(Buffer::zeroed(length as usize)),
        };
        disk.write(at, vec![part], Durability::Cached).await?;
        at += length;
    }
    disk.flush().await
}

/// Refuses a journal that alone holds synced data, and one that may, as it cannot be read; the
/// latter unless `force`.
async fn refuse_live(disk: &Rc<dyn Disk>, force: bool) -> Result<(), CliError> {
    let is_clean = match HostJournal::open(disk.clone()).await {
        Ok(journal) => journal.is_clean().await,
        Err(error) => Err(error),
    };
    let name = disk.name();
    match is_clean {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(CliError::new(format!("{name} holds records that the store does not have"))
                .with_remedy(
                    "Mount without --format to recover them; or overwrite its first 4096 bytes \
                     with zeros.",
                ))
        }
        Err(_) if force => Ok(()),
        Err(error) => {
            Err(CliError::new(format!("{error}; {name} may hold what the store does not have"))
                .with_remedy("To give that up: --format --force."))
        }
    }
}
