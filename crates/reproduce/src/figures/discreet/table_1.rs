//! Table I: the drives.

use super::fingerprints::{DRIVES, Drive};
use crate::error::FigureError;
use crate::figure::{Figure, Results, Scale};
use crate::figures::common::{axis, of_paper, ours, picture};
use crate::{Claim, Context};
use emulated::Model;

pub fn figure() -> Figure {
    Figure {
        name: "discreet-table-1",
        title: "The nine drives, as emulated",
        source: "Discreet (DSN 2011), Table I",
        about: "Capacity, cache and speed of the emulated drives that stand for the paper's nine SATA drives; nothing is run.",
        minutes: 1,
        by_chance: false,
        real_time: false,
        run,
    }
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let models: Vec<Model> =
        DRIVES.iter().map(|drive| super::model(context, drive.model)).collect();
    let line = |value: &dyn Fn(&Model) -> f64| numbered(models.iter().map(value));
    let theirs = |value: fn(&Drive) -> f64| numbered(DRIVES.iter().map(value));
    let capacity = line(&|model| model.size.get() as f64 / 1e9);
    let cache =
        line(&|model| model.cache.as_ref().map_or(0.0, |cache| cache.size.get() as f64 / 1e6));
    let speed =
        line(&|model| model.mechanics.as_ref().map_or(0.0, |mechanics| mechanics.rpm.get()));
    let (capacity_paper, cache_paper) =
        (theirs(|drive| drive.capacity_gb), theirs(|drive| drive.cache_mb));

    let alike = |id: &str, ours: &[(f64, f64)], paper: &[(f64, f64)]| {
        let ratios: Vec<f64> =
            ours.iter().zip(paper).map(|(ours, paper)| ours.1 / paper.1).collect();
        Claim::of_each(id, &ratios)
    };
    let claims = vec![
        alike("discreet-table-1/capacity", &capacity, &capacity_paper),
        alike("discreet-table-1/cache", &cache, &cache_paper),
    ];
    let bars = |title: &str, label: &str, series| {
        picture(title, names(), axis(label, Scale::Linear), series)
    };
    let pictures = vec![
        bars(
            "Capacity",
            "10⁹ bytes",
            vec![ours("drive", capacity), of_paper("drive", capacity_paper)],
        ),
        bars("Cache", "10⁶ bytes", vec![ours("drive", cache), of_paper("drive", cache_paper)]),
        bars(
            "Speed, which the paper does not state",
            "revolutions per minute",
            vec![ours("drive", speed)],
        ),
    ];
    let notes = vec![
        "Which numbers of each drive are facts and which were chosen stands in its file, crates/emulated/models/NAME.toml; of the \
         caches only the size is public, the rest was derived from what the paper found out about each drive (Tables II and IV)."
            .to_string(),
    ];
    Ok(Results { pictures, claims, notes })
}

pub fn names() -> crate::Axis {
    axis("drive", Scale::Names(DRIVES.iter().map(|drive| drive.model.to_string()).collect()))
}

/// Returns points over [`names`].
pub fn numbered(values: impl Iterator<Item = f64>) -> Vec<(f64, f64)> {
    values.enumerate().map(|(index, value)| (index as f64, value)).collect()
}
