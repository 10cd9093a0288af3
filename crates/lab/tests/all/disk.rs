//! Tests of emulated disks from the command line: served in real time under the kernel's own file
//! systems, and replayed.

use crate::common::{lab, said};
use crate::rig::Rig;
use serde_json::Value;
use std::ffi::OsStr;

/// Function `drive NAME`: one of its counts.
const DRIVE: &str = r#"
    drive() { $O stats --json $M | tr -d ' ,' | sed -n "s/^\"$1\"://p"; }
    serve_disk() { $LAB disk serve "$@" $M; }
"#;

#[test]
fn a_kernel_file_system_runs_on_a_served_disk_and_its_syncs_flush() {
    let counts = Rig::new().run(&format!(
        "{DRIVE}
         serve_disk --model hitachi-7k80 --size 128M
         [ $(stat -c %s $M/disk) = 134217728 ]; [ $(ls $M) = disk ]
         L=$(losetup --find --show --direct-io=on $M/disk)
         trap 'umount here || true; losetup -d $L || true' EXIT
         [ $(losetup --noheadings --output DIO $L) = 1 ]
         # What was last set for a loop device outlives it.
         echo write back >/sys/block/$(basename $L)/queue/write_cache
         mke2fs -q -t ext4 -E lazy_itable_init=0 $L; mkdir here; mount $L here
         F=$(drive flushes) W=$(drive writes)
         for i in $(seq 10); do
             echo $i | dd of=here/log bs=100 oflag=sync,append conv=notrunc status=none
         done
         echo $(($(drive flushes) - F)) $(($(drive writes) - W))
         seq 10 | cmp - here/log; cp -r /etc/default here/; umount here
         mount -o ro $L here; seq 10 | cmp - here/log; umount here
         timeout 60 e2fsck -fn $L >out 2>&1 || {{ cat out; exit 1; }}
         losetup -d $L; trap - EXIT; settle $M/disk
         $O umount $M; refuses mountpoint -q $M"
    ));
    let counts: Vec<u64> =
        counts.split_whitespace().map(|count| count.parse().expect("a count")).collect();
    assert!(counts[0] >= 10, "each synchronous write flushes the drive's cache: {counts:?}");
    assert!(counts[1] >= 20, "data, and a commit: {counts:?}");
}

#[test]
fn forced_writes_syncs_and_lies_reach_the_drive_as_they_are() {
    let write = "dd if=/dev/zero of=$M/disk bs=4096 count=1 seek=100 status=none conv=notrunc";
    for (options, cached) in [("", "0 1 1"), ("--lies flush", "1 2 1"), ("--cache off", "0 0 1")] {
        let rig = Rig::new();
        let counts = rig.run(&format!(
            "{DRIVE}
             serve_disk --model hitachi-7k80 --size 1G {options}
             {write} oflag=dsync; echo $(drive cached_writes)
             {write},fsync; echo $(drive cached_writes) $(drive flushes)
             head -c 1000 $M/disk | cmp - <(head -c 1000 /dev/zero)
             refuses dd if=/dev/zero of=$M/disk bs=100 count=1 conv=notrunc status=none 2>said
             refuses dd if=/dev/zero of=$M/disk bs=512 count=1 seek=2097152 conv=notrunc \
                 status=none 2>said
             $O umount $M"
        ));
        assert_eq!(counts.split_whitespace().collect::<Vec<_>>().join(" "), cached, "{options}");
    }
}

#[test]
fn raid_0_drives_share_the_writes_and_the_replay_goes_to_all() {
    let counts = Rig::new().run(&format!(
        "{DRIVE}
         serve_disk --model hitachi-7k80 --size 64M --drives 4 --chunk 16K
         [ $(stat -c %s $M/disk) = 268435456 ]
         seq 40000 >written; truncate -s 192K written
         dd if=written of=$M/disk bs=64K conv=notrunc oflag=dsync status=none
         cmp -n 196608 written $M/disk; drive bytes_written; $O stats $M | grep -q 'drive 4'
         $O umount $M
         printf 'time_us,op,offset_bytes,size_bytes\\n1,W,0,1048576\\n2,W,1048576,1048576\\n' >trace
         replay() {{
             $LAB disk replay --model barracuda-7200.11 ${{1:-}} trace |
                 awk '$1 == \"writes\" {{ print int($3 * 1000) }}'
         }}
         [ $(replay '--drives 8') -lt $(replay) ]
         for wrong in '--chunk 100' '--drives 0' '--chunk 0'; do
             refuses replay \"$wrong\" 2>refused
         done"
    ));
    assert_eq!(counts.split_whitespace().collect::<Vec<_>>(), ["49152"; 4]);
}

/// Uses a loop device that another program has set up, and one of the mount's own.
#[test]
fn stats_of_a_volume_report_the_arm_travel_beneath_it() {
    let report = Rig::new().run(&format!(
        "{DRIVE}
         serve_disk --model cheetah-15k5 --size 256M --cache off; mkdir here
         beneath() {{
             $O stats --json here | tr -d ' ,' | sed -n \"/drives_beneath/,\\$ s/^\\\"$1\\\"://p\"
         }}
         L=$(losetup --find --show --direct-io=on $M/disk); trap 'losetup -d $L || true' EXIT
         $O mkfs --scattered-logs=log-size=2M,group-size=32M --force $L -- -q >/dev/null
         for over in loop file; do
             [ $over = loop ] || {{ losetup -d $L; settle $M/disk; L=$M/disk; trap - EXIT; }}
             $O mount -o log=scattered,data=journal $L here
             dd if=/dev/zero of=here/file bs=4096 count=5 oflag=sync status=none
             [ $(beneath seeks) = $(drive seeks) ]; [ $(beneath seeks) -gt 0 ]
             beneath cylinders_crossed
             $O stats here | grep -q 'cylinders crossed'; $O stats here | grep -q 'logs swapped'
             $O inspect logs --json $L | grep -q 'nanoseconds.: [1-9]'
             $O inspect logs $L | grep -q 'to checkpoint all of them: .* on cheetah-15k5'
             $O umount here
         done
         settle $M/disk; $O umount $M"
    ));
    let crossed: Vec<u64> =
        report.split_whitespace().map(|count| count.parse().expect("a count")).collect();
    assert!(matches!(crossed[..], [first, then] if 0 < first && first < then), "{report}");
}

#[test]
fn a_terminated_disk_leaves_no_mount_and_reports_what_it_did() {
    let report = Rig::new().run(
        "$LAB disk serve -f --model cheetah-15k5 $M >report & DAEMON=$!
         for i in $(seq 600); do mountpoint -q $M && break; sleep 0.1; done
         dd if=$M/disk of=/dev/null bs=4096 count=3 status=none
         kill $DAEMON; wait $DAEMON; unmounted $M; cat report",
    );
    let report: Value = serde_json::from_str(&report).expect("counts");
    assert_eq!(
        (report["reads"].as_u64(), report["writes"].as_u64()),
        (Some(3), Some(0)),
        "{report}"
    );
}

#[test]
fn bad_models_and_traces_are_refused_with_their_place_and_nothing_is_printed() {
    let rig = Rig::new();
    let cheetah = include_str!("../../../emulated/models/cheetah-15k5.toml");
    let line = |found: &str| {
        cheetah.lines().position(|line| line.starts_with(found)).expect("it is there") + 1
    };
    std::fs::write(rig.path("fast.toml"), cheetah.replace("rpm = 15020", "rpm = fast")).unwrap();
    std::fs::write(rig.path("still.toml"), cheetah.replace("rpm = 15020", "rpm = 0")).unwrap();
    std::fs::write(rig.path("binary.toml"), [0xff, 0xfe, 0]).unwrap();
    std::fs::write(rig.path("good.csv"), "time_us,op,offset_bytes,size_bytes\n1,W,0,512\n")
        .unwrap();
    std::fs::write(
        rig.path("bad.csv"),
        "time_us,op,offset_bytes,size_bytes\n1,W,0,512\n2,W,x,512\n",
    )
    .unwrap();
    std::fs::write(rig.path("noise"), [0x1f, 0x8b, 8, 0, 200, 10, 13]).unwrap();
    std::fs::write(rig.path("empty"), "").unwrap();
    let (model, trace) = (|name: &str| rig.path(name).display().to_string(), "good.csv");
    let rpm = format!("line {}, column 7", line("rpm"));
    let cases = [
        ("cheetah", trace, "no model is called \"cheetah\""),
        (&model("fast.toml"), trace, rpm.as_str()),
        (&model("still.toml"), trace, rpm.as_str()),
        (&model("binary.toml"), trace, "UTF-8"),
        ("cheetah-15k5", "bad.csv", "line 3, column 5"),
        ("cheetah-15k5", "noise", "line 1 is not text"),
        ("cheetah-15k5", "empty", "line 1, column 1"),
        ("cheetah-15k5", "missing", "missing"),
    ];
    for (model, trace, problem) in cases {
        let trace = rig.path(trace);
        for json in [None, Some(OsStr::new("--json"))] {
            let words = ["disk", "replay", "--model", model].map(OsStr::new);
            let arguments: Vec<&OsStr> =
                words.into_iter().chain(json).chain([trace.as_os_str()]).collect();
            let output = lab(&arguments);
            assert_eq!(output.status.code(), Some(1), "{model} {trace:?}: {}", said(&output));
            assert!(output.stdout.is_empty(), "{model} {trace:?}: {}", said(&output));
            assert!(said(&output).contains(problem), "{model} {trace:?}: {}", said(&output));
        }
    }
    let serve = |words: &[&str]| {
        let arguments = [&["disk", "serve"], words].concat();
        let output = lab(&arguments.into_iter().map(OsStr::new).collect::<Vec<_>>());
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{words:?}: {}",
            said(&output)
        );
        said(&output)
    };
    let mount = rig.path("mount").display().to_string();
    assert!(serve(&["--model", "cheetah", &mount]).contains("no model is called"));
    assert!(serve(&["--model", &model("still.toml"), &mount]).contains(&rpm));
    assert!(
        serve(&["--model", "cheetah-15k5", "--size", "1T", &mount])
            .contains("more than cheetah-15k5 has")
    );
    assert!(
        serve(&["--model", "cheetah-15k5", "--size", "1000", &mount]).contains("whole sectors")
    );
    assert!(serve(&["--model", "cheetah-15k5", &model("good.csv")]).contains("not a directory"));
}

#[test]
fn a_daemon_whose_connection_is_aborted_before_the_first_request_ends_and_says_so() {
    // The mount helper's mount(2) returns late, so the first request is read after the abort.
    for what in ["$LAB disk serve --model hitachi-7k80 --size 1G", "$O mount -o noloop image"] {
        Rig::new().run(&format!(
            r#"$O mkfs image 64M -- -q; mkdir control; mount -t fusectl none control
               strace -f -qqq -o calls -e trace=mount -e inject=mount:delay_exit=3s {what} $M \
                   2>out &
               DAEMON=$!
               connection() {{
                   awk -v at=$M '$5 == at {{ sub(".*:", "", $3); print $3 }}' /proc/self/mountinfo
               }}
               for i in $(seq 600); do [ -n "$(connection)" ] && break; sleep 0.05; done
               echo 1 >control/$(connection)/abort
               timeout 60 tail --pid=$DAEMON -f /dev/null || {{ echo hangs; kill $DAEMON; exit 1; }}
               refuses wait $DAEMON; cat out; [ -s out ]; umount -l $M 2>/dev/null || true"#
        ));
    }
}
