//! Tests of `okeanos blocks`: the kernel's own file systems and other projects' clients over a
//! block volume.

use crate::rig::Rig;

/// Functions. `attach ARGUMENTS`: the block device is `$L`. `daemon`: the process that serves it.
const BLOCKS: &str = r#"
    attach() { L=$(timeout 60 $O blocks attach "$@"); }
    daemon() { $O stats --json image | sed -n 's/^ *"process": \([0-9]*\),*$/\1/p'; }
    gone() { for i in $(seq 600); do [ -e /proc/$1/exe ] || return 0; sleep 0.1; done; return 1; }
    leave() { umount here 2>/dev/null || true; timeout 60 $O blocks detach image 2>/dev/null || true; }
    trap leave EXIT; mkdir here
"#;

/// Synced content survives a kill of the daemon, and e2fsck finds no error in the rest.
fn ext4_survives_a_kill(format: &str, attach: &str) {
    let rig = Rig::new();
    let lines = rig.run(&format!(
        r#"{BLOCKS}
        truncate -s 200M image; truncate -s 40M log
        $O blocks format {format} image >/dev/null
        attach {attach} image; mkfs.ext4 -q $L
        for round in 1 2 3; do
            mount $L here; D=$(daemon)
            (for i in $(seq 1000); do
                echo "$round $i" | dd of=here/log bs=100 oflag=append conv=notrunc,fsync status=none || break
                echo "$round $i" >>synced
            done) 2>/dev/null & W=$!
            for i in $(seq 600); do [ $(grep -c "^$round " synced 2>/dev/null) -ge $((20 * round)) ] && break; sleep 0.05; done
            kill -9 $D; gone $D; wait $W || true; timeout 60 umount here
            attach {attach} image
            # Replays the journal of the ext4 above, as the mount would.
            timeout 60 e2fsck -fp $L >fsck || [ $? -lt 4 ] || {{ cat fsck; exit 1; }}
            mount $L here; head -n $(wc -l <synced) here/log >found
            # A line whose sync was not answered may be there between rounds.
            grep -Fvxf here/log synced && exit 1
            umount here
        done
        clean $L; wc -l <synced; timeout 60 $O blocks detach image; trap - EXIT"#
    ));
    let lines: u64 = lines.trim().parse().expect("a count");
    assert!(lines >= 3 * 20, "{lines} syncs");
}

#[test]
fn what_ext4_has_synced_survives_a_killed_daemon() {
    ext4_survives_a_kill("", "");
}
#[test]
fn the_same_with_the_journal_on_its_own_device() {
    ext4_survives_a_kill("--log log", "--log log -o data=wasteless");
}
#[test]
fn the_same_with_scattered_logs() {
    ext4_survives_a_kill("--scattered-logs=log-size=2M,group-size=16M", "-o data=journal");
}

/// No probe sees the content of the exported disk, and no mount bypasses the log.
#[test]
fn no_probe_and_no_mount_takes_the_disk_for_what_is_in_it() {
    let rig = Rig::new();
    rig.run(&format!(
        r#"{BLOCKS}
        truncate -s 400M image; mkfs.ext4 -q -F image
        refuses $O blocks format image 2>said; grep -q 'ext4.* already' said; grep -q 'force' said
        $O blocks format --force image >printed; grep -q 'a block volume of' printed
        for kind in ext4 xfs; do
            attach image; timeout 60 mkfs.$kind -q $L; mount $L here; cp -r /etc/default here/; umount here
            timeout 60 $O blocks detach $L
            blkid -p image >probed && {{ cat probed; exit 1; }}
            refuses mount -o ro,loop image here 2>said
            AT=$($O blocks inspect --json image | sed -n 's/^ *"data_offset": \([0-9]*\),*$/\1/p')
            SIZE=$($O blocks inspect --json image | sed -n 's/^ *"exported_bytes": \([0-9]*\),*$/\1/p')
            blkid -p --offset $AT image | grep -q "TYPE=\"$kind\""
            # A drained volume is read at its offset without us.
            mount -o ro,loop,offset=$AT,sizelimit=$SIZE image here; diff -r /etc/default here/default; umount here; settle image
            attach image; blkid -p $L | grep -q "TYPE=\"$kind\""; wipefs -qa $L; timeout 60 $O blocks detach image
        done
        refuses $O blocks format image 2>said; grep -q 'a block volume already' said; trap - EXIT"#
    ));
}

/// In the foreground, as a unit of systemd starts it: the device exists when the
/// manager hears of it.
#[test]
fn a_service_attaches_a_device_reports_it_and_ends_cleanly() {
    let rig = Rig::new();
    rig.run(&format!(
        r#"{BLOCKS}
        truncate -s 64M image; $O blocks format image >/dev/null
        python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind("notify"); s.settimeout(120); open("bound", "w"); print(s.recv(100).decode())' >heard & P=$!
        for i in $(seq 100); do [ -e bound ] && break; sleep 0.1; done
        NOTIFY_SOCKET=$PWD/notify $O blocks attach -f -o '' image >attached & D=$!
        wait $P; grep -q READY=1 heard; L=$(cat attached); [ $(daemon) = $D ]
        mkfs.ext4 -q $L; mount $L here; echo kept >here/file; umount here
        timeout 60 $O blocks detach image; wait $D
        refuses timeout 60 $O blocks attach -f -o nonsense image >attached 2>said; grep -q nonsense said; [ ! -s attached ]
        attach image; mount $L here; grep -q kept here/file; umount here; timeout 60 $O blocks detach image; trap - EXIT"#
    ));
}

#[test]
fn a_volume_is_attached_once_and_read_only_if_wanted() {
    let rig = Rig::new();
    rig.run(&format!(
        r#"{BLOCKS}
        truncate -s 64M image; $O blocks format image >/dev/null
        attach -o data=wasteless,cache=8M --write-through image
        refuses $O blocks attach image 2>said; grep -q "attached already as $L" said
        refuses $O blocks drain image 2>said; grep -q 'in use' said
        $O list >listed; grep -q 'image.*wasteless.*ok.*write_through' listed
        mkfs.ext4 -q $L; mount $L here
        refuses $O blocks detach $L 2>said; grep -q 'is mounted on .*here' said
        echo kept >here/file; umount here; $O stats image | grep -q records=packed
        timeout 60 $O blocks detach $L; refuses $O blocks detach image 2>said; grep -q 'not attached' said
        attach --read-only image; [ $(cat /sys/block/$(basename $L)/ro) = 1 ]
        mount -o ro $L here; grep -q kept here/file; umount here; timeout 60 $O blocks detach image
        refuses $O blocks attach -o barrier=coerce image 2>said; grep -q 'no flush zone' said
        truncate -s 1M small; refuses $O blocks format small 2>said; grep -q 'too short' said
        refuses $O blocks attach small 2>said; grep -q 'no block volume' said; trap - EXIT"#
    ));
}

#[test]
fn commands_say_what_a_crash_has_left_and_recover_it() {
    let rig = Rig::new();
    rig.run(&format!(
        r#"{BLOCKS}
        truncate -s 64M image; $O blocks format image >/dev/null
        attach -o expire=1h,writeback=1h,data=wasteless image; D=$(daemon)
        seq 30000 >written; truncate -s 131072 written; dd if=written of=$L bs=4096 conv=fsync oflag=direct status=none
        kill -9 $D; gone $D
        refuses $O blocks inspect image 2>said; grep -q 'has died.*blocks attach' <(tr '\n' ' ' <said)
        timeout 60 $O blocks detach image 2>said; grep -q 'had died' said
        $O blocks inspect image >printed; grep -q 'transactions to replay' printed
        $O check image | grep -q 'transactions in the log; nothing is wrong'
        cp image torn; dd if=/dev/zero of=torn bs=4096 seek=1 count=1 conv=notrunc status=none
        $O check torn >printed || [ $? = 4 ]; grep -q 'superblock is damaged' printed
        cp image copy; $O recover --dry-run copy | grep -q 'would be replayed'; cmp image copy
        $O recover copy | grep -q 'replayed: 32 blocks written home'
        $O blocks drain image | grep -q replayed; $O blocks inspect image | grep -q 'all is home'
        AT=$($O blocks inspect --json image | sed -n 's/^ *"data_offset": \([0-9]*\),*$/\1/p')
        cmp -n 131072 written <(tail -c +$((AT + 1)) image); cmp -n 131072 written <(tail -c +$((AT + 1)) copy); trap - EXIT"#
    ));
}

#[test]
fn nbd_clients_read_write_and_flush_a_volume() {
    let rig = Rig::new();
    rig.run(
        r#"truncate -s 96M image; $O blocks format image >/dev/null
        start() { rm -f uri; $O blocks attach --via nbd --socket s "$@" image >uri 2>err & DAEMON=$!; for i in $(seq 600); do [ -s uri ] && break; sleep 0.1; done; U=$(head -1 uri); }
        stop() { kill $DAEMON; wait $DAEMON; }
        start; timeout 60 nbdinfo "$U" >info; grep -q 'can_fua: true' info; grep -q 'can_trim: true' info
        timeout 100 qemu-io -f raw -c 'write -P 7 0 1M' -c 'write -f -P 8 4k 512' -c 'flush' "$U" >q; kill -9 $DAEMON; wait $DAEMON || true
        start; timeout 100 qemu-io -f raw -c 'read -P 8 4k 512' -c 'read -P 7 8k 64k' -c 'discard 0 1M' -c 'write -z 0 64k' -c 'read -P 0 0 64k' "$U" >q
        grep -q 'verification failed' q && exit 1; stop
        start --read-only; refuses timeout 20 qemu-io -f raw -c 'write 0 4k' "$U" >said 2>&1; stop
        $O blocks inspect image | grep -q 'all is home'"#,
    );
}
