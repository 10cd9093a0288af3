//! Dependence of each statement on parameters chosen for want of a fact: figures once more, each
//! choice half and double.

use crate::figure::SENSITIVITY;
use crate::figures::common::{axis, ours};
use crate::{Claim, Context, Figure, FigureError, Picture, Results, Scale, Varied, Verdict};
use emulated::{Change, ModelChange};
use std::sync::atomic::{AtomicUsize, Ordering};

pub fn figure() -> Figure {
    Figure {
        name: SENSITIVITY,
        title: "How far statements depend on what was chosen for the rig",
        source: "ours",
        about: "Figures of Okeanos once more, with each number of the Cheetah's model that is chosen, and the ticks of the host's \
                clock, half and double, and without ticks. Of series the ends alone, streams of 1 Kbps for a minute, one seed.",
        minutes: 33,
        by_chance: false,
        real_time: false,
        run,
    }
}

/// Parameters in `crates/emulated/models/cheetah-15k5-300.toml` that are chosen and are numbers
/// other than 0.
const CHOSEN: [&str; 5] = [
    "interface.hit_ms",
    "interface.bus_mb_s",
    "cache.destage_delay_ms",
    "cache.destage_above",
    "mechanics.zones.band_skew_ms",
];
/// Figures of Okeanos that have statements.
const FIGURES: [&str; 17] = [
    "1", "7a", "7b", "7c", "8a", "8b", "8c", "9", "10a", "table-1", "10b", "10c", "11", "12", "13",
    "14", "raid-0",
];

struct Choice {
    name: String,
    varied: Varied,
}

fn choices() -> Vec<Choice> {
    let scaled =
        |name: &str, factor: f64, varied| Choice { name: format!("{name} x {factor}"), varied };
    let mut all = vec![Choice { name: "as chosen".into(), varied: Varied::Nothing }];
    for key in CHOSEN {
        let name = key.rsplit('.').next().unwrap_or(key);
        let of_drive = |factor| ModelChange { key, change: Change::Times(factor) };
        all.extend([0.5, 2.0].map(|factor| scaled(name, factor, Varied::Drive(of_drive(factor)))));
    }
    all.extend([0.0, 0.5, 2.0].map(|factor| scaled("tick", factor, Varied::Tick(factor))));
    all
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let (choices, figures) =
        (choices(), FIGURES.map(|name| crate::find(name).expect("it is in the list")));
    let figures = if context.quick { &figures[1..2] } else { &figures[..] };
    let runs = choices.len() * figures.len();
    let done = AtomicUsize::new(0);
    let of_choice = |choice: usize| {
        let context_of_choice = context.with_varied(choices[choice].varied);
        let mut claims = Vec::new();
        for figure in figures {
            let results = (figure.run)(&context_of_choice)?;
            claims.extend(results.claims);
            (context.progress)(done.fetch_add(1, Ordering::Relaxed) + 1, runs);
        }
        Ok(claims)
    };
    // The claims of all figures, by choice.
    let all: Result<Vec<Vec<Claim>>, FigureError> =
        context.jobs.side_by_side(choices.len(), of_choice).into_iter().collect();
    let all = all?;
    let claims: Vec<Claim> =
        (0..all[0].len()).filter_map(|at| statement(&choices, &all, at)).collect();
    let names = Scale::Names(choices.iter().map(|choice| choice.name.clone()).collect());
    let count = |verdict: Verdict| {
        let held = |claims: &Vec<Claim>| {
            let of_paper = claims.iter().filter(|claim| is_of_paper(claim));
            of_paper.filter(|claim| claim.verdict() == verdict).count() as f64
        };
        let points = all.iter().map(held).enumerate().map(|(at, count)| (at as f64, count));
        ours(verdict.name(), points.collect())
    };
    let picture = Picture {
        title: "Statements, by what is varied".into(),
        x: axis("varied", names),
        y: axis("statements of the paper", Scale::Linear),
        series: [Verdict::Agrees, Verdict::DirectionOnly, Verdict::Differs].map(count).into(),
    };
    let changed = claims.iter().filter(|claim| !claim.otherwise.is_empty()).count();
    let notes = vec![
        format!(
            "Of {} statements {changed} are judged otherwise with some choice. Of the model's choices phase is 0 and zero_latency_writes \
             off, which have no half and no double.",
            claims.len()
        ),
        "So that it takes minutes and not hours, long series are cut to their ends here, so numbers are not those of the figures \
         themselves; compare them with the first column."
            .into(),
    ];
    Ok(Results { pictures: vec![picture], claims, notes })
}

/// Whether a paper asks, and the row is no repetition.
fn is_of_paper(claim: &Claim) -> bool {
    claim.announced().is_some_and(|it| !it.is_ours && it.shown_only.is_none())
}

/// Summarises a statement over all choices, under its own identifier.
fn statement(choices: &[Choice], all: &[Vec<Claim>], at: usize) -> Option<Claim> {
    let own = all[0].get(at).filter(|claim| is_of_paper(claim))?;
    let others = choices.iter().zip(all).skip(1).filter_map(|(choice, claims)| {
        let claim = claims.get(at)?;
        (claim.ours != own.ours || claim.verdict() != own.verdict()).then_some((choice, claim))
    });
    let in_words = |(choice, claim): (&Choice, &Claim)| match claim.verdict() == own.verdict() {
        true => format!("{}: {}", choice.name, claim.ours),
        false => {
            format!("{}: {} ({})", choice.name, claim.ours, claim.verdict().name().to_uppercase())
        }
    };
    let found: Vec<(&Choice, &Claim)> = others.collect();
    let is_other = |(_, claim): &(&Choice, &Claim)| claim.verdict() != own.verdict();
    let otherwise = found.iter().copied().filter(is_other).map(in_words).collect();
    let all: Vec<String> = found.into_iter().map(in_words).collect();
    let rest = if all.is_empty() { "the same with all".into() } else { all.join("; ") };
    let ours = format!("{} ({}); {rest}", own.ours, own.verdict().name());
    Some(Claim { ours, otherwise, ..own.clone() })
}
