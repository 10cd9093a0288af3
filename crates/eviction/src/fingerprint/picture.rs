//! Fingerprints as pictures, in the paper's layout: writes to the right, data upwards, sequential
//! beside random; dark is evicted, or costly.

use super::{Cell, Fingerprint, Grid, Threshold};
use crate::EvictionWorkload;
use std::fmt::Write;

/// Pixels of a cell.
const CELL: usize = 22;
const LEFT: usize = 80;
const TOP: usize = 56;
const GAP: usize = 70;
const BOTTOM: usize = 64;

/// Scale of the paper: white up to here, black from there on (Table III).
const CHEAP_MS: f64 = 10.0;
const COSTLY_MS: f64 = 500.0;

impl Fingerprint {
    /// The share of evictions of each workload, as SVG; `None` before anything is measured.
    pub fn eviction_picture(&self, grid: &Grid, title: &str) -> Option<String> {
        let threshold = self.threshold()?;
        let darkness = |cell: &Cell| {
            (cell.probability(threshold), format!("{:.0} %", 100.0 * cell.probability(threshold)))
        };
        Some(self.draw(grid, &format!("{title}: eviction (dark: always)"), darkness))
    }

    /// The cost of each workload, as SVG.
    pub fn performance_picture(&self, grid: &Grid, title: &str) -> String {
        let darkness = |cell: &Cell| {
            let cost = cell.mean_milliseconds();
            let step = (cost / CHEAP_MS).max(1e-9).ln() / (COSTLY_MS / CHEAP_MS).ln();
            (step.clamp(0.0, 1.0), format!("{cost:.1} ms"))
        };
        let what =
            format!("{title}: cost (white: up to {CHEAP_MS} ms; black: from {COSTLY_MS} ms)");
        self.draw(grid, &what, darkness)
    }

    /// Returns CSV: pattern, writes, bytes, trials, evicted, mean milliseconds, and trials at once;
    /// one line a cell.
    pub fn csv(&self) -> String {
        let mut text =
            "pattern,writes,bytes,trials,evicted,mean_ms,at_once,evicted_at_once\n".to_string();
        let threshold = self.threshold();
        for cell in &self.cells {
            let EvictionWorkload { pattern, writes, bytes } = cell.workload;
            let column = |count: &dyn Fn(Threshold) -> u32| {
                threshold.map_or(String::new(), |threshold| count(threshold).to_string())
            };
            let evicted = column(&|threshold| cell.evicted(threshold));
            let at_once = column(&|threshold| cell.evicted_at_once(threshold));
            let (trials, tried, cost) =
                (cell.trials(), cell.trials_at_once(), cell.mean_milliseconds());
            let pattern = pattern.name();
            let _ = writeln!(
                text,
                "{pattern},{writes},{bytes},{trials},{evicted},{cost:.3},{tried},{at_once}"
            );
        }
        text
    }

    fn draw(&self, grid: &Grid, title: &str, darkness: impl Fn(&Cell) -> (f64, String)) -> String {
        let (columns, rows) = (grid.writes.len(), grid.bytes.len());
        let panel = columns * CELL + GAP;
        let (width, height) = (LEFT + grid.patterns.len() * panel, TOP + rows * CELL + BOTTOM);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}</text>\n",
            escape(title)
        );
        for (number, &pattern) in grid.patterns.iter().enumerate() {
            let left = LEFT + number * panel;
            let _ = writeln!(
                svg,
                "<text x=\"{left}\" y=\"{}\">{} writes</text>",
                TOP - 10,
                pattern.name()
            );
            for (row, &bytes) in grid.bytes.iter().enumerate() {
                let y = TOP + (rows - 1 - row) * CELL;
                let (text_x, text_y) = (left - 6, y + CELL / 2 + 4);
                let megabytes = bytes as f64 / 1e6;
                let _ = writeln!(
                    svg,
                    "<text x=\"{text_x}\" y=\"{text_y}\" text-anchor=\"end\">{megabytes}</text>"
                );
                for (column, &writes) in grid.writes.iter().enumerate() {
                    let x = left + column * CELL;
                    let workload = EvictionWorkload { pattern, writes, bytes };
                    let cell = self.cell(&workload).filter(|cell| cell.trials() > 0);
                    let chosen = self.chosen == Some(workload);
                    svg += &square(x, y, chosen, &workload, cell.map(&darkness));
                }
            }
            for (column, writes) in grid.writes.iter().enumerate() {
                let (x, y) = (left + column * CELL + CELL / 2 + 4, TOP + rows * CELL + 6);
                let _ = writeln!(
                    svg,
                    "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\" transform=\"rotate(-60 {x} {y})\">{writes}</text>"
                );
            }
            let (x, y) = (left + columns * CELL / 2, height - 8);
            let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">writes</text>");
        }
        let middle = TOP + rows * CELL / 2;
        let _ = writeln!(
            svg,
            "<text x=\"16\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {middle})\">data (MB)</text>\n</svg>"
        );
        svg
    }
}

/// Draws a cell, white to black; without measurements as a cross. The chosen workload has a frame.
fn square(
    x: usize,
    y: usize,
    chosen: bool,
    workload: &EvictionWorkload,
    known: Option<(f64, String)>,
) -> String {
    let (fill, what) = match &known {
        Some((darkness, text)) => {
            let grey = (255.0 * (1.0 - darkness)).round() as u8;
            (format!("#{grey:02x}{grey:02x}{grey:02x}"), text.as_str())
        }
        None => ("#fff4d6".to_string(), "not measured"),
    };
    let (stroke, thickness) = if chosen { ("#d4380d", 3) } else { ("#ccc", 1) };
    format!(
        "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" fill=\"{fill}\" stroke=\"{stroke}\" \
         stroke-width=\"{thickness}\"><title>{workload}: {what}</title></rect>\n"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
