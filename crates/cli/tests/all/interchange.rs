//! Tests of volumes that go back and forth between Okeanos, the kernel and e2fsck, healthy and
//! crashed: all three find the same content.

use crate::rig::{LIST_TREE, Rig, WORK};

/// Sets attributes whose values need inodes of their own, one of them overwritten and one removed.
const LARGE: &str = "python3 -c '
import os, sys
os.chdir(sys.argv[1])
for name, length in ((\"log\", 65536), (\"a\", 20000), (\"large\", 5000), (\"late\", 30000)):
    os.setxattr(name, \"user.large\", bytes(range(250)) * (length // 250) + b\"x\" * (length % 250))
os.setxattr(\"a\", \"user.large\", b\"again\" * 4000)
os.removexattr(\"late\", \"user.large\")' $M";

/// Changes a volume with Okeanos and compares what the kernel sees, then the reverse.
fn both_ways(mke2fs: &str, mount: &str) {
    let rig = Rig::new();
    let extents = if mke2fs.contains("^extents") || mke2fs.contains("ext3") { "no" } else { "yes" };
    rig.run(&format!("truncate -s 96M image; mke2fs -q {mke2fs} image"));
    // 128 bytes of inode end in 2038.
    let work = WORK.replace("2040", if mke2fs.contains("-I 128") { "2030" } else { "2040" });
    let large = if mke2fs.contains("ea_inode") { LARGE } else { "" };
    let work = format!("export EXTENTS={extents}\n{work}\n{large}");
    let ours = rig.run(&format!(
        "$O mount -o {mount} image $M\n{work}\n{LIST_TREE}\n$O umount $M; settle image"
    ));
    rig.check("");
    let theirs =
        rig.run(&format!("mount -o loop,ro image $M\n{LIST_TREE}\numount $M; settle image"));
    assert_eq!(ours, theirs, "{mke2fs}: written by okeanos");
    let theirs = rig.run(&format!(
        "mount -o loop image $M; rm -r $M/*\n{work}\n{LIST_TREE}\numount $M; settle image"
    ));
    let ours = rig.run(&format!(
        "$O mount -o {mount} image $M\n{LIST_TREE}\nrm -r $M/many $M/large $M/a; $O umount $M
         settle image"
    ));
    assert_eq!(ours, theirs, "{mke2fs}: written by the kernel");
    rig.check("");
}

#[test]
fn a_volume_of_mke2fs_as_it_comes_goes_both_ways() {
    both_ways("-t ext4", "data=journal");
}
#[test]
fn a_volume_of_ext3_goes_both_ways() {
    both_ways("-t ext3", "data=wasteless");
}
#[test]
fn a_volume_of_small_blocks_goes_both_ways() {
    both_ways("-t ext4 -b 1024", "data=wasteless");
}
#[test]
fn a_volume_without_extents_goes_both_ways() {
    both_ways("-t ext4 -O ^extents,^64bit", "data=wasteless");
}
#[test]
fn a_volume_without_metadata_checksums_goes_both_ways() {
    both_ways("-t ext4 -O ^metadata_csum", "data=wasteless");
    both_ways("-t ext4 -O ^metadata_csum,uninit_bg,^64bit", "data=selective");
}
#[test]
fn a_volume_with_small_descriptors_goes_both_ways() {
    both_ways("-t ext4 -O ^64bit", "data=journal");
}
#[test]
fn a_volume_without_flexible_groups_goes_both_ways() {
    both_ways("-t ext4 -O ^flex_bg", "data=selective");
}
#[test]
fn a_volume_with_inodes_of_128_bytes_goes_both_ways() {
    both_ways("-t ext4 -I 128", "data=wasteless");
}
#[test]
fn a_volume_without_directory_indices_goes_both_ways() {
    both_ways("-t ext4 -O ^dir_index", "data=wasteless");
}
#[test]
fn a_volume_with_an_orphan_file_goes_both_ways() {
    both_ways("-t ext4 -O orphan_file", "data=wasteless");
}
#[test]
fn a_volume_with_large_inodes_goes_both_ways() {
    both_ways("-t ext4 -b 4096 -I 1024", "data=ordered");
}
#[test]
fn a_volume_with_large_attribute_values_goes_both_ways() {
    both_ways("-t ext4 -O ea_inode", "data=wasteless");
    both_ways("-t ext4 -O ea_inode -b 1024", "data=writeback");
}
#[test]
fn a_volume_with_descriptors_in_their_groups_goes_both_ways() {
    both_ways("-t ext4 -b 1024 -O meta_bg,^resize_inode,^flex_bg", "data=wasteless");
}
#[test]
fn a_volume_without_a_journal_goes_both_ways() {
    both_ways("-t ext4 -O ^has_journal", "data=ordered");
}

#[test]
fn a_volume_with_an_external_journal_goes_both_ways() {
    for (block_size, mode) in [(4096, "wasteless"), (1024, "ordered")] {
        let rig = Rig::new();
        rig.run(&format!(
            "$O mkfs --journal-device log --journal-size 16M image 96M -- -q -b {block_size} >made"
        ));
        let mount = format!("$O mount -o data={mode},journal_dev=log image $M");
        let ours =
            rig.run(&format!("{mount}\n{WORK}\n{LIST_TREE}\n$O umount $M; settle image log"));
        let by_the_kernel = |script: &str| {
            rig.run(&format!(
                "{JOURNAL} journal log; clean $J image; mount -o loop$K image $M
                 HERE=$PWD\n{script}\ncd $HERE; umount $M; settle image
                 clean $J image; no_journal log; trap - EXIT"
            ))
        };
        assert_eq!(ours, by_the_kernel(LIST_TREE), "{block_size}: written by okeanos");
        let theirs = by_the_kernel(&format!("rm -r $M/*\n{WORK}\n{LIST_TREE}"));
        let ours = rig
            .run(&format!("{mount}\n{LIST_TREE}\nrm -r $M/many; $O umount $M; settle image log"));
        assert_eq!(ours, theirs, "{block_size}: written by the kernel");
        by_the_kernel("");
    }
}

#[test]
fn features_that_cannot_be_kept_right_are_refused_by_name() {
    let rig = Rig::new();
    for (feature, read_only) in
        [("quota", true), ("verity", true), ("bigalloc", false), ("encrypt", false)]
    {
        rig.run(&format!(
            "rm -f image; mke2fs -q -t ext4 -O {feature} image 64M 2>made
             before=$(sha256sum <image)
             refuses $O mount image $M 2>printed; grep -q {feature} printed
             [ \"$before\" = \"$(sha256sum <image)\" ]"
        ));
        if read_only {
            rig.run("$O mount -o ro image $M; [ -d $M/lost+found ]; $O umount $M; settle image");
        }
    }
}

/// Synced work of the kernel, all of which a recovery must restore, and some that was not synced.
/// Keeps an unlinked file open, copies the image as it is then, and closes the file.
const CRASH: &str = r#"
    mkdir $M/d $M/gone; for i in $(seq 200); do echo "content $i" >$M/d/f$i; done; sync -f $M
    for i in $(seq 50); do rm $M/d/f$i; echo more >>$M/d/f$((i+50)); done
    rmdir $M/gone; head -c 300000 /dev/urandom >$M/large; ln -s target $M/link
    setfattr -n user.a -v b $M/large
    exec 7>$M/open; echo unlinked >&7; rm $M/open; sync $M/large
    for i in $(seq 20); do
        printf 'record %05d\n' $i | dd of=$M/log bs=13 oflag=sync,append conv=notrunc status=none
    done
    copy image crash; exec 7>&-; umount $M; settle image
"#;

/// Crashes a volume under the kernel. e2fsck, the kernel, `okeanos recover` and a mount by Okeanos
/// each recover a copy of it, and the kernel sees the same in all.
fn recovered_alike(mke2fs: &str, options: &str) {
    let rig = Rig::new();
    rig.run(&format!(
        "truncate -s 64M image; mke2fs -q {mke2fs} image; mount -o loop,{options} image $M\n{CRASH}
         for who in fsck kernel recover mount; do copy crash by_$who; done
         timeout 60 e2fsck -fy by_fsck >out 2>&1 || [ $? = 1 ]
         mount -o loop by_kernel $M; umount $M; settle by_kernel
         $O recover by_recover >printed; grep -q replayed printed; clean by_recover
         $O mount -o data=wasteless by_mount $M; [ $(wc -l <$M/log) = 20 ]; $O umount $M
         settle by_mount; clean by_mount"
    ));
    let content = |image: &str| {
        rig.run(&format!(
            "mount -o loop,ro by_{image} $M\n{LIST_TREE}\ncat $M/log; umount $M; settle by_{image}"
        ))
    };
    let expected = content("fsck");
    assert!(expected.contains("record 00020"), "{expected}");
    for image in ["kernel", "recover", "mount"] {
        assert_eq!(content(image), expected, "{mke2fs} {options}: recovered by {image}");
    }
}

#[test]
fn a_kernel_crash_with_data_home_first_is_recovered_as_by_the_kernel() {
    recovered_alike("-t ext4", "data=ordered");
    recovered_alike("-t ext4 -O orphan_file", "data=writeback");
    recovered_alike("-t ext4 -b 1024 -O ^metadata_csum", "data=ordered");
    recovered_alike("-t ext4 -O ^extents,^64bit", "data=ordered");
}
#[test]
fn a_kernel_crash_with_data_in_the_journal_is_recovered_as_by_the_kernel() {
    recovered_alike("-t ext4 -b 4096", "data=journal");
    recovered_alike("-t ext3 -b 1024", "data=journal");
}
#[test]
fn a_kernel_crash_with_asynchronous_commits_is_recovered_as_by_the_kernel() {
    recovered_alike("-t ext4 -b 4096", "data=journal,journal_async_commit");
}

#[test]
fn live_fast_commits_are_left_to_the_kernel() {
    Rig::new().run(&format!(
        "truncate -s 64M image; mke2fs -q -t ext4 -b 4096 -O fast_commit image
         mount -o loop image $M\n{CRASH}
         before=$(sha256sum <crash)
         refuses $O recover crash 2>printed
         grep -q 'mount and unmount the volume with the kernel' printed
         refuses $O mount crash $M 2>printed; grep -q 'fast commits' printed; settle crash
         [ \"$before\" = \"$(sha256sum <crash)\" ]
         mount -o loop crash $M; umount $M; settle crash; clean crash
         $O mount crash $M; [ $(wc -l <$M/log) = 20 ]; $O umount $M; settle crash; clean crash"
    ));
}

/// Places of the journal. Mounts name an external one in three ways.
const PLACES: [&str; 2] = ["internal", "external"];

/// Kills Okeanos among eight synchronous writers. Leaves `image`, for an external journal `log`,
/// and `ack`: the acknowledged writes.
fn killed(mode: &str, place: &str, mke2fs: &str) -> Rig {
    let rig = Rig::new();
    let (mkfs, option) = match place {
        "external" => ("--journal-device log --journal-size 16M", ",journal_dev=log"),
        _ => ("", ""),
    };
    rig.run(&format!(
        "$O mkfs --force {mkfs} image 96M -- -q {mke2fs} >made; serve data={mode}{option} image
         mkdir $M/d; for i in $(seq 30); do echo \"content $i\" >$M/d/f$i; done; rm $M/d/f1*
         sync -f $M
         $LAB bench streams --writers 8 --until-error --acknowledged ack $M >streams & WRITERS=$!
         for i in $(seq 300); do
             [ $(cat $M/stream-* 2>/dev/null | wc -c) -gt 1000000 ] && break; sleep 0.1
         done
         kill_daemon; wait $WRITERS; umount $M; settle image log"
    ));
    rig
}

/// Sets `$J` for e2fsck, `$K` for the kernel, to name an external journal.
const JOURNAL: &str = r#"
    J= K=
    journal() { if [ -f log ]; then L=$(losetup -f --show $1); J="-j $L" K=",journal_path=$L"; fi; }
    no_journal() { if [ -f log ]; then losetup -d $L; settle $1; fi; }
    trap 'no_journal log' EXIT
"#;

/// Checks that the kernel finds all acknowledged writes on `$1`.
const VERIFY: &str = r#"
    verify() { mount -o loop$K $1 $M; $LAB bench verify --acknowledged ack --json $M
               grep -q 'content 3' $M/d/f3; [ $(ls $M/d | wc -l) = 19 ]; umount $M; settle $1; }
"#;

fn nothing_is_lost(printed: &str, context: &str) {
    let verdict: serde_json::Value = serde_json::from_str(printed).unwrap();
    assert!(verdict["acknowledged"].as_u64() > Some(20), "{context}: {printed}");
    assert_eq!(verdict["lost"], 0, "{context}: {printed}");
}

#[test]
fn e2fsck_and_the_kernel_replay_the_plain_journal_of_a_killed_okeanos() {
    let plain = ["writeback", "ordered", "journal"].into_iter();
    let cases = plain.flat_map(|mode| PLACES.map(|place| (mode, place, "-b 4096")));
    // Logs with other tags: without checksums, and with narrow block numbers.
    let others = [
        ("journal,nojournal_checksum", "internal", "-b 1024"),
        ("ordered,nojournal_checksum", "internal", "-t ext3 -b 4096"),
        ("journal", "internal", "-t ext3 -b 1024"),
        ("journal", "external", "-b 1024 -O ^64bit,^metadata_csum"),
    ];
    for (mode, place, mke2fs) in cases.chain(others) {
        let rig = killed(mode, place, mke2fs);
        for (judge, replay) in [
            (
                "e2fsck",
                "timeout 60 e2fsck -fy $J copy >out 2>&1 || [ $? = 1 ]; \
                 grep -q 'recovering journal' out",
            ),
            ("kernel", "mount -o loop$K copy $M; umount $M; settle copy"),
        ] {
            let printed = rig.run(&format!(
                "{JOURNAL}{VERIFY}
                 copy image copy
                 if [ -f log ]; then
                     copy log log_copy; journal log_copy; trap 'no_journal log_copy' EXIT
                 fi
                 {replay}; clean $J copy; verify copy"
            ));
            nothing_is_lost(&printed, &format!("{mode}, {place} journal, {mke2fs}, {judge}"));
        }
    }
}

#[test]
fn e2fsck_and_the_kernel_refuse_a_live_journal_of_parts_until_recovered() {
    let cases = ["wasteless,records=blocks", "selective,records=blocks"].into_iter().zip(PLACES);
    for (mode, place) in cases.chain(["wasteless", "selective"].into_iter().zip(PLACES)) {
        let rig = killed(mode, place, "-b 4096");
        let printed = rig.run(&format!(
            "{JOURNAL}{VERIFY}
             before=$(cat image log 2>/dev/null | sha256sum || true); journal log
             refuses e2fsck -fn $J image >out 2>&1; grep -q 'unknown incompatible feature' out
             refuses e2fsck -fy $J image >out 2>&1; grep -q 'unknown incompatible feature' out
             refuses mount -o loop$K image $M 2>out; refuses mount -o loop,ro$K image $M 2>>out
             no_journal log; settle image
             [ \"$before\" = \"$(cat image log 2>/dev/null | sha256sum || true)\" ]
             # As at boot. It notes in the superblock that it found an error, of which recover
             # reminds by its exit code; that does no harm.
             journal log; refuses e2fsck -p $J image >out 2>&1; no_journal log
             if [ -f log ]; then
                 $O recover --journal-device log image >out || [ $? = 4 ]
             else
                 $O recover image >out || [ $? = 4 ]
             fi
             journal log; clean $J image; verify image"
        ));
        nothing_is_lost(&printed, &format!("{mode}, {place} journal"));
    }
}

#[test]
fn a_volume_of_all_the_features_that_mke2fs_leaves_off_goes_both_ways() {
    both_ways("-t ext4 -O inline_data,ea_inode,large_dir,mmp", "data=wasteless");
}

#[test]
fn chattr_sets_projects_through_a_mount() {
    Rig::new().run(
        "mke2fs -q -t ext4 -O project image 64M; $O mount image $M; mkdir $M/d; chattr -p 7 $M/d
         chattr +P $M/d
         touch $M/d/inside $M/outside; [ \"$(lsattr -p $M/d/inside | awk '{ print $1 }')\" = 7 ]
         refuses ln $M/outside $M/d/link; chattr -p 7 $M/outside; ln $M/outside $M/d/link
         chattr -p 9 $M/outside
         $O umount $M; settle image; clean image
         debugfs -R 'stat d/inside' image 2>printed | grep -q 'Project: *7'
         debugfs -R 'stat outside' image 2>printed | grep -q 'Project: *9'",
    );
}
