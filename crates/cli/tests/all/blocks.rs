//! Tests of `okeanos blocks`: the kernel's own file systems and other projects' clients over a
//! block volume.

use crate::daemon_rights::{FEW_RIGHTS, SETTLED};
use crate::rig::Rig;
use std::path::Path;

/// Functions. `attach ARGUMENTS`: the block device is `$L`, of the kind that every kernel has.
/// `daemon`: the process that serves it.
const BLOCKS: &str = r#"
    attach() { L=$(timeout 60 $O blocks attach --via loop "$@"); }
    daemon() { $O stats --json image | sed -n 's/^ *"process": \([0-9]*\),*$/\1/p'; }
    gone() { for i in $(seq 600); do [ -e /proc/$1/exe ] || return 0; sleep 0.1; done; return 1; }
    leave() { umount here 2>/dev/null || true; timeout 60 $O blocks detach image 2>/dev/null || true; }
    trap leave EXIT; mkdir here
"#;

/// A profile of a drive that sixteen writes evict.
const PROFILE: &str = r#"printf '%s\n' 'model = "A drive"' 'size = 1000' 'trials = 50' 'milliseconds = 1.5' '[workload]' 'pattern = "random"' 'writes = 16' 'bytes = 160000' >profile"#;

/// Synced content survives a kill of the daemon, and e2fsck finds no error in the rest.
fn ext4_survives_a_kill(format: &str, attach: &str) {
    let lines = Rig::new().run(&format!(
        r#"{BLOCKS} {PROFILE}
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

#[test]
fn the_same_where_flushes_are_evictions() {
    let zone = "--flush-zone profile --force-profile";
    ext4_survives_a_kill(zone, "-o barrier=coerce,data=wasteless");
    ext4_survives_a_kill(&format!("{zone} --log log"), "--log log -o barrier=coerce,data=journal");
}

#[test]
fn a_flush_is_an_eviction_on_the_disk_that_it_is_of() {
    Rig::new().run(&format!(
        r#"{BLOCKS} {PROFILE}
        truncate -s 100M image; truncate -s 40M log
        refuses $O blocks format --flush-zone profile image 2>said; grep -q 'force-profile' said
        for disks in 1 2; do
            LOG=; [ $disks = 1 ] || LOG='--log log'
            $O blocks format -F --flush-zone profile --force-profile $LOG image >/dev/null
            $O blocks inspect $LOG image | grep -q 'flush zone: '
            attach $LOG -o barrier=coerce,data=wasteless image
            for i in 1 2 3 4; do dd if=/dev/urandom of=$L bs=4k seek=$i count=1 oflag=direct conv=fsync status=none; done
            $O stats --json image | tr -d ' 
' | grep -o '"evictions":[0-9]*' >counts
            [ $(wc -l <counts) = $disks ]; [ $(tail -1 counts | cut -d: -f2) -ge 4 ]
            timeout 60 $O blocks detach image
        done
        $O blocks format -F image >/dev/null
        refuses $O blocks attach -o barrier=coerce image 2>said; grep -q 'no flush zone' said
        grep -q 'okeanos blocks format --flush-zone' said; trap - EXIT"#
    ));
}

#[test]
fn a_device_grows_under_its_file_system() {
    Rig::new().run(&format!(
        r#"{BLOCKS}
        exported() {{ $O blocks inspect --json image | sed -n 's/^ *"exported_bytes": \([0-9]*\),*$/\1/p'; }}
        truncate -s 64M image; $O blocks format image >/dev/null
        attach image; mkfs.ext4 -q $L; mount $L here; echo kept >here/file
        BEFORE=$(blockdev --getsize64 $L); AFTER=$((BEFORE + (32 << 20)))
        (for i in $(seq 40); do dd if=/dev/zero of=here/load bs=64k count=16 conv=fsync status=none; done) & W=$!
        truncate -s 96M image; $O blocks grow --json image >printed; wait $W
        grep -q "exported_bytes.: $AFTER" printed; [ $(blockdev --getsize64 $L) = $AFTER ]
        # ext4 grows while it is mounted only for who may have resources without limit.
        umount here; timeout 60 e2fsck -fp $L >fsck || [ $? -lt 2 ]; resize2fs $L >said 2>&1; mount $L here; dd if=/dev/urandom of=here/large bs=1M count=70 conv=fsync status=none
        $O blocks grow $L | grep -q "$AFTER bytes"; SUM=$(md5sum <here/large)
        D=$(daemon); kill -9 $D; gone $D; umount here; attach image; [ $(blockdev --getsize64 $L) = $AFTER ]
        timeout 60 e2fsck -fp $L >fsck || [ $? -lt 4 ] || {{ cat fsck; exit 1; }}
        mount $L here; grep -q kept here/file; [ "$(md5sum <here/large)" = "$SUM" ]; umount here
        clean $L; timeout 60 $O blocks detach image
        truncate -s 128M image; $O blocks grow image | grep -q "$((AFTER + (32 << 20))) bytes"
        [ $(exported) = $((AFTER + (32 << 20))) ]
        truncate -s 64M image; refuses $O blocks grow image 2>said; grep -q 'the disk was cut' said
        refuses $O blocks attach image 2>said; grep -q 'the disk was cut' said; trap - EXIT"#
    ));
}

/// No probe sees the content of the exported disk, and no mount bypasses the log.
#[test]
fn no_probe_and_no_mount_takes_the_disk_for_what_is_in_it() {
    Rig::new().run(&format!(
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

/// mke2fs leaves the end of the disk, where the copy of the superblock lies.
#[test]
fn a_file_system_made_over_a_volume_stays() {
    Rig::new().run(&format!(
        r#"{BLOCKS}
        truncate -s 64M image; $O blocks format image >/dev/null; mkfs.ext4 -q -E nodiscard -F image
        SUM=$(md5sum <image)
        for command in 'blocks attach' 'blocks drain' 'blocks inspect' 'blocks grow' 'blocks detach'; do
            refuses $O $command image 2>said; tr '
' ' ' <said | grep -q 'ext4.*only the copy.*dd if='
        done
        refuses $O blocks attach --via nbd --socket s image 2>said; grep -q 'only the copy' said
        $O recover image | grep -q 'journal is empty'; $O check image >printed
        [ "$SUM" = "$(md5sum <image)" ]
        dd if=/dev/zero of=image bs=1M count=1 conv=notrunc status=none
        $O blocks inspect image | grep -q 'from the copy'; trap - EXIT"#
    ));
}

/// Runs in the foreground, as a systemd unit starts it: the device exists when the
/// manager hears of it.
#[test]
fn a_service_attaches_a_device_reports_it_and_ends_cleanly() {
    Rig::new().run(&format!(
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
fn a_service_that_could_not_write_everything_home_ends_with_an_error() {
    Rig::new().run(
        r#"truncate -s 24M small; mke2fs -q -F -t ext2 small; mkdir under; mount -o loop small under
        truncate -s 64M under/image; $O blocks format --journal-size 2M under/image >/dev/null
        $O blocks attach -f --via loop under/image >attached 2>said & D=$!
        for i in $(seq 600); do [ -s attached ] && break; sleep 0.1; done
        dd if=/dev/urandom of=$(cat attached) bs=256k count=4 seek=20 oflag=direct conv=notrunc status=none
        dd if=/dev/zero of=under/rest bs=1M status=none 2>full || grep -q 'No space' full
        kill $D; code=0; wait $D || code=$?; cat said; [ $code = 1 ]; grep -q 'written home' said
        umount under"#,
    );
}

#[test]
fn a_volume_is_attached_once_and_read_only_if_wanted() {
    Rig::new().run(&format!(
        r#"{BLOCKS}
        truncate -s 64M image; $O blocks format image >/dev/null
        attach -o data=wasteless,cache=8M --write-through image
        refuses $O blocks attach image 2>said; grep -q "attached already as $L" said
        for command in "blocks drain image" "recover image" "blocks format -F image"; do
            refuses $O $command 2>said; grep -q "in use: it is attached as $L" said; grep -q 'blocks detach .*image' said
        done
        # Without its mount no command would find the loop device.
        for how in '' --lazy --force; do refuses $O umount $how image 2>said; grep -q 'blocks detach .*image' said; done
        $O list >listed; grep -q "^$L .*image.*wasteless.*ok.*write_through" listed
        $O list --json >listed; grep -q "device.: .$L" listed; $O stats $L | head -1 | grep -q image
        refuses $O blocks attach --socket s image 2>said; grep -q 'via nbd' said
        mkfs.ext4 -q $L; mount $L here
        refuses $O blocks detach $L 2>said; grep -q 'is mounted on .*here' said
        echo kept >here/file; umount here; $O stats image | grep -q records=packed
        $O checkpoint --json image | grep -q blocks_written; $O stats --json $L | grep -q '"dirty_blocks": 0'
        $O advise image >printed; refuses grep -q 'Advice: mount' printed
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
    Rig::new().run(&format!(
        r#"{BLOCKS}
        truncate -s 64M image; $O blocks format image >/dev/null
        attach -o expire=1h,writeback=1h,data=wasteless image; D=$(daemon)
        seq 30000 >written; truncate -s 131072 written; dd if=written of=$L bs=4096 conv=fsync oflag=direct status=none
        for i in 1 2 3; do dd if=written of=$L bs=4096 seek=$((100 + i)) count=1 conv=fsync oflag=direct status=none; done
        kill -9 $D; gone $D
        refuses $O blocks inspect image 2>said; grep -q 'has died.*blocks attach' <(tr '\n' ' ' <said)
        timeout 60 $O blocks detach image 2>said; grep -q 'had died' said
        $O blocks inspect image >printed; grep -q 'transactions to replay' printed
        $O check image | grep -q 'transactions in the log; nothing is wrong'
        $O check --json image >printed; grep -q '"exit_status": 0' printed
        truncate -s 64M apart; truncate -s 40M log; $O blocks format --log log apart >/dev/null
        for command in check recover; do refuses $O $command apart >printed 2>said; grep -q -- '--journal-device' said; done
        $O check --json --journal-device log apart >printed; grep -q '"exit_status": 0' printed
        cp image torn; dd if=/dev/zero of=torn bs=4096 seek=1 count=1 conv=notrunc status=none
        $O check torn >printed || [ $? = 4 ]; grep -q 'superblock is damaged' printed
        cp log rotten; dd if=/dev/zero of=rotten bs=4096 seek=1 count=1 conv=notrunc status=none
        $O check --journal-device rotten apart >printed || [ $? = 4 ]; grep -q "journal device's superblock is damaged" printed
        cp log rotten; dd if=/dev/zero of=rotten bs=1M seek=39 count=1 conv=notrunc status=none
        $O check --journal-device rotten apart >printed || [ $? = 4 ]; grep -q "journal device's superblock's copy is damaged" printed
        cp image damaged; printf damaged | dd of=damaged bs=1 seek=$(((1 << 20) + 4096 + 100)) conv=notrunc status=none
        refuses $O recover damaged 2>said; grep -q -- '--until-damage' said
        C=0; $O recover --until-damage --find-log --skip-unreadable damaged >said 2>&1 || C=$?; [ $C = 4 ]; $O blocks inspect damaged | grep -q 'all is home'
        cp image copy; $O recover --dry-run copy | grep -q 'would be replayed'; cmp image copy
        $O recover copy | grep -q 'replayed: 35 blocks written home'
        $O blocks drain image | grep -q replayed; $O blocks inspect image | grep -q 'all is home'
        AT=$($O blocks inspect --json image | sed -n 's/^ *"data_offset": \([0-9]*\),*$/\1/p')
        cmp -n 131072 written <(tail -c +$((AT + 1)) image); cmp -n 131072 written <(tail -c +$((AT + 1)) copy); trap - EXIT"#
    ));
}

/// No command would find the volume without its mount.
#[test]
fn a_signal_takes_no_volume_away_whose_loop_device_is_used() {
    Rig::new().run(&format!(
        r#"{BLOCKS}
        truncate -s 64M image; $O blocks format image >made; attach image; mkfs.ext4 -q $L; mount $L here; D=$(daemon)
        refuses $O umount $L 2>said; grep -q 'okeanos blocks detach' said
        kill -TERM $D; sleep 2; $O list >printed; grep -q "^$L" printed; echo text >here/file; sync -f here; umount here
        # Nobody uses it: it ends, and its device with it.
        kill -TERM $D; gone $D; settle image; refuses $O blocks detach image 2>said; grep -q 'not attached' said
        refuses grep -q 'blocks format' said; refuses $O blocks detach $L 2>said; grep -q 'not attached' said
        attach image; mount $L here; grep -q text here/file; umount here; $O blocks detach image; trap - EXIT"#
    ));
}

/// The file system above knows nothing of the log: only the volume can report what it lacks.
#[test]
fn what_a_recovery_left_out_is_reported_until_it_is_cleared() {
    Rig::new().run(&format!(
        r#"{BLOCKS}
        truncate -s 64M image; $O blocks format image >/dev/null
        attach -o expire=1h,writeback=1h,data=wasteless image; D=$(daemon)
        for i in $(seq 20); do dd if=/dev/urandom of=$L bs=4k seek=$i count=1 oflag=direct conv=fsync status=none; done
        kill -9 $D; gone $D; timeout 60 $O blocks detach image 2>said
        $O check image >printed; grep -q 'nothing is wrong' printed
        printf damaged | dd of=image bs=1 seek=$(((1 << 20) + 4096 + 100)) conv=notrunc status=none
        C=0; $O recover --until-damage image >said 2>&1 || C=$?; [ $C = 4 ]; grep -q 'check the file system above it' said; refuses grep -q e2fsck said
        reported() {{ refuses $O check image >printed 2>said; grep -q 'records an error' printed; grep -q -- '--clear-error' said; $O blocks inspect image | grep -q '^error: '; }}
        # `health TEXT METRIC`: of the attached volume.
        health() {{ $O list | grep "$L " | grep -q "$1" &&
            $O stats --json $L | grep -q '"needs_check":' &&
            [ "$($O stats --prometheus $L | sed -n 's/^okeanos_needs_check{{.*}} //p')" = $2 ]; }}
        reported; $O recover image >said 2>&1 || [ $? = 4 ]; grep -q 'check the file system above it' said; reported
        # A client that connects again would go on.
        C=0; timeout 20 $O blocks attach --via nbd --socket s image 2>said || C=$?; [ $C = 1 ]; grep -q 'connects again' said
        for life in 1 2; do
            attach image 2>said; grep -q 'records an error' said; health 'errors were found' 1
            dd if=/dev/urandom of=$L bs=4k count=1 oflag=direct conv=fsync status=none
            timeout 60 $O blocks detach image; reported
        done
        attach image 2>said; D=$(daemon); dd if=/dev/urandom of=$L bs=4k count=1 oflag=direct conv=fsync status=none
        kill -9 $D; gone $D; timeout 60 $O blocks detach image 2>said
        for again in 1 2; do refuses $O blocks drain --clear-error image 2>said >printed; grep -q 'stays recorded' said; reported; done
        $O blocks drain image >said 2>&1 || [ $? = 4 ]; grep -q replayed said; reported
        $O blocks drain --clear-error image | grep -q 'is cleared'
        $O check image >printed; grep -q 'nothing is wrong' printed; $O blocks inspect image | refuses grep '^error: '
        attach image 2>said; refuses grep -q 'records an error' said; health ok 0
        timeout 60 $O blocks detach image; trap - EXIT"#
    ));
}

#[test]
fn a_table_of_runs_needs_no_word_where_the_volume_has_scattered_logs() {
    Rig::new().run(&format!(
        r#"{BLOCKS}
        truncate -s 64M image plain; $O blocks format plain >/dev/null
        $O blocks format --scattered-logs=log-size=2M,group-size=16M image >/dev/null
        attach --write-through -o data=selective,threshold=256K,checkpoint=off-hours:2-5,mtl=table image
        [ -s table ]; timeout 60 $O blocks detach image; trap - EXIT
        refuses $O blocks attach -o log=circular,mtl=other image 2>said; grep -q 'log=circular' said
        refuses $O blocks attach -o mtl=other plain 2>said; grep -q -- '--scattered-logs' said; [ ! -e other ]"#
    ));
}

#[test]
fn a_format_that_is_refused_leaves_the_disks_as_they_were() {
    Rig::new().run(
        r#"truncate -s 64M image; truncate -s 40M log; truncate -s 1M short
        $O blocks format --log log image >/dev/null; cp log before
        refuses $O blocks format --force --log log short 2>said; grep -q 'too short' said; cmp log before
        S=$(losetup --find --show --sector-size 4096 image); trap 'losetup -d $S' EXIT; cp image before
        for bytes in 1024 2048; do
            refuses $O blocks format --force --block-size $bytes $S 2>said; grep -q 'sectors of 4096' said; cmp image before
        done
        losetup -d $S; trap - EXIT; settle image; $O blocks format --force --block-size 1024 image >/dev/null
        S=$(losetup --find --show --sector-size 4096 image); trap 'losetup -d $S' EXIT
        refuses $O blocks attach --via nbd --socket s $S 2>said; grep -q 'sectors of 1024 bytes or less' said"#,
    );
}

/// Functions. `start ARGUMENTS`: the daemon that serves NBD clients is `$DAEMON`, at `$U`.
const NBD: &str = r#"
    start() { rm -f uri; $O blocks attach --via nbd --socket s "$@" image >uri 2>err & DAEMON=$!; for i in $(seq 600); do [ -s uri ] && break; sleep 0.1; done; U=$(head -1 uri); }
    stop() { kill $DAEMON; wait $DAEMON; }
"#;

/// Each write is durable when it is acknowledged, so a client that waits for the next daemon finds
/// all of them.
#[test]
fn an_nbd_client_waits_for_the_next_daemon() {
    Rig::new().run(&format!(
        r#"{NBD}
        truncate -s 96M image; $O blocks format image >/dev/null; mkfifo commands; touch q
        said() {{ for i in $(seq 600); do [ $(grep -c "$1" q) -ge $2 ] && return; sleep 0.1; done; cat q; return 1; }}
        start --write-through
        timeout 300 qemu-io --image-opts driver=raw,file.driver=nbd,file.server.type=unix,file.server.path=s,file.reconnect-delay=200 <commands >q 2>&1 & Q=$!
        exec 7>commands
        for round in 1 2 3; do
            echo "write -P $round ${{round}}M 256k" >&7; said wrote $((2 * round - 1))
            [ $round = 2 ] && stop || {{ kill -9 $DAEMON; wait $DAEMON || true; }}
            echo "write -P 7$round ${{round}}M 4k" >&7; sleep 0.5; [ $(grep -c wrote q) = $((2 * round - 1)) ]
            start --write-through; said wrote $((2 * round))
        done
        # It reads one line at a time.
        for round in 1 2 3; do
            echo "read -P 7$round ${{round}}M 4k" >&7; said '> read' $((2 * round - 1))
            echo "read -P $round $((1024 * round + 4))k 252k" >&7; said '> read' $((2 * round))
        done
        echo quit >&7; wait $Q; grep -q 'verification failed\|rror' q && {{ cat q; exit 1; }}
        # The next connection has the size of a volume that has grown.
        SIZE=$(nbdinfo --size "$U"); stop; truncate -s 128M image; $O blocks grow image >/dev/null; start
        [ $(nbdinfo --size "$U") = $((SIZE + (32 << 20))) ]; stop"#
    ));
}

/// Functions for a client on a volume in a small file system. `client`: qemu-io is `$Q`, its
/// commands come from descriptor 7, and what it prints is in `q`. `empty_log`: of a log that is
/// empty, nothing stays allocated but the superblock. `fill`: nothing that is not allocated can be
/// written any more.
const SMALL: &str = r#"
    printed() { for i in $(seq 300); do grep -q "$1" $2 && return; sleep 0.1; done; cat $2; return 1; }
    client() { timeout 300 qemu-io --cache writeback --image-opts driver=raw,file.driver=nbd,file.server.type=unix,file.server.path=s,file.reconnect-delay=200 <commands >q 2>&1 & Q=$!; exec 7>commands; }
    data_offset() { $O blocks inspect --json image | sed -n 's/^ *"data_offset": \([0-9]*\),*$/\1/p'; }
    empty_log() { fallocate --punch-hole -o $(((1 << 20) + 4096)) -l $(($(data_offset) - (1 << 20) - 4096)) small/image; }
    fill() { head -c 96M /dev/urandom >small/fill || true; }
    clear_error() { $O blocks drain image >/dev/null 2>&1 || [ $? = 4 ]; $O blocks drain --clear-error image >cleared; grep -q 'is cleared' cleared; }
    mkdir small; mount -t tmpfs -o size=24M none small; trap 'umount -l small' EXIT
    ln -s small/image image; truncate -s 96M small/image; mkfifo commands; touch q
"#;

/// A client that connected to the next daemon would have its flush answered there.
#[test]
fn an_nbd_client_learns_that_a_daemon_could_not_keep_its_writes() {
    let rig = Rig::new();
    rig.run(&format!(
        r#"{NBD} {SMALL}
        $O blocks format image >/dev/null; empty_log; start; client
        echo 'write -P 7 1M 256k' >&7; printed wrote q; fill
        # Signals that come before it says what another one does are no other ones, and neither is
        # the end of a terminal.
        kill -STOP $DAEMON; echo flush >&7; kill $DAEMON; kill -HUP $DAEMON; kill -INT $DAEMON; kill -CONT $DAEMON
        printed 'another signal' err; kill -HUP $DAEMON; rm small/fill
        # It reads one line at a time, and answers a flush with the next prompt alone.
        printed '> qemu-io> ' q; echo 'write 3M 4k' >&7; printed 'write failed' q; kill -0 $DAEMON; echo quit >&7; wait $Q || true
        wait $DAEMON && exit 1; grep -q 'not everything was written home' err
        # A client that asked for nothing would go on over the next one.
        for how in '' --write-through; do
            C=0; timeout 20 $O blocks attach --via nbd --socket s $how image 2>said || C=$?; [ $C = 1 ]
            grep -q 'write or flush failed' said; grep -q 'connects again' said; grep -q e2fsck said
        done
        start --read-only; stop; clear_error; empty_log
        # Another signal ends it at once.
        start; client; echo 'write -P 8 2M 256k' >&7; printed wrote q
        fill; kill $DAEMON; printed 'another signal' err; kill -0 $DAEMON; kill $DAEMON; wait $DAEMON && exit 1
        kill $Q; wait $Q || true; umount small; trap - EXIT"#
    ));
}

/// The log has all that was acknowledged, and the next daemon replays it.
#[test]
fn an_nbd_client_goes_on_where_only_home_could_not_be_written() {
    let rig = Rig::new();
    rig.run(&format!(
        r#"{NBD} {SMALL}
        $O blocks format --journal-size 8M image >/dev/null
        fallocate -l $(data_offset) small/image
        start -o data=journal; client
        echo 'write -P 7 1M 256k' >&7; printed wrote q
        fill; kill $DAEMON; wait $DAEMON && exit 1; grep -q 'not everything was written home' err; refuses grep 'may be lost' err
        rm small/fill; echo flush >&7
        C=0; timeout 20 $O blocks attach --via nbd --socket s image 2>said || C=$?; [ $C = 1 ]; grep -q 'connects again' said
        clear_error; start; printed '> qemu-io> ' q; echo 'read -P 7 1M 256k' >&7; printed '> read' q; echo quit >&7; wait $Q; grep -q 'rror\|failed' q && {{ cat q; exit 1; }}
        stop; umount small; trap - EXIT"#
    ));
}

#[test]
fn nbd_clients_read_write_and_flush_a_volume() {
    Rig::new().run(&format!(
        r#"{NBD}
        truncate -s 96M image; $O blocks format image >/dev/null
        start; timeout 60 nbdinfo "$U" >info; grep -q 'can_fua: true' info; grep -q 'can_trim: true' info
        timeout 100 qemu-io -f raw -c 'write -P 7 0 1M' -c 'write -f -P 8 4k 512' -c 'flush' "$U" >q; kill -9 $DAEMON; wait $DAEMON || true
        start; timeout 100 qemu-io -f raw -c 'read -P 8 4k 512' -c 'read -P 7 8k 64k' -c 'discard 0 1M' -c 'write -z 0 64k' -c 'read -P 0 0 64k' "$U" >q
        grep -q 'verification failed' q && exit 1; stop
        # As the disk of a guest is filled.
        head -c 20M /dev/urandom >disk; start; timeout 100 qemu-img convert -n -t writeback -f raw -O raw disk "$U"
        kill -9 $DAEMON; wait $DAEMON || true; start; timeout 100 qemu-img compare -f raw -F raw disk "$U" >q; stop
        start --read-only; refuses timeout 20 qemu-io -f raw -c 'write 0 4k' "$U" >said 2>&1; stop
        $O blocks inspect image | grep -q 'all is home'"#
    ));
}

/// The kernel's own client: a kernel without its driver has nothing to test. `make
/// test-kernels-blocks` plays it on one that has it.
#[test]
fn what_ext4_on_the_kernels_nbd_device_has_synced_survives_a_killed_daemon() {
    if !Path::new("/dev/nbd9").exists() {
        return;
    }
    Rig::new().run(&format!(
        r#"{NBD} L=/dev/nbd9
        connect() {{ timeout 100 nbd-client -unix s $L >said 2>&1 || {{ cat said; return 1; }}; settled; }}
        settled() {{ for i in $(seq 600); do [ "$(blockdev --getsize64 $L)" -gt 0 ] && return; sleep 0.1; done; return 1; }}
        leave() {{ umount here 2>/dev/null || true; nbd-client -d $L >said 2>&1 || true; kill $DAEMON 2>/dev/null || true; }}
        trap leave EXIT; mkdir here; head -c 300000 /dev/urandom >written
        truncate -s 96M image; $O blocks format image >/dev/null
        start; connect; [ "$(cat /sys/block/nbd9/queue/write_cache)" = 'write back' ]; mkfs.ext4 -q $L
        for round in 1 2; do
            mount $L here; dd if=written of=here/file bs=4096 conv=fsync status=none; fstrim here
            kill -9 $DAEMON; wait $DAEMON || true; echo lost >here/late || true; timeout 60 umount here
            timeout 60 nbd-client -d $L >said
            start; connect; timeout 100 e2fsck -fp $L >fsck || [ $? -lt 4 ] || {{ cat fsck; exit 1; }}
            mount $L here; cmp written here/file; rm here/file; umount here
        done
        clean $L; timeout 60 nbd-client -d $L >said; stop
        $O blocks inspect image | grep -q 'all is home'; trap - EXIT"#
    ));
}

/// Requests that it reads from then on may be hostile.
#[test]
fn the_daemon_of_an_attached_volume_gives_up_what_it_does_not_need() {
    Rig::new().run(&format!(
        r#"{BLOCKS} {FEW_RIGHTS} {SETTLED}
        truncate -s 64M image; $O blocks format image >/dev/null
        attach image; D=$(daemon); few $D; settled $D; locked $D; mkfs.ext4 -q $L; mount $L here; echo kept >here/file; umount here
        truncate -s 96M image; $O blocks grow image; few $(daemon)
        timeout 60 $O blocks detach image
        $O blocks attach --via nbd --socket s image >said & D=$!
        for i in $(seq 600); do grep -q nbd said && break; sleep 0.1; done; sleep 0.3; few $D; settled $D; locked $D; kill $D; wait $D
        [ ! -e s ]; attach image; mount $L here; grep -q kept here/file; umount here
        timeout 60 $O blocks detach image; trap - EXIT"#
    ));
}
