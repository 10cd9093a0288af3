//! Check of what a mount relies on: the volume is opened as by a mount, but read-only, and every
//! name is followed.

use super::Findings;
use crate::disk::content::not_opened_as_volume;
use crate::disk::open_disk::open_disk;
use crate::error::CliError;
use crate::text::progress::Progress;
use device::{Disk, World};
use disks::DiskAccess;
use ext4::{Access, Error, OpenParts, TreeFindings, TreeReport, Volume, VolumeOptions};
use format::ext4::superblock::state;
use runtime::RealWorld;
use std::path::Path;
use std::rc::Rc;

/// Refuses a named journal that is not that of the volume, which says nothing about the volume.
pub fn refuse_foreign_journal(path: &Path, journal: &Path) -> Result<(), CliError> {
    let world = RealWorld::new().map_err(CliError::no_ring)?;
    let parts = parts(&world, path, Some(journal))?;
    let found = world.run(async move { ext4::replay_preview(&parts).await });
    world.end();
    match found {
        Err(error @ Error::Journal(_)) => Err(CliError::new(error.to_string())
            .with_remedy("Name the volume's own journal, or leave out --journal-device.")),
        // The check itself finds everything else.
        _ => Ok(()),
    }
}

/// Opens the volume, which the caller has claimed, and walks it. `None` if it cannot be opened,
/// which is noted.
pub fn walk(
    path: &Path,
    journal_device: Option<&Path>,
    findings: &mut Findings,
) -> Result<Option<TreeReport>, CliError> {
    let world = RealWorld::new().map_err(CliError::no_ring)?;
    let parts = parts(&world, path, journal_device)?;
    let walked = world.run(open_and_walk(parts));
    world.end();
    let (report, noted) = walked.map_err(|error| not_opened_as_volume(path, &error))?;
    findings.append(noted);
    Ok(report)
}

fn parts(
    world: &RealWorld,
    path: &Path,
    journal_device: Option<&Path>,
) -> Result<OpenParts, CliError> {
    let open = |path: &Path| -> Result<Rc<dyn Disk>, CliError> {
        Ok(Rc::new(open_disk(world, path, DiskAccess::Inspect)?))
    };
    let shared: Rc<dyn World> = Rc::new(world.clone());
    Ok(OpenParts {
        world: shared,
        home: open(path)?,
        journal: journal_device.map(open).transpose()?,
        options: VolumeOptions { access: Access::ReadOnly, ..VolumeOptions::default() },
    })
}

/// Opens and walks the volume. Fails if another computer uses it.
async fn open_and_walk(parts: OpenParts) -> Result<(Option<TreeReport>, Findings), Error> {
    let mut noted = Noted { findings: Findings::default(), progress: Progress::new() };
    match ext4::check_unused(&parts.world, &parts.home).await {
        Ok(()) => {}
        Err(error @ Error::InUse(_)) => return Err(error),
        Err(error) => noted.problem(format!("no mount can change it: {error}")),
    }
    let superblock = ext4::read_superblock(&*parts.home).await;
    let is_marked = superblock.is_ok_and(|it| it.state & state::ERROR != 0);
    let volume = match Volume::open(parts).await {
        Ok(volume) => volume,
        Err(error) => {
            noted.problem(format!("no mount can open it: {error}"));
            return Ok((None, noted.findings));
        }
    };
    // Opening takes the journal's error over, in memory.
    if volume.needs_check() && !is_marked {
        noted.findings.journal_records_error = true;
        noted.problem(
            "the journal records an error: a write or flush failed when it was last used, or a \
             recovery left something out"
                .into(),
        );
    }
    let report = volume.check_tree(&mut noted).await;
    if let Err(error) = volume.close().await {
        noted.problem(error.to_string());
    }
    Ok((Some(report), noted.findings))
}

struct Noted {
    findings: Findings,
    progress: Progress,
}

/// Inodes between two lines of progress.
const STEP: u64 = 1000;

impl TreeFindings for Noted {
    fn problem(&mut self, what: String) {
        self.findings.note(what);
    }
    fn progress(&mut self, inodes: u64) {
        if inodes % STEP == 0 {
            self.progress.show(format_args!("names of {inodes} inodes"));
        }
    }
}
