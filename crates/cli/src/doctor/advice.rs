//! Advice: which modes and options suit a disk, and which limits a machine has.

use super::disk::{Disk, Flush};
use super::machine::{Machine, is_before};

/// Nanoseconds from which on writers should share a durable write.
const EXPENSIVE: u64 = 300_000;

pub fn advice(machine: &Machine, disk: Option<&Disk>) -> Vec<String> {
    let mut advice = Vec::new();
    let Some(disk) = disk else {
        advice.push("Name a directory on the disk, or the disk, to have it measured.".into());
        return advice;
    };
    match disk.times.durable_write {
        Some(time) if time >= EXPENSIVE => advice.push(
            "Durable writes are expensive here: the default, data=selective, or data=wasteless; \
             many writers share one write."
                .into(),
        ),
        Some(_) => advice.push(
            "Durable writes are cheap here: processors limit small syncs, not the disk; measure \
             beside the kernel's ext4 (okeanos-lab bench compare)."
                .into(),
        ),
        None => advice.push("Name a directory on the device to have writes measured.".into()),
    }
    advice.extend(sectors(disk));
    match disk.flush {
        Flush::NotNeeded => advice.push(
            "The kernel says that this disk has no volatile cache: flushes cost nothing, \
             barrier=flush is right."
                .into(),
        ),
        Flush::Suspicious => advice.push(
            "Flushes end sooner than such a disk can write: see okeanos powercut, okeanos \
             fingerprint and barrier=coerce."
                .into(),
        ),
        Flush::Plausible | Flush::NotMeasured => {}
    }
    if disk.rotational == Some(true) {
        advice.push("A disk with an arm that others keep busy: see log=scattered.".into());
    }
    if machine.root && !disk.is_device && !machine.loop_devices {
        advice.push("There are no loop devices: mount image files with -o noloop.".into());
    }
    advice
}

/// The shortest block of a volume that `mkfs` makes by itself.
const BLOCK: u64 = 4096;

/// Says what the size of a sector means for the log.
fn sectors(disk: &Disk) -> Option<String> {
    let physical = match disk.physical_sector {
        None => {
            return Some(
                "The physical sector is unknown: the log is written in units of 4096 bytes. \
                 log_unit=512 suits a disk with such sectors."
                    .into(),
            );
        }
        Some(bytes) => bytes,
    };
    match physical {
        ..BLOCK if disk.rotational != Some(true) => Some(format!(
            "A lone sync writes {physical} bytes to the log, a physical sector. Where the medium \
             only claims such sectors, as SD cards do: log_unit=4096 (docs/RECIPES.md)."
        )),
        BLOCK.. if disk.logical_sector < Some(physical) => Some(format!(
            "Physical sectors of {physical} bytes: the log is written in such units, if the \
             volume's blocks are no shorter; a smaller log_unit= is slower, and unsafe in a power \
             cut."
        )),
        _ => None,
    }
}

pub fn limits(machine: &Machine) -> Vec<String> {
    let mut limits = Vec::new();
    if let Some(why) = &machine.io_uring_refused {
        limits.push(format!("Threads do what io_uring would: {why}."));
    }
    if let Some(why) = &machine.fuse_refused {
        limits.push(format!(
            "No mount: /dev/fuse: {why} (modprobe fuse; in a container: docs/CONTAINERS.md)."
        ));
    }
    if !machine.root && machine.fusermount3.is_none() {
        limits.push("No mount for this user: fusermount3 is missing (package fuse3).".into());
    }
    limits.extend(limits_of_kernel(&machine.kernel).into_iter().map(str::to_owned));
    if !machine.drops_written_pages {
        limits.push(
            "Before Linux 6.19 (6.18.4, 6.12.64), a file is open either through the page cache or \
             past it (O_SYNC, O_DIRECT), as its first descriptor is; a mapped page of an O_SYNC \
             descriptor may stay as it was, and files of hosts cannot be mapped shared \
             (docs/KERNELS.md, docs/POSIX.md)."
                .into(),
        );
    }
    if !machine.may_lock_memory {
        limits.push(
            "A daemon started here may not lock its program in memory (CAP_IPC_LOCK, ulimit -l): \
             where memory is short, it may wait for itself (docs/MONITORING.md)."
                .into(),
        );
    }
    if machine.processors == 1 {
        limits.push("One processor: answers are not polled for.".into());
    }
    limits
}

/// Returns what is missing from a kernel of this release (docs/KERNELS.md).
fn limits_of_kernel(release: &str) -> Vec<&'static str> {
    const BEFORE: [((u32, u32), &str); 9] = [
        ((5, 4), "No mount: Linux 5.4 or later is needed."),
        (
            (5, 8),
            "Before Linux 5.8, root mounts image files with -o noloop, and blocks attach makes no \
             loop devices.",
        ),
        (
            (5, 8),
            "Before Linux 5.8 (5.4.49), a copy (copy_file_range) to a file in the page cache \
             leaves its readers the old content.",
        ),
        ((5, 14), "Before Linux 5.14, blocks attach makes no NBD devices."),
        (
            (6, 3),
            "Before Linux 6.3 (and stable 6.1), new files get no labels of SELinux \
             (docs/LABELS.md).",
        ),
        ((6, 5), "Before Linux 6.5, blocks attach makes no ublk devices."),
        ((6, 12), "Before Linux 6.12, mounts map no users and groups (-o idmap)."),
        ((6, 16), "Before Linux 6.16, an attached ublk device does not grow."),
        (
            (6, 18),
            "Before Linux 6.18, sync(2) and syncfs(2) return before the volume is durable; fsync \
             does not.",
        ),
    ];
    let has_labels = !is_before(release, (6, 1)) && is_before(release, (6, 2));
    let missing = BEFORE.iter().filter(|(since, _)| is_before(release, *since));
    let missing = missing.filter(|(since, _)| !(has_labels && *since == (6, 3)));
    let mut limits: Vec<&str> = missing.map(|(_, text)| *text).collect();
    if !is_before(release, (6, 15)) && is_before(release, (6, 16)) {
        limits.push(
            "Some releases of Linux 6.15 report writes that a disk of an md array (raid1, raid10) \
             refused as written: use no such array (docs/KERNELS.md).",
        );
    }
    if !units::fault!("unreached-syncs-unsaid") {
        limits.push(
            "sync(2) and syncfs(2) never reach hosts, mounts with noloop, and those of ordinary \
             users: use fsync.",
        );
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_machine() {
        let modern = Machine {
            kernel: "6.19.1".into(),
            processors: 4,
            fuse: true,
            root: true,
            may_lock_memory: true,
            drops_written_pages: true,
            ..Machine::default()
        };
        let of_all = limits(&modern);
        assert!(of_all.len() == 1 && of_all[0].contains("never reach hosts"), "{of_all:?}");
        let refused = Some("kernel.io_uring_disabled=2".into());
        let old = Machine {
            kernel: "5.14.0".into(),
            root: false,
            io_uring_refused: refused,
            fuse_refused: Some("Permission denied".into()),
            may_lock_memory: false,
            drops_written_pages: false,
            ..modern
        };
        let text = limits(&old).join("\n");
        for part in [
            "io_uring_disabled=2",
            "fusermount3",
            "sync(2)",
            "mapped page",
            "fuse: Permission",
            "CAP_IPC_LOCK",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("read again"), "a write leaves cached pages: {text}");
    }

    #[test]
    fn limits_of_a_kernel_are_those_of_its_release() {
        const PARTS: [&str; 9] = [
            "No mount",
            "noloop,",
            "copy_file_range",
            "NBD",
            "labels",
            "no ublk",
            "idmap",
            "does not grow",
            "durable",
        ];
        for (release, wanted) in [
            ("5.3.1", &PARTS[..]),
            ("5.4.0", &PARTS[1..]),
            ("5.13.0", &PARTS[3..]),
            ("5.15.0-91-generic", &PARTS[4..]),
            ("6.1.0-26-amd64", &PARTS[5..]),
            ("6.2.16", &PARTS[4..]),
            ("6.4.0", &PARTS[5..]),
            ("6.8.0", &PARTS[6..]),
            ("6.12.1", &PARTS[7..]),
            ("6.16.0", &PARTS[8..]),
            ("6.18.44", &[]),
        ] {
            let limits = limits_of_kernel(release);
            let (always, limits) = limits.split_last().unwrap();
            assert!(always.contains("noloop"), "{release}: {always}");
            assert_eq!(limits.len(), wanted.len(), "{release}: {limits:?}");
            for (limit, part) in limits.iter().zip(wanted) {
                assert!(limit.contains(part), "{release}: {part}: {limit}");
            }
        }
        assert!(limits_of_kernel("6.15.1").iter().any(|limit| limit.contains("md array")));
    }

    #[test]
    fn sectors_lead_to_the_unit_of_the_log() {
        let advice = |logical, physical, rotational| {
            sectors(&Disk {
                logical_sector: logical,
                physical_sector: physical,
                rotational: Some(rotational),
                ..Disk::default()
            })
            .unwrap_or_default()
        };
        assert!(advice(Some(512), Some(512), false).contains("log_unit=4096"));
        assert_eq!(advice(Some(512), Some(512), true), "");
        assert!(advice(Some(512), Some(4096), false).contains("smaller log_unit="));
        assert_eq!(advice(Some(4096), Some(4096), false), "");
        assert!(advice(None, None, false).contains("log_unit=512"));
    }
}
