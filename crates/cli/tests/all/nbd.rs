//! Tests of `okeanos nbd` with other projects' clients: nbdinfo, nbdcopy, qemu-io, fio, and the
//! kernel's ext4 over nbdfuse and a loop device.
use crate::rig::Rig;
use std::process::Command;

/// Functions. `start OPTIONS…`: a server on the socket `s`, printing to `out`. `stop`: ends it as
/// SIGTERM does. `kill_server`: as a power cut of the program. A script that fails leaves none
/// behind: it would hold the pipe that the test reads.
const WORDS: &str = r#"
    U='nbd+unix:///?socket=s'
    P=; end() { [ -z "$P" ] || kill -9 $P 2>/dev/null || true; }; trap end EXIT
    start() {
        rm -f out
        $O nbd --socket s "$@" >out & P=$!
        for i in $(seq 300); do grep -qs listening out && return; sleep 0.1; done; return 1
    }
    stop() { kill -TERM $P; wait $P; }
    kill_server() { kill -9 $P; wait $P || true; }
    q() { timeout 100 qemu-io -f raw "$@" "$U" >q 2>&1 || { cat q; exit 1; }; }
"#;

fn run(script: &str) -> String {
    // Does nothing, and needs no network, if all are installed.
    let packages = ["libnbd-bin", "qemu-utils", "fio", "fuse3", "e2fsprogs"];
    let install = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install-packages.sh");
    assert!(Command::new(install).args(packages).status().unwrap().success(), "{packages:?}");
    Rig::new().run(&format!("{WORDS}{script}"))
}

#[test]
fn what_clients_of_others_write_they_read_again_also_after_the_server_was_killed() {
    run("truncate -s 512M disk; head -c 20M /dev/urandom >src; truncate -s 48M src
         start --scattered --format --log-size 1M --group-size 16M --logged-write-size 256K disk
         timeout 60 nbdinfo \"$U\" >info; grep -q 'can_multi_conn: true' info; grep -q 'block_size_minimum: 512' info
         timeout 100 nbdcopy src \"$U\"; timeout 100 nbdcopy \"$U\" back; cmp -n $((48 << 20)) src back; rm back
         timeout 100 fio --ioengine=nbd --uri=\"$U\" --name=t --rw=randrw --bs=4k --offset=64M --size=16M \
            --iodepth=16 --verify=crc32c --fsync=64 --minimal >/dev/null
         q -c 'write -P 7 512 1536' -c 'write -P 8 80M 300k' -c 'write -P 6 81M 32k' -c 'write -P 5 81M 512' -c flush
         q -c 'write -f -P 9 100M 64k' -c 'write -z 101M 128k' -c 'discard 102M 1M' -c flush
         kill_server; start --scattered disk
         grep -q 'scattered logs: [1-9]' out
         q -c 'read -P 7 512 1536' -c 'read -P 8 80M 300k' -c 'read -P 6 84935168 32256' -c 'read -P 5 81M 512' \
            -c 'read -P 9 100M 64k' -c 'read -P 0 101M 128k'
         stop; start --scattered --checkpoint manual --checkpoint-at-end disk
         grep -q ' 0 logs read' out
         stop; start --scattered disk; grep -q 'scattered logs: 0 blocks' out
         q -c 'read -P 7 512 1536' -c 'read -P 8 80M 300k' -c 'read -P 5 81M 512' -c 'read -P 9 100M 64k'; stop");
}

#[test]
fn ext4_of_the_kernel_lives_on_scattered_logs() {
    run("truncate -s 256M disk; mkdir d here
         start --scattered --format --log-size 1M --group-size 8M --mtl table disk
         nbdfuse d/disk --unix s & F=$!
         for i in $(seq 100); do [ -e d/disk ] && break; sleep 0.1; done
         L=$(losetup --find --show d/disk); trap 'umount here || true; losetup -d $L || true; umount d || true; end' EXIT
         timeout 100 mke2fs -q -t ext4 -E lazy_itable_init=0 $L; timeout 60 mount $L here
         cp -r /etc/default here/; for i in $(seq 20); do echo $i | dd of=here/log bs=100 oflag=sync,append conv=notrunc status=none; done
         umount here; clean $L; timeout 60 mount $L here; diff -r /etc/default here/default; seq 20 | cmp - here/log
         umount here; losetup -d $L; for i in $(seq 100); do umount d 2>/dev/null && break; sleep 0.1; done; trap end EXIT
         wait $F; stop");
}

/// Covers an exported device, too, and a table on other memory.
#[test]
fn inspect_logs_lists_the_logs_of_a_block_device() {
    let out = run("truncate -s 64M disk
         start --scattered --format --log-size 1M --group-size 8M --mtl table --checkpoint manual disk
         $O inspect logs --mtl table disk | grep -q 'all are empty'
         q -c 'write -P 7 0 16k' -c 'write -P 8 4k 4k' -c flush
         $O inspect logs --mtl table disk >said; grep -q 'to checkpoint all of them: . reads, and 1 writes of 16' said
         refuses $O inspect logs disk 2>said; grep -q -- --mtl said
         kill_server; $O inspect logs --mtl table --json disk");
    let printed: serde_json::Value = serde_json::from_str(&out[out.find('{').unwrap()..]).unwrap();
    assert_eq!(printed["checkpoint"]["home_bytes"], 16 << 10, "{out}");
    assert_eq!(
        (&printed["newest"], &printed["listed"][0]["live_bytes"]),
        (&2.into(), &(16 << 10).into()),
        "{out}"
    );
    assert_eq!(
        (&printed["listed"][0]["records"], &printed["listed"][0]["age"]),
        (&2.into(), &1.into()),
        "{out}"
    );
}

#[test]
fn other_machines_other_tables_and_plain_disks_are_refused() {
    run("truncate -s 64M disk other
         refuses timeout 20 $O nbd --listen 0.0.0.0:0 disk 2>said; grep -q loopback said || grep -q 'no TLS' said
         refuses timeout 20 $O nbd --socket s --scattered disk 2>said; grep -q -- --format said
         start --scattered --format --log-size 1M --group-size 8M --mtl table disk; stop
         refuses timeout 20 $O nbd --socket s --scattered disk 2>said; grep -q -- --mtl said
         start --scattered --format --log-size 1M --group-size 8M --mtl other-table other; stop
         refuses timeout 20 $O nbd --socket s --scattered --mtl other-table disk 2>said; grep -q 'another disk' said
         truncate -s 64M plain; start --read-only plain; refuses timeout 20 qemu-io -f raw -c 'write 0 4k' \"$U\" >said 2>&1; stop");
}

/// A raw export of scattered logs shows old blocks, and lets a write destroy the logs; `--format`
/// destroys any other content.
#[test]
fn nothing_is_exported_raw_or_formatted_unasked() {
    run("truncate -s 64M disk other; P=
         start --scattered --format --log-size 1M --group-size 8M disk; q -c 'write -f -P 7 0 4k'; stop
         before=$(sha256sum <disk)
         for how in '' --read-only '--scattered --format --log-size 1M --group-size 8M'; do
             refuses timeout 20 $O nbd --socket s $how disk 2>said; grep -q 'scattered logs' said
             grep -q -- --scattered said
         done
         refuses timeout 60 $O mkfs disk 2>said; grep -q 'scattered logs' said
         [ \"$(sha256sum <disk)\" = \"$before\" ]
         start --scattered disk; q -c 'read -P 7 0 4k'; stop
         for make in 'mke2fs -q -F -t ext4' 'mkfs.btrfs -q -f' 'mkfs.xfs -q -f' 'mke2fs -q -F -O journal_dev'; do
             rm other; truncate -s 400M other; $make other >made 2>&1 || continue; before=$(sha256sum <other)
             refuses timeout 20 $O nbd --socket s --scattered --format other 2>said; grep -q 'appears to hold' said
             refuses timeout 20 $O nbd --socket s --scattered --format --mtl other disk 2>said
             mkdir -p store here; for format in '' --format; do
                 refuses timeout 20 $O host mount --store dir:store --journal other $format here 2>said; cat said
             done
             [ \"$(sha256sum <other)\" = \"$before\" ]
         done
         start --scattered --format --force other; stop
         refuses timeout 20 $O host mount --store dir:store --journal other --format here 2>said; grep -q 'scattered logs' said
         timeout 60 $O host mount --store dir:store --journal other --format --force here; timeout 60 $O umount here");
}
