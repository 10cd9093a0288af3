//! Tests of `okeanos nbd` with other projects' clients: nbdinfo, nbdcopy, qemu-io, fio, and the
//! kernel's ext4 over nbdfuse and a loop device.
use crate::daemon_rights::{FEW_RIGHTS, SETTLED};
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
    Rig::new().run(&format!("{WORDS}{FEW_RIGHTS}{SETTLED}{script}"))
}

#[test]
fn what_clients_of_others_write_they_read_again_also_after_the_server_was_killed() {
    run("truncate -s 512M disk; head -c 20M /dev/urandom >src; truncate -s 48M src
         start disk; settled $P; few $P
         timeout 60 nbdinfo \"$U\" >info; grep -q 'can_multi_conn: true' info
         grep -q 'block_size_minimum: 512' info
         timeout 100 nbdcopy src \"$U\"; timeout 100 nbdcopy \"$U\" back
         cmp -n $((48 << 20)) src back; rm back
         timeout 100 fio --ioengine=nbd --uri=\"$U\" --name=t --rw=randrw --bs=4k --offset=64M \
             --size=16M \
            --iodepth=16 --verify=crc32c --fsync=64 --minimal >/dev/null
         q -c 'write -P 7 512 1536' -c 'write -P 8 80M 300k' -c 'write -P 6 81M 32k' \
             -c 'write -P 5 81M 512' -c flush
         q -c 'write -f -P 9 100M 64k' -c 'write -z 101M 128k' -c 'discard 102M 1M' -c flush
         kill_server; start disk
         q -c 'read -P 7 512 1536' -c 'read -P 8 80M 300k' -c 'read -P 6 84935168 32256' \
             -c 'read -P 5 81M 512' \
            -c 'read -P 9 100M 64k' -c 'read -P 0 101M 128k'
         stop; [ ! -e s ]");
}

#[test]
fn ext4_of_the_kernel_lives_on_an_export() {
    run("truncate -s 256M disk; mkdir d here; start disk
         nbdfuse d/disk --unix s & F=$!
         for i in $(seq 100); do [ -e d/disk ] && break; sleep 0.1; done
         L=$(losetup --find --show d/disk)
         trap 'umount here || true; losetup -d $L || true; umount d || true; end' EXIT
         timeout 100 mke2fs -q -t ext4 -E lazy_itable_init=0 $L; timeout 60 mount $L here
         cp -r /etc/default here/
         for i in $(seq 20); do
             echo $i | dd of=here/log bs=100 oflag=sync,append conv=notrunc status=none
         done
         umount here; clean $L; timeout 60 mount $L here; diff -r /etc/default here/default
         seq 20 | cmp - here/log
         umount here; losetup -d $L
         for i in $(seq 100); do umount d 2>/dev/null && break; sleep 0.1; done; trap end EXIT
         wait $F; stop");
}

#[test]
fn other_machines_and_changes_of_a_read_only_disk_are_refused() {
    run("truncate -s 64M disk
         refuses timeout 20 $O nbd --listen 0.0.0.0:0 disk 2>said
         grep -q loopback said || grep -q 'no TLS' said
         start --read-only disk; refuses timeout 20 qemu-io -f raw -c 'write 0 4k' \"$U\" >said 2>&1
         stop
         refuses timeout 20 $O nbd --socket s --scattered --format disk 2>said
         grep -q 'okeanos blocks format --scattered-logs' said
         grep -q 'okeanos blocks attach --via nbd' said");
}

/// A raw export shows old blocks, and lets a write destroy the log. A format destroys any content.
/// What a former version made is named by every command that does not read it.
#[test]
fn nothing_is_exported_raw_or_formatted_unasked() {
    run("truncate -s 64M disk old; mkdir store here; P=
         $O blocks format --scattered-logs=log-size=1M,group-size=8M disk >made
         printf OKSD | dd of=old conv=notrunc status=none
         for held in 'disk:a block volume:okeanos blocks attach --via nbd' \
                     'old:scattered logs of an okeanos before 0.1.0:okeanos blocks format --scattered-logs --force'; do
             path=${held%%:*}; name=${held#*:}; name=${name%:*}; before=$(sha256sum <$path)
             for how in '' --read-only; do
                 refuses timeout 20 $O nbd --socket s $how $path 2>said; grep -q \"$name\" said
                 grep -q \"${held##*:}\" said
             done
             for how in 'mkfs' 'blocks format' 'blocks format --scattered-logs'; do
                 refuses timeout 60 $O $how $path 2>said; grep -q \"$name\" said
                 grep -q -- --force said
             done
             refuses timeout 20 $O host mount --store dir:store --journal $path --format here 2>said
             grep -q \"$name\" said
             [ \"$(sha256sum <$path)\" = \"$before\" ]
         done
         for how in 'mount old here' 'blocks attach --via nbd --socket s old' \
                    'blocks attach --via loop old' \
                    'blocks detach old' 'blocks drain old' 'blocks grow old' \
                    'blocks inspect old'; do
             refuses timeout 20 $O $how 2>said
             grep -q 'old holds scattered logs of an okeanos before 0.1.0' said
             grep -q 'Copy what they hold with the program that made them' said
             refuses grep -q 'no block volume' said
         done
         $O blocks format --force old >made; grep -q 'a block volume' made
         timeout 60 $O host mount --store dir:store --journal old --format --force here
         timeout 60 $O umount here");
}
