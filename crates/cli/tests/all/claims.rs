//! Tests of exclusive claims: what mkfs, mount and recover refuse, and what the kernel refuses.
//! Needs root, FUSE and loop devices; every mount is made in a namespace of its own.

use crate::rig::Rig;

/// Mounts a volume on `image`, with a file on it, and runs `attempts`. Afterwards the file still
/// exists and the volume is whole.
fn keeps_off(mkfs: &str, mount: &str, attempts: &str) {
    Rig::new().run(&format!(
        r#"{mkfs}; $O mount {mount} $M; echo mine >$M/file; sync -f $M/file
           {attempts}
           grep -q mine $M/file; echo more >>$M/file; $O umount $M"#
    ));
}

#[test]
fn mkfs_keeps_off_an_image_that_is_mounted_without_a_loop_device() {
    keeps_off(
        "$O mkfs image 64M -- -q",
        "-o noloop image",
        "refuses $O mkfs image -- -q -F 2>out; grep -q 'in use' out; refuses $O recover image",
    );
}

#[test]
fn a_second_loop_device_over_a_mounted_image_is_refused() {
    keeps_off(
        "$O mkfs image 64M -- -q; mkdir other",
        "image",
        r#"L=$(losetup -f --show image); trap 'losetup -d $L' EXIT
           refuses $O mkfs $L -- -q -F 2>out; grep -q 'is attached to' out
           refuses $O mount $L other 2>out; grep -q 'is attached to' out
           refuses $O recover $L"#,
    );
}

#[test]
fn mkfs_keeps_off_the_journal_of_a_mounted_volume() {
    keeps_off(
        "$O mkfs --journal-device log --journal-size 16M image 64M -- -q",
        "-o journal_dev=log image",
        r#"refuses $O mkfs log -- -q -F 2>out; grep -q 'in use' out
           refuses $O mkfs --journal-device log other 64M -- -q -F 2>out; grep -q 'in use' out
           L=$(losetup -f --show log); trap 'losetup -d $L' EXIT
           refuses $O mkfs $L -- -q -F 2>out
           refuses $O mkfs --journal-device $L other 64M -- -q -F 2>out"#,
    );
}

/// A slow mke2fs.
const SLOW: &str = r#"
    mkdir bin; REAL=$(PATH=$PATH:/sbin:/usr/sbin command -v mke2fs)
    printf '#!/bin/sh\ntouch %s/begun; while [ ! -e %s/go ]; do sleep 0.1; done; exec %s "$@"\n' $PWD $PWD $REAL >bin/mke2fs
    chmod +x bin/mke2fs
    begin() { PATH=$PWD/bin:$PATH $O mkfs "$@" & MKFS=$!; for i in $(seq 100); do [ -e begun ] && break; sleep 0.1; done; }
"#;

#[test]
fn nobody_mounts_what_mkfs_is_making() {
    Rig::new().run(&format!(
        r#"{SLOW}
           $O mkfs image 64M -- -q
           begin image -- -q -F
           for options in noloop ro ''; do refuses $O mount -o "$options" image $M 2>out; grep -q 'in use' out; done
           touch go; wait $MKFS; $O mount image $M; $O umount $M
           settle image; rm begun go
           L=$(losetup -f --show image); trap 'losetup -d $L' EXIT
           begin $L -- -q -F
           refuses $O mount $L $M 2>out; grep -q 'in use' out
           refuses $O mkfs $L -- -q -F 2>out; grep -q 'in use' out
           touch go; wait $MKFS; $O mount $L $M; $O umount $M"#
    ));
}

/// mkfs reopens the image for its logs, and fails, as a mount has it.
#[test]
fn mkfs_removes_no_image_that_another_process_has() {
    Rig::new().run(
        r#"strace -qqq -o calls -e trace=io_uring_setup -e inject=io_uring_setup:delay_enter=6s:when=1 \
               env -u OKEANOS_IO $O mkfs --scattered-logs image 256M -- -q >made 2>&1 & MKFS=$!
           for i in $(seq 100); do [ -e image ] && $O mount image $M 2>out && break; sleep 0.1; done
           echo mine >$M/file; sync $M/file; refuses wait $MKFS; grep -q 'in use\|attached' made || { cat made; exit 1; }
           grep -q mine $M/file; $O umount $M; [ -e image ]; settle image
           $O mount image $M; grep -q mine $M/file; $O umount $M; settle image
           # Its own failure leaves nothing.
           refuses $O mkfs --scattered-logs=log-size=200M,group-size=300M new 256M -- -q 2>out; [ ! -e new ]"#,
    );
}

/// Attempts on the image that the kernel's ext4 and e2fsck refuse, also a repair.
const REFUSED: &str = r#"
    mkdir -p other; L=$(losetup -f --show image)
    refuses mount -t ext4 $L other 2>out; refuses mount -t ext4 -o ro $L other 2>>out; losetup -d $L; settle image
    copy image copied
    for how in -fp -fy; do refuses timeout 60 e2fsck $how copied >>out 2>&1; done; grep -q 'unknown incompatible feature' out
"#;

#[test]
fn the_kernel_refuses_an_image_that_is_mounted_without_a_loop_device() {
    for mode in ["ordered", "journal", "wasteless"] {
        Rig::new().run(&format!(
            r#"$O mkfs image 64M -- -q; $O mount -o noloop,data={mode} image $M
               {REFUSED}
               echo mine >$M/file; sync $M/file
               {REFUSED}
               grep -q mine $M/file; $O umount $M; clean image
               mount -o loop image $M; grep -q mine $M/file; umount $M"#
        ));
    }
}

#[test]
fn after_a_crash_of_such_a_mount_okeanos_recovers_it_for_all() {
    for work in ["", "echo mine >$M/file; sync $M/file"] {
        Rig::new().run(&format!(
            r#"$O mkfs image 64M -- -q; serve noloop,data=ordered image; {work}
               kill_daemon; umount $M
               {REFUSED}
               $O recover image; clean image
               mount -o loop image $M; [ -z "{work}" ] || grep -q mine $M/file; umount $M"#
        ));
    }
}

#[test]
fn a_volume_open_to_the_kernel_is_warned_of() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q -O ^has_journal; $O mount -o noloop image $M 2>printed; grep -q 'nothing keeps' printed
           $O umount $M; $O mount image $M 2>printed; refuses grep 'nothing keeps' printed; grep -q 'has no journal' printed; $O umount $M; settle image; clean image"#,
    );
}

#[test]
fn an_image_is_not_mounted_beside_the_kernel() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; mkdir other; mount -o loop image other
           refuses $O mount -o noloop image $M; refuses $O mount image $M
           umount other; settle image; $O mount -o noloop image $M; $O umount $M; clean image"#,
    );
}

#[test]
fn a_volume_made_anew_between_claim_and_mount_is_refused_and_left_alone() {
    // Each mount(2) of the daemon and its helper begins late: so there is time to be between.
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; L=$(losetup -f --show image); trap 'losetup -d $L' EXIT
           strace -f -qqq -o calls -e trace=mount -e inject=mount:delay_enter=1s $O mount $L $M 2>out & MOUNT=$!
           # Marked as mounted, and not claimed any more.
           is_between() {
               dumpe2fs -h $L 2>/dev/null | grep -q '^Mount count: *1$' &&
                   python3 -c 'import os, sys; os.open(sys.argv[1], os.O_RDWR | os.O_EXCL)' $L 2>/dev/null
           }
           for i in $(seq 600); do is_between && break; sleep 0.05; done
           U=11111111-2222-4333-8444-555555555555; mke2fs -q -F -t ext4 -U $U $L
           refuses wait $MOUNT; cat out; grep -q 'another program wrote to' out
           for i in $(seq 100); do mountpoint -q $M || break; sleep 0.1; done; unmounted $M
           clean $L; blkid -p $L | grep -q $U"#,
    );
}

/// Mounts a loop device in a container whose node for it has another name, and that does not see
/// the image. `held` runs there before others try `attempts`, `after` runs behind them.
fn contained_mount_keeps_off(held: &str, attempts: &str, after: &str) {
    Rig::new().run(&format!(
        r#"mountpoint -q /sys/fs/fuse/connections || mount -t fusectl none /sys/fs/fuse/connections
           mkdir dev images; $O mkfs images/image 64M -- -q
           L=$(losetup -f --show images/image); trap 'touch go; wait; losetup -d $L' EXIT
           mknod dev/disk b 7 ${{L#/dev/loop}}
           unshare --mount --propagation private bash -euc '
               mount -t tmpfs none images; $O mount dev/disk $M; echo mine >$M/file; sync $M/file
               {held}; touch ready; while [ ! -e go ]; do sleep 0.1; done; {after}' & CONTAINER=$!
           for i in $(seq 200); do [ -e ready ] && break; sleep 0.1; done
           {attempts}
           touch go; wait $CONTAINER
           for i in $(seq 200); do timeout 60 e2fsck -fn $L >fsck 2>&1 && break; sleep 0.1; done
           clean $L; debugfs -R 'cat file' $L 2>/dev/null | grep -q mine"#
    ));
}

#[test]
fn a_mount_not_visible_from_here_is_not_abandoned() {
    contained_mount_keeps_off(
        ":",
        r#"other() { unshare --pid --fork --mount-proc --propagation private "$@"; }
           refuses other $O recover images/image; refuses other $O mount -o noloop images/image $M"#,
        "echo more >>$M/file; sync $M/file; $O umount $M",
    );
}

#[test]
fn a_mount_taken_away_lazily_is_not_abandoned() {
    contained_mount_keeps_off(
        "exec 7>>$M/file; umount -l $M",
        "refuses $O recover images/image; refuses $O mount -o noloop images/image $M",
        "echo more >&7; exec 7>&-",
    );
}

/// Others may read along with a read-only mount that has nothing to replay.
#[test]
fn a_volume_that_became_dirty_is_replayed_alone() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; copy image whole
           serve noloop,data=ordered image; echo mine >$M/file; sync $M/file; kill_daemon; umount $M
           mv image dirty; mv whole image
           python3 -c 'import fcntl, time
image = open("image", "r+b"); fcntl.lockf(image, fcntl.LOCK_EX); open("held", "w").close(); time.sleep(1.5)
image.write(open("dirty", "rb").read()); image.flush()' & HOLDER=$!
           until [ -e held ]; do sleep 0.05; done
           $O mount -o ro,noloop image $M; wait $HOLDER; grep -q mine $M/file
           refuses python3 -c 'import fcntl; fcntl.lockf(open("image"), fcntl.LOCK_SH | fcntl.LOCK_NB)' 2>out
           $O umount $M; clean image"#,
    );
}
