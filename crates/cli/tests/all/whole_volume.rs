//! Tests of system calls and tools on a whole volume, mounted and not.

use crate::rig::Rig;

/// Function `ask FILE NUMBER BYTES`: an ioctl; prints the result, without zeros at the end. Its
/// number is decimal.
const ASK: &str = r#"
ask() {
    perl -e 'open F, "<", $ARGV[0] or exit 2; $b = $ARGV[2] . "\0" x 256; ioctl F, $ARGV[1], $b or exit 1; $b =~ s/\0+$//; print $b' "$@"
}
GET_LABEL=$((0x81009431)); SET_LABEL=$((0x41009432)); SHUTDOWN=$((0x8004587d))
"#;

#[test]
fn fstrim_gives_free_blocks_back_and_never_one_in_use() {
    for mode in ["ordered", "wasteless"] {
        let rig = Rig::new();
        rig.run(&format!(
            r#"$O mkfs --force image 128M -- -q >made; chmod 755 .
               $O mount -o data={mode},allow_other image $M
               head -c 20M /dev/urandom >$M/kept
               for i in $(seq 200); do head -c 100000 /dev/urandom >$M/small$i; done
               head -c 60M /dev/urandom >$M/gone; sync -f $M; full=$(du -k image | cut -f1)
               sha256sum $M/kept $M/small* >sums; rm $M/gone
               refuses as_nobody fstrim $M 2>/dev/null
               # Other processes write at the same time.
               (for i in $(seq 30); do head -c 300000 /dev/urandom >$M/new$i; sync -f $M; done
                sha256sum $M/new* >newsums) &
               WRITER=$!
               for i in 1 2 3; do fstrim -v $M; done; wait $WRITER; fstrim $M
               sha256sum --quiet -c sums newsums
               [ $(du -k image | cut -f1) -lt $((full - 30000)) ]
               $O umount $M; settle image; $O mount image $M; sha256sum --quiet -c sums newsums
               $O umount $M"#
        ));
        rig.check("");
    }
}

#[test]
fn labels_are_read_by_all_and_set_by_administrators() {
    let rig = Rig::new();
    rig.run(&format!(
        r#"{ASK} export -f ask; $O mkfs --force image 64M -- -q -L first >made; chmod 755 .
           $O mount -o allow_other image $M; touch $M/file
           [ "$(ask $M/file $GET_LABEL '')" = first ]
           [ "$(as_nobody bash -c "ask $M/file $GET_LABEL ''")" = first ]
           refuses as_nobody bash -c "ask $M/file $SET_LABEL stolen"
           refuses ask $M/file $SET_LABEL seventeen-letters
           [ "$(ask $M/file $GET_LABEL '')" = first ]; ask $M/file $SET_LABEL second >printed
           [ "$(ask $M/file $GET_LABEL '')" = second ]
           $O umount $M; settle image; [ "$(e2label image)" = second ]"#,
    ));
    rig.check("");
}

#[test]
fn a_volume_that_was_shut_down_keeps_the_past_and_takes_nothing_more() {
    let rig = Rig::new();
    rig.run(&format!(
        r#"{ASK} export -f ask; $O mkfs --force image 64M -- -q >made; chmod 755 .
           $O mount -o allow_other image $M; echo before >$M/before
           refuses as_nobody bash -c "ask $M/before $SHUTDOWN ''"; echo still >$M/still
           ask $M/before $SHUTDOWN '' >printed; refuses touch $M/after 2>printed
           refuses sync $M/before 2>printed
           refuses $O umount $M 2>printed; settle image
           $O mount image $M; [ "$(cat $M/before $M/still | xargs)" = 'before still' ]
           [ ! -e $M/after ]; $O umount $M"#,
    ));
    rig.check("");
}

#[test]
fn what_fuse_does_not_pass_on_fails_with_the_documented_error() {
    let rig = Rig::new();
    let printed = rig.run(
        r#"$O mkfs image 64M -- -q >made; $O mount image $M; echo content >$M/file; sync $M/file
           python3 -c '
import fcntl, os, sys
FREEZE, THAW, FIEMAP, RESIZE = 0xc0045877, 0xc0045878, 0xc020660b, 0x40086610
for path, number in ((".", FREEZE), (".", THAW), ("file", FIEMAP), (".", RESIZE)):
    try:
        fcntl.ioctl(os.open(sys.argv[1] + "/" + path, os.O_RDONLY), number, bytearray(256))
        print("done")
    except OSError as error:
        print(error.errno)
' $M
           $O umount $M"#,
    );
    let printed: Vec<i32> =
        printed.split_whitespace().map(|number| number.parse().expect("an error")).collect();
    // Freezing is refused, so nothing can be thawed.
    assert_eq!(printed, [libc::EOPNOTSUPP, libc::EINVAL, libc::EOPNOTSUPP, libc::ENOTTY]);
    rig.check("");
}

#[test]
fn the_generation_of_an_inode_is_reported() {
    Rig::new().run(
        r#"$O mkfs --force image 64M -- -q >made; $O mount image $M; touch $M/file
           printed=$(lsattr -v $M/file | awk '{print $1}')
           number=$(stat -c %i $M/file); $O umount $M; settle image
           [ "$printed" = "$(debugfs -R "stat <$number>" image 2>/dev/null | sed -n 's/.*Generation: \([0-9]*\).*/\1/p')" ]"#,
    );
}

#[test]
fn a_volume_that_resize2fs_made_larger_or_smaller_mounts_with_all_it_held() {
    Rig::new().run(
        r#"$O mkfs --force image 128M -- -q >made; $O mount -o data=wasteless image $M
           head -c 20M /dev/urandom >$M/file; mkdir $M/d
           for i in $(seq 300); do echo $i >$M/d/$i; done; (cd $M; sha256sum file d/*) >sums
           $O umount $M; settle image
           for size in 300M 64M; do
             timeout 60 e2fsck -fp image >printed || [ $? -le 1 ]
             resize2fs image $size >printed 2>&1 || { cat printed >&2; exit 1; }
             clean image; $O mount -o data=wasteless image $M; (cd $M; sha256sum --quiet -c -) <sums
             echo new >$M/new$size; $O umount $M; settle image; clean image
           done"#,
    );
}
