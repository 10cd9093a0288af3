//! Conflict files: the journaled bytes of a file that cannot be replayed, because another client
//! has changed it since, are set aside at the store.
//!
//! `okeanos-conflicts/FILE-HOST-LOG` holds the journaled bytes at their offsets, and zeros between.
//! The same name with `.txt` names their file, lists the ranges that were journaled, and states why
//! they were set aside. The names follow from the log, so a second recovery after a crash writes
//! the same files again. Logs of two hosts may have the same numbers.

use crate::error::HostError;
use crate::replay::FileReplay;
use store::{
    Creator, FileId, FileKind, Found, Identity, NewNode, OpenMode, Refusal, Store, StoreError,
    TRANSFER_BYTES_MAX, Version,
};

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

async fn write_file(
    store: &dyn Store,
    file: FileId,
    pieces: &[(u64, Vec<u8>)],
) -> Result<(), StoreError> {
    let open = store.open(file, OpenMode::ReadWrite).await?;
    for (at, bytes) in pieces {
        store.write(open, *at, bytes).await?;
    }
    store.make_durable(open).await?;
    store.close(open).await
}

/// Writes a conflict file, durably, and returns its name below [`CONFLICT_DIRECTORY`].
pub(crate) async fn set_aside(
    store: &dyn Store,
    replay: &FileReplay,
    (host, log): (&Identity, (u32, u32)),
    why: &str,
) -> Result<String, HostError> {
    let owner = Creator { uid: replay.last.uid, gid: replay.last.gid, umask: 0 };
    // An ordinary user creates everything under their own id, below a root that they own.
    let ours = store.attributes(store.root()).await?;
    let ours = Creator { uid: ours.uid, gid: ours.gid, umask: 0 };
    // An ordinary user can give nothing away.
    let maker = if ours.uid == 0 { Creator { uid: 0, gid: 0, umask: 0 } } else { ours };
    let directory = (NewNode::Directory { mode: 0o755 }, maker);
    let ours = ours.uid;
    let (directory, _) =
        found_or_made(store, store.root(), CONFLICT_DIRECTORY, directory, &[0, ours]).await?;
    let directory = directory.file;
    let file = || (NewNode::Regular { mode: 0o600 }, owner);
    let owners = [owner.uid, ours];
    let name = name_of(replay.last.file, host, log);
    let runs = replay.runs(TRANSFER_BYTES_MAX);
    let (data, name) = found_or_made(store, directory, &name, file(), &owners).await?;
    write_file(store, data.file, &runs).await?;
    let path = store.path_of(replay.last.file).await.unwrap_or_default();
    let text = text_of(replay, why, &runs, path);
    let (about, _) =
        found_or_made(store, directory, &format!("{name}.txt"), file(), &owners).await?;
    write_file(store, about.file, &[(0, text.into_bytes())]).await?;
    store.sync_directory(directory).await?;
    store.sync_directory(store.root()).await?;
    Ok(name)
}

fn name_of(file: FileId, Identity(host): &Identity, (sequence, start): (u32, u32)) -> String {
    if units::fault!("host-conflicts-share-names") {
        return format!("{}-{sequence}.{start}", file.0);
    }
    // A name of a file has no slash.
    let host = host.replace('/', "_");
    format!("{}-{host}-{sequence}.{start}", file.0)
}

fn text_of(
    replay: &FileReplay,
    why: &str,
    runs: &[(u64, Vec<u8>)],
    path: Option<Vec<u8>>,
) -> String {
    let number = replay.last.file.0;
    let name = match path {
        Some(path) => format!("Its name: {}", String::from_utf8_lossy(&path)),
        None => format!("Its name, if it has one: find MOUNTPOINT -inum {number}"),
    };
    let Version { number: version, ctime_ns, size } =
        replay.last.states.last().copied().unwrap_or(replay.last.base);
    let mut text = format!(
        "Bytes of file {number} that were synced on this host and could not be written to the store.\n{name}\n{why}\n\
         Last state journaled: version {version}, changed {ctime_ns} ns after 1970, {size} bytes.\nBytes journaled:\n",
    );
    for (at, bytes) in runs.iter().take(RANGES_MAX) {
        text += &format!("{at}..{}\n", at + bytes.len() as u64);
    }
    text
}
