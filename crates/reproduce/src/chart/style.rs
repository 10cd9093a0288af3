//! Styles of series: the same name has the same colour in every picture, and its own marker.

use crate::figure::Series;

/// Colours of the modes, which are the same in every picture; colour-blind readers can distinguish
/// them, too.
const KNOWN: [(&str, usize); 8] = [
    ("wasteless", 0),
    ("selective", 1),
    ("ordered", 2),
    ("journal", 3),
    ("writeback", 4),
    ("log-structured", 5),
    ("nilfs", 5),
    ("xfs", 6),
];
pub(super) const COLOURS: usize = 10;
/// Colours for a light page, and for a dark one.
const PALETTE: [(&str, &str); COLOURS] = [
    ("#00865f", "#2fc795"),
    ("#b8478a", "#e68bc0"),
    ("#cf5200", "#ff8a45"),
    ("#0067b0", "#58aef2"),
    ("#a37800", "#e3b53c"),
    ("#2b98c9", "#7fd0f5"),
    ("#7a4fc0", "#b394f0"),
    ("#8a4b3c", "#cf9180"),
    ("#5f6b1e", "#aebc5a"),
    ("#666666", "#b0b0b0"),
];

/// Returns rules for the classes that the pictures use. They are the same in each picture, so that
/// many may share one page.
pub(super) fn rules() -> String {
    let theme = |ink: &str,
                 faint: &str,
                 grid: &str,
                 paper: &str,
                 colour: fn(&(&str, &str)) -> String| {
        let mut rules = format!(
            ".ch-ink{{fill:{ink}}}.ch-faint{{fill:{faint}}}.ch-axis{{stroke:{faint}}}.ch-whisker{{stroke:{ink};stroke-width:1.2;fill:none}}.ch-grid{{stroke:{grid}}}\
             .ch-paper{{fill:{paper}}}"
        );
        for (slot, pair) in PALETTE.iter().enumerate() {
            let colour = colour(pair);
            rules += &format!(".ch-s{slot}{{stroke:{colour}}}.ch-f{slot}{{fill:{colour}}}");
        }
        rules
    };
    let light = theme("#1b1b1b", "#5c5c5c", "#e2e2e2", "#ffffff", |pair| pair.0.into());
    let dark = theme("#ececec", "#a8a8a8", "#383838", "#161616", |pair| pair.1.into());
    format!("{light}@media (prefers-color-scheme:dark){{{dark}}}")
}

/// Colours by name: the mode's own if it is free, otherwise the next free one.
pub(super) struct Slots(Vec<(String, usize)>);

impl Slots {
    pub fn of(series: &[Series]) -> Slots {
        let mut slots: Vec<(String, usize)> = Vec::new();
        for Series { name, .. } in series {
            if slots.iter().any(|(known, _)| known == name) {
                continue;
            }
            let taken = |slot: &usize| slots.iter().any(|(_, other)| other == slot);
            let known = KNOWN.iter().find(|(mode, _)| name.to_lowercase().contains(mode));
            let own = known.map(|(_, slot)| *slot).filter(|slot| !taken(slot));
            // Counted from the end, where no mode has its own.
            let free = (0..COLOURS).rev().find(|slot| !taken(slot));
            slots.push((name.clone(), own.or(free).unwrap_or(slots.len() % COLOURS)));
        }
        Slots(slots)
    }

    pub fn get(&self, name: &str) -> usize {
        self.0.iter().find(|(known, _)| known == name).map_or(0, |(_, slot)| *slot)
    }
}

/// Draws a marker around a point: filled for ours, hollow for the paper's.
pub(super) fn marker(slot: usize, x: f64, y: f64, of_paper: bool) -> String {
    let size = if of_paper { 6.5 } else { 4.2 };
    let classes = match of_paper {
        true => format!("ch-s{slot} ch-paper"),
        false => format!("ch-s{slot} ch-f{slot}"),
    };
    let points = |corners: &[(f64, f64)]| -> String {
        let corners =
            corners.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx * size, y + dy * size));
        let corners: Vec<String> = corners.collect();
        format!(
            "<polygon class=\"{classes}\" stroke-width=\"1.6\" points=\"{}\"/>",
            corners.join(" ")
        )
    };
    match slot % 5 {
        0 => format!(
            "<circle class=\"{classes}\" stroke-width=\"1.6\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{size}\"/>"
        ),
        1 => points(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
        2 => points(&[(-0.95, -0.95), (0.95, -0.95), (0.95, 0.95), (-0.95, 0.95)]),
        3 => points(&[(0.0, -1.2), (1.15, 0.85), (-1.15, 0.85)]),
        _ => points(&[(0.0, 1.2), (1.15, -0.85), (-1.15, -0.85)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_keep_their_colours_and_no_two_names_share_one() {
        let named = |name: &str| Series {
            name: name.into(),
            of_paper: false,
            points: vec![],
            spread: vec![],
        };
        let names =
            ["ordered", "wasteless", "wasteless, 256-byte inodes", "journal", "something else"];
        let slots = Slots::of(&names.map(named));
        assert_eq!((slots.get("ordered"), slots.get("wasteless"), slots.get("journal")), (2, 0, 3));
        let mut all: Vec<usize> = names.iter().map(|name| slots.get(name)).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), names.len());
    }
}
