//! Tests of block volumes as ublk devices. Where the kernel has no driver, they test the refusal.
//! `make test-kernels-blocks` plays them on one that has it.

use crate::rig::Rig;
use std::path::Path;

/// Functions. `attach ARGUMENTS`: the block device is `$L`. `detach DEVICE`: another test may have
/// one of this name at once. `daemon`: the process that serves it. `place`: where its file is
/// mounted. `reads_back`: what `here/file` holds is what was written.
const UBLK: &str = r#"
    attach() { L=$(timeout 100 $O blocks attach --via ublk "$@" image); [ -b $L ]; }
    detach() { timeout 100 $O blocks detach ${1:-image}; $O list >after; refuses grep -q $PWD/image after; }
    daemon() { $O stats --json image | sed -n 's/^ *"process": \([0-9]*\),*$/\1/p'; }
    place() { awk '/okeanos.blocks/ { print $5 }' /proc/self/mountinfo | tail -1; }
    gone() { for i in $(seq 600); do [ -e /proc/$1/exe ] || return 0; sleep 0.1; done; return 1; }
    knob() { cat /sys/block/$(basename $L)/$1; }
    reads_back() { echo 3 >/proc/sys/vm/drop_caches; [ "$(md5sum <here/file)" = "$(md5sum <written)" ]; }
    leave() { umount here 2>/dev/null || true; timeout 60 $O blocks detach image 2>/dev/null || true; }
    trap leave EXIT; mkdir here; head -c 300000 /dev/urandom >written
    truncate -s 96M image; $O blocks format image >/dev/null
"#;

/// Runs a script on a kernel with the driver; on others the attachment is refused.
fn run(script: &str) {
    let has_driver = Path::new("/dev/ublk-control").exists();
    let refused = r#"refuses $O blocks attach --via ublk image 2>said; tr '\n' ' ' <said | grep -q '/dev/ublk-control: No such file.*modprobe ublk_drv'"#;
    let script = if has_driver { script } else { refused };
    Rig::new().run(&format!("{UBLK}{script}; trap - EXIT"));
}

/// Content of the exported disk is checked where it lies in the drained volume.
const CHECK_IMAGE: &str = r#"
    AT=$($O blocks inspect --json image | sed -n 's/^ *"data_offset": \([0-9]*\),*$/\1/p')
    tail -c +$((AT + 1)) image >exported; clean exported"#;

#[test]
fn what_ext4_has_synced_survives_a_killed_daemon() {
    run(&format!(
        r#"attach; mkfs.ext4 -q $L
        for round in 1 2; do
            mount $L here; D=$(daemon); dd if=written of=here/file bs=4096 conv=fsync status=none
            kill -9 $D; gone $D; echo lost >here/late || true; timeout 60 umount here
            refuses $O blocks detach nothing 2>said
            attach; timeout 60 e2fsck -fp $L >fsck || [ $? -lt 4 ] || {{ cat fsck; exit 1; }}
            mount $L here; reads_back; rm here/file; sync -f here; umount here
        done
        mount $L here; cp written here/file; umount here; detach; {CHECK_IMAGE}"#
    ));
}

/// Opened as qemu or a database opens it: not exclusively.
#[test]
fn a_device_that_a_program_has_open_is_left() {
    run(
        r#"attach; exec 9<>$L; refuses timeout 100 $O blocks detach image 2>said; grep -q 'in use by' said
        head -c 4096 written | dd bs=4096 conv=fsync status=none >&9; exec 9>&-; detach; [ ! -e $L ]"#,
    );
}

/// Each write is durable when it is acknowledged, so the file system stays mounted.
#[test]
fn io_waits_for_the_next_daemon() {
    run(&format!(
        r#"attach --write-through; NAME=$L; mkfs.ext4 -q $L; mount $L here
        [ "$(knob queue/write_cache)" = 'write through' ]
        for signal in KILL TERM; do
            (for i in $(seq 40); do echo $signal $i | dd of=here/log bs=100 oflag=append conv=notrunc,fsync status=none || echo failed >>failed; echo $signal $i >>synced; done) & W=$!
            for i in $(seq 600); do [ $(grep -c $signal synced 2>/dev/null) -ge 10 ] && break; sleep 0.05; done
            D=$(daemon); kill -$signal $D; gone $D; sleep 1; kill -0 $W
            refuses $O blocks attach --via loop image 2>said; grep -q "waits for its daemon as $NAME" said
            refuses $O blocks attach --via ublk image 2>said; grep -q 'another --write-through' said
            refuses $O blocks detach image 2>said; grep -q 'Attach the volume again' said
            refuses timeout 20 $O blocks attach --via nbd --socket nbd image 2>said; grep -q "waits for its daemon as $NAME" said
            refuses $O blocks format --force image 2>said
            attach --write-through; [ $L = $NAME ]; wait $W; [ ! -e failed ]
        done
        cmp here/log synced; cp written here/file; sync -f here; reads_back
        umount here; clean $L; detach; {CHECK_IMAGE}"#
    ));
}

#[test]
fn a_device_that_waits_can_be_taken_away() {
    run(r#"attach --write-through; D=$(daemon); kill -9 $D; gone $D
        (dd if=$L of=/dev/null bs=4096 count=1 iflag=direct status=none && echo read >outcome || echo failed >outcome) 2>/dev/null & W=$!
        sleep 0.5; [ ! -e outcome ]; detach; wait $W; [ $(cat outcome) = failed ]
        attach; mkfs.ext4 -q $L; mount $L here; umount here; detach $L
        refuses $O blocks detach image 2>said; grep -q 'not attached' said"#);
}

/// Over the copy a file system would go on without what was acknowledged since.
#[test]
fn a_device_that_waits_is_only_for_its_disk_as_it_was() {
    run(
        r#"attach --write-through; NAME=$L; mkfs.ext4 -q $L; mount $L here; echo before >here/file; sync -f here
        cp image copy; echo after >here/file; sync -f here; D=$(daemon); kill -TERM $D; gone $D
        refuses $O blocks attach --via ublk --write-through copy 2>said; grep -q "device of another disk, of which .*copy is a copy" said
        refuses $O blocks detach copy 2>said; grep -q 'of another disk' said
        truncate -s 128M image; refuses $O blocks grow image 2>said; grep -q "waits for its daemon as $NAME" said
        attach --write-through; [ $L = $NAME ]; [ $(cat here/file) = after ]; umount here; clean $L; detach"#,
    );
}

/// A namespace that is older than the attachment does not show its mount.
#[test]
fn a_device_in_use_is_not_taken_away_from_another_mount_namespace() {
    run(r#"unshare -m sleep 600 & S=$!; sleep 0.5; attach; NAME=$L; mkfs.ext4 -q $L; mount $L here
        refuses timeout 60 nsenter -m -t $S $O blocks attach --via ublk $PWD/image 2>said; kill $S
        [ -b $NAME ]; cp written here/file; sync -f here; reads_back; umount here; clean $NAME; detach"#);
}

#[test]
fn a_device_has_the_limits_of_its_volume_and_commands_find_it() {
    run(r#"attach -o data=wasteless
        [ "$(knob queue/write_cache)" = 'write back' ]; [ $(knob queue/fua) = 1 ]; [ $(knob ro) = 0 ]
        [ $(knob queue/logical_block_size) = 512 ]; [ $(knob queue/physical_block_size) = 4096 ]
        [ $(knob queue/max_hw_sectors_kb) = 512 ]; [ $(knob queue/discard_max_bytes) -gt 0 ]
        [ $(knob queue/write_zeroes_max_bytes) -gt 0 ]; [ $(knob queue/rotational) = 0 ]
        refuses $O blocks attach image 2>said; grep -q "attached already as $L" said
        $O list >listed; grep -q "^$L .*image.*wasteless.*ublk.*ok" listed
        $O stats --json $L >counts; grep -q '"transport": "ublk"' counts; grep -q '"atomic_write_bytes": 1048576' counts
        dd if=written of=$L bs=512 count=500 seek=3 oflag=direct conv=fsync,notrunc status=none
        dd if=$L bs=512 count=500 skip=3 iflag=direct status=none | cmp -n 256000 - written
        dd if=written of=$L bs=4096 count=8 oflag=direct,dsync conv=notrunc status=none
        $O stats --json $L | sed -n 's/^ *"durable_writes": \([0-9]*\),*$/\1/p' | grep -qv '^0$'
        blkdiscard -z -o 0 -l 1M $L; dd if=$L bs=1M count=1 iflag=direct status=none | cmp -n 1048576 - /dev/zero
        blkdiscard -o 1M -l 8M $L; $O stats --json $L | sed -n 's/^ *"discards": \([0-9]*\),*$/\1/p' | grep -qv '^0$'
        # A table of partitions is read when the device starts.
        printf '\0\0\0\0\203\0\0\0\0\010\0\0\0\100\0\0' | dd of=$L bs=1 seek=446 conv=notrunc status=none
        printf '\125\252' | dd of=$L bs=1 seek=510 conv=notrunc status=none; detach; attach
        # Some kernels do it a moment later.
        for i in $(seq 100); do [ -b ${L}p1 ] && break; sleep 0.1; done; [ -b ${L}p1 ]
        mkfs.ext4 -q -F $L; mount $L here; refuses $O blocks detach $L 2>said; grep -q 'is mounted on .*here' said
        truncate -s 128M image
        if $O blocks grow image >said 2>&1; then [ $(blockdev --getsize64 $L) -gt $((100 << 20)) ]; else grep -q 'Linux 6.16' said; fi
        $O checkpoint image; umount here; detach $L
        attach --read-only; [ $(knob ro) = 1 ]; refuses dd if=written of=$L bs=4096 count=1 oflag=direct status=none 2>said
        mount -o ro $L here; umount here; detach"#);
}

/// A manager of services takes mounts away before what is above them has written its pages.
#[test]
fn the_mount_behind_a_device_stays_as_long_as_it() {
    run(&format!(
        r#"attach; mkfs.ext4 -q $L; mount $L here; D=$(daemon); cp written here/file
        refuses umount $(place) 2>said; grep -q busy said; sync -f here; reads_back
        umount here; clean $L; detach; [ ! -e $L ]; gone $D
        attach; mount $L here; reads_back; D=$(daemon); umount -l $(place); cp written here/more; sync -f here; umount here
        refuses timeout 60 $O blocks detach $L 2>said; tr '\n' ' ' <said | grep -q "served by process $D, .* kill $D"
        refuses timeout 60 $O blocks attach --via ublk image 2>said; kill $D; gone $D
        timeout 60 $O blocks detach image; {CHECK_IMAGE}"#
    ));
}

/// A daemon that is killed after the volume has grown, and before its device has, leaves such a
/// device.
#[test]
fn a_device_shorter_than_its_volume_is_taken_up() {
    run(
        r#"attach --write-through; NAME=$L; mkfs.ext4 -q $L; mount $L here; cp written here/file; sync -f here
        D=$(daemon); PLACE=$(place); kill -9 $D; gone $D; umount -l $PLACE; mv $PLACE.ublk link; truncate -s 128M image; $O blocks grow image; mv link $PLACE.ublk
        attach --write-through; [ $L = $NAME ]; reads_back; [ $(blockdev --getsize64 $L) -lt $((100 << 20)) ]
        if $O blocks grow image >said 2>&1; then [ $(blockdev --getsize64 $L) -gt $((100 << 20)) ]; else grep -q 'Linux 6.16' said; fi
        umount here; clean $L; detach; attach; [ $(blockdev --getsize64 $L) -gt $((100 << 20)) ]; detach"#,
    );
}

/// Holds also where the driver is present.
#[test]
fn what_is_refused_is_named_and_a_loop_device_takes_its_place() {
    Rig::new().run(&format!(
        r#"{UBLK}
        export OKEANOS_IO=classic; WHY='/dev/ublk-control: No such file'
        [ ! -e /dev/ublk-control ] || WHY='need an io_uring.*OKEANOS_IO=classic'
        refuses $O blocks attach --via ublk image 2>said; grep -q "no ublk device: .*$WHY" said
        L=$(timeout 60 $O blocks attach image 2>said); grep -q "loop device: .*$WHY" said
        case $L in /dev/loop*) ;; *) exit 1;; esac
        timeout 60 $O blocks detach image; trap - EXIT"#
    ));
}
