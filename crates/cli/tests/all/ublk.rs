//! Tests of block volumes as ublk devices.

use crate::driver_devices::{self, DEVICE, Driver};
use crate::rig::Rig;

const DRIVER: Driver = Driver {
    via: "ublk",
    file: "/dev/ublk-control",
    refusal: "/dev/ublk-control: No such file.*modprobe ublk_drv",
};

driver_devices::shared_tests!(DRIVER);

#[test]
fn a_device_has_the_limits_of_its_volume_and_commands_find_it() {
    driver_devices::run(
        &DRIVER,
        r#"attach -o data=wasteless
        [ "$(knob queue/write_cache)" = 'write back' ]; [ $(knob queue/fua) = 1 ]
        [ $(knob ro) = 0 ]
        [ $(knob queue/logical_block_size) = 512 ]; [ $(knob queue/physical_block_size) = 4096 ]
        [ $(knob queue/max_hw_sectors_kb) = 512 ]; [ $(knob queue/discard_max_bytes) -gt 0 ]
        [ $(knob queue/write_zeroes_max_bytes) -gt 0 ]; [ $(knob queue/rotational) = 0 ]
        refuses $O blocks attach image 2>said; grep -q "attached already as $L" said
        $O list >listed; grep -q "^$L .*image.*wasteless.*ublk.*ok" listed
        $O stats --json $L >counts; grep -q '"transport": "ublk"' counts
        grep -q '"atomic_write_bytes": 1048576' counts
        dd if=written of=$L bs=512 count=500 seek=3 oflag=direct conv=fsync,notrunc status=none
        dd if=$L bs=512 count=500 skip=3 iflag=direct status=none | cmp -n 256000 - written
        dd if=written of=$L bs=4096 count=8 oflag=direct,dsync conv=notrunc status=none
        $O stats --json $L | sed -n 's/^ *"durable_writes": \([0-9]*\),*$/\1/p' | grep -qv '^0$'
        blkdiscard -z -o 0 -l 1M $L
        dd if=$L bs=1M count=1 iflag=direct status=none | cmp -n 1048576 - /dev/zero
        blkdiscard -o 1M -l 8M $L
        $O stats --json $L | sed -n 's/^ *"discards": \([0-9]*\),*$/\1/p' | grep -qv '^0$'
        # A table of partitions is read when the device starts.
        printf '\0\0\0\0\203\0\0\0\0\010\0\0\0\100\0\0' |
            dd of=$L bs=1 seek=446 conv=notrunc status=none
        printf '\125\252' | dd of=$L bs=1 seek=510 conv=notrunc status=none; detach; attach
        # Some kernels do it a moment later.
        for i in $(seq 100); do [ -b ${L}p1 ] && break; sleep 0.1; done; [ -b ${L}p1 ]
        mkfs.ext4 -q -F $L; mount $L here; refuses $O blocks detach $L 2>said
        grep -q 'is mounted on .*here' said
        truncate -s 128M image
        if $O blocks grow image >said 2>&1; then
            [ $(blockdev --getsize64 $L) -gt $((100 << 20)) ]
        else
            grep -q 'Linux 6.16' said
        fi
        $O checkpoint image; umount here; detach $L
        attach --read-only; [ $(knob ro) = 1 ]
        refuses dd if=written of=$L bs=4096 count=1 oflag=direct status=none 2>said
        mount -o ro $L here; umount here; detach"#,
    );
}

/// A daemon that is killed after the volume has grown, and before its device has, leaves such a
/// device.
#[test]
fn a_device_shorter_than_its_volume_is_taken_up() {
    driver_devices::run(
        &DRIVER,
        r#"attach --write-through; NAME=$L; mkfs.ext4 -q $L; mount $L here; cp written here/file
        sync -f here
        D=$(daemon); PLACE=$(place); kill -9 $D; gone $D; umount -l $PLACE; mv $PLACE.ublk link
        truncate -s 128M image; $O blocks grow image; mv link $PLACE.ublk
        attach --write-through; [ $L = $NAME ]; reads_back
        [ $(blockdev --getsize64 $L) -lt $((100 << 20)) ]
        if $O blocks grow image >said 2>&1; then
            [ $(blockdev --getsize64 $L) -gt $((100 << 20)) ]
        else
            grep -q 'Linux 6.16' said
        fi
        umount here; clean $L; detach; attach; [ $(blockdev --getsize64 $L) -gt $((100 << 20)) ]
        detach"#,
    );
}

/// Holds also where the driver is present.
#[test]
fn what_is_refused_is_named_and_a_loop_device_takes_its_place() {
    Rig::new().run(&format!(
        r#"VIA=ublk; {DEVICE}
        export OKEANOS_IO=classic; WHY='/dev/ublk-control: No such file'
        [ ! -e /dev/ublk-control ] || WHY='need an io_uring.*OKEANOS_IO=classic'
        refuses $O blocks attach --via ublk image 2>said; grep -q "no ublk device: .*$WHY" said
        L=$(timeout 60 $O blocks attach image 2>said); grep -q "loop device: .*$WHY" said
        case $L in /dev/loop*) ;; *) exit 1;; esac
        timeout 60 $O blocks detach image; trap - EXIT"#
    ));
}
