//! Figure 6: Postmark.

use super::variants::{
    CACHINGS, OFF, PLACE, PLANS, RIG, UNSAFE, Variant, WITH_COSTLY, all, costs, with_paper_plan,
};
use crate::figures::common::{NO_KERNEL, axis, least, ours, picture};
use crate::{Claim, Context, Figure, FigureError, Results, Scale};
use eviction::CoercionStatistics;
use workloads::{PostmarkOptions, SyncKind, postmark};

pub const FIGURE_6: Figure = Figure {
    name: "discreet-figure-6",
    title: "Postmark on a drive that is not trusted",
    source: "Discreet (DSN 2011), Figure 6",
    about: "Postmark, files of 4 KiB to 4 MiB, read to append and create to delete 5 to 5, nothing synced; files, memory and \
            transactions are an eighth of the paper's 1,000 files, 1 GiB and 1,000 to 8,000 transactions; ordered and data journaling on an \
            emulated Hitachi with its cache off, discreet with either eviction, and unsafe.",
    minutes: 5,
    by_chance: true,
    real_time: false,
    run,
};

/// Divisor of the paper's numbers of files and transactions and of its memory.
const SHARE: u64 = 8;
/// Linux's default (`VM_MAX_READAHEAD`).
const READ_AHEAD: u64 = 128 << 10;

struct Cell {
    variant: Variant,
    /// The paper's number.
    transactions: u64,
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let counts: &[u64] = if context.quick { &[100] } else { &[1000, 2000, 4000, 8000] };
    let with_counts =
        |variant| counts.iter().map(move |&transactions| Cell { variant, transactions });
    let costly = |variant: &Variant| variant.caching == CACHINGS[WITH_COSTLY];
    let variants: Vec<Variant> =
        all().into_iter().chain(with_paper_plan().into_iter().filter(costly)).collect();
    let cells: Vec<Cell> = variants.iter().copied().flat_map(with_counts).collect();
    let played = context.play(&cells, |cell| play(context, cell))?;
    let seconds = |mode: usize, caching: usize, count: usize| {
        played[(mode * CACHINGS.len() + caching) * counts.len() + count].0
    };
    let mut series = Vec::new();
    for (variant, played) in variants.iter().zip(played.chunks(counts.len())) {
        let line = counts.iter().zip(played).map(|(&it, (seconds, _))| (it as f64, *seconds));
        series.push(ours(&variant.name(), line.collect()));
    }
    // The ratios at each number of transactions.
    let ratios = |a: (usize, usize), b: (usize, usize)| -> Vec<f64> {
        (0..counts.len()).map(|count| seconds(a.0, a.1, count) / seconds(b.0, b.1, count)).collect()
    };
    let each = |id: &str, a, b| Claim::of_each(&format!("discreet-figure-6/{id}"), &ratios(a, b));
    let slower = (0..CACHINGS.len()).flat_map(|caching| ratios((1, caching), (0, caching)));
    let claims = vec![
        each("ordered-over-off", (0, WITH_COSTLY), (0, OFF)),
        each("ordered-over-unsafe", (0, WITH_COSTLY), (0, UNSAFE)),
        each("journal-off-over-discreet", (1, OFF), (1, WITH_COSTLY)),
        Claim::of("discreet-figure-6/data-over-ordered", least(slower)),
    ];
    let evictions =
        cells.iter().zip(&played).map(|(cell, (_, coercion))| (&cell.variant, *coercion));
    let notes = vec![
        "Requests have 64 KiB, and 128 KiB are read ahead, as Linux does. The time is that of \
         the transactions, without the first files, as Postmark reports it; nearly all of it is waiting for reads. An eviction \
         hands over all its writes at once, and after each 16 of them reads have a turn of 100 ms if there are any."
            .into(),
        costs(evictions),
        PLACE.into(),
        PLANS.into(),
        RIG.into(),
        NO_KERNEL.into(),
    ];
    let x = axis("transactions of the paper (here an eighth)", Scale::Logarithmic);
    let y = axis("seconds", Scale::Logarithmic);
    Ok(Results { pictures: vec![picture("Postmark", x, y, series)], claims, notes })
}

/// Returns the seconds of the transactions.
fn play(context: &Context, cell: &Cell) -> Result<(f64, CoercionStatistics), FigureError> {
    let share = context.overrides.whole("discreet-figure-6", "SHARE", SHARE);
    let workload = PostmarkOptions {
        files: if context.quick { 20 } else { 1000 / share },
        threads: 1,
        transactions: cell.transactions / share,
        read_bias: 5,
        create_bias: 5,
        size_min: 4 << 10,
        size_max: 4 << 20,
        request: 64 << 10,
        sync: SyncKind::None,
        seed: context.seed,
    };
    let stage = cell.variant.stage(context, |options| {
        options.engine.cache_bytes /= share;
        options.read_ahead = READ_AHEAD;
    })?;
    let report =
        stage.run(move |files| async move { postmark(&files, &workload, |_| ()).await })?;
    Ok((report.seconds, stage.coercion()))
}
