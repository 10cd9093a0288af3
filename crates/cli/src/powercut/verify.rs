//! Verification after the cut: which acknowledged writes survived.

use super::connection::Connection;
use super::protocol::{Event, FileLayout, Logged};
use super::record::{Content, WriteRecord, place};
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::table::Table;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that are written as one at least: pages of the cache, and most blocks of file systems.
const PAGE: u64 = 4096;

/// Milliseconds before the last message, and their names in the table.
const AGES: [(u64, &str); 5] = [
    (10, "10 ms or less"),
    (100, "10 to 100 ms"),
    (1000, "0.1 to 1 s"),
    (10_000, "1 to 10 s"),
    (u64::MAX, "more than 10 s"),
];

/// Counts of one age, over the last acknowledged write of each place.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, serde::Serialize)]
struct Counts {
    acknowledged: u64,
    present: u64,
    lost: u64,
    torn: u64,
    /// Number of read errors: some drives return one for a sector that was being written.
    unreadable: u64,
}

#[derive(serde::Serialize)]
struct Verdict {
    run: String,
    /// Acknowledged writes in all; those overwritten by later ones cannot be verified.
    acknowledged: u64,
    /// Places whose next write was in flight when the last message came, and those that share a
    /// page with it: any content is right.
    in_flight: u64,
    by_age: Vec<(&'static str, Counts)>,
    total: Counts,
    /// Run whose record stands where one of this run is missing: perhaps this is the file of that
    /// run.
    other_run: Option<String>,
    verdict: String,
}

/// The listener's log of a run.
struct RunLog {
    run: u64,
    layout: FileLayout,
    /// Number and time of the last acknowledged write of each place.
    newest: Vec<Option<(u64, u64)>>,
    acknowledged: u64,
    in_flight: Option<u64>,
    last: u64,
}

pub fn run(listener: &str, run: Option<u64>, path: &Path, json: bool) -> Result<(), CliError> {
    let log = ask(listener, run)?;
    let file = File::open(path).map_err(|error| CliError::system(path.display(), error))?;
    let read = |at, length| read_block(&file, at, length);
    let verdict = judge(&log, read).map_err(|error| CliError::system(path.display(), error))?;
    let (text, total) = (verdict.verdict.clone(), verdict.total);
    if json {
        print_json(&verdict)?
    } else {
        print(&table(&verdict))?
    }
    if total.present < total.acknowledged || total.acknowledged == 0 {
        let error = CliError::new(text);
        return Err(match &verdict.other_run {
            Some(run) => error.with_remedy(format!(
                "It holds records of run {run}, too: if that was the cut, say --run {run}."
            )),
            None => error,
        });
    }
    if json { Ok(()) } else { print(&format_args!("{text}\n")) }
}

fn ask(listener: &str, run: Option<u64>) -> Result<RunLog, CliError> {
    let mut log: Option<RunLog> = None;
    let wrong = || CliError::new(format!("listener {listener}: it reports what no writer sends"));
    Connection::open(listener)?.report(run, |Logged { at, run, event }| {
        match (&mut log, event) {
            (None, Event::Begins(layout)) => {
                let newest = vec![None; layout.places as usize];
                log = Some(RunLog {
                    run,
                    layout,
                    newest,
                    acknowledged: 0,
                    in_flight: None,
                    last: at,
                });
            }
            (Some(log), Event::About(number)) => (log.in_flight, log.last) = (Some(number), at),
            (Some(log), Event::Acknowledged(number)) => {
                log.newest[place(number, log.layout.places) as usize] = Some((number, at));
                log.acknowledged += 1;
                (log.in_flight, log.last) = (None, at);
            }
            _ => return Err(wrong()),
        }
        Ok(())
    })?;
    log.ok_or_else(|| CliError::new(format!("listener {listener}: it knows of no such run")))
}

/// Judges a run. `read`: bytes at an offset.
fn judge(
    log: &RunLog,
    read: impl Fn(u64, usize) -> std::io::Result<Vec<u8>>,
) -> std::io::Result<Verdict> {
    let FileLayout { size, places } = log.layout;
    let mut by_age = AGES.map(|(_, name)| (name, Counts::default()));
    let mut total = Counts::default();
    let place_at = |index: u64| index * u64::from(size)..(index + 1) * u64::from(size);
    let being_written = log.in_flight.map_or(0..0, |number| {
        let bytes = place_at(place(number, places));
        bytes.start / PAGE * PAGE..bytes.end.next_multiple_of(PAGE)
    });
    let (mut in_flight, mut other_run) = (0, None);
    for (index, newest) in (0..).zip(&log.newest) {
        let Some((number, at)) = *newest else { continue };
        let bytes = place_at(index);
        if bytes.start < being_written.end && being_written.start < bytes.end {
            in_flight += 1;
            continue;
        }
        let held = match read(bytes.start, size as usize) {
            Err(error) if error.raw_os_error() == Some(libc::EIO) => None,
            read => Some(WriteRecord::read(&read?)),
        };
        if let Some(Content::WriteRecord(record)) = held {
            if record.run != log.run {
                other_run = Some(format!("{:016x}", record.run));
            }
        }
        let age = log.last.saturating_sub(at);
        let row = AGES.iter().position(|(most, _)| age <= *most).expect("the last has no end");
        for counts in [&mut by_age[row].1, &mut total] {
            counts.acknowledged += 1;
            match held {
                // A later write, whose line the listener could not keep, replaced this one: nothing
                // is lost.
                Some(Content::WriteRecord(record))
                    if record.run == log.run && record.number >= number =>
                {
                    counts.present += 1;
                }
                Some(Content::WriteRecord(_) | Content::Other) => counts.lost += 1,
                Some(Content::Torn) => counts.torn += 1,
                None => counts.unreadable += 1,
            }
        }
    }
    Ok(Verdict {
        run: format!("{:016x}", log.run),
        acknowledged: log.acknowledged,
        in_flight,
        by_age: by_age.to_vec(),
        total,
        verdict: words(total),
        other_run,
    })
}

/// Reads a block; zeros beyond the end of the file.
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
        Counts { acknowledged: 0, .. } => "undecided: no write was acknowledged".to_owned(),
        Counts { acknowledged, present, .. } if present == acknowledged => format!(
            "honest this time: all {acknowledged} acknowledged writes are there; one cut proves \
             little, so do it again"
        ),
        Counts { lost, torn, unreadable, acknowledged, .. } => format!(
            "it lies: of {acknowledged} acknowledged writes {lost} are lost, {torn} are torn and \
             {unreadable} cannot be read; something between fsync and the medium acknowledges what \
             it has not made durable"
        ),
    }
}

fn table(verdict: &Verdict) -> String {
    let mut table = Table::new([
        "before the last message",
        "acknowledged",
        "present",
        "lost",
        "torn",
        "unreadable",
    ]);
    let all = ("all", verdict.total);
    for (name, counts) in verdict.by_age.iter().copied().chain([all]) {
        let Counts { acknowledged, present, lost, torn, unreadable } = counts;
        let [acknowledged, present, lost, torn, unreadable] =
            [acknowledged, present, lost, torn, unreadable].map(|count| count.to_string());
        table.row([name.to_owned(), acknowledged, present, lost, torn, unreadable]);
    }
    let in_flight = match verdict.in_flight {
        0 => String::new(),
        1 => ", one of them left out because it was being written again".to_owned(),
        count => format!(", {count} of them left out because their page was being written again"),
    };
    format!(
        "run {}: {} writes acknowledged; looked at the last of each place{in_flight}\n{table}",
        verdict.run, verdict.acknowledged
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: FileLayout = FileLayout { size: 512, places: 4 };

    /// Judges four acknowledged writes: one is present, one overwritten by a newer one, one lost,
    /// and one unreadable.
    #[test]
    fn what_cannot_be_read_is_counted_and_what_is_newer_is_not_lost() {
        let mut newest = vec![None; 4];
        (0..4).for_each(|number| newest[place(number, 4) as usize] = Some((number, number)));
        let log =
            RunLog { run: 9, layout: LAYOUT, newest, acknowledged: 4, in_flight: None, last: 4 };
        let read = |at: u64, length: usize| {
            let number = (0..4).find(|number| place(*number, 4) * 512 == at).unwrap();
            match number {
                0 => Ok(WriteRecord { run: 9, number: 0 }.bytes(length)),
                1 => Ok(WriteRecord { run: 9, number: 1 + 4 }.bytes(length)),
                2 => Ok(vec![0; length]),
                _ => Err(std::io::Error::from_raw_os_error(libc::EIO)),
            }
        };
        let verdict = judge(&log, read).unwrap();
        assert_eq!(verdict.other_run, None);
        assert_eq!(
            verdict.total,
            Counts { acknowledged: 4, present: 2, lost: 1, torn: 0, unreadable: 1 }
        );
        assert!(verdict.verdict.starts_with("it lies"), "{}", verdict.verdict);
    }

    /// A page is written as one: what the cut tears in it was durable before, and is no lie.
    #[test]
    fn what_shares_the_page_being_written_is_left_out() {
        for (size, neighbours) in [(512, 7), (4096, 0), (2048, 1), (1536, 3), (6144, 1)] {
            let layout = FileLayout { size, places: 64 };
            let mut newest = vec![None; 64];
            (0..64).for_each(|number| newest[place(number, 64) as usize] = Some((number, number)));
            let in_flight = 64 + 5;
            let log = RunLog {
                run: 9,
                layout,
                newest,
                acknowledged: 64,
                in_flight: Some(in_flight),
                last: 64,
            };
            let torn = place(in_flight, 64) * u64::from(size);
            let pages = torn / 4096 * 4096..(torn + u64::from(size)).next_multiple_of(4096);
            let read = |at: u64, length: usize| {
                if at < pages.end && at + length as u64 > pages.start {
                    return Err(std::io::Error::from_raw_os_error(libc::EIO));
                }
                let at_this = |number: &u64| place(*number, 64) * u64::from(size) == at;
                let number = (0..64).find(at_this).unwrap();
                Ok(WriteRecord { run: 9, number }.bytes(length))
            };
            let verdict = judge(&log, read).unwrap();
            assert!(verdict.verdict.starts_with("honest"), "{size}: {}", verdict.verdict);
            assert!(verdict.in_flight <= 1 + neighbours, "{size}: {}", verdict.in_flight);
        }
    }
}
