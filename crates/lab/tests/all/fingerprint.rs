//! Tests that `okeanos-lab fingerprint` continues saved measurements.

use crate::rig::Rig;

/// Stopped once measurements are saved, it refuses to combine others with them, and continues the
/// same.
#[test]
fn what_is_kept_goes_on_under_the_same_conditions_alone() {
    let rig = Rig::new();
    rig.run(
        "timeout -s KILL 7 $LAB fingerprint --model hitachi-7k80 --ignore-flush --quick \
             --out kept ||
             test -e kept/fingerprint.json",
    );
    let said = rig.run("refuses $LAB fingerprint --model hitachi-7k80 --out kept 2>&1");
    assert!(said.contains("ignoring flushes") && said.contains("--out"), "{said}");
    let said =
        rig.run("refuses $LAB fingerprint --model hitachi-32 --ignore-flush --out kept 2>&1");
    assert!(said.contains("hitachi-32"), "{said}");
    rig.run("truncate -s 64M file");
    let said = rig.run("refuses $O fingerprint file --out kept 2>&1");
    assert!(said.contains("file"), "{said}");
    rig.run("head -c 3000 kept/fingerprint.json >cut; mv cut kept/fingerprint.json");
    let said =
        rig.run("refuses $LAB fingerprint --model hitachi-7k80 --ignore-flush --out kept 2>&1");
    assert!(said.contains("remove the file"), "{said}");
}
