//! Tests of `okeanos-lab sim` as people use it.

use std::process::Command;

/// Checks that the last line of a failure is the command that shows it again.
#[test]
fn the_line_that_a_failing_exploration_prints_replays_it() {
    let sim = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_okeanos-lab"))
            .arg("sim")
            .args(arguments)
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // Without barriers a write is lost soon.
    let (fine, said) = sim(&[
        "--mode",
        "journal",
        "--setup",
        "ext4-4k",
        "--barrier",
        "none",
        "--rounds",
        "9",
        "--jobs",
        "1",
    ]);
    assert!(!fine, "no barriers, nothing lost");
    let line =
        said.lines().find_map(|line| line.strip_prefix("replay: okeanos-lab sim ")).expect(&said);
    // Scripts are quoted for a shell.
    let arguments: Vec<&str> = line
        .split('\'')
        .enumerate()
        .flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        })
        .collect();
    let (fine, again) = sim(&arguments);
    assert!(!fine, "{line} finds nothing");
    assert_eq!(again.lines().next(), said.lines().next(), "{line} finds something else");
}

#[test]
fn scripts_of_ones_own_are_played() {
    let script = "create:0 append:0+300,fsync / create:1,sync";
    let sim = ["sim", "--mode", "journal", "--setup", "ext4-4k", "--json", "--script", script];
    let output = Command::new(env!("CARGO_BIN_EXE_okeanos-lab")).args(sim).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["total"]["scripts"], 1, "{report}");
    assert!(report["total"]["images"].as_u64() > Some(10), "{report}");
}
