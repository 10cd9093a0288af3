//! Conflict files: the journaled bytes of a file that cannot be replayed, because another client
//! has changed it since, are set aside at the store.
//!
//! `okeanos-conflicts/FILE-HOST-LOG` holds the journaled bytes at their offsets, and zeros between;
//! where the store has no file of that length, without anything between. The same name with `.txt`
//! names their file, lists the ranges that were journaled, and states why they were set aside. The
//! names follow from the log, so a second recovery after a crash writes the same files again. Logs
//! of two hosts may have the same numbers. A running host names the file's last transaction instead
//! of the log. If it dies before the journal has freed the records, recovery sets the same bytes
//! aside once more.

use crate::error::HostError;
use std::ops::Range;
use store::{
    AttributeChange, Creator, FileId, FileKind, Found, Identity, NewNode, OpenMode, Refusal, Store,
    StoreError, Version,
};

/// Content of a file that is set aside.
pub(crate) struct SetAsideFile<'a> {
    pub file: FileId,
    pub uid: u32,
    pub gid: u32,
    pub host: &'a Identity,
    /// Distinguishes what is set aside of the same file at other times.
    pub log: String,
    /// The last state that was journaled.
    pub last: Version,
    /// Ranges, each no longer than [`store::TRANSFER_BYTES_MAX`].
    pub ranges: Vec<Range<u64>>,
}

/// Directory in the root of the store that holds the conflict files.
pub const CONFLICT_DIRECTORY: &str = "okeanos-conflicts";
/// Names tried until one is free or ours.
const NAMES_MAX: u32 = 16;
/// Ranges that the text lists at most.
const RANGES_MAX: usize = 10_000;

/// Opens or makes the file `name`, or the same name with a number appended. An existing file counts
/// only if it has the kind and the owner that we give it: another user may have put a link there
/// that leads elsewhere.
async fn found_or_made(
    store: &dyn Store,
    parent: FileId,
    name: &str,
    (node, caller): (NewNode, Creator),
    owners: &[u32],
) -> Result<(Found, String), StoreError> {
    let wanted = match node {
        NewNode::Directory { .. } => FileKind::Directory,
        _ => FileKind::Regular,
    };
    for number in 0..NAMES_MAX {
        let name = if number == 0 { name.to_owned() } else { format!("{name}~{number}") };
        let found = match store.make(parent, name.as_bytes(), node.clone(), caller).await {
            Err(StoreError::Refused(Refusal::Exists)) => {
                store.lookup(parent, name.as_bytes()).await?
            }
            result => return result.map(|made| (made, name)),
        };
        if found.attributes.kind == wanted && owners.contains(&found.attributes.uid) {
            return Ok((found, name));
        }
    }
    Err(StoreError::Refused(Refusal::Exists))
}

async fn empty(store: &dyn Store, found: &Found) -> Result<(), StoreError> {
    let change = AttributeChange { size: Some(0), ..Default::default() };
    store.set_attributes(found.file, change).await.map(drop)
}

/// Writes the ranges of a file that is set aside. Returns their places in it.
async fn write_ranges(
    store: &dyn Store,
    into: &Found,
    ranges: &[Range<u64>],
    content: impl AsyncFn(usize) -> Result<Vec<u8>, StoreError>,
) -> Result<Vec<u64>, StoreError> {
    let places: Vec<u64> = ranges.iter().map(|range| range.start).collect();
    match write_file(store, into.file, places.iter().copied(), &content).await {
        Err(StoreError::Refused(Refusal::FileTooLarge)) => {}
        written => return written.map(|()| places),
    }
    empty(store, into).await?;
    let place_after = |end: &mut u64, range: &Range<u64>| {
        let at = *end;
        *end += range.end - range.start;
        Some(at)
    };
    let packed: Vec<u64> = ranges.iter().scan(0, place_after).collect();
    write_file(store, into.file, packed.iter().copied(), content).await?;
    Ok(packed)
}

/// Opens or makes an empty file of `owner`, or of `maker` where this host may give nothing away.
async fn file_of(
    store: &dyn Store,
    directory: FileId,
    name: &str,
    (owner, maker): (Creator, Creator),
) -> Result<(Found, String), StoreError> {
    let owners = [owner.uid, maker.uid];
    let node = || NewNode::Regular { mode: 0o600 };
    let (found, name) = match found_or_made(store, directory, name, (node(), owner), &owners).await
    {
        Err(StoreError::Refused(Refusal::NotPermitted)) => {
            found_or_made(store, directory, name, (node(), maker), &owners).await?
        }
        found => found?,
    };
    if found.attributes.version.size > 0 {
        // An attempt that a crash cut short may have written other bytes, or to other places.
        empty(store, &found).await?;
    }
    Ok((found, name))
}

/// Writes pieces at these places. `content` returns the bytes of each.
async fn write_file(
    store: &dyn Store,
    file: FileId,
    places: impl Iterator<Item = u64>,
    content: impl AsyncFn(usize) -> Result<Vec<u8>, StoreError>,
) -> Result<(), StoreError> {
    let open = store.open(file, OpenMode::ReadWrite).await?;
    let write = async {
        for (index, at) in places.enumerate() {
            store.write(open, at, &content(index).await?).await?;
        }
        store.make_durable(open).await
    };
    let written = write.await;
    // Some stores keep a failure until the file is closed, and the next attempt has the same file.
    let closed = store.close(open).await;
    written.and(closed)
}

/// Writes a conflict file, durably, and returns its name below [`CONFLICT_DIRECTORY`]. `content`
/// returns the bytes of the range with this index.
pub(crate) async fn set_aside(
    store: &dyn Store,
    of: &SetAsideFile<'_>,
    content: impl AsyncFn(usize) -> Result<Vec<u8>, StoreError>,
    why: &str,
) -> Result<String, HostError> {
    let owner = Creator { uid: of.uid, gid: of.gid, umask: 0 };
    // An ordinary user creates everything under their own id, below a root that they own.
    let ours = store.attributes(store.root()).await?;
    let ours = Creator { uid: ours.uid, gid: ours.gid, umask: 0 };
    // An ordinary user can give nothing away.
    let maker = if ours.uid == 0 { Creator { uid: 0, gid: 0, umask: 0 } } else { ours };
    let directory = (NewNode::Directory { mode: 0o755 }, maker);
    let owners = [0, ours.uid];
    let (directory, _) =
        found_or_made(store, store.root(), CONFLICT_DIRECTORY, directory, &owners).await?;
    let directory = directory.file;
    let name = name_of(of);
    let (data, name) = file_of(store, directory, &name, (owner, ours)).await?;
    let places = write_ranges(store, &data, &of.ranges, content).await?;
    let path = store.path_of(of.file).await.unwrap_or_default();
    let text = text_of(of, why, path, &places).into_bytes();
    let (about, _) = file_of(store, directory, &format!("{name}.txt"), (owner, ours)).await?;
    write_file(store, about.file, [0].into_iter(), async |_| Ok(text.clone())).await?;
    store.sync_directory(directory).await?;
    store.sync_directory(store.root()).await?;
    Ok(name)
}

fn name_of(SetAsideFile { file, host: Identity(host), log, .. }: &SetAsideFile<'_>) -> String {
    if units::fault!("host-conflicts-share-names") {
        return format!("{}-{log}", file.0);
    }
    // A name of a file has no slash.
    let host = host.replace('/', "_");
    format!("{}-{host}-{log}", file.0)
}

fn text_of(of: &SetAsideFile<'_>, why: &str, path: Option<Vec<u8>>, places: &[u64]) -> String {
    let number = of.file.0;
    let name = match path {
        Some(path) => format!("Its name: {}", String::from_utf8_lossy(&path)),
        None => format!("Its name, if it has one: find MOUNTPOINT -inum {number}"),
    };
    let Version { number: version, ctime_ns, size } = of.last;
    let mut text = format!(
        "Bytes of file {number} that were synced on this host and could not be written to the \
         store.\n{name}\n{why}\n\
         Last state journaled: version {version}, changed {ctime_ns} ns after 1970, {size} bytes.\n\
         Bytes journaled:\n",
    );
    let is_packed = of.ranges.iter().zip(places).any(|(range, at)| range.start != *at);
    for (Range { start, end }, at) in of.ranges.iter().zip(places).take(RANGES_MAX) {
        text += &match is_packed {
            true => format!("{start}..{end} at {at}\n"),
            false => format!("{start}..{end}\n"),
        };
    }
    text
}
