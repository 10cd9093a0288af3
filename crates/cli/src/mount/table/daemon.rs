//! Memory, requests and reports of the daemon.

use super::Row;
use crate::daemon::reporter::Level;
use crate::options::Refusal;
use crate::options::values::{on_off, set, switch};
use crate::text::quantity::{exact_duration, exact_size, parse_duration_in, parse_size};
use std::path::PathBuf;
use std::time::Duration;

/// Default read-ahead. The kernel's own for FUSE (128 KiB) is far too little for a request's round
/// trip. Cold reads took twice to five times as long as on the kernel's ext4.
const READ_AHEAD_DEFAULT: u64 = 4 << 20;

/// Maximum read-ahead: more than any mount can use; far below what overflows the kernel's count.
const READ_AHEAD_MAX: u64 = 1 << 30;

/// Minimum cache. With less, writers would wait for one another's blocks.
const CACHE_MIN: u64 = 1 << 20;

/// Maximum polling time; longer would only heat the machine.
const POLL_MAX: Duration = Duration::from_millis(10);

/// Settings of the daemon and of its mount in the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DaemonSettings {
    /// Time for which the daemon polls before it sleeps, where that is worthwhile; zero: never.
    pub poll: Duration,
    /// Whether the other processors are kept awake, too, while polling is worthwhile.
    pub keep_awake: bool,
    /// Read-ahead of the kernel, in bytes.
    pub read_ahead: u64,
    /// Whether an image file gets a loop device.
    pub loop_device: bool,
    /// Whether files are opened without a request to the daemon.
    pub without_open: bool,
    /// Whether mounts may map users and groups.
    pub idmapped: bool,
    /// Level of reports, and their destination instead of the system's log.
    pub log_level: Option<Level>,
    pub log_file: Option<PathBuf>,
}

impl Default for DaemonSettings {
    fn default() -> DaemonSettings {
        DaemonSettings {
            poll: runtime::POLL_DEFAULT,
            keep_awake: true,
            read_ahead: READ_AHEAD_DEFAULT,
            loop_device: true,
            without_open: false,
            idmapped: false,
            log_level: None,
            log_file: None,
        }
    }
}

pub const ROWS: &[Row] = &[
    Row {
        name: "cache",
        value: "SIZE",
        parse: |value, it| {
            it.engine.cache_bytes = match parse_size(value)? {
                bytes @ CACHE_MIN.. => bytes,
                _ => return Err("at least 1M; 256M is the default".to_owned().into()),
            };
            Ok(())
        },
        text: |it| Some(exact_size(it.engine.cache_bytes)),
        help: "memory for blocks: every version of them that is kept, what a commit makes of them, \
               and what goes with it. At most 96M come on top: 64M for requests, 32M for the \
               program; with transport=uring another 128M",
        more: "Memory",
        ..Row::BASE
    },
    Row {
        name: "readahead",
        value: "SIZE",
        parse: |value, it| {
            // The kernel counts in KiB: less than one would disable it.
            it.daemon.read_ahead = match parse_size(value)? {
                bytes @ (0 | 1024..=READ_AHEAD_MAX) => bytes,
                _ => return Err("from 1K to 1G, or 0 for none".to_owned().into()),
            };
            Ok(())
        },
        text: |it| Some(exact_size(it.daemon.read_ahead)),
        help: "how far the kernel reads ahead of a sequential reader; an ordinary user's mount \
               keeps the kernel's own, 128K",
        more: "Reading ahead",
        ..Row::BASE
    },
    Row::TRANSPORT,
    Row {
        name: "poll",
        value: "auto|off|US",
        parse: |value, it| {
            let time = match value {
                "auto" => runtime::POLL_DEFAULT,
                "off" => Duration::ZERO,
                time => parse_duration_in(time, "us")?,
            };
            if time > POLL_MAX {
                return Err("at most 10ms, or auto, or off".to_owned().into());
            }
            it.daemon.poll = time;
            Ok(())
        },
        text: |it| {
            Some(match it.daemon.poll {
                time if time == runtime::POLL_DEFAULT => "auto".to_owned(),
                time if time.is_zero() => "off".to_owned(),
                time => exact_duration(time),
            })
        },
        help: "how long the daemon stays awake for the next request while requests come so fast \
               that it is worthwhile, in microseconds or with a unit; auto is 150",
        more: "Polling",
        ..Row::BASE
    },
    Row {
        name: "keep_awake",
        words: &[("keep_awake", "on"), ("nokeep_awake", "off")],
        parse: |value, it| set(&mut it.daemon.keep_awake, switch(value)?),
        text: |it| on_off(it.daemon.keep_awake),
        help: "while the daemon polls, idle processors of the machine stay as quick to wake",
        more: "Polling",
        ..Row::BASE
    },
    Row {
        name: "noopen",
        words: &[("noopen", "on")],
        hidden: &[("open", "off")],
        parse: |value, it| set(&mut it.daemon.without_open, switch(value)?),
        text: |it| on_off(it.daemon.without_open),
        help: "files are opened without a request to the daemon: one request less for each file \
               that is read; O_SYNC and O_DSYNC writes of existing files are then two requests, a \
               write and a sync",
        more: "Fewer requests",
        ..Row::BASE
    },
    Row {
        name: "idmap",
        words: &[("idmap", "on")],
        hidden: &[("noidmap", "off")],
        parse: |value, it| set(&mut it.daemon.idmapped, switch(value)?),
        text: |it| on_off(it.daemon.idmapped),
        help: "mounts of the volume may map users and groups (mount_setattr(2), X-mount.idmap; \
               Linux 6.12); what needs the caller's own user ID is decided the safe way",
        more: "Mapped users",
        ..Row::BASE
    },
    Row {
        name: "noloop",
        words: &[("noloop", "off")],
        hidden: &[("loop", "on")],
        parse: |value, it| set(&mut it.daemon.loop_device, switch(value)?),
        text: |it| on_off(it.daemon.loop_device),
        default: "off: an image file gets a loop device",
        help: "mounts the image file itself, as plain fuse: then sync(2) does not reach the \
               volume, and umount(8) does not wait for it",
        ..Row::BASE
    },
    Row {
        name: "log_level",
        value: "error|warning|info|debug",
        parse: |value, it| {
            set(&mut it.daemon.log_level, Some(value.parse().map_err(|()| Refusal::Value)?))
        },
        text: |it| it.daemon.log_level.map(|level| level.word().to_owned()),
        default: "info; with -f warning",
        help: "what the daemon reports to the system's log, or with -f to standard error; debug \
               reports each request, as -f -v does",
        ..Row::BASE
    },
    Row {
        name: "log_file",
        value: "FILE",
        parse: |value, it| set(&mut it.daemon.log_file, Some(value.into())),
        text: |it| it.daemon.log_file.as_ref().map(|path| path.display().to_string()),
        default: "the system's log",
        help: "where the daemon reports instead; with local times",
        ..Row::BASE
    },
];
