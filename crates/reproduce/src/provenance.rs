//! Records of where each parameter of a rig, a drive or a figure comes from (`parameters/*.toml`),
//! and what follows for the rows of a figure.

use crate::statement::Statement;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Rigs, drives ("drive NAME") or figures that have it.
    pub of: Vec<String>,
    pub names: Vec<String>,
    pub value: Option<String>,
    pub origin: Origin,
    /// The source, or why it was chosen.
    pub from: String,
    /// Alternatives that were tried, with their results.
    pub tried: Option<String>,
    /// Figures or rows whose numbers it was derived from.
    #[serde(default)]
    pub fitted_to: Vec<String>,
    /// Figures or rows that had failed when it was chosen or changed.
    #[serde(default)]
    pub after: Vec<String>,
    /// Ranges in which its numbers are varied (`crate::hypercube`).
    #[serde(default)]
    pub ranges: Vec<Range>,
    /// The reason why what has no range is not varied.
    pub fixed: Option<String>,
}

/// The range of a chosen number: one of `times` and `between`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// A name of the parameter, or of a number of what it names.
    pub name: String,
    times: Option<(f64, f64)>,
    between: Option<(f64, f64)>,
}

/// Extent to which a number is varied.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Span {
    /// Varied by factors, evenly in their logarithm.
    Times(f64, f64),
    /// Evenly over values; times are in seconds, in a drive's model in the key's unit.
    Between(f64, f64),
}

impl Range {
    /// Returns the one span that is given.
    ///
    /// # Panics
    ///
    /// None is given, or both; a test holds the records against that.
    pub fn span(&self) -> Span {
        match (self.times, self.between) {
            (Some((low, high)), None) => Span::Times(low, high),
            (None, Some((low, high))) => Span::Between(low, high),
            _ => panic!("{}: a range has one of times and between", self.name),
        }
    }
}

impl Span {
    /// Describes the range: "0.5 to 2 times".
    pub fn in_words(self) -> String {
        use crate::number::short;
        match self {
            Span::Times(low, high) => format!("{} to {} times", short(low), short(high)),
            Span::Between(low, high) => format!("{} to {}", short(low), short(high)),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum Origin {
    #[serde(rename = "measured")]
    Measured,
    #[serde(rename = "taken over")]
    TakenOver,
    #[serde(rename = "fitted")]
    Fitted,
    #[serde(rename = "chosen")]
    Chosen,
}

/// Figures that have a rig in common.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedRig {
    pub name: String,
    /// The rig whose parameters it has where it has none of that name.
    pub base: Option<String>,
    pub figures: Vec<String>,
    /// Built-in models of its drives.
    pub drives: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Records {
    #[serde(default)]
    rig: Vec<SharedRig>,
    #[serde(default)]
    parameter: Vec<Parameter>,
}

const FILES: [&str; 4] = [
    include_str!("../parameters/head.toml"),
    include_str!("../parameters/stages.toml"),
    include_str!("../parameters/figures.toml"),
    include_str!("../parameters/drives.toml"),
];

fn records() -> &'static Records {
    static RECORDS: LazyLock<Records> = LazyLock::new(|| {
        let read = |text: &str| toml::from_str::<Records>(text);
        let mut all = Records { rig: Vec::new(), parameter: Vec::new() };
        for text in FILES {
            let file = read(text).expect("the files are part of the program, and tested");
            all.rig.extend(file.rig);
            all.parameter.extend(file.parameter);
        }
        all
    });
    &RECORDS
}

pub fn rigs() -> &'static [SharedRig] {
    &records().rig
}
pub fn parameters() -> &'static [Parameter] {
    &records().parameter
}

/// Whether a row counts, and as what.
#[derive(Clone, PartialEq, Debug)]
pub enum Standing {
    /// Counted as the paper's own.
    Counted,
    /// Fitted: one of its parameters came from its own figure.
    Fitted(&'static Parameter),
    /// A choice was made after it had failed.
    Chosen(&'static Parameter),
    /// Shown, but not counted, for this reason.
    Shown(&'static str),
    /// Our own question.
    Ours,
    /// Listed in no file of statements.
    Unannounced,
}

impl PartialEq for Parameter {
    fn eq(&self, other: &Parameter) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Standing {
    pub fn name(&self) -> &'static str {
        match self {
            Standing::Counted => "counted",
            Standing::Fitted(_) => "fitted",
            Standing::Chosen(_) => "chosen",
            Standing::Shown(_) => "shown",
            Standing::Ours => "ours",
            Standing::Unannounced => "not announced",
        }
    }
    /// Says why the row is not counted as the paper's; `other` is the result of the other choice if
    /// it was played.
    pub fn reason(&self, other: &str) -> String {
        match self {
            Standing::Counted | Standing::Ours => String::new(),
            Standing::Shown(why) => (*why).into(),
            Standing::Unannounced => "no file of statements has it".into(),
            Standing::Fitted(parameter) => format!("{}: {}", parameter.in_words(), parameter.from),
            Standing::Chosen(parameter) => {
                let tried = parameter.tried.as_deref().unwrap_or("nothing else was tried");
                let other = if other.is_empty() { String::new() } else { format!(" ({other})") };
                format!("{}; tried: {tried}{other}", parameter.in_words())
            }
        }
    }
}

impl Parameter {
    /// Returns names and value: "tick = 4 ms".
    pub fn in_words(&self) -> String {
        let names = self.names.join(", ");
        match &self.value {
            Some(value) => format!("{names} = {value}"),
            None => names,
        }
    }
    /// Whether a list of figures and rows has the statement.
    fn names_it(list: &[String], statement: &Statement) -> bool {
        list.iter().any(|one| *one == statement.id || *one == statement.figure())
    }
}

/// Returns whether a statement counts, by the records of its parameters.
pub fn standing(statement: &'static Statement) -> Standing {
    if let Some(why) = &statement.shown_only {
        return Standing::Shown(why);
    }
    if statement.is_ours {
        return Standing::Ours;
    }
    let find = |of: fn(&Parameter) -> &[String]| {
        parameters().iter().find(|parameter| Parameter::names_it(of(parameter), statement))
    };
    if let Some(parameter) = find(|parameter| &parameter.fitted_to) {
        return Standing::Fitted(parameter);
    }
    match find(|parameter| &parameter.after) {
        Some(parameter) => Standing::Chosen(parameter),
        None => Standing::Counted,
    }
}

/// Returns the rigs that a figure has, and those beneath them.
fn rigs_of(figure: &str) -> Vec<&'static SharedRig> {
    let mut found: Vec<&SharedRig> =
        rigs().iter().filter(|rig| rig.figures.iter().any(|name| name == figure)).collect();
    let mut at = 0;
    while let Some(rig) = found.get(at) {
        let base = rig.base.as_ref().and_then(|base| rigs().iter().find(|rig| rig.name == *base));
        found.extend(base);
        at += 1;
    }
    found
}

/// Returns the models of the drives that a figure plays.
pub fn drives_of(figure: &str) -> Vec<&'static str> {
    let of_figure = rigs().iter().filter(|rig| rig.figures.iter().any(|name| name == figure));
    of_figure.flat_map(|rig| &rig.drives).map(String::as_str).collect()
}

/// Returns the parameters of a figure: name, and value with its origin. What stands in a rig goes
/// before what stands in its base, and drives are named by their models.
pub fn parameters_of(figure: &str) -> BTreeMap<String, String> {
    let owners = rigs_of(figure).into_iter().map(|rig| rig.name.clone());
    let drives = drives_of(figure).into_iter().map(|model| format!("drive {model}"));
    let owners: Vec<String> =
        std::iter::once(figure.to_owned()).chain(owners).chain(drives).collect();
    let mut all = BTreeMap::new();
    for owner in owners {
        for parameter in parameters().iter().filter(|parameter| parameter.of.contains(&owner)) {
            for name in &parameter.names {
                let name = match owner.strip_prefix("drive ") {
                    Some(model) => format!("{model}: {name}"),
                    None => name.clone(),
                };
                let value = parameter.value.as_deref().unwrap_or("as in the code");
                all.entry(name).or_insert(format!("{value} ({:?})", parameter.origin));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::{find, statements};

    #[test]
    fn records_name_what_there_is() {
        let owners: Vec<String> = rigs().iter().map(|rig| rig.name.clone()).collect();
        let is_figure = |name: &str| crate::find(name).is_some();
        for rig in rigs() {
            assert!(rig.figures.iter().all(|figure| is_figure(figure)), "{}", rig.name);
        }
        for parameter in parameters() {
            let what = parameter.in_words();
            for owner in &parameter.of {
                let model = owner.strip_prefix("drive ");
                let is_drive =
                    model.is_some_and(|model| emulated::shipped().any(|(name, _)| name == model));
                assert!(is_drive || owners.contains(owner) || is_figure(owner), "{what}: {owner}");
            }
            for row in parameter.fitted_to.iter().chain(&parameter.after) {
                assert!(find(row).is_some() || is_figure(row), "{what}: {row}");
            }
            let is_fitted = parameter.origin == Origin::Fitted;
            assert!(!is_fitted || !parameter.fitted_to.is_empty(), "{what}: to what?");
            assert!(
                parameter.after.is_empty() || parameter.tried.is_some() || is_fitted,
                "{what}: what failed?"
            );
        }
    }

    #[test]
    fn every_chosen_number_has_a_range_or_a_reason() {
        for parameter in parameters() {
            let what = parameter.in_words();
            let is_chosen = parameter.origin == Origin::Chosen;
            let has_range = |name: &String| parameter.ranges.iter().any(|it| it.name == *name);
            let all_have = parameter.names.iter().all(has_range);
            assert!(is_chosen || parameter.ranges.is_empty(), "{what}: it was not chosen");
            assert!(
                !is_chosen || all_have != parameter.fixed.is_some(),
                "{what}: a range for each name, or else why not"
            );
            for range in &parameter.ranges {
                let is_right = match range.span() {
                    Span::Times(low, high) => 0.0 < low && low < high,
                    Span::Between(low, high) => 0.0 <= low && low < high,
                };
                assert!(is_right, "{what}: {}", range.name);
            }
        }
    }

    #[test]
    fn every_figure_has_a_rig_with_its_drives() {
        for figure in crate::all() {
            assert!(!drives_of(figure.name).is_empty(), "{}", figure.name);
        }
        for statement in statements().iter().filter(|one| one.figure() != "made-up") {
            assert!(!parameters_of(statement.figure()).is_empty(), "{}", statement.id);
        }
    }

    #[test]
    fn rows_are_marked_by_the_records_alone() {
        let of = |id: &str| standing(find(id).unwrap()).name();
        assert_eq!(of("arion-5/time-over-ceph"), "fitted");
        assert_eq!(of("discreet-figure-7/efficient-over-costly"), "chosen");
        assert_eq!(of("discreet-figure-6/ordered-over-off"), "chosen");
        assert_eq!(of("discreet-table-3/random-over-sequential"), "chosen");
        assert_eq!(of("discreet-table-4/hitachi-7k80"), "fitted");
        assert_eq!(of("manylogs-6/mlsmr-w1"), "shown");
        assert_eq!(of("7a/data-over-wasteless"), "counted");
        // What was chosen after made traces and one hour had failed is judged on other hours.
        let given = statements().iter().filter(|it| it.is_of_given_traces() && !it.is_ours);
        let counted: Vec<&str> =
            given.filter(|it| of(&it.id) == "counted").map(|it| it.id.as_str()).collect();
        assert_eq!(counted.len(), 20, "{counted:?}");
        for row in ["mlb-w1", "mlb-mean", "mlsmr-w5", "mlsmr-mean"] {
            assert_eq!(of(&format!("manylogs-6/given-{row}")), "counted", "{row}");
        }
        assert_eq!(of("manylogs-6/given-soonest-mean"), "shown");
        assert_eq!(of("manylogs-7/given-longest"), "counted");
    }
}
