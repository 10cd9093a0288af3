//! Tests of `log=scattered` through the program: logs that mkfs makes, judged by e2fsck and the
//! kernel, mounted in every mode, and recovered after the daemon was killed.

use crate::rig::{DETACHED, LIST_TREE, Rig, WORK};
use serde_json::Value;

const MODES: [&str; 6] = ["writeback", "ordered", "journal", "wasteless", "selective", "adaptive"];

/// Performs 16 synced writes, of which none may be lost.
const SYNC_WRITES: &str = "for at in 1 2 3 4; do
         dd if=/dev/zero of=$M/log bs=100 count=4 oflag=sync,append conv=notrunc status=none; done";

/// Kills the daemon, and removes the mount.
const KILL: &str = "kill_daemon; umount -l $M; settle image";

fn logs(rig: &Rig, options: &str) -> Value {
    serde_json::from_str(&rig.run(&format!("$O inspect logs {options} --json image"))).unwrap()
}
fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}
/// Counts live runs in all logs that recovery would look at.
fn live_runs(printed: &Value) -> u64 {
    printed["listed"].as_array().unwrap().iter().map(|log| number(log, "live_runs")).sum()
}

#[test]
fn mkfs_makes_the_wanted_logs_and_e2fsck_and_the_kernel_accept_them() {
    let rig = Rig::new();
    // Options, further arguments for mke2fs, and the logs: number, length, distance (in MiB).
    for (sizes, extra, expected) in [
        ("", "", (4, 10, 100)),
        ("=log-size=4M,group-size=64M", "", (5, 4, 64)),
        ("=group-size=32M,log-size=2M", "-b 1024", (10, 2, 32)),
        ("=log-size=20M", "-O ^flex_bg,^64bit", (4, 20, 100)),
        ("=group-size=50M", "-O ^metadata_csum", (7, 10, 50)),
    ] {
        rig.run(&format!("rm -f image; $O mkfs --scattered-logs{sizes} image 320M -- -q {extra}"));
        rig.check("");
        let printed = logs(&rig, "--all");
        let found = (
            number(&printed, "logs"),
            number(&printed, "bytes_of_each") >> 20,
            number(&printed, "bytes_between") >> 20,
        );
        assert_eq!(found, expected, "{sizes} {extra}");
        assert_eq!(printed["listed"].as_array().unwrap().len() as u64, expected.0, "{printed}");
        rig.run(&format!(
            "mount -o loop image $M; ls -a $M | grep -q scattered-logs
             refuses truncate -s 0 $M/.scattered-logs
             echo kernel >$M/file; umount $M; {DETACHED}"
        ));
        rig.run(
            "$O mount -o log=scattered image $M; grep -q kernel $M/file; rm $M/file; $O umount $M",
        );
        rig.check("");
    }
}

#[test]
fn logs_that_do_not_fit_are_refused_and_leave_no_image() {
    let rig = Rig::new();
    for (arguments, extra, reason) in [
        ("--scattered-logs=log-size=60M", "", "more than a half"),
        ("--scattered-logs=log-size=4K,group-size=1M", "", "may have from"),
        ("--scattered-logs=log-size=0", "", "may have from"),
        ("--scattered-logs", "-b 1024", "may have from"),
        ("--scattered-logs=log-size=1M,group-size=100M", "", "together they need"),
        ("--scattered-logs=log-size=60M,group-size=200M", "-J size=16", "nowhere on the volume"),
        ("--scattered-logs", "-t ext3", "extents"),
        ("--scattered-logs", "-O ^has_journal", "journal"),
        ("--scattered-logs --journal-device log", "", "journal inside"),
        ("--scattered-logs=size=1M", "", "log-size=SIZE"),
    ] {
        let said = rig.run(&format!(
            "refuses $O mkfs {arguments} image 64M -- -q {extra} 2>&1; test ! -e image
             test ! -e log"
        ));
        assert!(said.contains(reason), "{arguments} {extra}: {said}");
        assert!(!said.contains("panicked"), "{arguments} {extra}: {said}");
    }
}

#[test]
fn all_modes_and_formats_work_over_scattered_logs_and_the_kernel_reads_them() {
    let rig = Rig::new();
    for mode in MODES {
        for records in ["blocks", "packed"] {
            rig.run(
                "rm -f image; $O mkfs --scattered-logs=log-size=2M,group-size=16M image 128M -- -q",
            );
            let ours = rig.run(&format!(
                "$O mount -o log=scattered,data={mode},records={records} image $M
                 {WORK} {LIST_TREE} $O umount $M; {DETACHED}"
            ));
            rig.check("");
            let kernel =
                rig.run(&format!("mount -o loop image $M; {LIST_TREE} umount $M; {DETACHED}"));
            // The kernel shows no more of the file that holds the logs than Okeanos does.
            assert_eq!(ours, kernel, "{mode} {records}");
            let printed = logs(&rig, "");
            assert_eq!(
                (&printed["live"], live_runs(&printed)),
                (&Value::Bool(false), 0),
                "{printed}"
            );
        }
    }
}

#[test]
fn every_mode_evicts_beside_scattered_logs() {
    let rig = Rig::new();
    rig.run(
        r#"printf 'model = "A drive"\nsize = 1000\ntrials = 50\nmilliseconds = 1.5\n[workload]\npattern = "random"\nwrites = 16\nbytes = 160000\n' >profile"#,
    );
    for mode in MODES {
        rig.run(
            "rm -f image
             $O mkfs --flush-zone profile --force-profile \
                 --scattered-logs=log-size=2M,group-size=16M image 128M -- -q",
        );
        let counts = rig.run(&format!(
            "$O mount -o barrier=coerce,log=scattered,data={mode} image $M
             {SYNC_WRITES}
             $O stats --json $M | tr -d ' \n' | grep -o '\"evictions\":[0-9]*'
             $O umount $M; {DETACHED}"
        ));
        let evictions: u64 = counts.trim().rsplit(':').next().unwrap().parse().unwrap();
        assert!(evictions >= 16, "{mode}: {counts}");
        rig.check("");
        rig.run(&format!(
            "serve barrier=coerce,log=scattered,data={mode} image; {SYNC_WRITES}; {KILL}
             $O recover image
             $O mount -o barrier=coerce image $M; test $(stat -c %s $M/log) = 3200; $O umount $M
             {DETACHED}"
        ));
        rig.check("");
    }
}

#[test]
fn synced_writes_survive_the_killed_daemon_with_any_recovery() {
    let rig = Rig::new();
    for (mode, records, next) in [
        ("writeback", "blocks", "$O recover image || [ $? = 4 ]"),
        ("ordered", "packed", "$O mount -o log=circular image $M; $O umount $M"),
        ("journal", "blocks", "$O mount -o log=scattered image $M; $O umount $M"),
        ("wasteless", "blocks", "$O recover image || [ $? = 4 ]"),
        ("wasteless", "packed", "$O mount -o log=scattered,data=wasteless image $M; $O umount $M"),
        ("selective", "packed", "$O mount -o ro image $M; $O umount $M"),
        ("adaptive", "blocks", "$O recover image || [ $? = 4 ]"),
    ] {
        rig.run(
            "rm -f image; $O mkfs --scattered-logs=log-size=2M,group-size=16M image 128M -- -q",
        );
        rig.run(&format!(
            "serve log=scattered,data={mode},records={records},writeback=1h,expire=1h image
             mkdir $M/a; echo kept >$M/a/file; sync $M/a/file; {SYNC_WRITES}; {KILL}"
        ));
        let printed = logs(&rig, "");
        assert_eq!(printed["live"], Value::Bool(true), "{printed}");
        assert!(live_runs(&printed) >= 16, "{mode} {records}: {printed}");
        // Other programs leave the live log alone, though e2fsck records its visit in the
        // superblock, so that a recovery ends with 4.
        rig.run(
            "refuses timeout 60 e2fsck -fp image >/dev/null 2>&1; cp --sparse=always image before",
        );
        let dry: Value =
            serde_json::from_str(&rig.run("$O recover --dry-run --json image || [ $? = 4 ]"))
                .unwrap();
        assert!(
            number(&dry, "transactions") >= 16 && number(&dry, "logs_read") > 0,
            "{mode} {records}: {dry}"
        );
        assert_eq!(dry["restart"]["refused"], "none counts", "{mode} {records}: {dry}");
        rig.run("cmp image before");
        rig.run(&format!("{next}; {DETACHED}"));
        let printed = logs(&rig, "");
        assert_eq!(
            (&printed["live"], live_runs(&printed)),
            (&Value::Bool(false), 0),
            "{mode} {records}: {printed}"
        );
        rig.check("");
        rig.run(&format!(
            "mount -o loop image $M; grep -q kept $M/a/file; test $(stat -c %s $M/log) = 1600
             umount $M; {DETACHED}"
        ));
    }
}

/// Kills the daemon among writers, and files that come and go: acknowledged writes survive.
#[test]
fn acknowledged_files_survive_many_kills_of_the_daemon() {
    let rig = Rig::new();
    // So small that the logs fill up repeatedly.
    rig.run(
        "$O mkfs --scattered-logs=log-size=1M,group-size=16M image 64M -- -q; touch acknowledged",
    );
    for round in 0..4 {
        rig.run(&format!(
            "serve log=scattered,data=adaptive,mtl=memory image
             while read name; do test \"$(cat $M/$name)\" = \"$name\"; done <acknowledged
             write() {{ for at in $(seq 2000); do
                 echo \"round-{round}-$1-$at\" >$M/round-{round}-$1-$at &&
                     sync $M/round-{round}-$1-$at || break
                 echo \"round-{round}-$1-$at\" >>acknowledged
                 [ $at -lt 4 ] ||
                     dd if=/dev/zero of=$M/large-$1 bs=256K count=1 conv=notrunc,fsync \
                         status=none ||
                     break
             done; }}
             write 1 2>/dev/null & ONE=$!; write 2 2>/dev/null & TWO=$!
             for i in $(seq 600); do
                 [ $(wc -l <acknowledged) -gt $(({round} * 20 + 20)) ] && break; sleep 0.1
             done
             # Once the dead mount is away, the directory below it would take what they write.
             kill_daemon; wait $ONE $TWO || true; umount -l $M; settle image"
        ));
    }
    rig.run(&format!(
        "test $(wc -l <acknowledged) -gt 80
         $O mount image $M
         while read name; do test \"$(cat $M/$name)\" = \"$name\"; done <acknowledged; $O umount $M
         {DETACHED}"
    ));
    rig.check("");
}

/// Reads the addresses of the runs from memory at the next mount. A mount without it makes its
/// content obsolete.
#[test]
fn a_failed_mount_leaves_no_table_of_mtl() {
    Rig::new().run(
        r#"$O mkfs --scattered-logs image 64M -- -q >made; mkdir there
           dd if=/dev/zero of=broken bs=1M count=8 status=none
           refuses $O mount -o log=scattered,mtl=there/table broken $M 2>printed
           [ -z "$(ls there)" ]
           # The volume is open when the mount itself fails.
           refuses strace -f -qqq -o calls -e trace=mount -e inject=mount:error=ENOMEM:when=2+ \
               $O mount -o log=scattered,noloop,mtl=there/table image $M 2>printed; cat printed
               [ -z "$(ls there)" ]
           $O mount -o log=scattered,mtl=there/table image $M; $O umount $M; [ -s there/table ]
           settle image
           # One that was there stays.
           cp there/table before
           refuses $O mount -o log=scattered,mtl=there/table broken $M 2>printed
           cmp before there/table"#,
    );
}

#[test]
fn a_mount_after_a_kill_reads_the_table_of_mtl_or_says_why_not() {
    let rig = Rig::new();
    rig.run("$O mkfs --scattered-logs=log-size=2M,group-size=16M image 128M -- -q");
    let life = |options: &str| {
        let said = rig.run(&format!(
            "rm -f printed
             serve log=scattered,data=adaptive,writeback=1h,expire=1h,log_level=info,\
             log_file=printed{options} image
             {SYNC_WRITES}; {KILL}; cat printed"
        ));
        said.lines().find(|line| line.contains("recovered in")).unwrap_or_default().to_owned()
    };
    assert_eq!(life(",mtl=memory"), "");
    rig.run("cp memory older");
    for (options, printed) in [
        (",mtl=memory", " covered by "),
        (",mtl=older", "was not believed: it is another volume's, older than the last mount"),
        (",mtl=older", " covered by "),
        ("", " scattered logs, "),
        (",mtl=older", "was not believed: the last mount had none"),
        (",mtl=new", "was not believed"),
    ] {
        let said = life(options);
        assert!(said.contains(printed) && !said.contains(" 0 blocks stay"), "{options}: {said}");
    }
    rig.run("$O recover image; $O mount image $M; test $(stat -c %s $M/log) = 11200; $O umount $M");
    rig.check("");
    let said = rig.run(
        "echo mine >other; refuses $O mount -o log=scattered,mtl=other image $M 2>&1
         grep -q mine other
         refuses $O mount -o mtl=memory image $M 2>&1",
    );
    assert!(
        said.contains("something else is there") && said.contains("only scattered logs"),
        "{said}"
    );
}

/// Writes more than a restart should have to read of the logs: then a snapshot covers it, and dry
/// runs report the snapshot.
#[test]
fn a_dry_run_forecasts_a_restart_from_the_snapshot() {
    let rig = Rig::new();
    rig.run(
        "$O mkfs --scattered-logs=log-size=20M,group-size=40M image 480M -- -q
         head -c 1M /dev/urandom >content",
    );
    rig.run(&format!(
        "serve log=scattered,data=journal,records=blocks,writeback=1h,expire=1h,swap_above=off image
         for at in $(seq 72); do
             dd if=content of=$M/large bs=1M seek=$((at % 6)) oflag=dsync conv=notrunc status=none
         done
         for i in $(seq 100); do
             $O inspect logs image | grep -c snapshot >seen && break; sleep 0.1
         done
         {SYNC_WRITES}; {KILL}; cp --sparse=always image before"
    ));
    let (logs, printed) = (logs(&rig, ""), rig.run("$O recover --dry-run image"));
    let dry: Value =
        serde_json::from_str(&rig.run("$O recover --dry-run --json image; cmp image before"))
            .unwrap();
    let restart = &dry["restart"];
    assert_eq!(restart["refused"], Value::Null, "{dry}");
    for name in ["end", "read_from", "pieces"] {
        assert_eq!(number(restart, name), number(&logs["snapshot"], name), "{name}: {dry} {logs}");
    }
    // The file's six mebibytes, and later writes.
    assert!(
        number(restart, "blocks_covered") >= 6 << 8 && number(restart, "transactions") >= 16,
        "{dry}"
    );
    let skipped = number(restart, "read_from") - number(&dry, "first_transaction");
    assert_eq!(number(&dry, "transactions"), skipped + number(restart, "transactions"), "{dry}");
    assert!(
        printed.contains("Snapshot of the mapping table: ")
            && printed.contains("A restart with log=scattered"),
        "{printed}"
    );
    let journal = rig.run("$O inspect journal image");
    assert!(
        journal.contains("it lies in scattered logs") && journal.contains("of a snapshot"),
        "{journal}"
    );
    // The first extent is lost.
    let lost = rig.run(
        "dd if=/dev/zero of=before bs=4096 count=1 \
             seek=$(debugfs -R 'bmap <8> 1' before 2>/dev/null) conv=notrunc status=none
         $O recover --dry-run before",
    );
    assert!(
        lost.contains("its piece 1 is lost") && lost.contains("would read all of the log"),
        "{lost}"
    );
    let said = rig.run(&format!(
        "$O mount -o log=scattered,data=journal,records=blocks,log_level=info,log_file=said image $M
         cmp -n 1M content $M/large; $O umount $M; {DETACHED}; cat said"
    ));
    assert!(said.contains(&format!(" {skipped} of them covered by a snapshot")), "{said}");
    rig.check("");
}

/// Moves a full log in idle time; its content is read at its new place, and survives a kill of the
/// daemon.
#[test]
fn a_killed_daemon_loses_nothing_of_a_log_that_was_swapped() {
    let rig = Rig::new();
    for (mode, records) in [("journal", "blocks"), ("wasteless", "packed")] {
        rig.run(
            "rm -f image; $O mkfs --scattered-logs=log-size=2M,group-size=16M image 128M -- -q",
        );
        rig.run("head -c 2600K /dev/urandom >content");
        let said = rig.run(&format!(
            "serve log=scattered,data={mode},records={records},checkpoint=manual,\
             writeback=200ms,cache=4M image
             dd if=content of=$M/file bs=52K oflag=dsync status=none
             swaps() {{
                 $O stats --json $M | tr -d ' \n' | grep -o '\"swaps\":[0-9]*' | grep -o '[0-9]*'
             }}
             for i in $(seq 100); do [ $(swaps) -gt 0 ] && break; sleep 0.1; done
             cmp content $M/file; $O stats $M | grep -i 'swapped'
             # The log that was emptied is filled again, and the next swap is cut short perhaps.
             dd if=content of=$M/again bs=52K oflag=dsync status=none
             echo swaps $(swaps); {KILL}"
        ));
        let swaps = said
            .lines()
            .find_map(|line| line.strip_prefix("swaps "))
            .unwrap_or_else(|| panic!("{said}"));
        assert!(swaps.parse::<u32>().unwrap() > 0, "{mode} {records}: nothing was swapped: {said}");
        assert!(said.contains("logs swapped") && said.contains("blocks of swapped logs"), "{said}");
        let printed = logs(&rig, "");
        assert!(live_runs(&printed) >= 50, "{mode} {records}: {printed}");
        rig.run("$O recover image");
        rig.check("");
        rig.run(&format!(
            "mount -o loop image $M; cmp content $M/file; cmp content $M/again; umount $M
             {DETACHED}"
        ));
    }
}

#[test]
fn inspect_lists_place_fill_and_age_of_each_log() {
    let rig = Rig::new();
    rig.run("$O mkfs --scattered-logs=log-size=2M,group-size=16M image 128M -- -q");
    let said = rig.run("$O inspect logs image");
    assert!(
        said.contains(" logs of 2.0 MiB, one in every 16.0 MiB") && said.contains("all are empty"),
        "{said}"
    );
    rig.run(&format!(
        "serve log=scattered,data=wasteless,writeback=1h,expire=1h image; {SYNC_WRITES}; {KILL}"
    ));
    let said = rig.run("$O inspect logs image");
    assert!(
        said.contains("the log begins with transaction") && said.contains("to write home"),
        "{said}"
    );
    assert!(said.contains("to checkpoint all of them: "), "{said}");
    let printed = logs(&rig, "");
    let all = logs(&rig, "--all");
    assert_eq!(all["listed"].as_array().unwrap().len() as u64, number(&all, "logs"));
    assert_eq!(live_runs(&printed), live_runs(&all), "{printed} {all}");
    let mut newest = 0;
    for log in printed["listed"].as_array().unwrap() {
        assert_eq!(log["active"], Value::Bool(true));
        let used = number(log, "bytes_used");
        assert!(used <= 2 << 20 && number(log, "live_bytes") <= used, "{log}");
        assert!(number(log, "first_block") * 4096 + (2 << 20) <= 128 << 20, "{log}");
        newest = newest.max(number(log, "last_transaction"));
        assert!(
            said.lines().any(|line| line.contains(&number(log, "first_block").to_string())),
            "{said}"
        );
    }
    for log in
        printed["listed"].as_array().unwrap().iter().filter(|log| number(log, "live_runs") > 0)
    {
        assert_eq!(number(log, "age"), newest - number(log, "first_transaction"), "{log}");
    }
    // Recovery finds what the dry run reported.
    let found: Value = serde_json::from_str(&rig.run("$O recover --json image")).unwrap();
    let cost = &printed["checkpoint"];
    let written = number(&found, "home_blocks_written");
    assert_eq!(number(cost, "home_bytes"), written * 4096, "{found} {printed}");
    assert!(
        (1..=written).contains(&number(cost, "writes")) && number(cost, "reads") > 0,
        "{printed}"
    );
    assert_eq!(
        (&cost["nanoseconds"], &printed["times_on"]),
        (&Value::Null, &Value::Null),
        "no drive is emulated"
    );
    assert!(number(&found, "transactions") <= live_runs(&printed), "{found} {printed}");
    assert_eq!(
        number(&found, "logs_read"),
        printed["listed"].as_array().unwrap().len() as u64,
        "{found}"
    );
    rig.run("rm image; $O mkfs image 16M -- -q");
    let said = rig.run("refuses $O inspect logs image 2>&1");
    assert!(
        said.contains("has no scattered logs") && said.contains("mkfs --scattered-logs"),
        "{said}"
    );
}

#[test]
fn a_mount_without_logs_or_with_logs_that_lost_their_protection_is_refused() {
    let rig = Rig::new();
    rig.run("$O mkfs image 64M -- -q");
    let said = rig.run("refuses $O mount -o log=scattered image $M 2>&1");
    assert!(said.contains("scattered logs") && said.contains("mkfs --scattered-logs"), "{said}");
    rig.check("");
    rig.run("rm image; $O mkfs --scattered-logs=log-size=2M,group-size=16M image 128M -- -q");
    let said = rig.run(&format!(
        "$O mount -o log=circular image $M; refuses chattr -i $M/.scattered-logs
         refuses rm -f $M/.scattered-logs
         $O umount $M; {DETACHED}
         mount -o loop image $M; chattr -i $M/.scattered-logs; umount $M; {DETACHED}
         refuses $O mount -o log=scattered image $M 2>&1
         mount -o loop image $M; chattr +i $M/.scattered-logs; umount $M; {DETACHED}
         $O mount -o log=scattered image $M; $O umount $M"
    ));
    assert!(said.contains("no longer immutable"), "{said}");
    rig.check("");
}

/// Rots the header of a long run that short runs follow in the same log.
#[test]
fn a_rotted_header_of_a_long_run_is_damage_and_hides_nothing() {
    let rig = Rig::new();
    rig.run("$O mkfs --scattered-logs=log-size=2M,group-size=16M image 128M -- -q");
    rig.run(&format!(
        "serve log=scattered,data=journal,records=blocks,writeback=1h,expire=1h image
         dd if=/dev/urandom of=$M/large bs=400K count=1 oflag=dsync status=none; {SYNC_WRITES}
         {KILL}"
    ));
    let printed = logs(&rig, "");
    let tail = number(&printed, "tail");
    let holds =
        |log: &&Value| number(log, "live_runs") > 4 && number(log, "first_transaction") <= tail + 1;
    let log = printed["listed"]
        .as_array()
        .unwrap()
        .iter()
        .find(holds)
        .unwrap_or_else(|| panic!("{printed}"));
    assert!(number(log, "live_bytes") > 400 << 10, "{printed}");
    let at = number(log, "first_block");
    rig.run(&format!(
        "cp --sparse=always image before
         dd if=/dev/zero of=image bs=4096 seek={at} count=1 conv=notrunc status=none
         cp --sparse=always image rotten"
    ));
    let said = rig.run("refuses $O recover image 2>&1; cmp image rotten");
    assert!(said.contains("durable"), "{said}");
    let after = logs(&rig, "");
    assert!(live_runs(&after) + 1 >= live_runs(&printed), "{after} {printed}");
    let said = rig.run("refuses $O mount image $M 2>&1; cmp image rotten");
    assert!(said.contains("durable"), "{said}");
    rig.run("$O recover --until-damage image || [ $? = 4 ]; cp before image; $O recover image");
    rig.check("");
}

#[test]
fn logs_that_overlap_are_refused() {
    let rig = Rig::new();
    rig.run(
        "$O mkfs --scattered-logs=log-size=2M,group-size=16M --journal-size 4M image 48M -- -q \
             -O ^64bit",
    );
    let printed = logs(&rig, "--all");
    let starts: Vec<u64> = printed["listed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|log| number(log, "first_block"))
        .collect();
    assert!(starts.len() >= 2, "{printed}");
    // The third entry of the inode's extents is the second log's: after the header's three words
    // and two entries of three.
    let said = rig.run(&format!(
        "debugfs -w -R 'sif /.scattered-logs block[11] {}' image 2>&1; $O inspect logs --all image
         refuses $O mount -o log=scattered image $M 2>&1",
        starts[0] + 100
    ));
    assert!(said.contains("overlap"), "{said}");
    // A mount without scattered logs does not care.
    rig.run(&format!("$O mount image $M; $O umount $M; {DETACHED}"));
}
