//! Files that cannot be replayed, because others changed them since: what was journaled of them is set aside at the store.
//!
//! `okeanos-conflicts/FILE-LOG` holds the journaled bytes at their offsets, and zeros between; the same name with `.txt` says of
//! which file they are, which bytes were journaled, and why they were set aside. The names follow from the log, so a second
//! recovery after a crash writes the same files again.

use crate::error::HostError;
use crate::replay::FileReplay;
use store::{
    Access, Caller, FileId, Found, NewNode, Refusal, Store, StoreError, TRANSFER_BYTES_MAX, Version,
};

/// In the root of the store.
pub const CONFLICT_DIRECTORY: &str = "okeanos-conflicts";
/// Of the list in the text.
const RANGES_MAX: usize = 10_000;

async fn found_or_made(
    store: &dyn Store,
    parent: FileId,
    name: &str,
    node: NewNode,
    caller: Caller,
) -> Result<Found, StoreError> {
    match store.make(parent, name.as_bytes(), node, caller).await {
        Err(StoreError::Refused(Refusal::Exists)) => store.lookup(parent, name.as_bytes()).await,
        result => result,
    }
}

async fn write_file(store: &dyn Store, file: FileId, pieces: &[(u64, Vec<u8>)]) -> Result<(), StoreError> {
    let open = store.open(file, Access::ReadWrite).await?;
    for (at, bytes) in pieces {
        store.write(open, *at, bytes).await?;
    }
    store.make_durable(open).await?;
    store.close(open).await
}

/// The name that it got, below [`CONFLICT_DIRECTORY`]. Durable when this returns.
pub(crate) async fn set_aside(
    store: &dyn Store,
    replay: &FileReplay,
    log: (u32, u32),
    why: &str,
) -> Result<String, HostError> {
    let root = Caller { uid: 0, gid: 0 };
    let owner = Caller { uid: replay.last.uid, gid: replay.last.gid };
    let directory = NewNode::Directory { mode: 0o755 };
    let directory = found_or_made(store, store.root(), CONFLICT_DIRECTORY, directory, root).await?.file;
    let name = format!("{}-{}.{}", replay.last.file.0, log.0, log.1);
    let runs = replay.runs(TRANSFER_BYTES_MAX);
    let data = found_or_made(store, directory, &name, NewNode::Regular { mode: 0o600 }, owner).await?;
    write_file(store, data.file, &runs).await?;
    let text = text_of(replay, why, &runs);
    let about = format!("{name}.txt");
    let about = found_or_made(store, directory, &about, NewNode::Regular { mode: 0o600 }, owner).await?;
    write_file(store, about.file, &[(0, text.into_bytes())]).await?;
    store.sync_directory(directory).await?;
    store.sync_directory(store.root()).await?;
    Ok(name)
}

fn text_of(replay: &FileReplay, why: &str, runs: &[(u64, Vec<u8>)]) -> String {
    let Version { number, ctime_ns, size } = replay.last.states.last().copied().unwrap_or(replay.last.base);
    let mut text = format!(
        "Bytes of file {} that were synced on this host and could not be brought to the store.\n{why}\n\
         Last state journaled: version {number}, changed {ctime_ns} ns after 1970, {size} bytes.\nBytes journaled:\n",
        replay.last.file.0
    );
    for (at, bytes) in runs.iter().take(RANGES_MAX) {
        text += &format!("{at}..{}\n", at + bytes.len() as u64);
    }
    text
}
