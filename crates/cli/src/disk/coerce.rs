//! `barrier=coerce`: disks whose flush is an eviction, by the flush zones that mkfs made on them.

use crate::daemon::mount_table;
use crate::daemon::reporter::complain;
use crate::disk::open_disk::open_disk;
use crate::error::CliError;
use crate::look::open_to_look;
use device::{Disk, World};
use eviction::{CoercedDisk, EvictionWorkload, FlushZone, Profile};
use ext4::{OpenParts, Volume, VolumeOptions};
use format::flush_zone::{FlushZoneSuperblock, FoundFlushZone, MODEL_SIZE};
use runtime::RealWorld;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use units::Refusal;

/// The drive under a block device (a partition's whole disk), or under a file, as the kernel knows
/// it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drive {
    pub model: String,
    /// Size in bytes.
    pub size: u64,
}

impl Drive {
    /// Returns `None` if the model is unknown, and for files that lie on no single drive.
    pub fn of(path: &Path) -> Option<Drive> {
        let mut node = node_of(path)?;
        // A loop device is as good as the file under it, at every level.
        for _ in 0..LOOPS_MAX {
            let Ok(file) = std::fs::read_to_string(node.join("loop/backing_file")) else { break };
            node = node_of(Path::new(file.trim_end()))?;
        }
        Drive::of_node(&node)
    }

    /// Reads the kernel's directory of a drive.
    fn of_node(node: &Path) -> Option<Drive> {
        let node = std::fs::canonicalize(node).ok()?;
        let whole: PathBuf =
            if node.join("partition").exists() { node.parent()?.to_owned() } else { node };
        let read = |name: &str| std::fs::read_to_string(whole.join(name)).ok();
        let model = read("device/model")?.trim().to_owned();
        let sectors: u64 = read("size")?.trim().parse().ok()?;
        Some(Drive { model, size: sectors.checked_mul(512)? })
            .filter(|drive| !drive.model.is_empty())
    }

    /// Explains why a profile of the drive `model` of `size` bytes does not apply to `drive`;
    /// `None` if it does.
    fn mismatch(drive: Option<&Drive>, model: &str, size: u64) -> Option<String> {
        let Some(drive) = drive else {
            return Some(format!(
                "the profile is of {model:?}, and this drive does not report its model"
            ));
        };
        if drive.model != model {
            return Some(format!("the profile is of {model:?}, the drive is {:?}", drive.model));
        }
        (drive.size != size).then(|| {
            format!("the profile is of a drive of {size} bytes, this one has {}", drive.size)
        })
    }
}

const LOOPS_MAX: usize = 8;

/// Returns the kernel's directory of a block device, or of the one that a file lies on.
fn node_of(path: &Path) -> Option<PathBuf> {
    let metadata = std::fs::metadata(path).ok()?;
    let device =
        if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    Some(PathBuf::from(format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device))))
}

/// Refuses a file or loop device whose writes end in a page cache, at whatever level of loop
/// devices and files under it: they evict nothing from a drive.
pub fn refuse_page_cache(path: &Path) -> Result<(), CliError> {
    let Some(at) = disks::page_cache_under(path) else { return Ok(()) };
    let under = if at == path { String::new() } else { format!(", under {},", path.display()) };
    let at = at.display().to_string();
    let error = CliError::new(format!("{at}{under} keeps what is written in the page cache"));
    Err(error.with_remedy(match at.strip_prefix("/dev/loop") {
        Some(_) => format!("Let it go past: losetup --direct-io=on {at}"),
        None => "Its file system has no direct I/O for it: put it on another, or use the drive \
                 itself."
            .into(),
    }))
}

/// Returns the flush zone's superblock that `profile` needs on the drive under `path`, and the
/// zone's bytes.
pub fn zone_for(
    profile: &Path,
    path: &Path,
    force: bool,
) -> Result<(FlushZoneSuperblock, u64), CliError> {
    let profile_name = profile.display();
    let profile = find_profile(profile)?;
    let mismatch = Drive::mismatch(Drive::of(path).as_ref(), &profile.model, profile.size);
    if let (Some(why), false) = (&mismatch, force) {
        return Err(CliError::new(format!("{profile_name} may not fit: {why}")).with_remedy(
            "Make a profile of this very drive (okeanos fingerprint), or take this one with \
             --force-profile.",
        ));
    }
    let Profile { model, size, workload, trials, .. } = profile;
    let for_any = FlushZoneSuperblock { trials, ..workload.superblock() };
    let forced = mismatch.is_some();
    if !forced && model.len() > MODEL_SIZE {
        return Err(CliError::new(format!(
            "{profile_name}: a flush zone keeps {MODEL_SIZE} bytes of a drive's model string, this \
             one has {}",
            model.len()
        ))
        .with_remedy(
            "Give the profile an empty model, and take it with --force-profile: nothing then looks \
             whether it fits.",
        ));
    }
    let zone =
        if forced { for_any } else { FlushZoneSuperblock { drive_size: size, model, ..for_any } };
    Ok((zone, FlushZone::size(&workload, BLOCK_MAX)))
}

/// Finds a shipped profile by name, or a profile file by path.
fn find_profile(profile: &Path) -> Result<Profile, CliError> {
    if let Some((_, shipped)) = Profile::shipped().find(|(name, _)| profile == Path::new(name)) {
        return Ok(shipped);
    }
    let read = || {
        let mut text = String::new();
        // A pipe that nobody writes to is empty.
        open_to_look(profile)?.read_to_string(&mut text).map(|_| text)
    };
    let text = read().map_err(|error| match profile.to_str() {
        Some(name) if Profile::is_known_to_lack(name) => CliError::new(format!(
            "{name} has no profile: nothing that a fingerprint tries, up to 128 MB, always evicts \
             64 blocks at once from it, as it replaces at random"
        ))
        .with_remedy(format!(
            "The paper's method finds what evicts one block from it nearly always: okeanos-lab \
             fingerprint --model {name} --ignore-flush --as-paper"
        )),
        _ => {
            let names: Vec<&str> = Profile::shipped().map(|(name, _)| name).collect();
            CliError::system(profile.display(), error).with_remedy(format!(
                "Give the drive.profile that okeanos fingerprint wrote, or name an emulated drive: \
                 {}.",
                names.join(", ")
            ))
        }
    })?;
    Profile::parse(&text).map_err(|error| {
        CliError::new(format!("{}: {error}", profile.display()))
            .with_remedy("Give a profile as okeanos fingerprint writes it (drive.profile).")
    })
}

/// Zones that mkfs is to make: profiles of the home disk and of the journal's disk.
pub struct ZonePlan {
    home: Option<(FlushZoneSuperblock, u64)>,
    journal: Option<(FlushZoneSuperblock, u64)>,
}

impl ZonePlan {
    /// Reads and checks the profiles, before anything is written.
    pub fn new(
        home: Option<(&Path, &Path)>,
        journal: Option<(&Path, &Path)>,
        force: bool,
    ) -> Result<ZonePlan, CliError> {
        let plan = |pair: Option<(&Path, &Path)>| {
            pair.map(|(profile, path)| zone_for(profile, path, force)).transpose()
        };
        Ok(ZonePlan { home: plan(home)?, journal: plan(journal)? })
    }
    /// Returns the bytes that the zone on the home disk needs.
    pub fn home_room(&self) -> u64 {
        self.home.as_ref().map_or(0, |(_, room)| room + u64::from(BLOCK_MAX))
    }
    /// Returns the bytes that the journal's disk needs after the journal: the zone, and a block for
    /// its superblock.
    pub fn journal_room(&self) -> u64 {
        self.journal.as_ref().map_or(0, |(_, room)| room + u64::from(BLOCK_MAX))
    }
    /// Makes the zones on a fresh volume.
    pub fn make(self, home: &Path, journal: Option<&Path>) -> Result<(), CliError> {
        if self.home.is_none() && self.journal.is_none() {
            return Ok(());
        }
        let world = RealWorld::new().map_err(CliError::no_ring)?;
        let disk = |path: &Path| open_disk(&world, path, disks::DiskAccess::ReadWrite);
        let home_disk: Rc<dyn Disk> = Rc::new(disk(home)?);
        let journal_disk = match journal {
            Some(path) => Some(Rc::new(disk(path)?) as Rc<dyn Disk>),
            None => None,
        };
        let for_run = world.clone();
        let made = world.run(async move {
            if let (Some((zone, room)), Some(disk)) = (self.journal, &journal_disk) {
                ext4::make_journal_flush_zone(&**disk, zone, room).await?;
            }
            let Some((zone, room)) = self.home else { return Ok(()) };
            let options = VolumeOptions::default();
            let parts = OpenParts {
                world: Rc::new(for_run),
                home: home_disk,
                journal: journal_disk,
                options,
            };
            let volume = Volume::open(parts).await?;
            let write = EvictionWorkload::from(&zone).write_size(BLOCK_MAX);
            let made = volume.make_flush_zone(zone, room, write).await;
            made.and(volume.close().await)
        });
        world.end();
        made.map_err(|error: ext4::Error| {
            let plain = CliError::new(format!("{}: {error}", home.display()));
            match error {
                ext4::Error::FlushZone(_) | ext4::Error::Refused(Refusal::NoSpace) => plain
                    .with_remedy(
                        "Give the zone more room: a larger volume or journal device, or a smaller \
                         journal (--journal-size).",
                    ),
                ext4::Error::NotFirst { .. } => plain.with_remedy(COPY_LATER),
                _ => plain,
            }
        })
    }
}

/// Advice about a zone that cannot be used.
pub const ELSE: &str = "Use barrier=flush, or make the volume anew with a profile of this drive.";

/// Advice about a volume that has files before its flush zone or scattered logs.
pub const COPY_LATER: &str = "Leave out -d, and copy the files into the volume when it is mounted.";

/// Maximum block size of a volume.
const BLOCK_MAX: u32 = 4096;

/// Whether the zones must exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    Required,
    IfThere,
}

/// The flush zone of a disk as it was found; an error where it cannot be used or read.
type FoundZone = Result<Option<FoundFlushZone>, CliError>;

/// Puts coerced disks in place of those that have a flush zone.
pub struct Coercion<'a> {
    pub world: Rc<dyn World>,
    pub wanted: Wanted,
    /// Paths of the disks: home, and the journal's.
    pub paths: (&'a Path, Option<&'a Path>),
    /// The command that makes a volume with a zone.
    pub made_by: &'a str,
}

impl Coercion<'_> {
    /// Wraps the disks; returns the coerced ones, home first. `zones`: home's and the journal's.
    /// Where one is an error recovery alone goes on, on that disk without, and says so. A journal
    /// makes none without home: its log would be empty for certain, and what was written home not
    /// there.
    pub fn wrap(
        &self,
        home: &mut Rc<dyn Disk>,
        journal: Option<&mut Rc<dyn Disk>>,
        zones: (FoundZone, FoundZone),
    ) -> Result<Vec<CoercedDisk>, CliError> {
        let has_zone = !matches!(zones.0, Ok(None));
        let wrapped = self.wrap_one(home, self.paths.0, zones.0)?;
        let lacks_home = has_zone && wrapped.is_none();
        let mut coerced = Vec::from_iter(wrapped);
        match (journal, self.paths.1) {
            (Some(_), Some(path)) if lacks_home => {
                let name = mount_table::behind(path);
                without(&CliError::new(format!("{}: not without home", name.display())));
            }
            (Some(disk), Some(path)) => coerced.extend(self.wrap_one(disk, path, zones.1)?),
            _ => {}
        }
        Ok(coerced)
    }

    fn wrap_one(
        &self,
        disk: &mut Rc<dyn Disk>,
        path: &Path,
        zone: FoundZone,
    ) -> Result<Option<CoercedDisk>, CliError> {
        let zone = match zone {
            Err(error) if self.wanted == Wanted::IfThere => {
                without(&error);
                return Ok(None);
            }
            zone => zone?,
        };
        let name = mount_table::behind(path);
        let name = name.display();
        let Some(zone) = zone else {
            let made_by = self.made_by;
            return match self.wanted {
                Wanted::IfThere => Ok(None),
                Wanted::Required => Err(CliError::new(format!(
                    "{name} has no flush zone, which barrier=coerce writes to"
                ))
                .with_remedy(format!(
                    "A volume gets one when it is made: {made_by} --flush-zone PROFILE …"
                ))),
            };
        };
        let wrapped = match self.coerced(disk, path, &zone) {
            Err(error) if self.wanted == Wanted::IfThere => {
                without(&error);
                return Ok(None);
            }
            wrapped => wrapped?,
        };
        let wrapped = match self.wanted {
            Wanted::IfThere => wrapped.or_flush(|error| {
                without(&CliError::new(format!("the flush zone cannot be written: {error}")));
            }),
            Wanted::Required => wrapped,
        };
        *disk = Rc::new(wrapped.clone());
        Ok(Some(wrapped))
    }

    /// Refuses a zone that was made for another drive, one to which writes end in a page cache,
    /// and one that evictions cannot use.
    fn coerced(
        &self,
        disk: &Rc<dyn Disk>,
        path: &Path,
        zone: &FoundFlushZone,
    ) -> Result<CoercedDisk, CliError> {
        let name = mount_table::behind(path);
        let name = name.display();
        let doubt = foreign(&zone.superblock, Drive::of(path).as_ref())
            .map(|why| format!("the flush zone of {name} may not fit: {why}"));
        if let (Some(why), Wanted::Required) = (&doubt, self.wanted) {
            return Err(CliError::new(why).with_remedy(ELSE));
        }
        refuse_page_cache(path)?;
        let coerced = CoercedDisk::over(self.world.clone(), disk.clone(), zone)
            .map_err(|error| CliError::new(format!("{name}: {error}")).with_remedy(ELSE))?;
        if let Some(why) = doubt {
            // An eviction flushes first, so it is no worse than a flush.
            complain(&format!(
                "okeanos: {why}; recovering through it all the same, since the drive may have \
                 grown: if it is another one, and ignores flushes, a power cut soon afterwards \
                 may lose what was acknowledged"
            ));
        }
        Ok(coerced)
    }
}

/// Reports a recovery that makes no evictions.
fn without(why: &CliError) {
    complain(&format!(
        "okeanos: {}; recovering as with barrier=flush: if the drive ignores flushes, a power cut \
         soon afterwards may lose what was acknowledged",
        why.problem()
    ));
}

/// Returns `parts` with coerced disks in place of those that have a flush zone; and these, home
/// first. `paths` are those of the disks.
pub async fn coerce(
    mut parts: OpenParts,
    home_path: &Path,
    journal_path: Option<&Path>,
    wanted: Wanted,
) -> Result<(OpenParts, Vec<CoercedDisk>), CliError> {
    let volume = mount_table::behind(home_path);
    let volume = volume.display();
    let (home, journal) = ext4::find_flush_zones(&parts).await;
    // Without a superblock there is nothing to recover either.
    if let Err(error @ (ext4::Error::Superblock(_) | ext4::Error::Truncated { .. })) = home {
        return Err(CliError::new(format!("{}: {error}", home_path.display())));
    }
    let unusable = |path: &Path, error| {
        let name = mount_table::behind(path);
        let name = name.display();
        match error {
            ext4::Error::FlushZone(why) => {
                CliError::new(format!("{name}: {why}")).with_remedy(ELSE)
            }
            // A power cut may have torn the block, and then the log holds it.
            error => CliError::new(format!(
                "{name}: the search for its flush zone failed: {error}"
            ))
            .with_remedy(format!(
                "The log may hold what is damaged: recover it with okeanos recover {volume}, \
                     and mount it again. If that does not help, use barrier=flush."
            )),
        }
    };
    let zones = (
        home.map_err(|error| unusable(home_path, error)),
        journal.map_err(|error| unusable(journal_path.unwrap_or(home_path), error)),
    );
    let coercion = Coercion {
        world: parts.world.clone(),
        wanted,
        paths: (home_path, journal_path),
        made_by: "okeanos mkfs",
    };
    let coerced = coercion.wrap(&mut parts.home, parts.journal.as_mut(), zones)?;
    Ok((parts, coerced))
}

/// Explains why a zone was made for another drive than this. A forced profile is for any.
fn foreign(zone: &FlushZoneSuperblock, drive: Option<&Drive>) -> Option<String> {
    if zone.drive_size == 0 { None } else { Drive::mismatch(drive, &zone.model, zone.drive_size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_out_about_another_drive_is_refused() {
        let drive = Drive { model: "Disk 7".into(), size: 1 << 40 };
        assert_eq!(Drive::mismatch(Some(&drive), "Disk 7", 1 << 40), None);
        assert!(Drive::mismatch(Some(&drive), "Disk 8", 1 << 40).unwrap().contains("\"Disk 8\""));
        assert!(Drive::mismatch(Some(&drive), "Disk 7", 1 << 39).unwrap().contains("bytes"));
        assert!(Drive::mismatch(None, "Disk 7", 1 << 40).unwrap().contains("does not report"));
    }

    #[test]
    fn a_partition_is_on_the_drive_that_it_is_a_part_of() {
        let directory = tempfile::tempdir().unwrap();
        let part = directory.path().join("sdx/sdx1");
        std::fs::create_dir_all(&part).unwrap();
        std::fs::create_dir(directory.path().join("sdx/device")).unwrap();
        assert_eq!(Drive::of_node(&part), None);
        for (name, text) in [
            ("size", "2048\n"),
            ("device/model", "Disk 7   \n"),
            ("sdx1/size", "63\n"),
            ("sdx1/partition", "1\n"),
        ] {
            std::fs::write(directory.path().join("sdx").join(name), text).unwrap();
        }
        let drive = Drive { model: "Disk 7".into(), size: 1 << 20 };
        assert_eq!(Drive::of_node(&part), Some(drive.clone()));
        assert_eq!(Drive::of_node(part.parent().unwrap()), Some(drive));
    }
}
