//! Tests of `okeanos-lab bench growth` and `okeanos-lab bench mixed`: small runs measure all that
//! large ones do.

use crate::rig::Rig;
use serde_json::Value;

/// Runs `okeanos-lab bench WORDS` in the rig's directory, and checks that no image and no loop
/// device stays.
fn bench(rig: &Rig, words: &str) -> Value {
    let report = rig.run(&format!(
        "$LAB bench {words} --directory . --runs 1 --json >report 2>errors ||
             {{ cat errors; exit; }}
         cat report; [ -z \"$(losetup -n -O BACK-FILE | grep $PWD/okeanos-bench)\" ]
         [ -z \"$(ls -d okeanos-bench-* 2>/dev/null)\" ]"
    ));
    serde_json::from_str(&report).expect(&report)
}

fn words<'a>(of: &'a Value, name: &str) -> Vec<&'a str> {
    of.as_array().unwrap().iter().map(|one| one[name].as_str().unwrap()).collect()
}

#[test]
fn a_short_growth_run_measures_every_series() {
    let rig = Rig::new();
    let points = "--writers 1,3 --volumes 1G,16G --files 100,10100 --journals 4M,8M";
    let report = bench(&rig, &format!("growth {points} --seconds 200ms --svg growth.svg"));
    assert_eq!(words(&report, "work"), ["writers", "volume_bytes", "files", "journal_bytes"]);
    let cold = ["mount", "memory", "first_lookup", "first_create", "recovery"];
    let rows = |series: usize| words(&report[series]["rows"], "quantity");
    assert_eq!(rows(0), ["syncs", "syncs_of_fast_commit", "memory_of_writers"]);
    assert_eq!((rows(1), rows(2)), (cold.to_vec(), cold.to_vec()));
    assert_eq!(rows(3), ["mount", "memory_of_full_log", "recovery", "memory_of_recovery"]);
    for row in
        report.as_array().unwrap().iter().flat_map(|series| series["rows"].as_array().unwrap())
    {
        let values = row["values"].as_array().unwrap();
        assert!(
            values.len() == 2 && values.iter().all(|value| value.as_f64() > Some(0.0)),
            "{row}"
        );
        assert!(row["power"].is_f64() && row["power"] == row["power_of_last_step"], "{row}");
    }
    for name in ["growth.svg", "growth-phone.svg"] {
        let picture = std::fs::read_to_string(rig.path(name)).unwrap();
        assert_eq!(picture.matches(">the work<").count(), 4, "{name}");
    }
}

#[test]
fn a_quick_growth_run_measures_small_points_alone() {
    let rig = Rig::new();
    let report = bench(&rig, "growth --quick --series volume --volumes 8T,16G,1G");
    assert_eq!(report[0]["points"], serde_json::json!([1u64 << 30, 16u64 << 30]));
    assert_eq!(report.as_array().unwrap().len(), 1);
}

#[test]
fn each_who_works_at_once_was_measured_alone_before() {
    let rig = Rig::new();
    let report = bench(
        &rig,
        "mixed --model nvme-ssd --contenders ext4:ordered,okeanos --writers 2 --seconds 200ms \
         --large 8M --dirty 8M",
    );
    let cases = ["writers", "reading", "overwriting", "together", "beside_dirty_data"];
    assert_eq!(words(&report, "case"), [cases, cases].concat());
    for row in report.as_array().unwrap() {
        let (case, median) = (row["case"].as_str().unwrap(), &row["median"]);
        let writes = !["reading", "overwriting"].contains(&case);
        assert_eq!(median["latency"]["p99_ns"].as_u64() > Some(0), writes, "{row}");
        for who in ["reading", "overwriting"] {
            let works = [who, "together"].contains(&case);
            assert_eq!(median[who].as_f64() > Some(0.0), works, "{row}");
        }
    }
}
