//! Scattered logs in front of the exported disk: their options, made and opened.

use crate::disk::content;
use crate::disk::open_disk::open_disk;
use crate::error::CliError;
use crate::options::values::{CheckpointWhen, checkpoint_when};
use crate::text::quantity::{parse_count, parse_size};
use ::scattered::{
    CheckpointPolicy, Layout, NearHome, RestartReport, ScatteredDisk, Settings, Sizes, Superblock,
};
use clap::Args;
use device::{Disk, World};
use disks::DiskAccess;
use runtime::RealWorld;
use std::path::{Path, PathBuf};
use std::rc::Rc;

#[derive(Args)]
pub struct ScatteredArguments {
    /// Scattered logs in front of the disk
    #[arg(long)]
    pub scattered: bool,
    /// Make empty logs first; everything on the disk is lost
    #[arg(long, requires = "scattered")]
    format: bool,
    /// With --format: overwrite the file system, partition table or logs that are there already
    #[arg(short = 'F', long, requires = "format")]
    force: bool,
    /// Size of each log, with --format
    #[arg(long, value_name = "SIZE", default_value = "10M", value_parser = parse_size, requires = "scattered")]
    log_size: u64,
    /// Size of each group, its log included, with --format
    #[arg(long, value_name = "SIZE", default_value = "100M", value_parser = parse_size, requires = "scattered")]
    group_size: u64,
    /// Larger writes go home
    #[arg(long, value_name = "SIZE", default_value = "32K", value_parser = parse_size, requires = "scattered")]
    logged_write_size: u64,
    /// Small writes go home where no log is nearer to the arm; they are as atomic as the disk's
    /// sectors then
    #[arg(long, requires = "scattered")]
    near_home: bool,
    /// The mapping table lies in this file or device, on memory that survives power loss
    #[arg(long, value_name = "PATH", requires = "scattered")]
    mtl: Option<PathBuf>,
    /// manual, periodic:TIME, idle:TIME, or off-hours:HH-HH (UTC)
    #[arg(long, value_name = "WHEN", default_value = "idle:5s", value_parser = parse_policy, requires = "scattered")]
    checkpoint: CheckpointPolicy,
    /// Swap logs filled to more than this share in idle time; off: never
    #[arg(long, value_name = "PERCENT", default_value = "80", value_parser = parse_swap_above, requires = "scattered")]
    swap_above: u32,
}

impl ScatteredArguments {
    /// Refuses to format a disk that holds something, and to export scattered logs raw. Call it
    /// when the disk is claimed: then its content does not change.
    pub fn check_content(&self, disk: &Path) -> Result<(), CliError> {
        if !self.scattered {
            return content::refuse_raw_logs(disk);
        }
        if !self.format {
            return Ok(());
        }
        let forced = "okeanos nbd --scattered --format --force";
        content::refuse_to_overwrite(disk, self.force, forced)?;
        match &self.mtl {
            Some(table) if table.exists() => content::refuse_to_overwrite(
                table,
                self.force,
                "okeanos nbd --format --force --mtl",
            ),
            _ => Ok(()),
        }
    }
}

/// Parses as `checkpoint=` of a mount does.
fn parse_policy(text: &str) -> Result<CheckpointPolicy, String> {
    Ok(match checkpoint_when(text)? {
        CheckpointWhen::Manual => CheckpointPolicy::Manual,
        CheckpointWhen::Periodic(time) => CheckpointPolicy::Periodic(time),
        CheckpointWhen::Idle(time) => CheckpointPolicy::Idle(time),
        CheckpointWhen::OffHours(from, until) => CheckpointPolicy::OffHours { from, until },
    })
}

/// Parses as `swap_above=` of a mount does; 100 and more is never, too.
fn parse_swap_above(text: &str) -> Result<u32, String> {
    if text == "off" {
        return Ok(100);
    }
    parse_count(text, 0..=u32::MAX.into()).map(|percent| percent as u32)
}

/// Opens the logs. `None` without --scattered. An emulated drive is new, so its logs are made.
pub async fn open(
    world: &RealWorld,
    in_world: &Rc<dyn World>,
    beneath: &Rc<dyn Disk>,
    arguments: &ScatteredArguments,
    is_new: bool,
) -> Result<Option<(ScatteredDisk, RestartReport)>, CliError> {
    if !arguments.scattered {
        return Ok(None);
    }
    let sizes = Sizes { log: arguments.log_size, group: arguments.group_size };
    let format = arguments.format || is_new;
    let table = match &arguments.mtl {
        Some(path) => Some(open_table(world, path, beneath.geometry().size, sizes, format)?),
        None => None,
    };
    if format {
        ScatteredDisk::format(in_world, beneath, table.as_ref(), sizes)
            .await
            .map_err(|error| CliError::new(error.to_string()))?;
    }
    let settings = Settings {
        logged_write_size: arguments.logged_write_size,
        near_home: if arguments.near_home { NearHome::WrittenHome } else { NearHome::IsLogged },
        checkpoint: arguments.checkpoint,
        swap_above: arguments.swap_above,
        // Saving to such memory moves no arm: if it is saved often, there is little to read at the
        // next start.
        scan_bytes: if table.is_some() { 4 << 20 } else { Settings::default().scan_bytes },
        ..Settings::default()
    };
    let opened = ScatteredDisk::open(in_world.clone(), beneath.clone(), table, settings).await;
    opened.map(Some).map_err(|error| {
        let error = CliError::new(error.to_string());
        if format {
            error
        } else {
            error.with_remedy("Make the logs with --format; it destroys what the disk holds.")
        }
    })
}

/// Opens the table. A file is made as long as the table's area needs.
fn open_table(
    world: &RealWorld,
    path: &Path,
    size: u64,
    sizes: Sizes,
    format: bool,
) -> Result<Rc<dyn Disk>, CliError> {
    let failed = |error| CliError::system(path.display(), error);
    if format && std::fs::metadata(path).map_or(true, |found| found.is_file()) {
        let layout = Superblock::new(size, sizes, 0, true).and_then(Layout::new);
        let area = layout.map_err(|error| CliError::new(error.to_string()))?.table_area();
        let file = std::fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(failed)?;
        if file.metadata().map_err(failed)?.len() < area {
            file.set_len(area).map_err(failed)?;
        }
    }
    Ok(Rc::new(open_disk(world, path, DiskAccess::ReadWrite)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_policies_are_read_and_nonsense_is_refused() {
        assert_eq!(
            parse_policy("off-hours:22-6"),
            Ok(CheckpointPolicy::OffHours { from: 22, until: 6 })
        );
        assert_eq!(
            parse_policy("idle:200ms"),
            Ok(CheckpointPolicy::Idle(std::time::Duration::from_millis(200)))
        );
        for text in ["", "idle", "off-hours:24-3", "off-hours:3", "hourly:3"] {
            assert!(parse_policy(text).is_err(), "{text}");
        }
        for (text, percent) in [("off", 100), ("80", 80), ("100", 100)] {
            assert_eq!(parse_swap_above(text), Ok(percent), "{text}");
        }
    }
}
