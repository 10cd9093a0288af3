//! Arion: a journal on the host in front of a shared file system, on a simulated cluster of three
//! data servers that keep each byte.

use crate::figures::common::{axis, of_paper, ours, picture};
use crate::number::short;
use crate::{Claim, Context, Figure, FigureError, Results, Scale, Series};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use testbeds::{MetadataTimes, SharedClient, SharedFiles, SharedOptions, SharedStage};
use units::Instant;
use workloads::{
    ActorRandom, FilebenchOptions, FilebenchReport, Files, Limit, Personality, filebench,
};

pub fn all() -> [Figure; 3] {
    [
        Figure {
            name: "arion-1",
            title: "Dirty data that only the client's memory has",
            source: "Arion (FAST 2015), Figure 1",
            about: "Filebench's fileserver for two minutes; each second, what a crash of the client would lose, with Ceph's own \
                    client and with a journal on the host.",
            minutes: 1,
            by_chance: true,
            real_time: false,
            run: figure_1,
        },
        Figure {
            name: "arion-4",
            title: "Mail and new files",
            source: "Arion (FAST 2015), Figure 4",
            about: "Filebench's varmail for a minute, and createfiles: operations per second, and what a data server receives for each.",
            minutes: 8,
            by_chance: true,
            real_time: false,
            run: figure_4,
        },
        Figure {
            name: "arion-5",
            title: "Asynchronous writes by Zipf",
            source: "Arion (FAST 2015), Figure 5",
            about: "Writes of 2 to 16 KiB to a file that is there, their places chosen by Zipf (1.0001), as many bytes as the file has: \
                    latency, what a data server receives, and how busy the disk of its file system is.",
            minutes: 1,
            by_chance: true,
            real_time: false,
            run: figure_5,
        },
    ]
}

const SECOND: Duration = Duration::from_secs(1);

/// The paper's names of its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PaperSetting {
    Ceph,
    Ceph1,
    CephSync,
    Okeanos60,
    /// Okeanos, looking for old files more often than the paper's 60 s.
    Okeanos60Often,
    OkeanosInfinite,
}

impl PaperSetting {
    fn name(self) -> &'static str {
        match self {
            PaperSetting::Ceph => "Ceph",
            PaperSetting::Ceph1 => "Ceph, 1 s",
            PaperSetting::CephSync => "Ceph, sync",
            PaperSetting::Okeanos60 => "Okeanos, 60 s",
            PaperSetting::Okeanos60Often => "Okeanos, 60 s, looked for every 5 s",
            PaperSetting::OkeanosInfinite => "Okeanos, infinite",
        }
    }
    /// Divides all times by `scale`.
    fn client(self, scale: u32) -> SharedClient {
        let s = SECOND / scale;
        let journaled =
            |writeback, destage| SharedClient::Journaled { flush: s, writeback, destage };
        match self {
            PaperSetting::Ceph => SharedClient::Cached { writeback: 5 * s, expire: 30 * s },
            PaperSetting::Ceph1 => SharedClient::Cached { writeback: s, expire: s },
            PaperSetting::CephSync => SharedClient::Synchronous,
            PaperSetting::Okeanos60 => journaled(60 * s, Some(60 * s)),
            PaperSetting::Okeanos60Often => journaled(5 * s, Some(60 * s)),
            PaperSetting::OkeanosInfinite => journaled(s, None),
        }
    }
}

/// Returns the paper's cluster: links of 1 Gbit/s, drives of 15,000 rpm, a file system that syncs
/// every 5 s.
fn rig(context: &Context, setting: PaperSetting, scale: u32, processor: Duration) -> SharedOptions {
    SharedOptions {
        client: setting.client(scale),
        servers: 3,
        latency: Duration::from_micros(100),
        bytes_per_second: 125_000_000,
        home_every: 5 * SECOND / scale,
        processor,
        metadata: METADATA_TIMES.times(1.0 / f64::from(scale)),
        seed: context.seed,
    }
}

/// Processor time of a real server (Ceph 16.2.15, one OSD in memory), all its threads together.
/// These are medians, to two digits, of three runs of `scripts/measure-metadata-server.py`, with
/// five repetitions each. A change was measured as a new file. A removal of a file with buffered
/// content takes 378 us; the part beyond a plain removal is `names_left`: the question, and the
/// reports of the discarded content. A token was measured with its return, as its grant comes with
/// the answer to an open.
const METADATA_TIMES: MetadataTimes = MetadataTimes {
    change: Duration::from_micros(190),
    removal: Duration::from_micros(170),
    open: Duration::from_micros(220),
    lookup: Duration::from_micros(110),
    names_left: Duration::from_micros(210),
    still_known: Duration::from_micros(64),
    attributes: Duration::from_micros(170),
    token: Duration::from_micros(39),
};
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
const CLIENT: &str = "Ceph's client is Linux's, as the paper's: fsync waits for content, and attributes follow. A new file comes open and with its \
capabilities. The host's journal stands before a client that waits for both, and that asks a question after each sync.";
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

const SERVERS: &str = "The servers are simulated: a data server journals what waits in one write and brings each dirty block to its place every 5 s; \
the metadata server's journal gets 2 KiB for each change, in three copies. Links, turns of the drives and sizes of the journals are the paper's.";
const OURS: &str = "The paper's client logs and fetches whole pages. Ours keeps and logs the bytes that changed, so it fetches nothing.";

// Figure 1

/// Duration of a loop. The paper states the files and the time; the rate is set so that Ceph's
/// client has about as much dirty data.
const FILESERVER_LOOP: Duration = Duration::from_millis(150);
/// Samples per second.
const SAMPLES: usize = 4;
/// Seconds that are not shown: data left dirty by the preparation is at the servers after them.
const FIRST: u32 = 40;

fn figure_1(context: &Context) -> Result<Results, FigureError> {
    let settings = [PaperSetting::Ceph, PaperSetting::Okeanos60];
    let seconds = if context.quick { 4 } else { 120 };
    let samples = context.play(&settings, |setting| {
        let stage = SharedStage::build(&rig(context, *setting, 1, Duration::ZERO))?;
        let own = FilebenchOptions::of(Personality::Fileserver);
        let workload = FilebenchOptions {
            files: if context.quick { 50 } else { 1000 },
            processor: FILESERVER_LOOP,
            limit: Limit::Time((seconds + FIRST) * SECOND),
            seed: context.seed,
            ..own
        };
        let samples: Rc<RefCell<Vec<f64>>> = Rc::default();
        let taken = samples.clone();
        stage.run(move |files| async move {
            let watched = files.clone();
            filebench(&files, &workload, move |_| {
                taken.borrow_mut().push(watched.volatile_bytes() as f64)
            })
            .await
        })?;
        let mut samples = samples.take();
        let kept = (seconds as usize * SAMPLES).min(samples.len());
        Ok(samples.split_off(samples.len() - kept))
    })?;
    let mib = |samples: &[f64]| -> Vec<(f64, f64)> {
        samples
            .iter()
            .enumerate()
            .map(|(at, bytes)| (at as f64 / SAMPLES as f64, bytes / 1e6))
            .collect()
    };
    let series =
        settings.iter().zip(&samples).map(|(setting, samples)| ours(setting.name(), mib(samples)));
    let mean = |samples: &[f64]| samples.iter().sum::<f64>() / samples.len().max(1) as f64 / 1e6;
    let (ceph, okeanos) = (mean(&samples[0]), mean(&samples[1]));
    let claims =
        vec![Claim::of("arion-1/ceph", ceph), Claim::of("arion-1/over-ceph", okeanos / ceph)];
    let (x, y) =
        (axis("time (s)", Scale::Linear), axis("dirty data in memory alone (MB)", Scale::Linear));
    let pictures = vec![picture("What a crash of the client would lose", x, y, series.collect())];
    let notes = vec![
        SERVERS.into(),
        "A tenth of the paper's 10,000 files, and each loop takes 150 ms of the one processor."
            .into(),
    ];
    Ok(Results { pictures, claims, notes })
}

// Figure 4

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
    /// Bytes received by one data server for each operation.
    received: f64,
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
    let marks: Rc<RefCell<Vec<(f64, u64, u64)>>> = Rc::default();
    let (noted, inner) = (marks.clone(), stage.clone());
    let report = stage.run(move |files| async move {
        let clock = files.clone();
        let report = filebench(&files, &workload, move |operations| {
            let now = clock.now().since(Instant(0)).as_secs_f64();
            noted.borrow_mut().push((now, operations, inner.received_bytes()));
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
    let from = |(last, _, _): &(f64, u64, u64)| {
        marks.iter().find(|(at, operations, _)| *operations > 0 && last - at <= 60.0)
    };
    let (per_second, received) = match (marks.last(), marks.last().and_then(from)) {
        (Some(last), Some(first)) if report.seconds >= f64::from(SETTLED) && last.1 > first.1 => {
            let operations = (last.1 - first.1) as f64;
            (operations / (last.0 - first.0), (last.2 - first.2) as f64 / operations)
        }
        _ => (
            report.operations_per_second,
            stage.received_bytes() as f64 / report.operations.max(1) as f64,
        ),
    };
    Ok(Loaded { report, per_second, received })
}

fn figure_4(context: &Context) -> Result<Results, FigureError> {
    let settings = [
        PaperSetting::Ceph,
        PaperSetting::Ceph1,
        PaperSetting::CephSync,
        PaperSetting::Okeanos60,
        PaperSetting::OkeanosInfinite,
    ];
    let workloads = [(Personality::Varmail, "varmail"), (Personality::Createfiles, "createfiles")];
    // Other times are played with the first seed alone.
    let played = if context.turn == 0 { &Served::ALL[..] } else { &Served::ALL[..1] };
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
        let received = |loaded: &Loaded| loaded.received;
        match *title {
            "varmail" => claims.extend([
                compared("rate", &rate, (OKEANOS, CEPH)),
                compared("latency", &latency, (OKEANOS, CEPH)),
                compared("received", &received, (OKEANOS, CEPH)),
            ]),
            _ => claims.extend([
                compared("rate", &rate, (OKEANOS, CEPH)),
                compared("received", &received, (OKEANOS, CEPH)),
                compared("sync-rate", &rate, (CEPH_SYNC, OKEANOS)),
                compared("sync-received", &received, (CEPH_SYNC, OKEANOS)),
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

// Figure 5

/// Divisor of the paper's 2 GiB and of all its times.
const ZIPF_SCALE: u32 = 8;
/// Client time of a write that does not wait: the least latency that the paper has.
const ZIPF_PROCESSOR: Duration = Duration::from_micros(600);
const ZIPF_ALPHA: f64 = 1.0001;
/// FIO's offsets and lengths are multiples of the least length.
const UNIT: u64 = 2048;
/// Range of the first write's time: no program starts when the flusher wakes, so the first write
/// comes at any time between two of its looks.
const LONGEST_PERIOD: Duration = Duration::from_secs(60);

struct Written {
    mean_ms: f64,
    seconds: f64,
    received: f64,
    home_use: f64,
}

fn write_by_zipf(
    context: &Context,
    (setting, processor): (PaperSetting, Duration),
) -> Result<Written, FigureError> {
    let stage = Rc::new(SharedStage::build(&rig(context, setting, ZIPF_SCALE, processor))?);
    let size = if context.quick { 4 << 20 } else { (2 << 30) / u64::from(ZIPF_SCALE) };
    let (seed, inner) = (context.seed, stage.clone());
    let (count, seconds) = stage.run(move |files: SharedFiles| async move {
        let mut file = files.create_cold("file", size).await?;
        let (random, units) = (ActorRandom::new(seed, 1), size / UNIT);
        let after_a_lookup =
            LONGEST_PERIOD.mul_f64(ActorRandom::new(seed, 2).fraction()) / ZIPF_SCALE;
        files.sleep_until(files.now().plus(after_a_lookup)).await;
        inner.restart_counting();
        let mut sum = 0.0;
        let until: Vec<f64> = (1..=units)
            .map(|rank| {
                sum += (rank as f64).powf(-ZIPF_ALPHA);
                sum
            })
            .collect();
        let content = vec![7; 16 << 10];
        let (begun, mut written, mut count) = (files.now(), 0, 0u64);
        while written < size {
            let wanted = random.fraction() * sum;
            let rank = until.partition_point(|up_to| *up_to < wanted) as u64;
            // Ranks lie anywhere in the file: an odd factor moves each to a place of its own.
            let unit = rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % units;
            let length = (1 + random.below(8)) * UNIT;
            let at = (unit * UNIT).min(size - length);
            files.write_at(&mut file, at, &content[..length as usize]).await?;
            (written, count) = (written + length, count + 1);
        }
        Ok::<_, std::io::Error>((count, files.now().since(begun).as_secs_f64()))
    })?;
    Ok(Written {
        mean_ms: seconds / count as f64 * 1e3,
        seconds: seconds * f64::from(ZIPF_SCALE),
        received: stage.received_bytes() as f64 * f64::from(ZIPF_SCALE) / 1e9,
        home_use: stage.home_use() * 100.0,
    })
}

fn figure_5(context: &Context) -> Result<Results, FigureError> {
    let settings = [PaperSetting::Ceph, PaperSetting::Ceph1, PaperSetting::Okeanos60];
    let mut cells: Vec<_> = settings.map(|setting| (setting, ZIPF_PROCESSOR)).into();
    // Other choices are shown with the first seed alone.
    if context.turn == 0 {
        cells.extend(settings.map(|setting| (setting, Duration::ZERO)));
        cells.push((PaperSetting::Okeanos60Often, ZIPF_PROCESSOR));
    }
    let mut written = context.play(&cells, |cell| write_by_zipf(context, *cell))?;
    let mut others = written.split_off(settings.len());
    let often = others.pop();
    let names = || {
        axis("setting", Scale::Names(settings.map(|setting| setting.name().to_string()).to_vec()))
    };
    let bars = |title: &str,
                unit: &str,
                value: &dyn Fn(&Written) -> f64,
                paper: Vec<(f64, f64)>| {
        let own =
            written.iter().enumerate().map(|(at, written)| (at as f64, value(written))).collect();
        picture(
            title,
            names(),
            axis(unit, Scale::Linear),
            vec![ours(title, own), of_paper(title, paper)],
        )
    };
    let pictures = vec![
        bars(
            "mean latency of a write",
            "ms",
            &|one| one.mean_ms,
            vec![(0.0, 0.9), (1.0, 1.5), (2.0, 0.7)],
        ),
        bars("received by a data server", "GB", &|one| one.received, vec![(0.0, 2.1), (2.0, 1.2)]),
        bars(
            "use of a file system's disk",
            "%",
            &|one| one.home_use,
            vec![(1.0, 88.4), (2.0, 16.4)],
        ),
        bars("until the end", "s", &|one| one.seconds, vec![(0.0, 233.0), (2.0, 172.0)]),
    ];
    let [ceph, ceph_1, okeanos] = &written[..] else { unreachable!("one for each setting") };
    let claim = |id: &str, other: &Written, value: fn(&Written) -> f64, has_choice: bool| {
        let over = |one: &Written| value(one) / value(other);
        let claim = Claim::of(&format!("arion-5/{id}"), over(okeanos));
        let claim = match &often {
            Some(often) if has_choice => {
                claim.with_other_choice(format!("{} where it looks every 5 s", short(over(often))))
            }
            _ => claim,
        };
        // Without a processor's time it is the disks' and the network's alone.
        let idle = match &others[..] {
            [ceph, _, okeanos] if std::ptr::eq(other, &written[0]) => Some((okeanos, ceph)),
            [_, ceph_1, okeanos] => Some((okeanos, ceph_1)),
            _ => None,
        };
        idle.into_iter().fold(claim, |claim, (one, base)| {
            claim.with_other(format!("no processor time: {}", short(value(one) / value(base))))
        })
    };
    let claims = vec![
        claim("latency-over-ceph", ceph, |one| one.mean_ms, false),
        claim("latency-over-ceph-1", ceph_1, |one| one.mean_ms, false),
        claim("time-over-ceph", ceph, |one| one.seconds, false),
        claim("received", ceph, |one| one.received, true),
        claim("home-use", ceph_1, |one| one.home_use, true),
    ];
    let notes = vec![
        SERVERS.into(),
        OURS.into(),
        format!(
            "An eighth of the paper's file, and all times by the same: what is written back waits a proportionate time. A write takes {} ms of the \
             client's processor.",
            ZIPF_PROCESSOR.as_secs_f64() * 1e3
        ),
        "Lengths and offsets are multiples of 2 KiB, and the most frequent places lie anywhere in the file, as in a log of FIO 3.33 \
         (write_iolog) with these options."
            .into(),
        "The paper's latencies leave no time for a seek at the servers for each page that is fetched. Here blocks get their places there in the \
         order in which they are first asked for, and such a read is short."
            .into(),
    ];
    Ok(Results { pictures, claims, notes })
}
