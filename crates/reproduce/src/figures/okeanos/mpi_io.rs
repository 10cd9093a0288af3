//! MPI-IO over a file server: figures 11 and 12.

use crate::figures::common::{FOUR_MODES, NO_KERNEL, axis, least, most, of_paper, ours, rig};
use crate::{Claim, Context, Figure, FigureError, Picture, Results, Scale};
use engine::DataMode;
use std::time::Duration;
use testbeds::{DiskChoice, Mounted, Stage, StageOptions};
use workloads::{DATABASE, MpiIoOptions, ServerLink, mpi_io};

pub const FIGURE_11: Figure = Figure {
    name: "11",
    title: "MPI-IO over a file server: throughput",
    source: "Okeanos (TOS 2013), Figure 11",
    about: "52, 260 and 520 processes write to as many files through a model of PVFS2's data server, which syncs data and its \
            own database: 65,000 writes of 1 KiB, 6,500 of 47,001 bytes, in four modes.",
    minutes: 2,
    by_chance: true,
    real_time: false,
    run: figure_11,
};

pub const FIGURE_12: Figure = Figure {
    name: "12",
    title: "MPI-IO over a file server: what is written",
    source: "Okeanos (TOS 2013), Figure 12",
    about: "As figure 11, with 520 processes: MiB written to the database's disk, to the journal and to the file system, all of \
            it written back at the end.",
    minutes: 2,
    by_chance: true,
    real_time: false,
    run: figure_12,
};

pub(super) const SMALL: u64 = 1024;
pub(super) const LARGE: u64 = 47_001;
const MIB: f64 = (1 << 20) as f64;
const LARGE_SHARE: &str =
    "Of the writes of 47,001 bytes a tenth is made, and the paper's volumes are shown as they are.";
const NOT_ONLY_DISKS: &str = "Here disks and the link alone set the pace; in the paper also the server's processors, its \
Berkeley DB and the kernel, which limit all modes alike. So the modes that the journal serves are ahead of ordered by more here. \
Writes of 47,001 bytes with 520 processes (--trace): ordered journaling sends home 8,070 requests of 40 KiB, one for nearly each \
write, each to another file, which is all that the disk can do; data journaling sends home 2,597 of 118 KiB, several appends of a \
file at once. With all of the paper's 65,000 writes it is the same: 17 MiB/s against 39";
const SERVER: &str = "The server is a model: what it keeps of PVFS2 stands in crates/workloads/src/mpi_io.rs. A gigabit link with 0.2 \
ms for a message and its answer is shared by all clients; the latter number is chosen. The database has a disk of its own, \
with a journal on it, in ordered mode, as the paper's partition of the root disk; its volume is 32 GB. The data volume has the \
second disk alone, journal and all.";

struct Cell {
    size: u64,
    mode: DataMode,
    processes: u32,
}

struct MpiOutcome {
    mib_per_second: f64,
    database_mib: f64,
    journal_mib: f64,
    home_mib: f64,
    /// Commits of the data volume.
    commits: u64,
}

fn play(context: &Context, cell: &Cell) -> Result<MpiOutcome, FigureError> {
    // "Dedicated the entire second disk to the user data (filesystem and journal)".
    let options = StageOptions { journal: None, ..rig(context, cell.mode) };
    let mut database = StageOptions { journal: None, ..rig(context, DataMode::Ordered) };
    database.home = DiskChoice {
        options: emulated::DriveOptions {
            size: Some(database.home.options.size.unwrap_or(32_000_000_000 / 4096 * 4096)),
            ..database.home.options
        },
        trace: context.trace_prefix("database").map(|prefix| prefix.with_extension("csv")),
        ..database.home
    };
    let mut data = Stage::build(&options)?;
    let mut database = Stage::build_in(data.world().clone(), &database)?;
    database.restart_counting();
    data.restart_counting();
    let writes = match (context.quick, cell.size) {
        (true, _) => 520,
        (false, SMALL) => 65_000,
        (false, _) => 6500,
    };
    let writes = context.overrides.whole("11", "writes", writes);
    let round_trip = context.overrides.time("11", "round_trip", Duration::from_micros(200));
    let network = ServerLink { bytes_per_second: 125_000_000, round_trip };
    let workload =
        MpiIoOptions { processes: cell.processes, writes, size: cell.size, network: Some(network) };
    let on = Mounted::new(data.world().clone(), data.files(), DATABASE, database.files());
    let report = data.run(move |_| async move { mpi_io(&on, &workload, |_| ()).await })?;
    let statistics = data.statistics();
    data.remount()?;
    database.remount()?;
    let mib = |bytes: u64| bytes as f64 / MIB;
    Ok(MpiOutcome {
        mib_per_second: report.mib_per_second,
        database_mib: mib(database.home_traffic().bytes_written),
        journal_mib: mib(statistics.log_bytes()),
        home_mib: mib(data.home_traffic().bytes_written - statistics.log_bytes()),
        commits: statistics.commits,
    })
}

/// Returns MiB/s of selective journaling with 520 processes.
pub(super) fn selective(context: &Context, size: u64) -> Result<f64, FigureError> {
    let processes = if context.quick { 52 } else { 520 };
    Ok(play(context, &Cell { size, mode: DataMode::Selective, processes })?.mib_per_second)
}

fn cells(sizes: &[u64], processes: &[u32]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &size in sizes {
        for mode in FOUR_MODES {
            cells.extend(processes.iter().map(|&processes| Cell { size, mode, processes }));
        }
    }
    cells
}

fn figure_11(context: &Context) -> Result<Results, FigureError> {
    let processes: &[u32] = match (context.quick, context.varied) {
        (true, _) => &[52],
        (false, Some(_)) => &[520],
        (false, None) => &[52, 260, 520],
    };
    let outcomes = context.play(&cells(&[SMALL, LARGE], processes), |cell| play(context, cell))?;
    let rate = |size: usize, mode: usize, count: usize| {
        outcomes[(size * FOUR_MODES.len() + mode) * processes.len() + count].mib_per_second
    };
    let mut pictures = Vec::new();
    for (size, title) in ["Writes of 1 KiB", "Writes of 47,001 bytes"].into_iter().enumerate() {
        let series = FOUR_MODES.iter().enumerate().map(|(mode, data)| {
            let point = |(at, count): (usize, &u32)| (f64::from(*count), rate(size, mode, at));
            ours(data.name(), processes.iter().enumerate().map(point).collect())
        });
        pictures.push(Picture {
            title: title.into(),
            x: axis("processes", Scale::Linear),
            y: axis("data (MiB/s)", Scale::Linear),
            series: series.collect(),
        });
    }
    let last = processes.len() - 1;
    let [ordered, selective, data, wasteless] = [0, 1, 2, 3].map(|mode| rate(0, mode, last));
    let large = [0, 1, 2, 3].map(|mode| rate(1, mode, last));
    let between = [data, selective].map(|it| least([it / ordered, wasteless / it])).into_iter();
    let rates = [ordered, selective, data, wasteless].map(|rate| format!("{rate:.2}")).join(", ");
    let claims = vec![
        Claim::of("11/wasteless-over-ordered", wasteless / ordered),
        Claim::of("11/between", least(between)).shown(format!("{rates} MiB/s")),
        Claim::of("11/large-alike", most(large) / least(large)),
        Claim::of("11/atc-doubles", wasteless / ordered),
    ];
    Ok(Results {
        pictures,
        claims,
        notes: vec![SERVER.into(), NOT_ONLY_DISKS.into(), LARGE_SHARE.into(), NO_KERNEL.into()],
    })
}

fn figure_12(context: &Context) -> Result<Results, FigureError> {
    let processes: &[u32] = if context.quick { &[52] } else { &[520] };
    let outcomes = context.play(&cells(&[SMALL, LARGE], processes), |cell| play(context, cell))?;
    let names = Scale::Names(FOUR_MODES.map(|mode| mode.name().to_string()).to_vec());
    let mut pictures = Vec::new();
    for (title, outcomes) in ["Writes of 1 KiB", "Writes of 47,001 bytes"]
        .into_iter()
        .zip(outcomes.chunks(FOUR_MODES.len()))
    {
        let bars = |part: fn(&MpiOutcome) -> f64| {
            outcomes.iter().enumerate().map(|(at, it)| (at as f64, part(it))).collect::<Vec<_>>()
        };
        let mut series = vec![
            ours("database", bars(|it| it.database_mib)),
            ours("journal", bars(|it| it.journal_mib)),
            ours("file system", bars(|it| it.home_mib)),
        ];
        if title.ends_with("KiB") {
            // Ordered and data, as in the text.
            series.push(of_paper("journal", vec![(0.0, 139.0), (2.0, 415.0)]));
            series.push(of_paper("file system", vec![(0.0, 255.0)]));
        }
        pictures.push(Picture {
            title: title.into(),
            x: axis("mode", names.clone()),
            y: axis("written (MiB)", Scale::Linear),
            series,
        });
    }
    let [ordered, selective, data, wasteless] = [0, 1, 2, 3].map(|at| &outcomes[at]);
    let others = [selective, data, wasteless].map(|it| it.home_mib).into_iter().fold(0.0, f64::max);
    let volume = |at: usize| {
        outcomes[FOUR_MODES.len() + at].journal_mib + outcomes[FOUR_MODES.len() + at].home_mib
    };
    let both = |outcome: &MpiOutcome| outcome.journal_mib + outcome.home_mib;
    let claims = vec![
        Claim::of("12/wasteless-over-data", wasteless.journal_mib / data.journal_mib),
        Claim::of("12/selective-over-data", selective.journal_mib / data.journal_mib),
        Claim::of("12/atc-further-reduces", both(selective) / both(wasteless)),
        Claim::of("12/ordered-home-over-others", ordered.home_mib / others),
        Claim::of("12/large-selective", volume(1) / volume(0)),
        Claim::of("12/large-data", volume(2) / volume(0)),
        Claim::of("12/large-wasteless", volume(3) / volume(0)),
    ];
    let commits = format!(
        "1 KiB: the data volume committed {} times in ordered, {} in selective, {} in data and {} in wasteless journaling. The \
         metadata of a commit is whole blocks, however many writes share it; how many do is decided by the clock, for whose \
         tick a commit waits, as on the paper's host.",
        ordered.commits, selective.commits, data.commits, wasteless.commits
    );
    let notes = vec![SERVER.into(), commits, LARGE_SHARE.into(), NO_KERNEL.into()];
    Ok(Results { pictures, claims, notes })
}
