//! Detection of existing content on an image file or device, before a command overwrites or exports
//! it.

use crate::disk::block_volume::{VolumeOnDisk, is_log, volume_on};
use crate::disk::superblock_copy::copy_of_superblock;
use crate::error::CliError;
use crate::look::open_to_look;
use crate::programs;
use crate::text::shell::word;
use format::blocks::{BLOCKS_MAGIC, SUPERBLOCK_AT};
use format::ext4::SuperblockError;
use format::ext4::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use host::HostJournal;
use std::io::{self, Read};
use std::path::Path;

/// Start of a disk with scattered logs of a device, a format of which no version was released.
const DEVICE_LOGS_MAGIC: &[u8] = b"OKSD";
/// Names of formats of ours, as messages have them.
const DEVICE_LOGS: &str = "scattered logs of an okeanos before 0.1.0";
const BLOCK_VOLUME: &str = "a block volume";
const HOST_JOURNAL: &str = "the journal of a host";
/// Beginning of the reason why a journal's superblock cannot be used.
const DAMAGED_JOURNAL: &str = "journal superblock: ";
const UNKNOWN: &str = "data of an unknown kind";
/// End of the bytes that identify our formats.
const OWN_FORMATS_END: u64 = SUPERBLOCK_AT + BLOCKS_MAGIC.len() as u64;

/// Bytes that must be zeros where a journal is made without --format. Signatures that blkid(8)
/// knows lie there or at the end.
pub const ZEROS: u64 = 1 << 20;

/// Returns the content, as in "an ext4 file system (label \"mail\")": what blkid(8) knows, and
/// formats of Okeanos, which it does not.
pub fn content_of(path: &Path) -> Result<Option<String>, CliError> {
    let start = start_of(path, OWN_FORMATS_END);
    let start = start.map_err(|error| CliError::system(path.display(), error))?;
    if holds_block_volume(path, &start) {
        return Ok(Some(BLOCK_VOLUME.into()));
    }
    if start.starts_with(DEVICE_LOGS_MAGIC) {
        return Ok(Some(DEVICE_LOGS.into()));
    }
    if HostJournal::is_head(&start) {
        return Ok(Some(HOST_JOURNAL.into()));
    }
    programs::signature_of(path)
}

/// Returns the content as [`content_of`] does, and of a file also that it holds something unknown:
/// unlike a device, a file has no remains of a former use. Its first [`ZEROS`] bytes are looked at.
pub fn overwritten_content(path: &Path) -> Result<Option<String>, CliError> {
    let system = |error| CliError::system(path.display(), error);
    if let Some(known) = content_of(path)? {
        return Ok(Some(known));
    }
    let is_file = std::fs::metadata(path).map_err(system)?.is_file();
    let is_unknown = is_file && !is_zeros(&start_of(path, ZEROS).map_err(system)?);
    Ok(is_unknown.then(|| UNKNOWN.into()))
}

/// Refuses a mount of what is no volume but a format of ours, and names the command for it. What
/// cannot be read is for the mount to report.
pub fn refuse_own_format(path: &Path) -> Result<(), CliError> {
    let Ok(start) = start_of(path, OWN_FORMATS_END) else { return Ok(()) };
    refuse_device_logs(path)?;
    let (name, named) = (path.display(), word(path));
    if is_log(path) {
        return Err(CliError::new(format!("{name} is the journal of {BLOCK_VOLUME}")).with_remedy(
            format!("Attach the volume: okeanos blocks attach --log {named} VOLUME."),
        ));
    }
    if holds_block_volume(path, &start) {
        return Err(CliError::new(format!("{name} holds {BLOCK_VOLUME}, not an ext4 volume"))
            .with_remedy(format!("Attach it: okeanos blocks attach {named}.")));
    }
    if HostJournal::is_head(&start) {
        return Err(CliError::new(format!("{name} is {HOST_JOURNAL}, not an ext4 volume"))
            .with_remedy(format!(
                "Mount the host: okeanos host mount --store STORE --journal {named} DIR."
            )));
    }
    Ok(())
}

/// Explains why no volume can be opened there: what is there instead, or what to try.
pub fn not_opened_as_volume(path: &Path, error: &ext4::Error) -> CliError {
    let (name, named) = (path.display(), word(path));
    let plain = CliError::new(format!("{name}: {error}"));
    match error {
        ext4::Error::Superblock(error) => no_volume(path, error),
        _ if error.to_string().contains(DAMAGED_JOURNAL) => plain.with_remedy(format!(
            "What was synced and not written home yet is in the journal alone, and e2fsck -f \
             deletes a journal that it cannot read: keep a copy of the disk. Then look (okeanos \
             mount -o ro,noload {named} DIR) at what there is without the journal, and repair it: \
             e2fsck -f {named}."
        )),
        _ => plain,
    }
}

/// Explains what is there instead of an ext4 volume, or how its superblock may be found.
pub fn no_volume(path: &Path, error: &SuperblockError) -> CliError {
    let (name, named) = (path.display(), word(path));
    let plain = CliError::new(format!("{name}: {error}"));
    match error {
        SuperblockError::Features { names } if names.iter().any(|it| it == "journal_dev") => {
            CliError::new(format!("{name} is the external journal of a volume")).with_remedy(
                format!(
                    "Name the volume, and this with it: --journal-device {named} VOLUME, or mount \
                     -o journal_dev={named} VOLUME DIR."
                ),
            )
        }
        SuperblockError::BadMagic { .. } | SuperblockError::TooShort { .. } => {
            if let Err(named) = refuse_own_format(path) {
                return named;
            }
            match content_of(path) {
                Ok(Some(found)) => {
                    CliError::new(format!("{name} holds {found}, not an ext4 volume"))
                        .with_remedy("Look at what it is: blkid, file.")
                }
                _ => plain.with_remedy(from_copy(path).unwrap_or_else(|| {
                    format!(
                        "A new volume: okeanos mkfs {named}. If there was one, its superblock was \
                         overwritten: e2fsck -b 32768 {named} tries a copy (-b 8193 with blocks of \
                         1024 bytes)."
                    )
                })),
            }
        }
        SuperblockError::BadChecksum { .. } | SuperblockError::Geometry { .. } => plain
            .with_remedy(from_copy(path).unwrap_or_else(|| {
                format!(
                    "e2fsck -b 32768 {named} repairs it from a copy (-b 8193 with blocks of 1024 \
                     bytes)."
                )
            })),
        _ => plain,
    }
}

/// Returns the way from a copy of the superblock to a volume that can be mounted. The copy does not
/// say whether the log is live, and e2fsck reads no log of ours: it would stop, or drop it.
fn from_copy(path: &Path) -> Option<String> {
    const UNIT: u64 = SUPERBLOCK_SIZE as u64;
    let (at, named) = (copy_of_superblock(path)?, word(path));
    Some(format!(
        "A copy of its superblock is at byte {at}. Keep a copy of the disk; then write it over the \
         first one, replay what the journal holds, and have the rest checked. Where the replay \
         leaves the first one damaged again, begin anew:\n    dd if={named} \
         of={named} bs={UNIT} skip={} seek={} count=1 conv=notrunc\n    okeanos recover \
         --find-log {named}\n    e2fsck -f {named}",
        at / UNIT,
        SUPERBLOCK_OFFSET / UNIT,
    ))
}

/// Refuses a disk or file that holds something, unless `force`: mke2fs and this project's formats
/// do not ask. The remedy is `command` with --force.
pub fn refuse_to_overwrite(path: &Path, force: bool, command: &str) -> Result<(), CliError> {
    let found = if force { None } else { overwritten_content(path)? };
    refuse_content(path, found, command)
}

/// Refuses as [`refuse_to_overwrite`] does, but only content of a known kind.
pub fn refuse_known_content(path: &Path, force: bool, command: &str) -> Result<(), CliError> {
    let force = force || units::fault!("format-overwrites-unasked");
    let found = if force { None } else { content_of(path)? };
    refuse_content(path, found, command)
}

fn refuse_content(path: &Path, found: Option<String>, command: &str) -> Result<(), CliError> {
    found.map_or(Ok(()), |found| {
        Err(holds(path, &found)
            .with_remedy(format!("Look at what it is; to overwrite it: {command} {}.", word(path))))
    })
}

/// Refuses to export the disk beneath a log as it is. Blocks that lie in the log would read as
/// outdated content, and one write could destroy it.
pub fn refuse_raw_export(path: &Path) -> Result<(), CliError> {
    let start = start_of(path, OWN_FORMATS_END);
    let start = start.map_err(|error| CliError::system(path.display(), error))?;
    if holds_block_volume(path, &start) && !units::fault!("logs-exported-raw") {
        let name = word(path);
        let remedy = format!("Export what it holds: okeanos blocks attach --via nbd {name}.");
        return Err(holds(path, BLOCK_VOLUME).with_remedy(remedy));
    }
    refuse_device_logs(path)
}

/// Refuses a disk with scattered logs of a device: no command reads them. What cannot be read is
/// for the caller to report.
pub fn refuse_device_logs(path: &Path) -> Result<(), CliError> {
    let start = start_of(path, DEVICE_LOGS_MAGIC.len() as u64);
    if start.is_ok_and(|start| start == DEVICE_LOGS_MAGIC) {
        let (name, named) = (path.display(), word(path));
        return Err(CliError::new(format!("{name} holds {DEVICE_LOGS}")).with_remedy(format!(
            "Copy what they hold with the program that made them. Then make a block volume: \
             okeanos blocks format --scattered-logs --force {named}. It destroys what the disk \
             holds."
        )));
    }
    Ok(())
}

/// Whether there is a superblock, damaged or not, or the copy of one that was erased.
fn holds_block_volume(path: &Path, start: &[u8]) -> bool {
    start.get(SUPERBLOCK_AT as usize..).is_some_and(|bytes| bytes.starts_with(&BLOCKS_MAGIC))
        || matches!(volume_on(path), Ok(VolumeOnDisk::Found(_)))
}

/// Returns whether the disk begins with as many zeros and holds no known content: then something of
/// ours may be made there without having been asked for.
pub fn is_blank(path: &Path, zeros: u64) -> Result<bool, CliError> {
    let start = start_of(path, zeros).map_err(|error| CliError::system(path.display(), error))?;
    Ok(is_zeros(&start) && content_of(path)?.is_none())
}

fn is_zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn holds(path: &Path, found: &str) -> CliError {
    CliError::new(format!("{} appears to hold {found} already", path.display()))
}

/// Returns the first `most` bytes, or all of a shorter disk.
fn start_of(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    open_to_look(path)?.take(most).read_to_end(&mut start)?;
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_formats_and_foreign_ones_are_named() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let path = image.path();
        image.as_file().set_len(8 << 20).unwrap();
        assert!(is_blank(path, ZEROS).unwrap() && content_of(path).unwrap().is_none());
        let write = |bytes: &[u8], at: u64| {
            std::os::unix::fs::FileExt::write_all_at(image.as_file(), bytes, at).unwrap()
        };
        write(b"OKSD", 0);
        assert!(content_of(path).unwrap().unwrap().contains("scattered logs"));
        let refused = refuse_raw_export(path).unwrap_err().to_string();
        assert!(refused.contains("okeanos blocks format --scattered-logs --force"), "{refused}");
        assert!(refuse_to_overwrite(path, false, "blocks format --force").is_err());
        assert!(!is_blank(path, ZEROS).unwrap());
        write(b"\0\0\0\0OKHOST01", 0);
        assert!(content_of(path).unwrap().unwrap().contains("host"));
        assert!(refuse_raw_export(path).is_ok());
        let refused = refuse_own_format(path).unwrap_err().to_string();
        assert!(refused.contains("okeanos host mount"), "{refused}");
        assert!(refuse_to_overwrite(path, false, "mkfs --force").is_err());
        assert!(refuse_to_overwrite(path, true, "mkfs --force").is_ok());
        write(&[0; 16], 0);
        write(&BLOCKS_MAGIC, SUPERBLOCK_AT);
        assert!(content_of(path).unwrap().unwrap().contains("block volume"));
        let refused = refuse_raw_export(path).unwrap_err().to_string();
        assert!(refused.contains("okeanos blocks attach --via nbd"), "{refused}");
        let refused = refuse_own_format(path).unwrap_err().to_string();
        assert!(refused.contains("okeanos blocks attach"), "{refused}");
        write(&[0; 16], SUPERBLOCK_AT);
        // Beyond the first block, as the superblock of btrfs.
        write(b"_BHRfS_M", (64 << 10) + 64);
        assert!(!is_blank(path, ZEROS).unwrap());
    }
}
