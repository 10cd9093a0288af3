//! Figure 4: varmail and createfiles.

use super::{CLIENT, METADATA_TIMES, PaperSetting, SECOND, SERVERS, rig};
use crate::figures::common::{axis, of_paper, ours, picture};
use crate::number::short;
use crate::{Claim, Context, FigureError, Results, Scale, Series};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use testbeds::{MetadataTimes, SharedOptions, SharedStage};
use units::Instant;
use workloads::{FilebenchOptions, FilebenchReport, Files, Limit, Personality, filebench};

fn metadata_source() -> String {
    let MetadataTimes { change, removal, names_left, still_known, attributes, token, .. } =
        METADATA_TIMES;
    let [change, removal, names_left, still_known, attributes, token] =
        [change, removal, names_left, still_known, attributes, token].map(|time| time.as_micros());
    format!(
        "The metadata server takes of its one processor what a real one took of all its threads (Ceph 16.2.15, \
         scripts/measure-metadata-server.py): {change} us for a new file, {removal} for a removal, {attributes} for attributes that \
         it receives, {token} for a token, {still_known} for the question after a sync, and {names_left} for the question how many names are left \
         and the discard of the content."
    )
}
/// Values used before the times were measured. Reports to the server took no time. The question how
/// many names are left was no message.
const CHOSEN_TIMES: MetadataTimes = MetadataTimes {
    change: Duration::from_micros(500),
    removal: Duration::from_micros(500),
    open: Duration::from_micros(500),
    lookup: Duration::from_micros(500),
    names_left: Duration::ZERO,
    still_known: Duration::from_micros(500),
    attributes: Duration::ZERO,
    token: Duration::ZERO,
};

/// The metadata server's times with which a cell is played.
#[derive(Clone, Copy)]
enum Served {
    AsMeasured,
    /// Multiples of the measured times.
    By(f64),
    AsChosen,
}

impl Served {
    const ALL: [Served; 4] =
        [Served::AsMeasured, Served::By(0.5), Served::By(2.0), Served::AsChosen];

    fn times(self) -> MetadataTimes {
        match self {
            Served::AsMeasured => METADATA_TIMES,
            Served::By(factor) => METADATA_TIMES.times(factor),
            Served::AsChosen => CHOSEN_TIMES,
        }
    }
}

/// Indices among its settings.
const CEPH: usize = 0;
const CEPH_SYNC: usize = 2;
const OKEANOS: usize = 3;

struct LoadCell {
    personality: Personality,
    setting: PaperSetting,
    served: Served,
}

struct Loaded {
    report: FilebenchReport,
    per_second: f64,
    /// Bytes received and sent by one data server for each operation.
    received: f64,
    sent: f64,
}

/// Counts at a moment of a run.
#[derive(Clone, Copy, Default)]
struct Mark {
    seconds: f64,
    operations: u64,
    received: u64,
    sent: u64,
}

/// Seconds until data left dirty by the preparation is at the servers, with the longest of the
/// times.
const SETTLED: u32 = 70;

fn load(context: &Context, cell: &LoadCell) -> Result<Loaded, FigureError> {
    let LoadCell { personality, setting, served } = *cell;
    let options =
        SharedOptions { metadata: served.times(), ..rig(context, setting, 1, Duration::ZERO) };
    let stage = Rc::new(SharedStage::build(&options)?);
    let own = FilebenchOptions::of(personality);
    let (files, seconds) = if context.quick { (100, 2) } else { (5000, 60 + SETTLED) };
    let workload =
        FilebenchOptions { files, limit: Limit::Time(seconds * SECOND), seed: context.seed, ..own };
    let marks: Rc<RefCell<Vec<Mark>>> = Rc::default();
    let (noted, inner) = (marks.clone(), stage.clone());
    let report = stage.run(move |files| async move {
        let clock = files.clone();
        let report = filebench(&files, &workload, move |operations| {
            let now = clock.now().since(Instant(0)).as_secs_f64();
            let (received, sent) = (inner.received_bytes(), inner.sent_bytes());
            noted.borrow_mut().push(Mark { seconds: now, operations, received, sent });
        });
        let report = report.await?;
        if report.seconds < f64::from(SETTLED) {
            // All files were made: their content goes to the servers now.
            files.sleep_until(files.now().plus(SETTLED * SECOND)).await;
        }
        Ok::<_, std::io::Error>(report)
    })?;
    let marks = marks.take();
    // The last minute, if there is one; otherwise the whole run.
    let (last, before) = (marks.last().copied().unwrap_or_default(), |first: &Mark| {
        first.operations > 0 && marks[marks.len() - 1].seconds - first.seconds <= 60.0
    });
    let first = marks.iter().find(|mark| before(mark)).copied().unwrap_or_default();
    let has_minute = report.seconds >= f64::from(SETTLED) && last.operations > first.operations;
    let (received, sent, operations) = match has_minute {
        true => {
            let operations = last.operations - first.operations;
            (last.received - first.received, last.sent - first.sent, operations)
        }
        false => (stage.received_bytes(), stage.sent_bytes(), report.operations.max(1)),
    };
    let per_second = match has_minute {
        true => operations as f64 / (last.seconds - first.seconds),
        false => report.operations_per_second,
    };
    let each = |bytes: u64| bytes as f64 / operations as f64;
    Ok(Loaded { report, per_second, received: each(received), sent: each(sent) })
}

pub(super) fn figure_4(context: &Context) -> Result<Results, FigureError> {
    let settings = [
        PaperSetting::Ceph,
        PaperSetting::Ceph1,
        PaperSetting::CephSync,
        PaperSetting::Okeanos60,
        PaperSetting::OkeanosInfinite,
    ];
    let workloads = [(Personality::Varmail, "varmail"), (Personality::Createfiles, "createfiles")];
    // Other times are played with the first seed alone.
    let played = if context.run_index == 0 { &Served::ALL[..] } else { &Served::ALL[..1] };
    let cells_of =
        |personality, served| settings.map(|setting| LoadCell { personality, setting, served });
    let cells: Vec<_> = workloads
        .iter()
        .flat_map(|(personality, _)| {
            played.iter().flat_map(|served| cells_of(*personality, *served))
        })
        .collect();
    let all = context.play(&cells, |cell| load(context, cell))?;
    let names = Scale::Names(settings.map(|setting| setting.name().to_string()).to_vec());
    let (mut pictures, mut claims) = (Vec::new(), Vec::new());
    for ((_, title), of_title) in workloads.iter().zip(all.chunks(played.len() * settings.len())) {
        let (loaded, others) = of_title.split_at(settings.len());
        let bars = |value: &dyn Fn(&Loaded) -> f64| -> Vec<Series> {
            let points =
                loaded.iter().enumerate().map(|(at, one)| (at as f64, value(one))).collect();
            vec![ours(title, points)]
        };
        let rate = |loaded: &Loaded| loaded.per_second;
        let mut series = bars(&rate);
        if *title == "varmail" {
            series.push(of_paper(title, vec![(0.0, 531.3), (3.0, 837.8)]));
        }
        let x = || axis("setting", names.clone());
        pictures.push(picture(
            &format!("{title}: operations per second"),
            x(),
            axis("operations per second", Scale::Linear),
            series,
        ));
        pictures.push(picture(
            &format!("{title}: received by a data server"),
            x(),
            axis("KB for each operation", Scale::Linear),
            bars(&|loaded| loaded.received / 1e3),
        ));
        pictures.push(picture(
            &format!("{title}: sent by a data server"),
            x(),
            axis("KB for each operation", Scale::Linear),
            bars(&|loaded| loaded.sent / 1e3),
        ));
        // Compares `a` with `b`, by their indices among the settings, and adds the ratio with other
        // times.
        let compared = |id: &str, value: &dyn Fn(&Loaded) -> f64, (a, b)| {
            let over = |loaded: &[Loaded]| value(&loaded[a]) / value(&loaded[b]);
            let others = Served::ALL[1..].iter().zip(others.chunks(settings.len()));
            let claim = Claim::of(&format!("arion-4/{title}-{id}"), over(loaded));
            others.fold(claim, |claim, (served, loaded)| match served {
                Served::AsChosen => {
                    claim.with_other_choice(format!("{} with 0.5 ms for each", short(over(loaded))))
                }
                Served::By(factor) => {
                    claim.with_other(format!("times x {factor}: {}", short(over(loaded))))
                }
                Served::AsMeasured => unreachable!("it is the first"),
            })
        };
        let latency = |loaded: &Loaded| loaded.report.latency_mean_ms;
        let (received, sent) = (|loaded: &Loaded| loaded.received, |loaded: &Loaded| loaded.sent);
        match *title {
            "varmail" => claims.extend([
                compared("rate", &rate, (OKEANOS, CEPH)),
                compared("latency", &latency, (OKEANOS, CEPH)),
                compared("received", &received, (OKEANOS, CEPH)),
                compared("sent", &sent, (OKEANOS, CEPH)),
            ]),
            _ => claims.extend([
                compared("rate", &rate, (OKEANOS, CEPH)),
                compared("received", &received, (OKEANOS, CEPH)),
                compared("sent", &sent, (OKEANOS, CEPH)),
                compared("sync-rate", &rate, (CEPH_SYNC, OKEANOS)),
                compared("sync-received", &received, (CEPH_SYNC, OKEANOS)),
                compared("sync-sent", &sent, (CEPH_SYNC, OKEANOS)),
            ]),
        }
    }
    let notes = vec![
        SERVERS.into(),
        metadata_source(),
        CLIENT.into(),
        "A tenth of the paper's 50,000 files, and the last of two minutes instead of five: by then what the preparation left is at the servers."
            .into(),
        "Why Ceph mounted sync does not lead in createfiles: there a write went to the metadata server directly; here each write waits for \
         three data servers."
            .into(),
        "No time passes in the client but for its disks and the network, so varmail's syncs cost one write of the host's drive.".into(),
    ];
    Ok(Results { pictures, claims, notes })
}
