//! Table IV: the cheapest workload that always evicts, on each drive.

use super::fingerprints::{DRIVES, HITACHI, Taken, take_again, take_all};
use super::table_1::{names, numbered};
use crate::error::FigureError;
use crate::figure::{Figure, Results, Scale};
use crate::figures::common::{axis, of_paper, ours, picture};
use crate::{Claim, Context};

pub fn figure() -> Figure {
    Figure {
        name: "discreet-table-4",
        title: "The cheapest workload that always evicts, on nine drives",
        source: "Discreet (DSN 2011), Table IV",
        about: "From the fingerprints of Table II: of the workloads that evicted in all of 50 trials the cheapest, and of those that \
                cost as little the one with the fewest writes.",
        minutes: 5,
        by_chance: false,
        real_time: false,
        run,
    }
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let all = take_all(context)?;
    let again = take_again(context)?;
    let mut claims = Vec::new();
    for taken in &all {
        let others = again.iter().filter(|other| other.drive.model == taken.drive.model);
        claims.push(as_in_paper(std::iter::once(taken).chain(others).collect()));
    }
    claims.push(time_off_hitachis(&all));
    let chosen = |value: fn((f64, f64, f64)) -> f64| {
        let found = all
            .iter()
            .enumerate()
            .filter_map(|(index, taken)| Some((index as f64, value(found(taken)?))));
        found.collect()
    };
    let bars = |title: &str, label: &str, ours_are, theirs: Vec<(f64, f64)>| {
        let series = vec![ours("chosen", ours_are), of_paper("chosen", theirs)];
        picture(title, names(), axis(label, Scale::Logarithmic), series)
    };
    let pictures = vec![
        bars(
            "Writes",
            "writes",
            chosen(|(writes, ..)| writes),
            numbered(DRIVES.iter().map(|drive| drive.writes.into())),
        ),
        bars(
            "Data",
            "MB in all",
            chosen(|(_, data, _)| data),
            numbered(DRIVES.iter().map(|drive| drive.megabytes)),
        ),
        bars(
            "Time",
            "ms",
            chosen(|(.., time)| time),
            numbered(DRIVES.iter().map(|drive| drive.milliseconds)),
        ),
    ];
    Ok(Results { pictures, claims, notes: notes() })
}

/// Returns writes, megabytes, milliseconds.
fn found(taken: &Taken) -> Option<(f64, f64, f64)> {
    let (workload, milliseconds) = taken.chosen()?;
    Some((workload.writes.into(), workload.bytes as f64 / 1e6, milliseconds))
}

/// Compares with the paper. Most fingerprints of one drive with several seeds must agree.
fn as_in_paper(taken: Vec<&Taken>) -> Claim {
    let drive = taken[0].drive;
    let found: Vec<String> = taken.iter().map(|taken| in_words(taken)).collect();
    let near = taken.iter().filter(|taken| is_near(taken)).count();
    let share = near as f64 / taken.len() as f64;
    let claim = Claim::of(&format!("discreet-table-4/{}", drive.model), share).shown(format!(
        "{near} of {}: {}",
        taken.len(),
        found[0]
    ));
    match taken.len() {
        1 => claim,
        _ => {
            let judged = if is_near(taken[0]) { "near" } else { "not near" };
            claim.with_other_choice(format!("the first alone: {judged}"))
        }
    }
}

fn in_words(taken: &Taken) -> String {
    match taken.chosen() {
        Some((workload, milliseconds)) => {
            format!(
                "{} writes, {} MB, {milliseconds:.0} ms",
                workload.writes,
                workload.bytes as f64 / 1e6
            )
        }
        None => "none evicted always".to_string(),
    }
}

fn is_near(taken: &Taken) -> bool {
    let Some((workload, _)) = taken.chosen() else { return false };
    let drive = taken.drive;
    let data = taken.grid.bytes.iter().map(|bytes| *bytes as f64 / 1e6);
    let writes_apart = apart(
        taken.grid.writes.iter().map(|writes| f64::from(*writes)),
        workload.writes.into(),
        drive.writes.into(),
    );
    let data_apart = apart(data, workload.bytes as f64 / 1e6, drive.megabytes);
    let is_near = |steps: Option<usize>| steps.is_some_and(|steps| steps <= 1);
    let fits = if drive.maker == HITACHI { workload.writes == 1 } else { is_near(writes_apart) };
    fits && is_near(data_apart)
}

/// Counts the steps of the grid between two of its numbers.
fn apart(grid: impl Iterator<Item = f64>, one: f64, other: f64) -> Option<usize> {
    let grid: Vec<f64> = grid.collect();
    let place = |value: f64| grid.iter().position(|number| *number == value);
    Some(place(one)?.abs_diff(place(other)?))
}

fn time_off_hitachis(all: &[Taken]) -> Claim {
    let time = |taken: &Taken| found(taken).map_or(f64::NAN, |(.., time)| time);
    let (hitachis, others): (Vec<&Taken>, Vec<&Taken>) =
        all.iter().partition(|taken| taken.drive.maker == HITACHI);
    let most = hitachis.iter().map(|taken| time(taken)).fold(0.0, f64::max);
    let least =
        others.iter().min_by(|one, other| time(one).total_cmp(&time(other))).expect("seven");
    let shown = format!("{:.0} ms ({}) against {most:.0} ms", time(least), least.drive.model);
    Claim::of("discreet-table-4/off-hitachis", time(least) / most).shown(shown)
}

fn notes() -> Vec<String> {
    let notes = [
        "The caches were derived from Tables II and IV, so that numbers of writes and amounts agree shows that the models do \
         what they say and that the tool finds it out, from times alone; it does not show that such caches are in the drives.",
        "Times were used for how much may wait for the medium in the Hitachis, the Seagates and western-digital-16: one rule for each maker, stated in \
         the models' files. Where on the disk the paper's workloads lay is not stated; ours lie anywhere on it, and take 10 to 40 % less on the outermost tracks.",
        "western-digital-64 (a WD8000AARS, with physical sectors of 4 KiB) answers writes of parts of them from the medium: they cost 17 ms each \
         here, a revolution of the platter to read and one to rewrite, and 30 in the paper; how far apart its writes lay is not stated, ours lie within 4 MB.",
        "Where replacement is random (Samsung, seagate-8) the target survives by chance, and which workload is the cheapest to evict in 50 \
         of 50 trials is chance, too: there the fingerprint is taken with five seeds; the pictures show the first.",
    ];
    notes.map(String::from).to_vec()
}
