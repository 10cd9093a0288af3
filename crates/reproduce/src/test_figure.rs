//! A synthetic figure for tests.

use crate::{Axis, Claim, Context, Figure, FigureError, Picture, Results, Scale, Series};
use std::sync::atomic::AtomicBool;

pub const FIGURE: Figure = Figure {
    name: "made-up",
    title: "Made up & <drawn>",
    source: "ours",
    about: "Squares a few numbers.",
    minutes: 1,
    by_chance: true,
    real_time: false,
    run,
};

pub static INTERRUPTED: AtomicBool = AtomicBool::new(false);

pub fn context(seed: u64) -> Context {
    Context {
        seed,
        run_index: 0,
        quick: false,
        jobs: std::sync::Arc::new(crate::Jobs::new(2)),
        progress: std::sync::Arc::new(|_, _| ()),
        interrupted: &INTERRUPTED,
        trace: None,
        block_traces: None,
        varied: None,
        overrides: std::sync::Arc::default(),
    }
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let squares =
        context.play(&[1u64, 2, 3], |x| Ok((*x as f64, ((x + context.seed) * x) as f64 / 3.0)))?;
    let mut results = results();
    results.pictures[0].series[0].points = squares;
    Ok(results)
}

pub fn results() -> Results {
    let series = |name: &str, of_paper, points| Series {
        name: name.into(),
        of_paper,
        points,
        spread: Vec::new(),
    };
    let axis = |label: &str, scale| Axis { label: label.into(), scale };
    Results {
        pictures: vec![
            Picture {
                title: "Lines".into(),
                x: axis("streams", Scale::Logarithmic),
                y: axis("MiB/s", Scale::Linear),
                series: vec![
                    series("wasteless", false, vec![(1.0, 1.0), (10.0, 4.0), (100.0, 9.0)]),
                    series("wasteless", true, vec![(100.0, 8.0)]),
                ],
            },
            Picture {
                title: "Bars".into(),
                x: axis("request", Scale::Names(vec!["512 B".into(), "1 KiB".into()])),
                y: axis("MiB/s", Scale::Linear),
                series: vec![
                    series("wasteless", false, vec![(0.0, 1.0), (1.0, 4.0)]),
                    series("ordered", false, vec![(0.0, 0.5), (1.0, 0.9)]),
                ],
            },
        ],
        claims: vec![
            Claim::of("made-up/faster", 4.4).shown("4.4x".into()),
            Claim::of("made-up/slower", 0.9).shown("0.9x".into()),
        ],
        notes: vec!["Nothing here was measured.".into()],
    }
}
