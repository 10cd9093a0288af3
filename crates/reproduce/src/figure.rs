//! Definition and results of a figure.

use crate::error::FigureError;
use crate::{Claim, Context};
use serde::{Deserialize, Serialize};

/// Name of the figure that plays others with other numbers; its rows are theirs.
pub(crate) const SENSITIVITY: &str = "sensitivity";

/// One figure or table of a paper, or one of our own.
pub struct Figure {
    /// Name on the command line: `7a`, `table-1`, `raid-0`, `kernel-7a`.
    pub name: &'static str,
    pub title: &'static str,
    /// Paper and figure: "Okeanos (TOS 2013), Figure 7a"; "ours".
    pub source: &'static str,
    /// Description, in a sentence or two: workload, disks, duration.
    pub about: &'static str,
    /// Approximate minutes it takes alone on one core of today with all its seeds.
    pub minutes: u32,
    /// Whether it is played with several seeds, because its results depend on chance.
    pub by_chance: bool,
    /// Whether it needs root, loop devices and real time: left out of `all` unless named.
    pub real_time: bool,
    pub run: fn(&Context) -> Result<Results, FigureError>,
}

/// Results of a figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Pictures: one for most figures; several where the paper's figure has panels.
    pub pictures: Vec<Picture>,
    /// The paper's statements, and whether our results agree.
    pub claims: Vec<Claim>,
    /// Notes that a reader must know: differences from the paper's rig, and reasons why a claim
    /// does not hold.
    pub notes: Vec<String>,
}

/// One diagram: the lines of one CSV file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Picture {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Axis {
    /// Name with its unit: "streams", "journal traffic (MiB/s)".
    pub label: String,
    pub scale: Scale,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    Linear,
    /// Logarithmic, to base 10 or, where all values are powers of two, base 2.
    Logarithmic,
    /// Bars: x counts these names, from 0.
    Names(Vec<String>),
    /// Fields of shades for y, side by side over names, instead of lines. A series is called
    /// "FIELD: ROW" and is a row, from the lowest on; x is the column and y the value. In a series
    /// "FIELD: chosen" y is the number that a row is called: these squares are marked.
    Shades {
        white: f64,
        black: f64,
        logarithmic: bool,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Name, such as `wasteless`; the paper's numbers have the same name, and `of_paper`.
    pub name: String,
    pub of_paper: bool,
    pub points: Vec<(f64, f64)>,
    /// The 90 % confidence interval of each point's mean over several seeds, lowest and highest.
    /// Otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<(f64, f64)>,
}
