//! Check whether virtual time flatters us: the kernel's file systems on the same drives in real
//! time, beside Okeanos mounted on them; and Okeanos' cells again in virtual time.

mod cells;

use crate::error::FigureError;
use crate::figure::{Figure, Picture, Results, Scale};
use crate::figures::common::{axis, ours};
use crate::number::short;
use crate::{Claim, Context};
use cells::{Cell, Load, Measured, Played, play};
use std::sync::Mutex;
use std::time::Duration;

const CONTENDERS: [&str; 8] = [
    "ext4:ordered",
    "ext4:writeback",
    "ext4:journal",
    "xfs",
    "btrfs",
    "okeanos:ordered",
    "okeanos:selective",
    "okeanos:wasteless",
];

pub const KERNEL_7A: Figure = Figure {
    name: "kernel-7a",
    title: "Traffic of 1 Kbps streams: the kernel's file systems beside Okeanos, in real time",
    source: "ours, after Okeanos (TOS 2013), Figure 7a",
    about: "100, 300 and 1,000 streams append 125 B a second with O_SYNC for 20 s on ext4 in three modes, xfs, btrfs \
                and Okeanos, mounted on two Cheetahs that are emulated in real time (okeanos-lab disk serve); Okeanos also \
                in virtual time. Bytes are those that the kernel counts at the disks' loop devices.",
    minutes: 9,
    by_chance: false,
    real_time: true,
    run: traffic,
};

pub const KERNEL_8A: Figure = Figure {
    name: "kernel-8a",
    title: "Write latency of 1 Kbps streams: the kernel's file systems beside Okeanos, in real time",
    source: "ours, after Okeanos (TOS 2013), Figure 8a",
    about: "The streams, file systems and disks of kernel-7a; the mean time of a write. Together with kernel-7a in one \
            command, it costs no more time.",
    minutes: 9,
    by_chance: false,
    real_time: true,
    run: latency,
};

pub const KERNEL_10A: Figure = Figure {
    name: "kernel-10a",
    title: "Postmark: the kernel's file systems beside Okeanos, in real time",
    source: "ours, after Okeanos (TOS 2013), Figure 10a",
    about: "Postmark with synchronous writes of 4 KiB, 100 threads, 500 files and 2,000 transactions on the file \
                systems and disks of kernel-7a; Okeanos also in virtual time.",
    minutes: 5,
    by_chance: false,
    real_time: true,
    run: transactions,
};

fn traffic(context: &Context) -> Result<Results, FigureError> {
    let run = streams(context)?;
    let label = "journal traffic (MiB/s)";
    let has_journal = |name: &str| name != "btrfs";
    let pictures = vec![
        run.lines(
            "Journal device, real time",
            label,
            Scale::Linear,
            Measured::journal_rate,
            has_journal,
        ),
        run.lines(
            "Home device, real time",
            "home traffic (MiB/s)",
            Scale::Linear,
            Measured::home_rate,
            |_| true,
        ),
        run.beside("Journal device, real and virtual time", label, Measured::journal_rate),
    ];
    let most = run.most_streams();
    let journal = |name| run.real(name, most).journal_rate();
    let claims = vec![
        Claim::of(
            "kernel-7a/data-over-wasteless",
            journal("ext4:journal") / journal("okeanos:wasteless"),
        ),
        Claim::of(
            "kernel-7a/selective-over-wasteless",
            journal("okeanos:selective") / journal("okeanos:wasteless"),
        ),
        run.does_not_flatter("kernel-7a/flattery", |played, real| {
            real.journal_rate() / played.journal_rate()
        }),
    ];
    Ok(Results { pictures, claims, notes: notes() })
}

fn latency(context: &Context) -> Result<Results, FigureError> {
    let run = streams(context)?;
    let label = "mean latency (ms)";
    let mean = |measured: &Measured| measured.mean_ms;
    let pictures = vec![
        run.lines("Synchronous writes, real time", label, Scale::Logarithmic, mean, |_| true),
        run.beside("Synchronous writes, real and virtual time", label, mean),
    ];
    let most = run.most_streams();
    let of = |name| run.real(name, most).mean_ms;
    let claims = vec![
        Claim::of("kernel-8a/ordered-over-wasteless", of("ext4:ordered") / of("okeanos:wasteless")),
        run.does_not_flatter("kernel-8a/flattery", |played, real| real.mean_ms / played.mean_ms),
    ];
    Ok(Results { pictures, claims, notes: notes() })
}

fn transactions(context: &Context) -> Result<Results, FigureError> {
    let load = Load::Postmark { transactions: if context.quick { 200 } else { 2_000 } };
    let run = Run(play(context, CONTENDERS.map(|contender| Cell { contender, load }).into())?);
    let label = "transactions/s";
    let speed = |measured: &Measured| measured.operations_per_second;
    let of = |name| run.real(name, 0).operations_per_second;
    let values = CONTENDERS.iter().enumerate().map(|(at, name)| (at as f64, of(name)));
    let real = Picture {
        title: "Postmark, real time".into(),
        x: axis("file system", Scale::Names(CONTENDERS.map(spelled).into())),
        y: axis(label, Scale::Linear),
        series: vec![ours("real time", values.collect())],
    };
    let wasteless = of("okeanos:wasteless");
    let claims = vec![
        Claim::of("kernel-10a/wasteless-over-ordered", wasteless / of("ext4:ordered")),
        Claim::of("kernel-10a/wasteless-over-data", wasteless / of("ext4:journal")),
        run.does_not_flatter("kernel-10a/flattery", |played, real| {
            played.operations_per_second / real.operations_per_second
        }),
    ];
    let pictures = vec![real, run.beside("Postmark, real and virtual time", label, speed)];
    Ok(Results { pictures, claims, notes: notes() })
}

/// Plays the streams. Two figures show the same cells: a command that plays both waits for them
/// once.
fn streams(context: &Context) -> Result<Run, FigureError> {
    static PLAYED: Mutex<Option<(u64, bool, Run)>> = Mutex::new(None);
    let mut played = PLAYED.lock().expect("no figure panics while it plays");
    if let Some((seed, quick, run)) = &*played {
        if (*seed, *quick) == (context.seed, context.quick) {
            return Ok(run.clone());
        }
    }
    let counts: &[u32] = if context.quick { &[20] } else { &[100, 300, 1000] };
    let time = Duration::from_secs(if context.quick { 2 } else { 20 });
    let of = |contender| {
        counts.iter().map(move |&count| Cell { contender, load: Load::Streams { count, time } })
    };
    let run = Run(play(context, CONTENDERS.into_iter().flat_map(of).collect())?);
    *played = Some((context.seed, context.quick, run.clone()));
    Ok(run)
}

fn notes() -> Vec<String> {
    let notes = [
        "Numbers of real time hold the processor's work and whatever else the machine did at the time; those of virtual time \
         hold the disks' alone.",
        "Every drive's cache is on and no file system waits for it to be flushed, as in the paper: the loop devices say \
         that their cache needs no flush, so the kernel sends none.",
        "ext4 and Okeanos share one layout (mke2fs -t ext3 -I 128, 4 KiB blocks) with 128 MiB of journal on a disk of its \
         own; xfs has its log there; btrfs has none and writes everything to the home disk.",
        "The home disk shows 8 GiB of a 300 GB drive in both kinds of time, so seeks are shorter than on a whole one.",
    ];
    notes.map(String::from).into()
}

/// Cells of a figure.
#[derive(Clone)]
struct Run(Vec<Played>);

impl Played {
    /// Returns 0 if there are none.
    fn streams(&self) -> u32 {
        match self.cell.load {
            Load::Streams { count, .. } => count,
            Load::Postmark { .. } => 0,
        }
    }
    fn name(&self) -> String {
        let mode = self.cell.mode().unwrap_or(self.cell.contender);
        match self.streams() {
            0 => mode.into(),
            count => format!("{mode} {}", short(f64::from(count))),
        }
    }
}

impl Run {
    fn real(&self, contender: &str, streams: u32) -> Measured {
        let is =
            |played: &&Played| played.cell.contender == contender && played.streams() == streams;
        self.0.iter().find(is).map(|played| played.real).unwrap_or_default()
    }

    fn most_streams(&self) -> u32 {
        self.0.iter().map(Played::streams).max().unwrap_or(0)
    }

    /// Returns a line for each file system over the number of streams.
    fn lines(
        &self,
        title: &str,
        label: &str,
        scale: Scale,
        wanted: fn(&Measured) -> f64,
        shown: fn(&str) -> bool,
    ) -> Picture {
        let line = |name: &str| {
            let mine = self.0.iter().filter(|played| played.cell.contender == name);
            let points = mine.map(|played| (f64::from(played.streams()), wanted(&played.real)));
            ours(&spelled(name), points.collect())
        };
        Picture {
            title: title.into(),
            x: axis("streams", Scale::Logarithmic),
            y: axis(label, scale),
            series: CONTENDERS.into_iter().filter(|name| shown(name)).map(line).collect(),
        }
    }

    /// Draws Okeanos' cells in real and in virtual time, side by side.
    fn beside(&self, title: &str, label: &str, wanted: fn(&Measured) -> f64) -> Picture {
        let both: Vec<_> =
            self.0.iter().filter_map(|played| Some((played, played.virtually?))).collect();
        let bars = |name: &str, value: &dyn Fn(&(&Played, Measured)) -> f64| {
            ours(
                name,
                both.iter().map(value).enumerate().map(|(at, value)| (at as f64, value)).collect(),
            )
        };
        Picture {
            title: title.into(),
            x: axis(
                "Okeanos' mode, streams",
                Scale::Names(both.iter().map(|(played, _)| played.name()).collect()),
            ),
            y: axis(label, Scale::Linear),
            series: vec![
                bars("real time", &|(played, _)| wanted(&played.real)),
                bars("virtual time", &|(_, virtually)| wanted(virtually)),
            ],
        }
    }

    /// Claims that virtual time does not flatter. `better`: how many times better the first is.
    fn does_not_flatter(&self, id: &str, better: fn(&Measured, &Measured) -> f64) -> Claim {
        let factors = self
            .0
            .iter()
            .filter_map(|played| Some((better(&played.virtually?, &played.real), played.name())));
        let (worst, where_) = factors.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default();
        Claim::of(id, worst).shown(format!("at most {} ({where_})", short(worst)))
    }
}

/// Spells `ext4:ordered` as in a legend.
fn spelled(contender: &str) -> String {
    contender.replace(':', " ")
}
