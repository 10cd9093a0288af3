//! Figures 7 and 8: checkpoints of what an hour has left in the logs.

use super::block_traces::{Tenant, busiest_hour, given, note, tenants, titled};
use super::figure_6::MODEL;
use crate::figures::common::{axis, most, ours, picture};
use crate::{Claim, Context, Figure, FigureError, Picture, Results, Scale};
use emulated::Shingles;
use emulated::replay::Recorded;
use std::sync::Arc;
use testbeds::{BlockLayer, BlockRun, BlocksServed, WritebackCost};

pub const FIGURE_7: Figure = Figure {
    name: "manylogs-7",
    title: "The checkpoint after an hour, with scattered logs",
    source: "Manylogs (MSST 2016), Figure 7",
    about: "The hour of each block trace that has the most writes (--block-traces DIR; made ones otherwise), with scattered logs for writes of up to 256 KiB, and then \
            everything written back: how long that takes, and which shares of writes and of blocks it is spared.",
    minutes: 1,
    by_chance: true,
    real_time: false,
    run: run_7,
};

pub const FIGURE_8: Figure = Figure {
    name: "manylogs-8",
    title: "The checkpoint after an hour, on a shingled drive",
    source: "Manylogs (MSST 2016), Figure 8",
    about: "As manylogs-7, on a shingled drive with scattered logs, where each band that was written to is read and written anew.",
    minutes: 8,
    by_chance: true,
    real_time: false,
    run: run_8,
};

const MLB_256: BlockLayer = BlockLayer::Scattered { logged: 256 << 10 };

fn play(
    context: &Context,
    layers: &[BlockLayer],
) -> Result<(Vec<Tenant>, Vec<BlocksServed>), FigureError> {
    let tenants = tenants(context)?;
    let hours: Vec<Arc<[Recorded]>> =
        tenants.iter().map(|tenant| busiest_hour(tenant).into()).collect();
    let cells: Vec<(BlockLayer, Arc<[Recorded]>)> =
        layers.iter().flat_map(|layer| hours.iter().map(|hour| (*layer, hour.clone()))).collect();
    let served = context.play(&cells, |(layer, requests)| {
        let (layer, requests) = (*layer, requests.clone());
        let changes = context.overrides.drive(MODEL);
        let run = BlockRun { model: MODEL, changes, layer, requests, checkpoint: true };
        run.play(context.seed).map_err(|error| FigureError::Other(error.to_string()))
    })?;
    Ok((tenants, served))
}

fn home(served: &BlocksServed) -> WritebackCost {
    served.checkpoint.unwrap_or_default()
}
fn seconds(served: &BlocksServed) -> f64 {
    home(served).took.as_secs_f64()
}

fn times(context: &Context, names: &Scale, served: &[BlocksServed]) -> Picture {
    let points = served.iter().enumerate().map(|(at, served)| (at as f64, seconds(served)));
    let series = vec![ours("checkpoint", points.collect())];
    let title = titled(context, "Time");
    picture(&title, axis("trace", names.clone()), axis("s", Scale::Linear), series)
}

fn names(tenants: &[Tenant]) -> Scale {
    Scale::Names(tenants.iter().map(|tenant| tenant.name.clone()).collect())
}

fn run_7(context: &Context) -> Result<Results, FigureError> {
    let (tenants, served) = play(context, &[MLB_256])?;
    let names = names(&tenants);
    let shares = |of: fn((f64, f64)) -> f64| {
        let share = |served: &BlocksServed| of(home(served).reduced.unwrap_or_default()) * 100.0;
        served.iter().enumerate().map(|(at, served)| (at as f64, share(served))).collect()
    };
    let saved = picture(
        &titled(context, "What the checkpoint is spared"),
        axis("trace", names.clone()),
        axis("%", Scale::Linear),
        vec![ours("writes", shares(|both| both.0)), ours("blocks", shares(|both| both.1))],
    );
    let of_all = |of: &dyn Fn(&BlocksServed) -> f64| served.iter().map(of).collect::<Vec<_>>();
    let overwritten =
        |served: &BlocksServed| home(served).reduced.map_or(0.0, |(_, blocks)| blocks * 100.0);
    let table = |served: &BlocksServed| served.table_bytes as f64 / 1e6;
    let id = |row: &str| format!("manylogs-7/{}{row}", given(context));
    let claims = vec![
        Claim::of(&id("longest"), most(of_all(&seconds))),
        Claim::of_each(&id("overwritten"), &of_all(&overwritten)),
        Claim::of(&id("table"), most(of_all(&table))),
    ];
    let notes = vec![
        note(context, &tenants),
        "Blocks are written back in the order of their homes, neighbours in one write. What memory has evicted is read from the logs before; the paper does not say how much \
         it reads before it writes."
            .into(),
    ];
    Ok(Results { pictures: vec![times(context, &names, &served), saved], claims, notes })
}

fn run_8(context: &Context) -> Result<Results, FigureError> {
    let (tenants, served) =
        play(context, &[BlockLayer::Shingled(Shingles::scattered_logs()), MLB_256])?;
    let (shingled, plain) = served.split_at(tenants.len());
    let over: Vec<f64> = shingled
        .iter()
        .zip(plain)
        .map(|(shingled, plain)| seconds(shingled) / seconds(plain))
        .collect();
    let claims = match context.block_traces {
        Some(_) => vec![Claim::of("manylogs-8/given", most(over))],
        None => tenants
            .iter()
            .zip(over)
            .map(|(tenant, over)| Claim::of(&format!("manylogs-8/{}", tenant.name), over))
            .collect(),
    };
    let notes = vec![
        note(context, &tenants),
        "Bands of 30 MB, one after the other, at the drive's own rate: about a third of a second for reading a band and as much for writing it. Drives that were looked into \
         take 0.6 to 1.6 s."
            .into(),
    ];
    Ok(Results { pictures: vec![times(context, &names(&tenants), shingled)], claims, notes })
}
