//! The first Okeanos paper (ATC 2011): figures that its successor of 2013 has again. The runs are
//! those of the later figures; the statements are the earlier paper's own.

use super::okeanos;
use crate::figures::common::{least, least_step, most, of_paper};
use crate::{Claim, Context, Figure, FigureError, Picture, Results};

/// A figure of this paper: name, title, source, the later figure, and how its pictures are judged.
struct Again {
    name: &'static str,
    title: &'static str,
    source: &'static str,
    about: &'static str,
    /// The figure of 2013 with the same runs, and how many of its pictures, from the first on.
    later: &'static str,
    pictures: usize,
    judge: fn(&[Picture]) -> Vec<Claim>,
    run: fn(&Context) -> Result<Results, FigureError>,
}

static ALL: [Again; 8] = [
    Again {
        name: "atc-4a",
        title: "Journal traffic of 1 Kbps streams",
        source: "Okeanos (ATC 2011), Figure 4a",
        about: "The runs of 7a in this paper's modes.",
        later: "7a",
        pictures: 1,
        judge: journal_traffic,
        run: |context| ALL[0].play(context),
    },
    Again {
        name: "atc-4b",
        title: "File-system traffic of 1 Kbps streams",
        source: "Okeanos (ATC 2011), Figure 4b",
        about: "The runs of 7a in this paper's modes: what is written to the drive of the file system.",
        later: "7c",
        pictures: 1,
        judge: home_traffic,
        run: |context| ALL[1].play(context),
    },
    Again {
        name: "atc-4c",
        title: "Write latency of 1 Mbps streams",
        source: "Okeanos (ATC 2011), Figure 4c",
        about: "The runs of 8b in this paper's modes.",
        later: "8b",
        pictures: 1,
        judge: latency,
        run: |context| ALL[2].play(context),
    },
    Again {
        name: "atc-4d",
        title: "Reading files that were written at the same time",
        source: "Okeanos (ATC 2011), Figure 4d",
        about: "The runs of 8c in this paper's modes.",
        later: "8c",
        pictures: 1,
        judge: reads,
        run: |context| ALL[3].play(context),
    },
    Again {
        name: "atc-5a",
        title: "Postmark: transactions per second",
        source: "Okeanos (ATC 2011), Figure 5a",
        about: "The runs of 10a with files as large as the later paper says.",
        later: "10a",
        pictures: 1,
        judge: postmark,
        run: |context| ALL[4].play(context),
    },
    Again {
        name: "atc-5b",
        title: "InnoDB's log under its three flush methods, many at once",
        source: "Okeanos (ATC 2011), Figure 5b",
        about: "The runs of 10c.",
        later: "10c",
        pictures: 3,
        judge: flushes,
        run: |context| ALL[5].play(context),
    },
    Again {
        name: "atc-5c",
        title: "MPI-IO over a file server: throughput",
        source: "Okeanos (ATC 2011), Figure 5c",
        about: "The runs of 11 with writes of 1 KiB.",
        later: "11",
        pictures: 1,
        judge: throughput,
        run: |context| ALL[6].play(context),
    },
    Again {
        name: "atc-5d",
        title: "MPI-IO over a file server: what is written",
        source: "Okeanos (ATC 2011), Figure 5d",
        about: "The runs of 12 with writes of 1 KiB.",
        later: "12",
        pictures: 1,
        judge: volumes,
        run: |context| ALL[7].play(context),
    },
];

/// Figures in the order of the paper.
pub fn all() -> Vec<Figure> {
    ALL.iter().map(Again::figure).collect()
}

/// The paper does not consider writeback. Bars of volumes have the devices' names.
const LINES: [&str; 7] =
    ["ordered", "selective", "journal", "wasteless", "log-structured", "database", "file system"];

impl Again {
    fn later_figure(&self) -> Figure {
        let mut all = okeanos::all().into_iter();
        all.find(|figure| figure.name == self.later).expect("it is in the list")
    }
    fn figure(&self) -> Figure {
        let Figure { minutes, by_chance, real_time, .. } = self.later_figure();
        let Again { name, title, source, about, run, .. } = *self;
        Figure { name, title, source, about, minutes, by_chance, real_time, run }
    }
    fn play(&self, context: &Context) -> Result<Results, FigureError> {
        let Results { mut pictures, mut notes, .. } = (self.later_figure().run)(context)?;
        pictures.truncate(self.pictures);
        for picture in &mut pictures {
            picture.series.retain(|line| !line.of_paper && LINES.contains(&&*line.name));
        }
        let claims = (self.judge)(&pictures);
        if self.name == "atc-4a" {
            let at = points(&pictures[0], "journal").last().map_or(0.0, |point| point.0);
            let stated = [("journal", 27.0), ("wasteless", 4.0), ("selective", 4.0)];
            let stated = stated.map(|(name, mib)| of_paper(name, vec![(at, mib)]));
            pictures[0].series.extend(stated);
        }
        notes.push(format!(
            "The runs are those of {}, as both papers have the same experiment; rows of that figure with the words of this one are not counted.",
            self.later
        ));
        Ok(Results { pictures, claims, notes })
    }
}

/// Returns a line's points.
fn points<'a>(picture: &'a Picture, name: &str) -> &'a [(f64, f64)] {
    let line = picture.series.iter().find(|series| series.name == name);
    line.map_or(&[], |series| &series.points)
}
fn last(picture: &Picture, name: &str) -> f64 {
    points(picture, name).last().map_or(f64::NAN, |point| point.1)
}
fn lasts<const N: usize>(picture: &Picture, names: [&str; N]) -> [f64; N] {
    names.map(|name| last(picture, name))
}

const MODES: [&str; 4] = ["ordered", "selective", "journal", "wasteless"];

fn journal_traffic(pictures: &[Picture]) -> Vec<Claim> {
    let [ordered, selective, data, wasteless] = lasts(&pictures[0], MODES);
    vec![
        Claim::of("atc-4a/data-over-others", data / most([ordered, selective, wasteless])),
        Claim::of("atc-4a/data-over-limited", data / selective.max(wasteless)),
        Claim::of("atc-4a/data-over-ordered", data / ordered),
        Claim::of("atc-4a/selective-over-ordered", selective / ordered),
        Claim::of("atc-4a/wasteless-over-ordered", wasteless / ordered),
    ]
}

fn home_traffic(pictures: &[Picture]) -> Vec<Claim> {
    let [ordered, selective, data, wasteless] = lasts(&pictures[0], MODES);
    vec![
        Claim::of("atc-4b/ordered-over-wasteless", ordered / wasteless),
        Claim::of("atc-4b/ordered-over-selective", ordered / selective),
        Claim::of("atc-4b/ordered-over-data", ordered / data),
    ]
}

fn latency(pictures: &[Picture]) -> Vec<Claim> {
    let [ordered, selective, data, wasteless] = lasts(&pictures[0], MODES);
    let nilfs = last(&pictures[0], "log-structured");
    let others = data.max(wasteless);
    vec![
        Claim::of("atc-4c/ordered-over-others", ordered / others),
        Claim::of("atc-4c/selective-over-others", selective / others),
        Claim::of("atc-4c/caption", ordered.min(selective) / others.max(nilfs)),
        Claim::of("atc-4c/nilfs-over-wasteless", nilfs / wasteless),
        Claim::of("atc-4c/nilfs-over-data", nilfs / data),
    ]
}

fn reads(pictures: &[Picture]) -> Vec<Claim> {
    let slowest = most(lasts(&pictures[0], MODES));
    vec![Claim::of("atc-4d/nilfs-over-ext3", last(&pictures[0], "log-structured") / slowest)]
}

fn postmark(pictures: &[Picture]) -> Vec<Claim> {
    let lines = MODES.map(|mode| points(&pictures[0], mode));
    let at = |size: usize| lines.map(|line| line[size].1);
    let sizes = 0..lines[0].len();
    let lead = |size| {
        let [ordered, selective, data, wasteless] = at(size);
        wasteless / most([ordered, selective, data])
    };
    let step = |size| {
        let [ordered, selective, data, _] = at(size);
        least_step(&[data, selective, ordered])
    };
    vec![
        Claim::of("atc-5a/wasteless-first", least(sizes.clone().map(lead))),
        Claim::of("atc-5a/between", least(sizes.clone().map(step))),
        Claim::of("atc-5a/best", most(sizes.map(|size| at(size)[3]))),
    ]
}

/// Instances from which on the paper states its times; in quick runs the most that are played.
const MANY: f64 = 64.0;

fn flushes(pictures: &[Picture]) -> Vec<Claim> {
    let mut longest = f64::NEG_INFINITY;
    let mut claims: Vec<Claim> = ["cmt-disk", "prd-disk", "cmt-cache"]
        .iter()
        .zip(pictures)
        .map(|(method, picture)| {
            let (ordered, wasteless) = (points(picture, "ordered"), points(picture, "wasteless"));
            let many = ordered.last().map_or(MANY, |point| point.0.min(MANY));
            let pairs = ordered.iter().zip(wasteless).filter(|(one, _)| one.0 >= many);
            let ratios = pairs.map(|(ordered, wasteless)| {
                longest = longest.max(ordered.1 / 1e3);
                ordered.1 / wasteless.1
            });
            Claim::of(&format!("atc-5b/{method}"), least(ratios))
        })
        .collect();
    claims.push(Claim::of("atc-5b/longest", longest));
    claims
}

fn throughput(pictures: &[Picture]) -> Vec<Claim> {
    let [ordered, selective, data, wasteless] = lasts(&pictures[0], MODES);
    let between = [data, selective].map(|rate| least([rate / ordered, wasteless / rate]));
    vec![
        Claim::of("atc-5c/wasteless-over-ordered", wasteless / ordered),
        Claim::of("atc-5c/between", least(between)),
    ]
}

/// Judges bars: a line for each device, a point for each mode.
fn volumes(pictures: &[Picture]) -> Vec<Claim> {
    let devices = ["database", "journal", "file system"].map(|name| points(&pictures[0], name));
    let of = |mode: usize| devices.map(|bars| bars[mode].1);
    let [ordered, selective, data, wasteless] = [0, 1, 2, 3].map(of);
    let all = |mib: [f64; 3]| mib.iter().sum::<f64>();
    let data_volume = |[_, journal, home]: [f64; 3]| journal + home;
    let more = all(selective).max(all(wasteless));
    vec![
        Claim::of("atc-5d/wasteless-over-data", wasteless[1] / data[1]),
        Claim::of("atc-5d/further-reduces", data_volume(selective) / data_volume(wasteless)),
        Claim::of("atc-5d/less-traffic", more / all(ordered).min(all(data))),
    ]
}
