//! Tests of the daemon and its environment: namespaces that end, other mounts in the same place,
//! limits, readers that have ended.

use crate::common::ring::Ring;
use crate::common::{Volume, gone, is_alive, okeanos, said, signal};
use crate::rig::Rig;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Functions for scripts whose failure would leave processes that wait for themselves. Whatever
/// happens, at the end the connections to the daemons of `image` are cut, and they are killed.
/// `ended PROCESS`: it ends in time.
const RESCUED: &str = r#"
rescue() {
    mountpoint -q /sys/fs/fuse/connections || mount -t fusectl none /sys/fs/fuse/connections
    for loop in $(losetup --noheadings --output NAME -j image); do
        echo 1 >/sys/fs/fuse/connections/$((7 << 20 | ${loop#/dev/loop}))/abort 2>/dev/null || true
    done
    for process in $(cat daemon 2>/dev/null); do kill -9 $process 2>/dev/null || true; done
}
trap rescue EXIT
ended() {
    for i in $(seq 200); do
        grep -qv ') [ZX] ' /proc/$1/stat 2>/dev/null || return 0; sleep 0.1
    done
    echo "$1 does not end" >&2; exit 1
}
daemon() { $O stats --json $M | sed -n 's/.*"process": \([0-9]*\).*/\1/p' >daemon; }
alone() {
    unshare --mount --propagation private timeout -k 5 60 bash -euo pipefail -c "$WORDS; $1"
}
sync_returns() { sync & ended $!; }
WORDS="O=$O M=$M; $(declare -f daemon)"
$O mkfs --force image 64M -- -q >made
"#;

const TRANSPORTS: [&str; 2] = ["classic", "uring"];

/// Takes the ring. Outer `None`: the kernel has no such transport. The ring is reserved as long as
/// the result is kept.
fn ring_for(transport: &str) -> Option<Option<Ring>> {
    if transport == "uring" { Ring::allowed().map(Some) } else { Some(None) }
}

#[test]
fn a_mount_ends_with_its_namespace_and_everything_is_written() {
    for options in ["transport=classic", "noloop,transport=classic", "transport=uring"] {
        let Some(_ring) = ring_for(options.trim_start_matches("transport=")) else { continue };
        let rig = Rig::new();
        rig.run(&format!(
            "{RESCUED}
             alone '$O mount -o {options} image $M; daemon; echo kept >$M/file'
             ended $(cat daemon); settle image; clean image
             $O mount image $M; [ $(cat $M/file) = kept ]; $O umount $M"
        ));
    }
}

#[test]
fn a_killed_daemon_dies_and_nobody_who_syncs_waits_for_it() {
    let rig = Rig::new();
    for transport in TRANSPORTS {
        let Some(_ring) = ring_for(transport) else { continue };
        // Killed after its namespace, and in the moment when that ends.
        for last in ["", "kill -9 $(cat daemon)"] {
            rig.run(&format!(
                "{RESCUED}
                 alone '$O mount -o transport={transport} image $M; daemon; echo kept >$M/file; sync $M/file; {last}'
                 kill -9 $(cat daemon) 2>/dev/null || true
                 ended $(cat daemon); sync_returns; settle image
                 $O mount image $M; [ $(cat $M/file) = kept ]; $O umount $M; clean image"
            ));
        }
    }
}

#[test]
fn a_container_that_is_killed_as_a_whole_leaves_nothing_behind() {
    let rig = Rig::new();
    for transport in TRANSPORTS {
        let Some(_ring) = ring_for(transport) else { continue };
        rig.run(&format!(
            "{RESCUED}
             for foreground in '' -f; do
                 rm -f up
                 unshare --pid --fork --mount --mount-proc --propagation private \
                     bash -euo pipefail -c \"
                     $O mount -o transport={transport} $foreground image $M &
                     for i in \\$(seq 600); do mountpoint -q $M && break; sleep 0.1; done
                     echo kept >$M/file; sync $M/file; touch up; sleep 1000\" & CONTAINER=$!
                 for i in $(seq 600); do [ -e up ] && break; sleep 0.1; done
                 kill -9 $(cat /proc/$CONTAINER/task/$CONTAINER/children)
                 ended $CONTAINER; sync_returns; settle image; [ -z \"$(losetup -j image)\" ]
                 $O mount image $M; [ $(cat $M/file) = kept ]; $O umount $M; clean image
             done"
        ));
    }
}

#[test]
fn the_image_keeps_the_file_system_under_it_busy_and_nothing_else_does() {
    Rig::new().run(
        "mkdir under beside; mount -t tmpfs none under; mount -t tmpfs none beside
         $O mkfs --force under/image 32M -- -q >made; $O mount -o transport=classic under/image $M
         umount beside; refuses umount under 2>printed; grep -q busy printed
         $O umount $M; settle under/image; umount under",
    );
}

#[test]
fn a_signal_takes_no_mount_away_but_the_daemons_own() {
    for transport in TRANSPORTS {
        // A served disk uses the ring where it may.
        let Some(_ring) = ring_for(transport) else { continue };
        let rig = Rig::new();
        rig.run(&format!(
            "{RESCUED}
             $O mkfs --force other 64M -- -q >made; mkdir elsewhere
             # Another volume lies over it.
             serve transport={transport} image; $O mount -o transport={transport} other $M
             echo theirs >$M/file
             kill $DAEMON; wait $DAEMON; [ $(cat $M/file) = theirs ]
             $O umount $M; $O umount $M; settle image other; clean image; clean other
             # It was moved, and another volume is in its place.
             serve transport={transport} image; echo ours >$M/file; mount --move $M elsewhere
             $O mount -o transport={transport} other $M; kill $DAEMON; wait $DAEMON
             [ $(cat $M/file) = theirs ]; unmounted elsewhere; $O umount $M; settle image
             clean image
             # The same of served disks.
             $LAB disk serve -f --model cheetah-15k5 $M >printed & DAEMON=$!
             for i in $(seq 600); do mountpoint -q $M && break; sleep 0.1; done
             $O mount -o transport={transport} other $M; kill $DAEMON; wait $DAEMON || true
             [ $(cat $M/file) = theirs ]
             $O umount $M; umount -l $M"
        ));
    }
}

#[test]
fn a_mount_may_cover_every_place_that_the_daemon_knows() {
    for transport in TRANSPORTS {
        let Some(_ring) = ring_for(transport) else { continue };
        for place in ["/run", "/dev", "/sys", "/proc", "/tmp"] {
            let rig = Rig::new();
            rig.run(&format!(
                "{RESCUED}
                 timeout 60 $O mount -o transport={transport} image {place}; echo in >{place}/file
                 $O stats {place} >printed || [ {place} = /proc ]
                 {{ [ {place} = /proc ] && umount /proc; }} || $O umount {place}; settle image
                 clean image"
            ));
        }
    }
}

/// Covers the directory, and the one above it. The user's commands cannot look beneath a mount, and
/// reach the daemon all the same.
#[test]
fn an_ordinary_user_may_cover_the_place_of_his_own_socket() {
    for transport in TRANSPORTS {
        let Some(_ring) = ring_for(transport) else { continue };
        let printed = if transport == "uring" { "io_uring" } else { transport };
        for place in ["$PWD/run", "$PWD/run/okeanos"] {
            // A private node for /dev/fuse: the system's may be closed to ordinary users.
            Rig::new().run(&format!(
                "mknod -m 666 fuse c 10 229; mount --bind fuse /dev/fuse; chmod 755 .; cp $O okeanos
                 truncate -s 64M image; mke2fs -q -t ext4 -E root_owner=65534:65534 image
                 chown 65534 image
                 mkdir run; chown 65534 run; export XDG_RUNTIME_DIR=$PWD/run
                 as_nobody mkdir -p -m 700 {place}
                 in_time() {{ as_nobody timeout 60 \"$@\"; }}
                 for round in first second; do
                     in_time ./okeanos mount -o transport={transport} image {place}
                     as_nobody touch {place}/$round
                     in_time ./okeanos stats --json {place} >printed
                     grep -q '\"transport\": \"{printed}\"' printed
                     in_time ./okeanos umount {place}; clean image
                 done
                 in_time ./okeanos mount image {place}; as_nobody ls {place}/first {place}/second
                 in_time ./okeanos umount {place}"
            ));
        }
    }
}

#[test]
fn paths_need_not_be_text() {
    let volume = Volume::new(&["-t", "ext4"]);
    let path = |name: &[u8]| volume.directory.path().join(OsStr::from_bytes(name));
    let (image, root) = (path(b"im\xffage"), path(b"mou\xfented"));
    fs::rename(volume.image(), &image).unwrap();
    fs::create_dir(&root).unwrap();
    for options in ["transport=classic", "transport=classic,noloop"] {
        let run = |words: &[&str], paths: &[&Path]| {
            let arguments =
                words.iter().map(OsStr::new).chain(paths.iter().map(|path| path.as_os_str()));
            let output = okeanos(&arguments.collect::<Vec<_>>());
            assert!(output.status.success(), "{words:?} {options}: {}", said(&output));
            said(&output)
        };
        run(&["mount", "-o", options], &[&image, &root]);
        assert!(run(&["stats"], &[&root]).contains("data=selective"));
        run(&["stats", "--json"], &[&root]);
        fs::write(root.join("file"), b"kept").unwrap();
        run(&["umount"], &[&root]);
    }
    fs::rename(&image, volume.image()).unwrap();
    volume.check();
}

/// A daemon in the foreground, killed at the end if it still runs.
struct Foreground(Child);

impl Foreground {
    fn mount(volume: &Volume, err: Stdio) -> Foreground {
        let mut command = Command::new(env!("CARGO_BIN_EXE_okeanos"));
        command
            .args(["mount", "-f", "-o", "transport=classic"])
            .args([volume.image(), volume.root()]);
        // Under nohup(1) the tests have the signal ignored, and so would the daemon. SAFETY: a
        // default action is no function of this program.
        let hangs_up = || match unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) } {
            libc::SIG_ERR => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        };
        // SAFETY: between fork and exec one system call is made, on no memory.
        unsafe { command.pre_exec(hangs_up) };
        let mut daemon = Foreground(command.stderr(err).spawn().unwrap());
        while !volume.at("lost+found").exists() {
            assert!(daemon.0.try_wait().unwrap().is_none(), "it ended early");
            std::thread::sleep(Duration::from_millis(20));
        }
        daemon
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_terminal_that_is_closed_ends_the_mount_cleanly() {
    let volume = Volume::new(&["-t", "ext4"]);
    let mut daemon = Foreground::mount(&volume, Stdio::inherit());
    fs::write(volume.at("file"), b"home").unwrap();
    signal(daemon.0.id() as i32, libc::SIGHUP);
    assert!(daemon.0.wait().unwrap().success());
    volume.check();
}

#[test]
fn reports_that_nobody_reads_harm_no_mount() {
    for reads in [true, false] {
        let volume = Volume::mounted(&["-t", "ext4", "-b", "4096"], "");
        fs::create_dir(volume.at("ill")).unwrap();
        fs::write(volume.at("file"), b"well").unwrap();
        volume.umount();
        let printed = Command::new("debugfs")
            .args(["-R", "blocks ill"])
            .arg(volume.image())
            .output()
            .unwrap()
            .stdout;
        let block: u64 = String::from_utf8_lossy(&printed).trim().parse().expect("a block");
        let image = fs::OpenOptions::new().write(true).open(volume.image()).unwrap();
        image.write_all_at(&[0xa5; 4096], block * 4096).unwrap();

        let (reader, mut writer) = std::io::pipe().unwrap();
        // SAFETY: the descriptor is open; the command takes an integer.
        let room = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
        assert!(room > 0);
        let mut daemon = Foreground::mount(&volume, writer.try_clone().unwrap().into());
        let reader = if reads {
            // The pipe is full, and stays so. Root without a capability has been warned already.
            let mut held: libc::c_int = 0;
            // SAFETY: the descriptor is open; the call writes one integer.
            assert_eq!(unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &mut held) }, 0);
            writer.write_all(&vec![b'.'; (room - held) as usize]).unwrap();
            Some(reader)
        } else {
            drop(reader);
            None
        };
        for _ in 0..10 {
            let listing = Command::new("timeout")
                .args(["-k", "5", "30", "ls"])
                .arg(volume.at("ill"))
                .output();
            assert_eq!(listing.unwrap().status.code(), Some(2), "{reads}: an error, and no wait");
        }
        assert_eq!(fs::read(volume.at("file")).unwrap(), b"well");
        signal(daemon.0.id() as i32, libc::SIGTERM);
        gone(daemon.0.id() as i32);
        daemon.0.wait().unwrap();
        drop(reader);
    }
}

#[test]
fn writers_do_not_keep_a_terminated_daemon() {
    /// Present users get ten seconds.
    const PATIENCE: Duration = Duration::from_secs(40);
    for transport in ["classic", "uring"] {
        let Some(ring) = ring_for(transport) else { continue };
        let volume = Volume::mounted(
            &["-t", "ext4", "-b", "4096"],
            &format!("data=wasteless,cache=1M,transport={transport}"),
        );
        drop(ring);
        let daemon = volume.daemon();
        let over = AtomicBool::new(false);
        let goes_on = || !over.load(Ordering::Relaxed);
        fs::write(volume.at("large"), vec![7; 32 << 20]).unwrap();
        let open = |name: &str, flags| {
            let mut options = fs::OpenOptions::new();
            options
                .read(true)
                .write(true)
                .create(true)
                .custom_flags(flags)
                .open(volume.at(name))
                .unwrap()
        };
        let ended = std::thread::scope(|scope| {
            // Each has a request in the daemon nearly all the time, and not all end at once.
            for thread in 0..16u64 {
                let goes_on = &goes_on;
                let (large, own) =
                    (open("large", libc::O_DIRECT), open(&thread.to_string(), libc::O_SYNC));
                scope.spawn(move || while goes_on() && own.write_all_at(b"more", 0).is_ok() {});
                scope.spawn(move || {
                    let (mut at, mut block) = (thread * 977, [0; 4096]);
                    while goes_on() && large.read_exact_at(&mut block, at % 8192 * 4096).is_ok() {
                        at += 3571;
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(200));
            signal(daemon, libc::SIGTERM);
            let begun = Instant::now();
            while is_alive(daemon) && begun.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(50));
            }
            let ended = !is_alive(daemon);
            over.store(true, Ordering::Relaxed);
            ended
        });
        assert!(ended, "{transport}: it serves on after {PATIENCE:?}");
        volume.check();
    }
}

#[test]
fn a_daemon_short_of_descriptors_mounts_and_unmounts_or_says_why_not() {
    let volume = Volume::new(&["-t", "ext4"]);
    let mut mounted = 0;
    for limit in (4..40).rev() {
        let output = Command::new("timeout")
            .args(["-k", "5", "60", "prlimit", &format!("--nofile={limit}")])
            .arg(env!("CARGO_BIN_EXE_okeanos"))
            .args(["mount", "-o", "transport=classic"])
            .args([volume.image(), volume.root()])
            .output()
            .unwrap();
        if output.status.success() {
            mounted += 1;
            // Queries must leave connections for others.
            let lookers: Vec<_> = (0..3).map(|_| volume.statistics()).collect();
            assert_eq!(lookers.len(), 3);
            volume.umount();
        } else {
            let reason = said(&output);
            assert!(
                reason.contains("open files") || reason.contains("descriptor"),
                "{limit}: {reason}"
            );
            assert!(
                !volume.at("lost+found").exists(),
                "{limit}: refused, and mounted all the same"
            );
        }
    }
    assert!(mounted > 5, "{mounted}");
    volume.check();
}
