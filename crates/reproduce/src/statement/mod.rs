//! A paper's statements, compared with our results.
//!
//! A ratio is judged in both directions: one that is ten times too large agrees no more than one
//! that is ten times too small. A number from which a disk's parameter was derived cannot agree
//! with it by merit, and a statement that no paper makes is ours alone. Neither is counted as a
//! paper's.

use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// A statement, and our numbers beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// The statement: "data journaling's journal traffic over wasteless's, at the most streams".
    pub says: String,
    /// The paper's number or words, such as "6.4 (27 / 4.2 MiB/s)".
    pub paper: String,
    pub ours: String,
    pub verdict: Verdict,
    pub origin: Origin,
    /// The choice made after this had failed, and the result of the other choice. Empty: no choice.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub chosen: String,
    /// For `sensitivity`'s rows: the choices with which the statement is judged otherwise, and the
    /// results. For a figure that plays its own rig's numbers half and double: the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub otherwise: Vec<String>,
}

/// Verdicts from the best to the worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Within a factor of two of the paper's number, or within what its words mean.
    Agrees,
    /// Direction agrees, but not the factor.
    DirectionOnly,
    Differs,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Paper,
    /// A parameter of the rig, named here, was derived from the statement.
    Fitted {
        parameter: String,
    },
    /// Our own question.
    Ours,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::DirectionOnly => "direction only",
            Verdict::Differs => "differs",
        }
    }
}

impl Claim {
    /// Marks the claim as derived from the same numbers as `parameter`.
    pub fn fitted(self, parameter: &str) -> Claim {
        Claim { origin: Origin::Fitted { parameter: parameter.into() }, ..self }
    }
    /// Marks a choice made after a failure; `other`: the result of the other choice.
    pub fn chosen(self, what: &str, other: &str) -> Claim {
        Claim { chosen: format!("{what}; otherwise {other}"), ..self }
    }
    /// Adds a result with other numbers of the rig.
    pub fn with_other(mut self, other: String) -> Claim {
        self.otherwise.push(other);
        self
    }
    /// Whether our ordered mode is part of it, not the kernel's.
    pub fn has_our_ordered(&self) -> bool {
        self.says.contains("ordered") && !self.says.contains("(the kernel's)")
    }
    /// Returns the statement, with the mark of [`WEAK_BASELINE`] where it applies.
    pub fn marked(&self) -> String {
        let mark = if self.has_our_ordered() { " °" } else { "" };
        format!("{}{mark}", self.says)
    }
    pub fn of_ours(self) -> Claim {
        Claim { origin: Origin::Ours, ..self }
    }
    /// Returns the verdict, and the reason if it is not counted.
    pub fn judged(&self) -> String {
        let verdict = self.verdict.name();
        match &self.origin {
            Origin::Paper => verdict.into(),
            Origin::Fitted { parameter } => format!("{verdict} (fitted: {parameter})"),
            Origin::Ours => format!("{verdict} (ours)"),
        }
    }
}

/// Caveat of statements with our ordered mode.
pub const WEAK_BASELINE: &str = "° Our ordered mode has a part in it, which is a weak baseline: in Postmark, in real time and on the same disks, it makes \
less than half of the transactions of the kernel's (kernel-10a). What is compared with it may look better for that.";

/// Meaning of a paper's words as a ratio; the same for every statement.
pub struct Words {
    pub text: &'static str,
    pub low: f64,
    pub high: f64,
}

pub const SAME: Words =
    Words { text: "the same, comparable, follows, similar", low: 2.0 / 3.0, high: 1.5 };
pub const NEAR: Words = Words { text: "nears, approaches", low: 0.5, high: 2.0 };
pub const HIGHER: Words =
    Words { text: "significantly, notably higher or longer", low: 1.2, high: 3.0 };
pub const FACTORS: Words = Words { text: "several factors, much higher", low: 2.0, high: 10.0 };
pub const ORDER: Words = Words { text: "an order of magnitude", low: 5.0, high: 20.0 };
pub const ORDER_OR_TWO: Words =
    Words { text: "one to two orders of magnitude", low: 5.0, high: 200.0 };
pub const ORDERS: Words = Words { text: "orders of magnitude, far lower", low: 30.0, high: 3000.0 };

/// Table of all words, for the page that explains them.
pub const WORDS: [&Words; 7] = [&SAME, &NEAR, &HIGHER, &FACTORS, &ORDER, &ORDER_OR_TWO, &ORDERS];

impl Words {
    fn range(&self) -> RangeInclusive<f64> {
        self.low..=self.high
    }
}

/// The paper's ratio, and the range around it that agrees.
pub enum Expected {
    Number(f64),
    /// Spread of the paper's own numbers.
    Between(f64, f64),
    Words(&'static Words),
}

impl Expected {
    /// Whether a number agrees within a factor of two, of itself and of its logarithm: 1.01 does
    /// not agree with 1.17.
    fn agrees(&self, ratio: f64) -> bool {
        let near = |number: f64| {
            let within = |ratio: f64| (0.5..=2.0).contains(&ratio);
            within(ratio / number) && within(ratio.ln() / number.ln())
        };
        match *self {
            Expected::Number(number) => near(number),
            Expected::Between(low, high) => {
                (low..=high).contains(&ratio) || near(low) || near(high)
            }
            Expected::Words(words) => words.range().contains(&ratio),
        }
    }
    /// Whether the ratio lies on the paper's side of 1.
    fn has_direction(&self, ratio: f64) -> bool {
        let (low, high) = match *self {
            Expected::Number(number) => (number, number),
            Expected::Between(low, high) => (low, high),
            Expected::Words(words) => (words.low, words.high),
        };
        (low > 1.0 && ratio > 1.0) || (high < 1.0 && ratio < 1.0)
    }

    pub fn judge(&self, ratio: f64) -> Verdict {
        if !ratio.is_finite() || ratio <= 0.0 {
            Verdict::Differs
        } else if self.agrees(ratio) {
            Verdict::Agrees
        } else if self.has_direction(ratio) {
            Verdict::DirectionOnly
        } else {
            Verdict::Differs
        }
    }
}

/// Counts of one paper's statements.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    pub agree: usize,
    pub direction_only: usize,
    pub differ: usize,
    pub fitted: usize,
    pub ours: usize,
}

impl Tally {
    pub fn of<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> Tally {
        let mut tally = Tally::default();
        for claim in claims {
            let counted = match (&claim.origin, claim.verdict) {
                (Origin::Fitted { .. }, _) => &mut tally.fitted,
                (Origin::Ours, _) => &mut tally.ours,
                (Origin::Paper, Verdict::Agrees) => &mut tally.agree,
                (Origin::Paper, Verdict::DirectionOnly) => &mut tally.direction_only,
                (Origin::Paper, Verdict::Differs) => &mut tally.differ,
            };
            *counted += 1;
        }
        tally
    }
    /// Counts the paper's statements that could have differed.
    pub fn counted(self) -> usize {
        self.agree + self.direction_only + self.differ
    }
    pub fn in_words(self) -> String {
        let Tally { agree, direction_only, differ, fitted, ours } = self;
        let mut text =
            format!("{agree} agree, {direction_only} in direction only, {differ} differ");
        if fitted > 0 {
            text += &format!("; {fitted} fitted");
        }
        if ours > 0 {
            text += &format!("; {ours} ours");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_judged_in_both_directions() {
        use Verdict::{Agrees, Differs, DirectionOnly};
        let cases = [
            (Expected::Number(6.4), 6.4, Agrees),
            (Expected::Number(6.4), 13.0, DirectionOnly),
            (Expected::Number(6.4), 3.1, DirectionOnly),
            (Expected::Number(6.4), 0.9, Differs),
            (Expected::Number(2.0), 29.0, DirectionOnly),
            (Expected::Number(1.17), 1.01, DirectionOnly),
            (Expected::Number(1.17), 1.2, Agrees),
            (Expected::Number(0.69), 0.6, Agrees),
            (Expected::Number(0.69), 1.0, Differs),
            (Expected::Between(0.78, 0.80), 0.7, Agrees),
            (Expected::Between(0.78, 0.80), 0.5, DirectionOnly),
            (Expected::Words(&SAME), 1.4, Agrees),
            (Expected::Words(&SAME), 1.6, Differs),
            (Expected::Words(&ORDERS), 4000.0, DirectionOnly),
            (Expected::Words(&ORDER), f64::NAN, Differs),
            (Expected::Words(&ORDER), 0.0, Differs),
        ];
        for (expected, ratio, verdict) in cases {
            assert_eq!(expected.judge(ratio), verdict, "{ratio}");
        }
    }

    #[test]
    fn what_is_fitted_or_ours_is_not_counted_as_the_papers() {
        let claim = |verdict| Claim {
            says: String::new(),
            paper: String::new(),
            ours: String::new(),
            verdict,
            origin: Origin::Paper,
            chosen: String::new(),
            otherwise: Vec::new(),
        };
        let claims = [
            claim(Verdict::Agrees),
            claim(Verdict::DirectionOnly),
            claim(Verdict::Agrees).fitted("cache size"),
            claim(Verdict::Differs).of_ours(),
        ];
        let tally = Tally::of(&claims);
        assert_eq!(tally, Tally { agree: 1, direction_only: 1, differ: 0, fitted: 1, ours: 1 });
        assert_eq!(tally.counted(), 2);
        assert_eq!(claims[2].judged(), "agrees (fitted: cache size)");
    }
}
