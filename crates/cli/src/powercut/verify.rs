//! After the cut: what was acknowledged, and what of it is there.

use super::connection::Connection;
use super::protocol::{Event, Layout, Logged};
use super::record::{Held, Record, place};
use crate::error::CliError;
use crate::output::{print, print_json};
use crate::table::Table;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Milliseconds before the last message, and how the table says so.
const AGES: [(u64, &str); 5] = [
    (10, "10 ms or less"),
    (100, "10 to 100 ms"),
    (1000, "0.1 to 1 s"),
    (10_000, "1 to 10 s"),
    (u64::MAX, "more than 10 s"),
];

/// Of one age, the last acknowledged write of each place.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, serde::Serialize)]
struct Counts {
    acknowledged: u64,
    present: u64,
    lost: u64,
    torn: u64,
}

#[derive(serde::Serialize)]
struct Verdict {
    run: String,
    /// Acknowledged writes in all; those written over by later ones cannot be looked at.
    acknowledged: u64,
    /// Places whose next write was under way when the last message came: whatever they hold is right.
    under_way: u64,
    by_age: Vec<(&'static str, Counts)>,
    total: Counts,
    verdict: String,
}

/// What the listener knows of a run.
struct Told {
    run: u64,
    layout: Layout,
    /// The last acknowledged write of each place, and when.
    newest: Vec<Option<(u64, u64)>>,
    acknowledged: u64,
    under_way: Option<u64>,
    last: u64,
}

pub fn run(listener: &str, run: Option<u64>, path: &Path, json: bool) -> Result<(), CliError> {
    let told = ask(listener, run)?;
    let file = File::open(path).map_err(|error| CliError::system(path.display(), error))?;
    let verdict = judge(&told, &file).map_err(|error| CliError::system(path.display(), error))?;
    let (text, total) = (verdict.verdict.clone(), verdict.total);
    if json {
        print_json(&verdict)?
    } else {
        print(&table(&verdict))?
    }
    if total.present < total.acknowledged || total.acknowledged == 0 {
        return Err(CliError::new(text));
    }
    if json { Ok(()) } else { print(&format_args!("{text}\n")) }
}

fn ask(listener: &str, run: Option<u64>) -> Result<Told, CliError> {
    let mut told: Option<Told> = None;
    let wrong = || CliError::new(format!("listener {listener}: it reports what no writer tells"));
    Connection::open(listener)?.report(run, |Logged { at, run, event }| {
        match (&mut told, event) {
            (None, Event::Begins(layout)) => {
                let newest = vec![None; layout.places as usize];
                told = Some(Told { run, layout, newest, acknowledged: 0, under_way: None, last: at });
            }
            (Some(told), Event::About(number)) => (told.under_way, told.last) = (Some(number), at),
            (Some(told), Event::Acknowledged(number)) => {
                told.newest[place(number, told.layout.places) as usize] = Some((number, at));
                told.acknowledged += 1;
                (told.under_way, told.last) = (None, at);
            }
            _ => return Err(wrong()),
        }
        Ok(())
    })?;
    told.ok_or_else(|| CliError::new(format!("listener {listener}: it knows of no such run")))
}

fn judge(told: &Told, file: &File) -> std::io::Result<Verdict> {
    let Layout { size, places } = told.layout;
    let mut by_age = AGES.map(|(_, name)| (name, Counts::default()));
    let mut total = Counts::default();
    let being_written = told.under_way.map(|number| place(number, places));
    let mut under_way = 0;
    for (index, newest) in (0..).zip(&told.newest) {
        let Some((number, at)) = *newest else { continue };
        if being_written == Some(index) {
            under_way += 1;
            continue;
        }
        let block = read_block(file, index * u64::from(size), size as usize)?;
        let age = told.last.saturating_sub(at);
        let row = AGES.iter().position(|(most, _)| age <= *most).expect("the last has no end");
        for counts in [&mut by_age[row].1, &mut total] {
            counts.acknowledged += 1;
            match Record::read(&block) {
                Held::Record(record) if record == (Record { run: told.run, number }) => counts.present += 1,
                Held::Torn => counts.torn += 1,
                Held::Record(_) | Held::Other => counts.lost += 1,
            }
        }
    }
    Ok(Verdict {
        run: format!("{:016x}", told.run),
        acknowledged: told.acknowledged,
        under_way,
        by_age: by_age.to_vec(),
        total,
        verdict: words(total),
    })
}

/// Zeros behind the end of the file.
fn read_block(file: &File, at: u64, size: usize) -> std::io::Result<Vec<u8>> {
    let mut block = vec![0; size];
    let mut done = 0;
    while done < size {
        match file.read_at(&mut block[done..], at + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(block)
}

fn words(total: Counts) -> String {
    match total {
        Counts { acknowledged: 0, .. } => "cannot tell: no write was acknowledged".to_owned(),
        Counts { lost: 0, torn: 0, acknowledged, .. } => format!(
            "honest this time: all {acknowledged} acknowledged writes are there; one cut proves little, so do it again"
        ),
        Counts { lost, torn, acknowledged, .. } => format!(
            "it lies: of {acknowledged} acknowledged writes {lost} are lost and {torn} are torn; something between fsync and \
             the medium acknowledges what it has not made durable"
        ),
    }
}

fn table(verdict: &Verdict) -> String {
    let mut table = Table::new(["before the last message", "acknowledged", "present", "lost", "torn"]);
    let all = ("all", verdict.total);
    for (name, counts) in verdict.by_age.iter().copied().chain([all]) {
        let Counts { acknowledged, present, lost, torn } = counts;
        let [acknowledged, present, lost, torn] =
            [acknowledged, present, lost, torn].map(|count| count.to_string());
        table.row([name.to_owned(), acknowledged, present, lost, torn]);
    }
    let under_way = match verdict.under_way {
        0 => "",
        _ => ", one of them left out because it was being written again",
    };
    format!(
        "run {}: {} writes acknowledged; looked at the last of each place{under_way}\n{table}",
        verdict.run, verdict.acknowledged
    )
}
