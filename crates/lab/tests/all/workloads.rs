//! Tests of the workloads of `okeanos-lab bench` on a mounted volume: their operations, and the
//! files that they leave.

use crate::rig::Rig;
use serde_json::Value;

/// Mounts a volume, runs `okeanos-lab bench WORDS $M/d`, and checks the volume. Returns the output,
/// and the number of files that stay, and their bytes.
fn bench(words: &str) -> (Value, u64, u64) {
    let rig = Rig::new();
    let report = rig.run(&format!(
        "$O mkfs --force image 128M -- -q >made; $O mount -o data=wasteless image $M; mkdir $M/d
         $LAB bench {words} --json $M/d
         find $M/d -type f -printf '%s\\n' |
             awk '{{ all += $1 }} END {{ printf \"%d %d\", NR, all }}' >left
         refuses $LAB bench {words} $M/missing >said 2>&1; grep -q missing said
         $O umount $M; settle image; clean image"
    ));
    let left = std::fs::read_to_string(rig.path("left")).unwrap();
    let (files, bytes) = left.split_once(' ').unwrap();
    (serde_json::from_str(&report).expect(&report), files.parse().unwrap(), bytes.parse().unwrap())
}

fn count(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("no {name} in {of}"))
}

#[test]
fn postmark_makes_its_transactions_and_leaves_the_files_it_did_not_delete() {
    let (report, files, _) =
        bench("postmark --files 20 --threads 5 --transactions 100 --size-max 5000 --seed 1");
    let report = &report[0];
    assert_eq!(count(report, "transactions"), 100);
    assert_eq!(count(report, "reads") + count(report, "appends"), 100);
    assert_eq!(count(report, "creates") + count(report, "deletes"), 100);
    assert_eq!(files, 20 + count(report, "creates") - count(report, "deletes"));
}

#[test]
fn every_personality_of_filebench_runs_its_loops() {
    for (personality, operations) in [
        ("fileserver", 165),
        ("varmail", 195),
        ("webserver", 465),
        ("createfiles", 45),
        ("oltp", 15),
    ] {
        let words = format!(
            "filebench {personality} --files 20 --file-size 8K --threads 3 --count 5 --seed 1"
        );
        let (report, files, bytes) = bench(&words);
        assert_eq!(count(&report, "operations"), operations, "{report}");
        assert!(files > 0 && bytes > 0, "{personality}: {files} files of {bytes} bytes");
    }
}

#[test]
fn every_instance_of_a_replayed_log_writes_and_syncs_what_the_trace_says() {
    let (report, files, bytes) =
        bench("replay mail-store --instances 1,3 --until 1s --spread 10ms --seed 1");
    let (one, three) = (&report[0], &report[1]);
    assert!(count(one, "syncs") > 0, "{report}");
    assert_eq!(3 * count(one, "syncs"), count(three, "syncs"));
    assert_eq!(3 * count(one, "bytes_written"), count(three, "bytes_written"));
    // The trace begins somewhere in the log; before it there is a hole.
    assert_eq!(files, 4);
    assert!(bytes >= 4 * count(one, "bytes_written"), "{bytes} bytes");
}

#[test]
fn processes_that_write_through_a_server_leave_a_file_each_and_its_database() {
    let (report, files, bytes) = bench("mpi-io --processes 4 --writes 40 --size 1000");
    assert!(count(&report, "database_syncs") > 0, "{report}");
    assert!(files > 4 && bytes > 40_000, "{files} files of {bytes} bytes");
}

#[test]
fn what_streams_wrote_is_read_back_whole() {
    let report = Rig::new().run(
        "$O mkfs --force image 128M -- -q >made; $O mount -o data=wasteless image $M; mkdir $M/d
         $LAB bench streams --writers 3 --size 5000 --count 4 $M/d >written
         refuses $LAB bench read-back $M >said 2>&1; grep -q stream-00000 said
         $LAB bench read-back --json $M/d
         $O umount $M; settle image; clean image",
    );
    let report: Value = serde_json::from_str(&report).expect(&report);
    assert_eq!((count(&report, "files"), count(&report, "bytes")), (3, 60_000), "{report}");
}

#[test]
fn file_systems_are_compared_on_an_emulated_disk() {
    let compare = |model: &str| {
        Rig::new().run(&format!(
            "$LAB bench compare --model {model} --image-size 400M --directory . --writers 2 \
                 --seconds 300ms --runs 1 \\
                --contenders \
                ext4:ordered,okeanos:wasteless,okeanos-classic:wasteless,blocks:ordered+cache=16M \
                --json >report 2>errors ||
                {{ cat errors; exit; }}
             cat report; [ -z \"$(losetup -n -O BACK-FILE | grep okeanos-bench)\" ]
             [ -z \"$(ls -d okeanos-bench-* 2>/dev/null)\" ]"
        ))
    };
    let rows: Value = serde_json::from_str(&compare("nvme-ssd")).expect("JSON");
    let ratios: Vec<_> =
        rows.as_array().unwrap().iter().map(|row| row["ratio"].as_f64().unwrap()).collect();
    assert!(ratios.len() == 4 && ratios[0] == 1.0, "{ratios:?}");
    assert!(ratios.iter().all(|ratio| *ratio > 0.0), "{ratios:?}");
    assert!(compare("nvme-sst").contains("okeanos-lab disk list"));
}
