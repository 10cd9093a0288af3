//! Tests of the disks to which `okeanos fingerprint` writes.

use crate::rig::Rig;

#[test]
fn a_device_is_refused_without_leave_or_in_use_or_too_small() {
    let rig = Rig::new();
    let said = rig.run(
        r#"truncate -s 64M image
         D=$(losetup --find --show --direct-io=on image); trap 'umount -q $M; losetup -d $D' EXIT
         sum=$(sha256sum <image)
         refuses $O fingerprint $D 2>&1; refuses $O fingerprint --flush-test $D 2>&1
         refuses $O fingerprint image 2>&1
         refuses $O fingerprint --destroy --range 1M+1M $D 2>&1
         refuses $O fingerprint --destroy --range 60M+10M $D 2>&1
         test "$sum" = "$(sha256sum <image)"
         mke2fs -q $D; mount $D $M; refuses $O fingerprint --destroy $D 2>&1"#,
    );
    assert_eq!(said.matches("Say --destroy").count(), 2, "{said}");
    assert!(said.contains("is attached to /dev/loop") && said.contains("is mounted at"), "{said}");
    assert!(
        said.contains("too few for a fingerprint") && said.contains("Give a larger --range"),
        "{said}"
    );
    assert!(said.contains("do not lie on"), "{said}");
    let said = rig.run(
        "$O mkfs volume 64M -- -q; refuses $O fingerprint volume 2>&1; clean volume
         truncate -s 64M blocks; $O blocks format blocks >made; refuses $O fingerprint blocks 2>&1",
    );
    assert!(said.contains("holds a file system of type ext4"), "{said}");
    assert!(said.contains("holds a block volume"), "{said}");
    assert_eq!(said.matches("--destroy").count(), 2, "{said}");
}
