//! The paragraph of section 5.6 on two disks in RAID-0 with the journal as a hidden file.

use super::streams::{Cell, FAST, Played, Rig, Runs, SLOW, play};
use crate::error::FigureError;
use crate::figure::{Figure, Results, Scale};
use crate::figures::common::{axis, most, ours, picture};
use crate::{Claim, Context};
use engine::DataMode;

pub fn figure() -> Figure {
    Figure {
        name: "raid-0",
        title: "Streams on two disks in RAID-0",
        source: "Okeanos (TOS 2013), section 5.6",
        about: "Streams of 1 Kbps and of 1 Mbps in ordered and wasteless mode, on two Cheetahs in RAID-0 (64 KiB chunks) with the \
                journal as a hidden file, beside a drive each for the volume and the journal; the mean time of an append.",
        minutes: 5,
        by_chance: true,
        real_time: false,
        run,
    }
}

const SHOWN: [DataMode; 2] = [DataMode::Ordered, DataMode::Wasteless];

/// Numbers of streams, and the seconds that each plays.
type Plays = (&'static [u32], u64);

fn run(context: &Context) -> Result<Results, FigureError> {
    let ((slow, slow_seconds), (fast, fast_seconds)): (Plays, Plays) =
        match (context.quick, context.varied) {
            (true, _) => ((&[20, 60], 3), (&[1, 4], 3)),
            (false, Some(_)) => ((&[100, 2000], 60), (&[1, 50], 30)),
            (false, None) => ((&[100, 500, 1000, 2000, 4000], 300), (&[1, 5, 10, 25, 50], 60)),
        };
    let cells = |counts: &'static [u32], size, seconds| {
        let one = move |rig, data| {
            counts.iter().map(move |&count| Cell { rig, ..Cell::new(data, count, size, seconds) })
        };
        let rigs = [Rig::Raid0, Rig::TwoDrives].into_iter();
        rigs.flat_map(move |rig| SHOWN.into_iter().flat_map(move |data| one(rig, data)))
    };
    let all = cells(slow, SLOW, slow_seconds).chain(cells(fast, FAST, fast_seconds));
    let runs = play(context, all.collect())?;

    let slow_gains = gains(&runs, SLOW);
    let fast_gains = gains(&runs, FAST);
    let at_most_streams = |rig, data| line(&runs, SLOW, rig, data).last().expect("it is played").1;
    let change = |data| at_most_streams(Rig::Raid0, data) / at_most_streams(Rig::TwoDrives, data);
    let claims = vec![
        Claim::of_each("raid-0/slow", &slow_gains),
        Claim::of("raid-0/fast", most(fast_gains)),
        Claim::of("raid-0/ordered-halves", change(DataMode::Ordered)),
        Claim::of("raid-0/wasteless-stays", change(DataMode::Wasteless)),
    ];
    let pictures = [("1 Kbps", SLOW), ("1 Mbps", FAST)].map(|(title, size)| {
        let named = [(Rig::Raid0, "RAID-0"), (Rig::TwoDrives, "two drives")];
        let series = named.into_iter().flat_map(|(rig, rig_name)| {
            SHOWN.map(|data| {
                ours(&format!("{}, {rig_name}", data.name()), line(&runs, size, rig, data))
            })
        });
        let y = axis("mean latency of an append (ms)", Scale::Logarithmic);
        picture(title, axis("streams", Scale::Logarithmic), y, series.collect())
    });
    Ok(Results { pictures: pictures.into(), claims, notes: Vec::new() })
}

fn line(runs: &Runs, size: usize, rig: Rig, data: DataMode) -> Vec<(f64, f64)> {
    let wanted = |cell: &Cell| cell.size == size && cell.rig == rig && cell.data == data;
    runs.points(wanted, |played: &Played| f64::from(played.cell.streams), |played| played.mean_ms)
}

/// Returns ordered's time over wasteless's in RAID-0, for each number of streams.
fn gains(runs: &Runs, size: usize) -> Vec<f64> {
    let [ordered, wasteless] = SHOWN.map(|data| line(runs, size, Rig::Raid0, data));
    ordered.iter().zip(&wasteless).map(|(ordered, wasteless)| ordered.1 / wasteless.1).collect()
}
