//! `okeanos list`: lists every mount of Okeanos with its state.

use crate::daemon::control::{Ask, Client, Place};
use crate::daemon::mount_table::{self, Mount};
use crate::error::CliError;
use crate::health;
use crate::text::output::{print, print_json};
use crate::text::quantity::format_size;
use crate::text::table::Table;
use serde_json::Value;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const NOTES: &str = "\
Health is one of
  ok                   it serves
  read-only            it serves, and nothing is written
  N files cannot go to the store
                       of a host: no space there, or an error; it is tried again, and stays in the journal
  errors were found    on the volume, or a recovery left something out: unmount it and run e2fsck -f
                       of a block volume: check what is above, then blocks drain --clear-error
  journal not replayed mounted with noload: what was synced and is in the journal alone is not shown
  stopped: WHY         an error has stopped it; unmount it, look at the disk, then okeanos recover and e2fsck -f
  daemon died          mount it again, on the same directory: that recovers the volume
  no answer            the daemon does not answer; see the system log, or okeanos umount --force DIR
  not ours to ask      ask as the user who mounted it, or as root

The kernel has no room for the options of a FUSE file system in /proc/mounts: they stand here, as the mount was made. Behind
the type it names the mode: fuseblk.okeanos.selective.

A block volume stands there with the device that it is attached as, which is \"device\" with --json.

Examples:
  okeanos list
  okeanos list --json | jq -r '.[] | select(.health != \"ok\") | .directory'";

/// List what is mounted: mode, size, transport, health, options
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct ListArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Time limit for a daemon that does not answer.
const PATIENCE: Duration = Duration::from_secs(4);

#[derive(serde::Serialize)]
struct ListedMount {
    directory: String,
    source: String,
    /// Block device of an attached block volume.
    device: Option<String>,
    data: Option<String>,
    options: Vec<String>,
    bytes: Option<u64>,
    bytes_free: Option<u64>,
    transport: Option<String>,
    process: Option<u64>,
    health: String,
}

pub fn run(arguments: ListArguments) -> Result<(), CliError> {
    let mounts =
        mount_table::mounts().map_err(|error| CliError::system("/proc/self/mountinfo", error))?;
    let ours: Vec<Mount> = mounts.into_iter().filter(Mount::is_okeanos).collect();
    // All at once: several may be slow to answer.
    let looking: Vec<_> = ours
        .iter()
        .map(|mount| {
            let (sender, receiver) = mpsc::channel();
            let looked_at = mount.clone();
            std::thread::spawn(move || {
                // The receiver may have stopped waiting.
                let _ = sender.send(look_at(&looked_at));
            });
            receiver
        })
        .collect();
    let until = Instant::now() + PATIENCE;
    let listed: Vec<ListedMount> = ours
        .iter()
        .zip(looking)
        .map(|(mount, receiver)| {
            receiver
                .recv_timeout(until.saturating_duration_since(Instant::now()))
                .unwrap_or_else(|_| listed(mount, None, "no answer".into()))
        })
        .collect();
    match (arguments.json, listed.is_empty()) {
        (true, _) => print_json(&listed),
        (_, true) => print(&"No okeanos volume is mounted.\n"),
        _ => print(&format_args!("{}{}", table(&listed), reasons(&listed))),
    }
}

fn look_at(mount: &Mount) -> ListedMount {
    let connected = Client::connect_to_look(mount).is_ok();
    let asked = connected.then(|| Client::look::<Value>(mount, Ask::Stats).ok()).flatten();
    let health = match &asked {
        Some(statistics) => health::in_words(statistics),
        None if mount.is_dead() => "daemon died".into(),
        None if connected => "no answer".into(),
        None => "not ours to ask".into(),
    };
    let listed = listed(mount, asked.as_ref(), health);
    // Another user's volume does not answer.
    let space = asked.as_ref().and_then(|_| mount.space()).filter(|space| space.blocks > 0);
    let bytes = |blocks: u64, unit: u64| blocks.saturating_mul(unit);
    ListedMount {
        bytes: space.as_ref().map(|space| bytes(space.blocks, space.unit)),
        // Which blocks are free knows the file system in a block volume.
        bytes_free: space
            .filter(|_| listed.device.is_none())
            .map(|space| bytes(space.free, space.unit)),
        ..listed
    }
}

fn listed(mount: &Mount, asked: Option<&Value>, health: String) -> ListedMount {
    let word = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let about = asked.map(|statistics| &statistics["about"]);
    let device = Place::of_mount(mount).and_then(|place| place.block_device());
    let options = about.and_then(|about| about["options"].as_array()).into_iter().flatten();
    ListedMount {
        directory: mount.directory.to_string_lossy().into_owned(),
        source: mount.image().to_string_lossy().into_owned(),
        device: device.map(|device| device.to_string_lossy().into_owned()),
        data: about.and_then(|about| word(&about["data"])),
        options: options.filter_map(word).collect(),
        bytes: None,
        bytes_free: None,
        transport: asked.and_then(|statistics| word(&statistics["transport"])),
        process: about.and_then(|about| about["process"].as_u64().filter(|number| *number > 0)),
        health,
    }
}

/// Returns the health without its reason, which may be a long sentence.
fn in_short(health: &str) -> &str {
    health.split_once(": ").map_or(health, |(word, _)| word)
}

/// Returns a line for each mount whose health has a reason.
fn reasons(listed: &[ListedMount]) -> String {
    let with_reason = listed.iter().filter(|mount| in_short(&mount.health) != mount.health);
    let lines = with_reason.map(|mount| format!("{}: {}\n", mount.directory, mount.health));
    lines.collect()
}

fn table(listed: &[ListedMount]) -> Table {
    let mut table = Table::new([
        "mounted on",
        "image or device",
        "data",
        "size",
        "free",
        "transport",
        "health",
        "mounted with",
    ]);
    let or_dash = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".into());
    let size = |bytes: Option<u64>| bytes.map_or("-".into(), format_size);
    for mount in listed {
        table.row([
            mount.device.as_ref().unwrap_or(&mount.directory).clone(),
            mount.source.clone(),
            or_dash(&mount.data),
            size(mount.bytes),
            size(mount.bytes_free),
            or_dash(&mount.transport),
            in_short(&mount.health).to_owned(),
            if mount.options.is_empty() { "-".into() } else { mount.options.join(",") },
        ]);
    }
    table
}
