//! Tests of details that users of ext4 count on, each once through the kernel.

use crate::common;

use crate::common::Volume;
use crate::rig::Rig;
use rustix::fs::{SeekFrom, seek};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn a_read_only_mount_changes_nothing() {
    Rig::new().run(
        r#"$O mkfs --force image 64M -- -q >made; $O mount image $M; echo a >$M/a; $O umount $M
           settle image; before="$(sha256sum <image)"
           for options in ro ro,data=wasteless,noloop; do
             $O mount -o $options image $M; [ "$(cat $M/a)" = a ]
             for change in "touch $M/new" "mkdir $M/new" "rm $M/a" "chmod 600 $M/a" \
                 "truncate -s 0 $M/a" "setfattr -n user.x -v 1 $M/a" "mv $M/a $M/b"; do
               refuses $change 2>printed; grep -q 'Read-only file system' printed
             done
             sync -f $M; $O umount $M; settle image; [ "$before" = "$(sha256sum <image)" ]
           done"#,
    );
}

#[test]
fn options_of_time_and_size_mount_and_warn_only_where_data_is_in_danger() {
    Rig::new().run(
        r#"$O mkfs --force image 64M -- -q >made
           for option in threshold=0 threshold=1 threshold=1000 threshold=1G threshold=auto \
               commit=0 commit=1 writeback=1 expire=500ms nojournal_checksum; do
             $O mount -o data=selective,$option image $M 2>warned; quiet warned
             for size in 1 100 999 1000 4096 100000; do
                 head -c $size /dev/zero | tr '\0' x | dd of=$M/t$size bs=1M oflag=sync status=none
             done
             $O umount $M; settle image; clean image; $O mount image $M
             for size in 1 100 999 1000 4096 100000; do
                 [ $(tr -d x <$M/t$size | wc -c)-$(stat -c %s $M/t$size) = 0-$size ]
             done
             rm $M/t*
             $O umount $M; settle image
           done
           for option in threshold=-1 threshold= commit=soon writeback=; do
               refuses $O mount -o $option image $M 2>printed; grep -q "$option" printed
           done
           $O mount -o barrier=none image $M 2>warned; grep -q 'power cut' warned; $O umount $M"#,
    );
}

#[test]
fn the_journal_has_checksums_unless_forbidden() {
    Rig::new().run(
        r#"features() {
               $O mount -o data=ordered,$1 image $M; echo x >$M/x; $O umount $M; settle image
               dumpe2fs -h image 2>/dev/null | grep 'Journal features'
           }
           $O mkfs --force image 64M -- -q >made
           features journal_checksum | grep -q journal_checksum_v3
           refuses grep -q checksum <<<"$(features nojournal_checksum)"
           features journal_checksum | grep -q journal_checksum_v3; clean image"#,
    );
}

#[test]
fn changes_become_durable_in_time_without_being_synced() {
    let rig = Rig::new();
    // Waits as long as it takes; with the default of five seconds the second part would be lost.
    rig.run(
        r#"$O mkfs --force image 64M -- -q >made
           commits() { $O stats --json $M | tr -d ' ' | grep -o '"commits":[0-9]*' | cut -d: -f2; }
           serve data=wasteless,commit=1 image; before=$(commits); echo content >$M/file
           for i in $(seq 600); do [ $(commits) -gt $before ] && break; sleep 0.1; done
           kill_daemon; umount $M; settle image; $O mount image $M; [ "$(cat $M/file)" = content ]
           $O umount $M; settle image; clean image"#,
    );
}

#[test]
fn times_of_four_centuries_are_kept_and_others_become_the_nearest() {
    let rig = Rig::new();
    // With their nanoseconds, which are zero where a time was clamped.
    let times = "stat -c '%n %.9Y %.9X' $M/*";
    let script = |mount: &str, umount: &str, size: u32| {
        format!(
            "mke2fs -q -t ext4 -I {size} image 64M >made 2>&1; {mount} image $M; rmdir $M/lost+found
             for t in 2200-01-01 2039-01-01 1901-12-14 2500-01-01 1800-01-01; do
                 touch -d \"$t 00:00:00.123456789 UTC\" $M/$t; done
             {times}; {umount} $M; settle image; {mount} image $M; {times}; {umount} $M
             settle image; rm image"
        )
    };
    for size in [128, 256] {
        let ours = rig.run(&script("$O mount", "$O umount", size));
        let theirs = rig.run(&script("mount -o loop", "umount", size));
        assert_eq!(ours, theirs, "inodes of {size} bytes");
    }
}

/// Overwrites a small one, which is in the inode, and a large one.
#[test]
fn an_attribute_overwritten_with_itself_changes_no_time_as_in_the_kernels_ext4() {
    let rig = Rig::new();
    let script = |mount: &str, umount: &str| {
        format!(
            "{mount} image $M; echo text >$M/file
             set_it() {{
                 before=$(stat -c %z $M/file); sleep 0.05; setfattr -n user.name -v $1 $M/file
                 [ \"$(stat -c %z $M/file)\" = \"$before\" ] && echo the same || echo another
             }}
             for value in small $(head -c 900 /dev/zero | tr '\\0' v); do
                 set_it $value; set_it $value; set_it other; set_it $value; done
             rm $M/file; {umount} $M; settle image"
        )
    };
    rig.run("$O mkfs image 64M -- -q >made");
    let theirs = rig.run(&script("mount -o loop", "umount"));
    assert_eq!(theirs.lines().filter(|line| *line == "the same").count(), 2, "{theirs}");
    assert_eq!(rig.run(&script("$O mount", "$O umount")), theirs);
    rig.check("");
}

#[test]
fn files_go_beyond_four_gibibytes_and_end_where_they_must() {
    let volume = Volume::mounted(&["-t", "ext4", "-b", "4096"], "data=wasteless");
    let open = OpenOptions::new().create_new(true).read(true).write(true).open(volume.at("large"));
    let file = open.unwrap();
    let places = [0, (4u64 << 30) - 3, (1 << 42) + 5, (1 << 44) - 4096 - 7];
    for (at, number) in places.into_iter().zip(1..) {
        file.write_all_at(&[number; 7], at).unwrap();
    }
    let end = (1 << 44) - 4096;
    assert_eq!(
        file.metadata().unwrap().len(),
        end,
        "all that 32 bits of block numbers reach, but for the last"
    );
    for (at, number) in places.into_iter().zip(1..) {
        let mut back = [0; 7];
        file.read_exact_at(&mut back, at).unwrap();
        assert_eq!(back, [number; 7], "at {at}");
    }
    assert_eq!(seek(&file, SeekFrom::Data(8192)), Ok((4 << 30) - 4096));
    assert_eq!(errno(file.write_at(b"x", end)), libc::EFBIG);
    assert_eq!(errno(file.set_len(end + 1)), libc::EFBIG);
    drop(file);
    volume.umount_and_check();
    let stat =
        Command::new("debugfs").args(["-R", "stat large"]).arg(volume.image()).output().unwrap();
    assert!(common::said(&stat).contains(&format!("Size: {end}")), "{}", common::said(&stat));
}

#[test]
fn limits_have_their_errno() {
    let volume = Volume::mounted(&["-t", "ext4", "-b", "1024", "-N", "2048"], "data=wasteless");
    assert_eq!(errno(File::create(volume.at(&"n".repeat(256)))), libc::ENAMETOOLONG);
    // A target must fit into a block.
    assert_eq!(errno(symlink("x".repeat(1024), volume.at("link"))), libc::ENAMETOOLONG);
    symlink("x".repeat(1023), volume.at("link")).unwrap();
    fs::write(volume.at("file"), b"").unwrap();
    fs::create_dir(volume.at("links")).unwrap();
    let linked = (0..70_000).find_map(|number| {
        let result = fs::hard_link(volume.at("file"), volume.at(&format!("links/{number}")));
        result.err().map(|error| (number, error.raw_os_error().unwrap()))
    });
    assert_eq!(linked, Some((64_999, libc::EMLINK)), "65,000 names in all");
    fs::remove_dir_all(volume.at("links")).unwrap();
    let files = (0..3000).find_map(|number| File::create(volume.at(&format!("f{number}"))).err());
    assert_eq!(files.unwrap().raw_os_error(), Some(libc::ENOSPC), "no inode is left");
    (0..3000).for_each(|number| drop(fs::remove_file(volume.at(&format!("f{number}")))));
    let full = OpenOptions::new().create(true).append(true).open(volume.at("full")).unwrap();
    let error = loop {
        if let Err(error) = io::Write::write_all(&mut &full, &[7; 65536]) {
            break error;
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    let length = full.metadata().unwrap().len();
    assert!(length > 30 << 20, "{length}");
    full.sync_all().unwrap();
    drop(full);
    fs::remove_file(volume.at("full")).unwrap();
    fs::write(volume.at("again"), vec![1; 20 << 20]).unwrap();
    volume.umount_and_check();
}

/// Runs `attempt` in another process, and returns its errno; 0: success.
fn elsewhere(attempt: impl Fn() -> libc::c_int + Send + Sync + 'static) -> i32 {
    let mut command = Command::new("/bin/true");
    // SAFETY: between fork and exec only system calls on memory of ours are made.
    unsafe {
        command.pre_exec(
            move || if attempt() == 0 { Ok(()) } else { Err(io::Error::last_os_error()) },
        );
    }
    command.status().map_or_else(|error| error.raw_os_error().unwrap(), |_| 0)
}

fn lock_range(file: &File, kind: libc::c_int, start: i64, length: i64) -> libc::c_int {
    // SAFETY: zeros are a valid flock structure; the descriptor is open, the structure live.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        (lock.l_type, lock.l_whence) = (kind as _, libc::SEEK_SET as _);
        (lock.l_start, lock.l_len) = (start, length);
        libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock)
    }
}

#[test]
fn locks_hold_between_processes_and_end_with_their_owner() {
    let volume = Volume::mounted(&["-t", "ext4"], "data=wasteless");
    let path = volume.at("locked");
    let file = File::create(&path).unwrap();
    let flock = |how: libc::c_int| {
        let path = path.clone();
        elsewhere(move || {
            let file = File::open(&path).unwrap();
            // SAFETY: flock takes integers.
            unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) }
        })
    };
    assert_eq!((flock(libc::LOCK_EX), flock(libc::LOCK_SH)), (0, 0));
    // SAFETY: flock takes integers.
    unsafe { assert_eq!(libc::flock(file.as_raw_fd(), libc::LOCK_SH), 0) };
    assert_eq!((flock(libc::LOCK_EX), flock(libc::LOCK_SH)), (libc::EWOULDBLOCK, 0));
    // SAFETY: flock takes integers.
    unsafe { assert_eq!(libc::flock(file.as_raw_fd(), libc::LOCK_UN), 0) };
    assert_eq!(flock(libc::LOCK_EX), 0);

    let range = |start, length| {
        let path = path.clone();
        elsewhere(move || {
            lock_range(
                &OpenOptions::new().write(true).open(&path).unwrap(),
                libc::F_WRLCK,
                start,
                length,
            )
        })
    };
    assert_eq!(lock_range(&file, libc::F_WRLCK, 10, 10), 0);
    assert_eq!((range(0, 10), range(15, 1), range(20, 5)), (0, libc::EAGAIN, 0));
    drop(file);
    assert_eq!(range(0, 0), 0, "the lock went with its descriptor");
    volume.umount_and_check();
}

/// `FIBMAP` of linux/fs.h.
const FIBMAP: u8 = 1;

#[test]
fn a_file_reports_where_its_blocks_are() {
    let volume = Volume::mounted(&["-t", "ext4", "-b", "4096"], "");
    let file = File::create(volume.at("file")).unwrap();
    file.write_all_at(&[7; 8192], 0).unwrap();
    file.write_all_at(&[8; 4096], 1 << 20).unwrap();
    file.sync_all().unwrap();
    let home = |block: libc::c_int| {
        let mut block = block;
        // SAFETY: the number of a block goes in and comes out.
        assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), FIBMAP.into(), &raw mut block) }, 0);
        block
    };
    let homes = [0, 1, 2, 256].map(home);
    assert!(homes[0] > 0 && homes[1] == homes[0] + 1 && homes[2] == 0 && homes[3] > 0, "{homes:?}");
    drop(file);
    volume.umount_and_check();
    for (block, home) in [0, 1, 2, 256].into_iter().zip(homes) {
        let ask = format!("bmap file {block}");
        let printed =
            Command::new("debugfs").args(["-R", &ask]).arg(volume.image()).output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&printed.stdout).trim(),
            home.to_string(),
            "block {block}"
        );
    }
}
