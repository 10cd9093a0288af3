//! The writer, on the machine that will lose its power, reports before and after each durable
//! write.

use super::connection::Connection;
use super::protocol::{Event, FileLayout, PLACES_MAX};
use super::record::{WriteRecord, place};
use crate::disk::open_disk::claim;
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::progress::Progress;
use crate::text::quantity::format_size;
use disks::Claim;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

pub struct Writing<'a> {
    pub path: &'a Path,
    pub destroy: bool,
    /// Durable by O_DSYNC instead of fdatasync.
    pub o_dsync: bool,
    pub size: u32,
    pub length: u64,
    pub count: u64,
    pub json: bool,
}

#[derive(serde::Serialize)]
struct Written {
    run: String,
    acknowledged: u64,
}

pub fn run(listener: &str, writing: &Writing<'_>) -> Result<(), CliError> {
    let failed = |error| CliError::system(writing.path.display(), error);
    let mut connection = Connection::open(listener)?;
    let (file, _claim) = open(writing)?;
    let layout = lay_out(&file, writing)?;
    let mut random = [0; 8];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random)).map_err(failed)?;
    let run = u64::from_le_bytes(random);
    connection.record(run, Event::Begins(layout))?;

    let (begun, mut shown) = (Instant::now(), Instant::now());
    let progress = Progress::new();
    for number in 0..writing.count {
        connection.record(run, Event::About(number))?;
        let at = place(number, layout.places) * u64::from(layout.size);
        let written =
            file.write_all_at(&WriteRecord { run, number }.bytes(layout.size as usize), at);
        let durable =
            written.and_then(|()| if writing.o_dsync { Ok(()) } else { file.sync_data() });
        durable.map_err(failed)?;
        connection.record(run, Event::Acknowledged(number))?;
        if shown.elapsed() > Duration::from_millis(200) {
            shown = Instant::now();
            let rate = (number + 1) as f64 / begun.elapsed().as_secs_f64();
            progress.show(format!(
                "{} writes acknowledged, {rate:.0}/s: cut the power now",
                number + 1
            ));
        }
    }
    drop(progress);
    let written = Written { run: format!("{run:016x}"), acknowledged: writing.count };
    match writing.json {
        true => print_json(&written),
        false => print(&format_args!(
            "run {}: {} writes acknowledged\n",
            written.run, written.acknowledged
        )),
    }
}

/// Opens a new file; or an existing one, if it may be overwritten. No other command of Okeanos
/// writes to it as long as the claim lives.
fn open(writing: &Writing<'_>) -> Result<(File, Claim), CliError> {
    let path = writing.path;
    let system = |error| CliError::system(path.display(), error);
    let mut options = File::options();
    options.write(true).read(true);
    let mut flags = if writing.o_dsync { libc::O_DSYNC } else { 0 };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let file = options.create_new(true).custom_flags(flags).open(path).map_err(system)?;
            Ok((file, claim(path)?))
        }
        Err(error) => Err(system(error)),
        Ok(_) if !writing.destroy => Err(CliError::new(format!(
            "{} is there already, and would be overwritten",
            path.display()
        ))
        .with_remedy("Say --destroy if nothing in it is needed.")),
        Ok(metadata) => {
            let held = claim(path)?;
            if metadata.file_type().is_block_device() {
                flags |= libc::O_EXCL;
            }
            Ok((options.custom_flags(flags).open(path).map_err(system)?, held))
        }
    }
}

/// Zeroes the blocks, durably, so that from now on only their content changes.
fn lay_out(file: &File, writing: &Writing<'_>) -> Result<FileLayout, CliError> {
    let failed = |error| CliError::system(writing.path.display(), error);
    let is_device = file.metadata().map_err(failed)?.file_type().is_block_device();
    let mut end = file;
    let room = if is_device { end.seek(SeekFrom::End(0)).map_err(failed)? } else { u64::MAX };
    let blocks = (writing.length.min(room) / u64::from(writing.size)).min(PLACES_MAX);
    let Some(power) = blocks.checked_ilog2() else {
        return Err(CliError::new(format!(
            "there is no room for a block of {} bytes",
            writing.size
        )));
    };
    let layout = FileLayout { size: writing.size, places: 1 << power };
    let length = layout.places * u64::from(layout.size);
    let progress = Progress::new();
    progress.show(format!("zeroing {}", format_size(length)));
    let zeros = vec![0; 1 << 20];
    for at in (0..length).step_by(zeros.len()) {
        file.write_all_at(&zeros[..zeros.len().min((length - at) as usize)], at).map_err(failed)?;
    }
    if !is_device {
        file.set_len(length).map_err(failed)?;
    }
    file.sync_all().map_err(failed)?;
    // The name of a new file must be durable, too.
    let parent = writing.path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))
        .and_then(|directory| directory.sync_all())
        .map_err(failed)?;
    Ok(layout)
}
