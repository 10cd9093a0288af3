//! Values that a figure found for its statements.

use crate::number::short;
use crate::provenance::{Standing, standing};
use crate::statement::{Statement, Verdict, find};
use serde::{Deserialize, Serialize};

/// Finding for a statement. The verdict is not part of it: a report judges by the statements
/// and the records of parameters that it has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// Identifier of the statement.
    pub statement: String,
    /// The value with each seed, in their order. Empty: with some seed there is none.
    pub values: Vec<f64>,
    /// Our numbers as the table shows them.
    pub ours: String,
    /// The result of the other choice, where one was made and the other was played, too.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub other_choice: String,
    /// Choices with which the statement is judged otherwise, and the results; for the rows of
    /// `sensitivity`. For a figure that plays its own rig's numbers half and double: the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub otherwise: Vec<String>,
}

impl Claim {
    pub fn of(statement: &str, value: f64) -> Claim {
        Claim {
            statement: statement.into(),
            values: Some(value).filter(|value| value.is_finite()).into_iter().collect(),
            ours: short(value),
            other_choice: String::new(),
            otherwise: Vec::new(),
        }
    }
    /// Returns the claim of a statement on each of several values: the worst of them is judged, and
    /// the least and the largest are shown.
    pub fn of_each(statement: &str, values: &[f64]) -> Claim {
        let worst = find(statement).map_or(f64::NAN, |announced| announced.bound.worst(values));
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shown = match short(least) == short(largest) {
            true => short(least),
            false => format!("{} to {}", short(least), short(largest)),
        };
        Claim::of(statement, worst).shown(shown)
    }
    /// Replaces the text in the table.
    pub fn shown(self, ours: String) -> Claim {
        Claim { ours, ..self }
    }
    /// Adds the result of the other choice.
    pub fn with_other_choice(self, result: String) -> Claim {
        Claim { other_choice: result, ..self }
    }
    /// Adds a result with other numbers of the rig.
    pub fn with_other(mut self, other: String) -> Claim {
        self.otherwise.push(other);
        self
    }

    /// Returns the statement, if it is announced.
    pub fn announced(&self) -> Option<&'static Statement> {
        find(&self.statement)
    }
    /// Returns the verdict on all seeds; what is not announced cannot agree.
    pub fn verdict(&self) -> Verdict {
        self.announced().map_or(Verdict::Differs, |statement| statement.bound.judge(&self.values))
    }
    /// Returns whether it counts, and as what.
    pub fn standing(&self) -> Standing {
        self.announced().map_or(Standing::Unannounced, standing)
    }
    /// Formats verdict and standing: "agrees", "fitted (agrees)".
    pub fn judged(&self) -> String {
        let verdict = self.verdict().name();
        match self.standing() {
            Standing::Counted => verdict.into(),
            other => format!("{} ({verdict})", other.name()),
        }
    }
}

/// Counts of one paper's statements.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    pub agree: usize,
    pub direction_only: usize,
    pub differ: usize,
    pub undecided: usize,
    pub fitted: usize,
    pub chosen: usize,
    pub shown: usize,
    pub ours: usize,
}

impl Tally {
    pub fn of<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> Tally {
        let mut tally = Tally::default();
        for claim in claims {
            let counted = match (claim.standing(), claim.verdict()) {
                (Standing::Fitted(_), _) => &mut tally.fitted,
                (Standing::Chosen(_), _) => &mut tally.chosen,
                (Standing::Shown(_) | Standing::Unannounced, _) => &mut tally.shown,
                (Standing::Ours, _) => &mut tally.ours,
                (Standing::Counted, Verdict::Agrees) => &mut tally.agree,
                (Standing::Counted, Verdict::DirectionOnly) => &mut tally.direction_only,
                (Standing::Counted, Verdict::Undecided) => &mut tally.undecided,
                (Standing::Counted, Verdict::Differs) => &mut tally.differ,
            };
            *counted += 1;
        }
        tally
    }
    /// Returns the counts beside their names, in the order of a table.
    pub fn columns(self) -> [(&'static str, usize); 8] {
        let Tally { agree, direction_only, differ, undecided, fitted, chosen, shown, ours } = self;
        [
            ("agree", agree),
            ("direction only", direction_only),
            ("differ", differ),
            ("undecided", undecided),
            ("fitted", fitted),
            ("chosen", chosen),
            ("shown", shown),
            ("ours", ours),
        ]
    }
    pub fn in_words(self) -> String {
        let count = |(name, count): &(&str, usize)| format!("{count} {name}");
        let (judged, others) = (&self.columns()[..4], &self.columns()[4..]);
        let judged: Vec<String> = judged.iter().map(count).collect();
        let others: Vec<String> = others.iter().filter(|(_, it)| *it > 0).map(count).collect();
        match others.is_empty() {
            true => judged.join(", "),
            false => format!("{}; {}", judged.join(", "), others.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fitted_chosen_or_ours_is_not_counted() {
        let claims = [
            Claim::of("7b/wasteless-over-data", 1.0),
            Claim::of("7a/selective-over-wasteless", 1.0),
            Claim::of("arion-5/latency-over-ceph", 0.75),
            Claim::of("10b/data-over-wasteless", 6.0),
            Claim::of("1/wasteless-saves", 10.0),
            Claim::of("8c/atc-order", 10.0),
            Claim::of("no-such/statement", 1.0),
        ];
        let tally = Tally::of(&claims);
        let expected = Tally {
            agree: 1,
            differ: 1,
            fitted: 1,
            chosen: 1,
            shown: 2,
            ours: 1,
            ..Tally::default()
        };
        assert_eq!(tally, expected);
        assert_eq!(claims[2].judged(), "fitted (agrees)");
        assert_eq!(claims[3].judged(), "chosen (agrees)");
    }

    #[test]
    fn a_value_that_is_no_number_differs_and_can_be_written() {
        let claim = Claim::of("7b/wasteless-over-data", f64::NAN);
        assert_eq!(claim.verdict(), Verdict::Differs);
        assert!(!serde_json::to_string(&claim).unwrap().contains("null"));
    }

    #[test]
    fn each_of_several_values_must_agree() {
        let claim = Claim::of_each("discreet-figure-6/ordered-over-unsafe", &[1.06, 1.2]);
        assert_eq!((claim.verdict(), &*claim.ours), (Verdict::DirectionOnly, "1.06 to 1.2"));
    }
}
