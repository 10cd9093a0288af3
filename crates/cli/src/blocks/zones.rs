//! Flush zones of block volumes, for `barrier=coerce`.

use super::{FormatArguments, failed};
use crate::disk::coerce::{Coercion, ELSE, Wanted, zone_for};
use crate::error::CliError;
use blocks::{BlockParts, BlocksError, FlushZoneResult, NewFlushZone, find_flush_zones};
use eviction::CoercedDisk;
use std::path::Path;

/// Zones that a format is to make.
pub struct NewZones {
    pub home: Option<NewFlushZone>,
    pub journal: Option<NewFlushZone>,
}

impl NewZones {
    /// Reads and checks the profiles, before anything is written.
    pub fn new(arguments: &FormatArguments) -> Result<NewZones, CliError> {
        let FormatArguments { flush_zone, log_flush_zone, target, log, .. } = arguments;
        let plan = |profile: &Path, path: &Path| {
            let (superblock, bytes) = zone_for(profile, path, arguments.force_profile)?;
            Ok(NewFlushZone { superblock, bytes })
        };
        let of_log = log_flush_zone.as_ref().or(flush_zone.as_ref()).zip(log.as_ref());
        Ok(NewZones {
            home: flush_zone.as_ref().map(|profile| plan(profile, target)).transpose()?,
            journal: of_log.map(|(profile, log)| plan(profile, log)).transpose()?,
        })
    }
}

/// Returns `parts` with coerced disks in place of those that have a flush zone; and these, home
/// first. `paths` are those of the disks.
pub async fn coerce(
    mut parts: BlockParts,
    paths: (&Path, Option<&Path>),
    wanted: Wanted,
) -> Result<(BlockParts, Vec<CoercedDisk>), CliError> {
    let (home, journal) = find_flush_zones(&parts).await;
    let usable = |path: &Path, zone: FlushZoneResult| match zone {
        Err(BlocksError::FlushZone { why, .. }) => {
            Ok(Err(CliError::new(format!("{}: {why}", path.display())).with_remedy(ELSE)))
        }
        Err(BlocksError::Device(error)) => {
            let name = path.display();
            let why = format!("{name}: the search for its flush zone failed: {error}");
            Ok(Err(CliError::new(why).with_remedy(
                "Use barrier=flush: what evictions need cannot be read. The log may still hold \
                 acknowledged writes; keep them with okeanos blocks drain before formatting anew.",
            )))
        }
        // Anything else recovery would fail with, too.
        zone => zone.map(Ok).map_err(|error| failed(paths.0, &error)),
    };
    let zones = (usable(paths.0, home)?, usable(paths.1.unwrap_or(paths.0), journal)?);
    let world = parts.world.clone();
    let coercion = Coercion { world, wanted, paths, made_by: "okeanos blocks format" };
    let coerced = coercion.wrap(&mut parts.disk, parts.journal.as_mut(), zones)?;
    Ok((parts, coerced))
}
