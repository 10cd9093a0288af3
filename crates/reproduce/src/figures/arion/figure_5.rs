//! Figure 5: asynchronous writes by Zipf.

use super::{PaperSetting, SERVERS, rig};
use crate::figures::common::{axis, of_paper, ours, picture};
use crate::number::short;
use crate::{Claim, Context, FigureError, Results, Scale};
use std::rc::Rc;
use std::time::Duration;
use testbeds::{SharedFiles, SharedStage};
use workloads::{ActorRandom, Files};

const OURS: &str = "The paper's client logs and fetches whole pages. Ours keeps and logs the bytes that changed, so it fetches nothing.";
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
    /// Utilization in per cent of the disk of a server's journal, and that of its file
    /// system's disk.
    journal_use: f64,
    home_use: f64,
}

fn write_by_zipf(
    context: &Context,
    (setting, processor): (PaperSetting, Duration),
) -> Result<Written, FigureError> {
    let of_figure = &context.overrides;
    let scale = of_figure.whole("arion-5", "ZIPF_SCALE", ZIPF_SCALE.into()) as u32;
    let longest_period = of_figure.time("arion-5", "LONGEST_PERIOD", LONGEST_PERIOD);
    let stage = Rc::new(SharedStage::build(&rig(context, setting, scale, processor))?);
    let size = if context.quick { 4 << 20 } else { (2 << 30) / u64::from(scale) };
    let (seed, inner) = (context.seed, stage.clone());
    let (count, seconds) = stage.run(move |files: SharedFiles| async move {
        let mut file = files.create_cold("file", size).await?;
        let (random, units) = (ActorRandom::new(seed, 1), size / UNIT);
        let after_a_lookup = longest_period.mul_f64(ActorRandom::new(seed, 2).fraction()) / scale;
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
    let (journal_use, home_use) = stage.disk_use();
    Ok(Written {
        mean_ms: seconds / count as f64 * 1e3,
        seconds: seconds * f64::from(scale),
        received: stage.received_bytes() as f64 * f64::from(scale) / 1e9,
        journal_use: journal_use * 100.0,
        home_use: home_use * 100.0,
    })
}

pub(super) fn figure_5(context: &Context) -> Result<Results, FigureError> {
    let settings = [PaperSetting::Ceph, PaperSetting::Ceph1, PaperSetting::Okeanos60];
    let mut cells: Vec<_> = settings.map(|setting| (setting, ZIPF_PROCESSOR)).into();
    // Other choices are shown with the first seed alone.
    if context.run_index == 0 {
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
            "use of a journal's disk",
            "%",
            &|one| one.journal_use,
            vec![(1.0, 24.4), (2.0, 15.0)],
        ),
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
        claim("journal-use", ceph_1, |one| one.journal_use, true),
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
