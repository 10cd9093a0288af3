//! Tests of copy_file_range(2): copies within a volume, without passing the data through the
//! kernel.

use crate::common::mapping::Map;
use crate::common::{Volume, gone, signal};
use rustix::fs::copy_file_range;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};

/// Copies the whole range, in as many calls as that takes.
fn copy(from: (&File, u64), to: (&File, u64), length: usize) -> io::Result<()> {
    let (mut at, mut place, mut rest) = (from.1, to.1, length);
    while rest > 0 {
        match copy_file_range(from.0, Some(&mut at), to.0, Some(&mut place), rest)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => rest -= count,
        }
    }
    Ok(())
}

fn some_bytes(count: usize) -> Vec<u8> {
    (0..count as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn open(volume: &Volume, name: &str, flags: i32) -> File {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true).custom_flags(flags);
    options.open(volume.at(name)).unwrap()
}

fn count(volume: &Volume, names: &[&str]) -> u64 {
    let counts = &volume.statistics()["front_end"]["by_operation"];
    names.iter().map(|name| counts[*name].as_u64().unwrap_or(0)).sum()
}

#[test]
fn a_copy_passes_no_data_through_the_kernel_and_is_seen_by_every_reader() {
    const LENGTH: usize = (20 << 20) + 4711;
    for mode in ["wasteless", "ordered"] {
        let volume = Volume::mounted(&["-t", "ext4"], &format!("data={mode},noloop"));
        let bytes = some_bytes(LENGTH);
        fs::write(volume.at("from"), &bytes).unwrap();
        let mut expected = some_bytes(10_000);
        expected.reverse();
        fs::write(volume.at("to"), &expected).unwrap();
        let (from, to) = (open(&volume, "from", 0), open(&volume, "to", 0));
        // The kernel has the old content cached.
        assert_eq!(fs::read(volume.at("to")).unwrap(), expected);
        let before = count(&volume, &["read", "write"]);
        copy((&from, 17), (&to, 4000), LENGTH - 17).unwrap();
        // Kernels before Linux 6.18 copy the bytes themselves.
        if count(&volume, &["copy_file_range"]) == 0 {
            assert_eq!(count(&volume, &["read", "write"]), before);
            assert_eq!(count(&volume, &["copy_file_range_64"]), 2, "16 MiB, and the rest");
        }
        expected.truncate(4000);
        expected.extend(&bytes[17..]);
        let seen = |when: &str| {
            assert!(fs::read(volume.at("to")).unwrap() == expected, "{mode}, {when}");
        };
        seen("at once");
        let mut part = vec![0; 9000];
        open(&volume, "to", libc::O_SYNC).read_exact_at(&mut part, 0).unwrap();
        assert!(part == expected[..9000], "past the cache");
        drop((from, to));
        volume.umount();
        volume.mount("noloop");
        seen("after an unmount");
        volume.umount_and_check();
    }
}

#[test]
fn a_copy_to_a_synchronous_descriptor_survives_the_death_of_the_daemon() {
    for mode in ["wasteless", "ordered"] {
        for flags in [libc::O_SYNC, libc::O_DSYNC] {
            let volume = Volume::new(&["-t", "ext4"]);
            // Only requested content becomes durable.
            volume.mount(&format!("data={mode},commit=300,noloop"));
            let bytes = some_bytes(100_000);
            fs::write(volume.at("from"), &bytes).unwrap();
            let (from, to) = (open(&volume, "from", 0), open(&volume, "to", flags));
            copy((&from, 0), (&to, 0), bytes.len()).unwrap();
            let daemon = volume.daemon();
            signal(daemon, libc::SIGKILL);
            gone(daemon);
            drop((from, to));
            volume.umount();
            volume.mount("noloop");
            assert!(fs::read(volume.at("to")).unwrap() == bytes, "data={mode}");
            volume.umount_and_check();
        }
    }
}

#[test]
fn a_copy_beside_changed_pages_of_a_mapping_takes_them_along() {
    let volume = Volume::mounted(&["-t", "ext4"], "data=wasteless");
    fs::write(volume.at("from"), vec![1; 8192]).unwrap();
    let (from, to) = (open(&volume, "from", 0), open(&volume, "to", 0));
    let mut map = Map::new(&from, 8192).unwrap();
    map.bytes()[5000] = 9;
    copy((&from, 0), (&to, 0), 8192).unwrap();
    drop(map);
    let mut expected = vec![1; 8192];
    expected[5000] = 9;
    assert!(fs::read(volume.at("to")).unwrap() == expected);
    drop((from, to));
    volume.umount_and_check();
}

#[test]
fn a_copy_by_an_ordinary_user_takes_set_id_bits_away_at_once() {
    let volume = Volume::mounted(&["-t", "ext4"], "data=wasteless");
    fs::write(volume.at("from"), vec![1; 5000]).unwrap();
    fs::write(volume.at("program"), vec![2; 9000]).unwrap();
    let mode = || fs::metadata(volume.at("program")).unwrap().permissions().mode() & 0o7777;
    fs::set_permissions(volume.at("program"), Permissions::from_mode(0o6755)).unwrap();
    assert_eq!(mode(), 0o6755);
    let (from, to) = (open(&volume, "from", 0), open(&volume, "program", 0));
    let copied = std::thread::spawn(move || {
        // SAFETY: takes a number; it holds for this thread, as whom the kernel asks.
        unsafe { libc::setfsuid(65534) };
        copy((&from, 0), (&to, 0), 10)
    });
    copied.join().unwrap().unwrap();
    assert_eq!(mode(), 0o755);
    volume.umount_and_check();
}
