//! Block volumes as devices of a driver, ublk or the kernel's NBD client: what both promise. Where
//! the kernel has no such driver, the tests test the refusal. `make test-kernels-blocks` plays them
//! on kernels that have it.

use crate::rig::Rig;
use std::path::Path;

/// Functions. `attach ARGUMENTS`: the block device is `$L`. `detach DEVICE`: another test may have
/// one of this name at once. `daemon`: the process that serves it. `place`: where its file is
/// mounted. `reads_back`: what `here/file` holds is what was written.
pub const DEVICE: &str = r#"
    attach() { L=$(timeout 100 $O blocks attach --via $VIA "$@" image); [ -b $L ]; }
    detach() {
        timeout 100 $O blocks detach ${1:-image}; $O list >after; refuses grep -q $PWD/image after
    }
    daemon() { $O stats --json image | sed -n 's/^ *"process": \([0-9]*\),*$/\1/p'; }
    place() { awk '/okeanos.blocks/ { print $5 }' /proc/self/mountinfo | tail -1; }
    gone() { for i in $(seq 600); do [ -e /proc/$1/exe ] || return 0; sleep 0.1; done; return 1; }
    knob() { cat /sys/block/$(basename $L)/$1; }
    reads_back() {
        echo 3 >/proc/sys/vm/drop_caches; [ "$(md5sum <here/file)" = "$(md5sum <written)" ]
    }
    leave() {
        umount here 2>/dev/null || true; timeout 60 $O blocks detach image 2>/dev/null || true
    }
    trap leave EXIT; mkdir here; head -c 300000 /dev/urandom >written
    truncate -s 96M image; $O blocks format image >/dev/null
"#;

/// A driver of block devices.
pub struct Driver {
    /// Word of the driver behind `--via`.
    pub via: &'static str,
    /// Exists where the kernel has it.
    pub file: &'static str,
    /// Words of the refusal where the kernel has none.
    pub refusal: &'static str,
}

/// Runs a script on a kernel with the driver; on others the attachment is refused.
pub fn run(driver: &Driver, script: &str) {
    let Driver { via, file, refusal } = driver;
    let refused = format!(
        "refuses $O blocks attach --via $VIA image 2>said; tr '\\n' ' ' <said | grep -q '{refusal}'"
    );
    let script = if Path::new(file).exists() { script } else { &refused };
    Rig::new().run(&format!("VIA={via}; {DEVICE}{script}; trap - EXIT"));
}

/// Makes a test of each function below for a driver.
macro_rules! shared_tests {
    ($driver:ident) => {
        crate::driver_devices::shared_tests! {
            $driver:
            what_ext4_has_synced_survives_a_killed_daemon,
            a_device_that_a_program_has_open_is_left,
            a_device_in_use_outlives_a_daemon_that_sleeps,
            io_waits_for_the_next_daemon,
            a_device_that_waits_can_be_taken_away,
            a_device_that_waits_is_only_for_its_disk_as_it_was,
            what_was_left_out_is_not_taken_from_a_device_that_waits,
            a_device_in_use_is_not_taken_away_from_another_mount_namespace,
            the_mount_behind_a_device_stays_as_long_as_it,
        }
    };
    ($driver:ident: $($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                crate::driver_devices::$name(&$driver);
            }
        )*
    };
}
pub(crate) use shared_tests;

/// Content of the exported disk is checked where it lies in the drained volume.
const CHECK_IMAGE: &str = r#"
    AT=$($O blocks inspect --json image | sed -n 's/^ *"data_offset": \([0-9]*\),*$/\1/p')
    tail -c +$((AT + 1)) image >exported; clean exported"#;

pub fn what_ext4_has_synced_survives_a_killed_daemon(driver: &Driver) {
    run(
        driver,
        &format!(
            r#"attach; mkfs.ext4 -q $L
        for round in 1 2; do
            mount $L here; D=$(daemon); dd if=written of=here/file bs=4096 conv=fsync status=none
            kill -9 $D; gone $D; echo lost >here/late || true; timeout 60 umount here
            refuses $O blocks detach nothing 2>said
            attach; timeout 60 e2fsck -fp $L >fsck || [ $? -lt 4 ] || {{ cat fsck; exit 1; }}
            mount $L here; reads_back; rm here/file; sync -f here; umount here
        done
        mount $L here; cp written here/file; umount here; detach; {CHECK_IMAGE}"#
        ),
    );
}

/// Opened as qemu or a database opens it: not exclusively.
pub fn a_device_that_a_program_has_open_is_left(driver: &Driver) {
    run(
        driver,
        r#"attach; exec 9<>$L; refuses timeout 100 $O blocks detach image 2>said
        grep -q 'in use by' said
        head -c 4096 written | dd bs=4096 conv=fsync status=none >&9; exec 9>&-; detach"#,
    );
}

/// A device cannot be opened by others while its table of partitions is read.
pub fn a_device_in_use_outlives_a_daemon_that_sleeps(driver: &Driver) {
    run(
        driver,
        r#"attach; D=$(daemon); exec 9<>$L; kill -STOP $D; trap 'kill -CONT $D; leave' EXIT
        refuses timeout 100 $O blocks detach image 2>said; grep -q "in use by bash ($$)" said
        blockdev --rereadpt $L 2>read & R=$!; sleep 0.5
        timeout 200 $O blocks detach image 2>said & X=$!
        for i in $(seq 1000); do grep -q 'is in use' said && break; sleep 0.1; done
        grep -q "$L is in use" said; kill -0 $R; kill -CONT $D; refuses wait $X; wait $R
        dd if=written bs=4096 count=9 conv=fsync status=none >&9; exec 9>&-
        dd if=$L bs=4096 count=9 iflag=direct status=none | cmp -n 36864 - written; detach"#,
    );
}

/// Each write is durable when it is acknowledged, so the file system stays mounted.
pub fn io_waits_for_the_next_daemon(driver: &Driver) {
    run(
        driver,
        &format!(
            r#"attach --write-through; NAME=$L; mkfs.ext4 -q $L; mount $L here
        [ "$(knob queue/write_cache)" = 'write through' ]
        for signal in KILL TERM; do
            (for i in $(seq 40); do
                echo $signal $i |
                    dd of=here/log bs=100 oflag=append conv=notrunc,fsync status=none ||
                    echo failed >>failed
                echo $signal $i >>synced
            done) &
            W=$!
            for i in $(seq 600); do
                [ $(grep -c $signal synced 2>/dev/null) -ge 10 ] && break; sleep 0.05
            done
            D=$(daemon); kill -$signal $D; gone $D; sleep 1; kill -0 $W
            refuses $O blocks attach --via loop image 2>said
            grep -q "waits for its daemon as $NAME" said
            refuses $O blocks attach --via $VIA image 2>said; grep -q 'another --write-through' said
            refuses $O blocks detach image 2>said; grep -q 'Attach the volume again' said
            refuses timeout 20 $O blocks attach --via nbd --socket nbd image 2>said
            grep -q "waits for its daemon as $NAME" said
            refuses $O blocks format --force image 2>said
            attach --write-through; [ $L = $NAME ]; wait $W; [ ! -e failed ]
        done
        cmp here/log synced; cp written here/file; sync -f here; reads_back
        umount here; clean $L; detach; {CHECK_IMAGE}"#
        ),
    );
}

pub fn a_device_that_waits_can_be_taken_away(driver: &Driver) {
    run(
        driver,
        r#"attach --write-through; D=$(daemon); kill -9 $D; gone $D
        (dd if=$L of=/dev/null bs=4096 count=1 iflag=direct status=none && echo read >outcome ||
            echo failed >outcome) 2>/dev/null &
        W=$!
        sleep 0.5; [ ! -e outcome ]; detach; wait $W; [ $(cat outcome) = failed ]
        attach; mkfs.ext4 -q $L; mount $L here; umount here; detach $L
        refuses $O blocks detach image 2>said; grep -q 'not attached' said"#,
    );
}

/// Over the copy a file system would go on without what was acknowledged since.
pub fn a_device_that_waits_is_only_for_its_disk_as_it_was(driver: &Driver) {
    run(
        driver,
        r#"attach --write-through; NAME=$L; mkfs.ext4 -q $L; mount $L here; echo before >here/file
        sync -f here
        cp image copy; echo after >here/file; sync -f here; D=$(daemon); kill -TERM $D; gone $D
        refuses $O blocks attach --via $VIA --write-through copy 2>said
        grep -q "device of another disk, of which .*copy is a copy" said
        refuses $O blocks detach copy 2>said; grep -q 'of another disk' said
        truncate -s 128M image; refuses $O blocks grow image 2>said
        grep -q "waits for its daemon as $NAME" said
        attach --write-through; [ $L = $NAME ]; [ $(cat here/file) = after ]; umount here; clean $L
        detach"#,
    );
}

/// The file system above would go on over a disk that went back.
pub fn what_was_left_out_is_not_taken_from_a_device_that_waits(driver: &Driver) {
    run(
        driver,
        r#"again() { timeout 100 $O blocks attach --via $VIA --write-through image; }
        attach --write-through -o expire=1h,writeback=1h,data=wasteless; NAME=$L
        mkfs.ext4 -q $L; mount $L here; for i in 1 2 3; do echo $i >here/file; sync -f here; done
        D=$(daemon); kill -9 $D; gone $D
        printf damaged | dd of=image bs=1 seek=$(((1 << 20) + 4096 + 100)) conv=notrunc status=none
        refuses again 2>said; grep -q damage said
        for option in until-damage find-log skip-unreadable; do
            refuses $O recover --$option image 2>said; grep -q "$NAME waits for its daemon" said
        done
        refuses $O blocks drain --clear-error image 2>said
        grep -q "$NAME waits for its daemon" said
        cp --sparse=always image copy; $O recover --until-damage copy >said 2>&1 || [ $? = 4 ]
        # Where the device is not seen.
        unshare -m sh -c \
            "mount -t tmpfs none /sys; mount -t tmpfs none /run; $O recover --until-damage image" \
            >said 2>&1 ||
            [ $? = 4 ]
        refuses again 2>said; grep -q 'may have acknowledged what the volume lacks' said
        refuses timeout 60 $O blocks detach image 2>said; grep -q -- --force said
        timeout 60 $O blocks detach --force image 2>said || grep -q 'fuser -v' said
        umount here; timeout 60 $O blocks detach image 2>said || grep -q 'not attached' said
        # A device that is made since has acknowledged nothing of it.
        attach --write-through 2>said; grep -q 'records an error' said; NAME=$L; D=$(daemon)
        kill -TERM $D; gone $D
        attach --write-through; [ $L = $NAME ]; detach; $O blocks drain --clear-error image >said"#,
    );
}

/// A namespace that is older than the attachment does not show its mount.
pub fn a_device_in_use_is_not_taken_away_from_another_mount_namespace(driver: &Driver) {
    run(
        driver,
        r#"unshare -m sleep 600 & S=$!; sleep 0.5; attach; NAME=$L; mkfs.ext4 -q $L; mount $L here
        refuses timeout 60 nsenter -m -t $S $O blocks attach --via $VIA $PWD/image 2>said; kill $S
        [ -b $NAME ]; cp written here/file; sync -f here; reads_back; umount here; clean $NAME
        detach"#,
    );
}

/// A manager of services takes mounts away before what is above them has written its pages.
pub fn the_mount_behind_a_device_stays_as_long_as_it(driver: &Driver) {
    run(
        driver,
        &format!(
            r#"attach; mkfs.ext4 -q $L; mount $L here; D=$(daemon); cp written here/file
        refuses umount $(place) 2>said; grep -q busy said; sync -f here; reads_back
        umount here; clean $L; detach; gone $D
        attach; mount $L here; reads_back; D=$(daemon); umount -l $(place); cp written here/more
        sync -f here; umount here
        refuses timeout 60 $O blocks detach $L 2>said
        tr '\n' ' ' <said | grep -q 'not seen from here.* mount was taken away'
        [ $VIA = nbd ] || tr '\n' ' ' <said | grep -q "served by process $D, .* kill $D"
        refuses timeout 60 $O blocks attach --via $VIA image 2>said; kill $D; gone $D
        # The kernel may have nothing of an NBD device any more.
        timeout 60 $O blocks detach image 2>said || grep -q 'not attached' said
        {CHECK_IMAGE}"#
        ),
    );
}
