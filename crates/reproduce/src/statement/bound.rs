//! Bounds of a statement, and the verdict on values.
//!
//! A ratio is judged in both directions: one that is ten times too large agrees no more than one
//! that is ten times too small. With several seeds the verdict is that of the whole interval of the
//! mean, and not of the mean.

use serde::{Deserialize, Serialize};

/// Verdicts from the best to the worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    Agrees,
    /// Direction agrees, but not the factor.
    DirectionOnly,
    /// A bound lies within the interval of the mean.
    Undecided,
    Differs,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::DirectionOnly => "direction only",
            Verdict::Undecided => "undecided",
            Verdict::Differs => "differs",
        }
    }
}

/// Side of 1 on which the paper's ratio lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Above,
    Below,
}

/// The values that agree, and the side on which others agree in direction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    pub low: f64,
    pub high: f64,
    pub direction: Option<Direction>,
}

/// Returns the range within a factor of two of a ratio, of itself and of its logarithm: 1.01 does
/// not agree with 1.17.
pub(super) fn near_ratio(ratio: f64) -> (f64, f64) {
    let (square, root) = (ratio * ratio, ratio.sqrt());
    ((ratio / 2.0).max(square.min(root)), (ratio * 2.0).min(square.max(root)))
}

impl Bound {
    fn verdict_at(&self, value: f64) -> Verdict {
        let is_on_its_side = match self.direction {
            Some(Direction::Above) => value > 1.0,
            Some(Direction::Below) => value < 1.0,
            None => false,
        };
        if (self.low..=self.high).contains(&value) {
            Verdict::Agrees
        } else if is_on_its_side {
            Verdict::DirectionOnly
        } else {
            Verdict::Differs
        }
    }

    /// Judges the values of all seeds; without any, nothing could be computed.
    pub fn judge(&self, values: &[f64]) -> Verdict {
        let Some((least, largest)) = interval(values) else { return Verdict::Differs };
        let one = self.direction.map(|_| 1.0);
        let spans = [Some(self.low), Some(self.high), one]
            .into_iter()
            .flatten()
            .any(|at| least < at && at < largest);
        if spans { Verdict::Undecided } else { self.verdict_at((least + largest) / 2.0) }
    }

    /// Returns that of several values which is farthest from agreeing: for what a paper says of all
    /// of them.
    pub fn worst(&self, values: &[f64]) -> f64 {
        let distance = |value: f64| match value {
            _ if !value.is_finite() => f64::INFINITY,
            // Ratios are compared as such, in either direction.
            _ if self.low > 0.0 && value > 0.0 => (self.low / value).max(value / self.high).ln(),
            _ => (self.low - value).max(value - self.high),
        };
        let far = |one: &f64, other: &f64| distance(*one).total_cmp(&distance(*other));
        values.iter().copied().max_by(far).unwrap_or(f64::NAN)
    }

    /// Describes what agrees: "3.2 to 12.9".
    pub fn in_words(&self) -> String {
        use crate::number::short;
        match (self.low.is_finite(), self.high.is_finite()) {
            (true, true) => format!("{} to {}", short(self.low), short(self.high)),
            (true, false) => format!("from {}", short(self.low)),
            _ => format!("up to {}", short(self.high)),
        }
    }
}

/// Student's t, one-sided 5 %, for 1 to 9 degrees of freedom: both sides together leave out 10 %.
const STUDENT: [f64; 9] = [6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833];

/// Returns the 90 % confidence interval of the mean: of logarithms where all values are positive,
/// so that a ratio and its inverse are judged alike. `None`: no value, or one that is no number.
pub fn interval(values: &[f64]) -> Option<(f64, f64)> {
    let first = *values.first()?;
    if !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    if values.iter().all(|value| *value == first) {
        return Some((first, first));
    }
    if values.iter().all(|value| *value > 0.0) {
        let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let (mean, half) = mean_and_half(&logarithms);
        return Some(((mean - half).exp(), (mean + half).exp()));
    }
    let (mean, half) = mean_and_half(values);
    Some((mean - half, mean + half))
}

/// Returns the mean, and half of its 90 % confidence interval.
pub(crate) fn mean_and_half(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let student = STUDENT[(values.len() - 2).min(STUDENT.len() - 1)];
    (mean, student * (squares / (count - 1.0)).sqrt() / count.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Agrees, Differs, DirectionOnly, Undecided};

    fn ratio(ratio: f64) -> Bound {
        let (low, high) = near_ratio(ratio);
        let direction = if ratio > 1.0 { Direction::Above } else { Direction::Below };
        Bound { low, high, direction: Some(direction) }
    }
    fn plain(low: f64, high: f64) -> Bound {
        Bound { low, high, direction: None }
    }

    #[test]
    fn a_ratio_is_judged_in_both_directions() {
        let cases = [
            (ratio(6.4), 6.4, Agrees),
            (ratio(6.4), 13.0, DirectionOnly),
            (ratio(6.4), 3.1, DirectionOnly),
            (ratio(6.4), 0.9, Differs),
            (ratio(2.0), 29.0, DirectionOnly),
            (ratio(1.17), 1.01, DirectionOnly),
            (ratio(1.17), 1.2, Agrees),
            (ratio(0.69), 0.6, Agrees),
            (ratio(0.69), 1.0, Differs),
            (plain(0.667, 1.5), 1.4, Agrees),
            (plain(0.667, 1.5), 1.6, Differs),
            (plain(1.0, f64::INFINITY), 1.0, Agrees),
            (plain(5.0, 20.0), f64::NAN, Differs),
            (plain(5.0, 20.0), 0.0, Differs),
        ];
        for (bound, value, verdict) in cases {
            assert_eq!(bound.judge(&[value]), verdict, "{value}");
        }
    }

    #[test]
    fn an_interval_across_a_bound_is_undecided() {
        assert_eq!(ratio(6.4).judge(&[6.0, 7.0, 6.5]), Agrees);
        // The mean and most of the seeds agree.
        assert_eq!(ratio(6.4).judge(&[12.0, 12.5, 13.5, 11.9, 12.2]), Undecided);
        assert_eq!(ratio(6.4).judge(&[20.0, 21.0]), DirectionOnly);
        assert_eq!(ratio(1.17).judge(&[0.9, 1.05, 0.97, 1.02, 1.01]), Undecided);
        assert_eq!(plain(0.0, 1.0).judge(&[]), Differs);
    }

    #[test]
    fn a_ratio_and_its_inverse_have_inverse_intervals() {
        let values = [0.5, 0.8, 2.0];
        let (low, high) = interval(&values).unwrap();
        let (inverse_low, inverse_high) = interval(&values.map(|value| 1.0 / value)).unwrap();
        assert!((low * inverse_high - 1.0).abs() < 1e-12);
        assert!((high * inverse_low - 1.0).abs() < 1e-12);
        assert_eq!(interval(&[1.0; 5]), Some((1.0, 1.0)), "no rounding");
    }

    #[test]
    fn the_worst_of_several_is_the_farthest() {
        assert_eq!(ratio(1.25).worst(&[1.06, 1.2, 1.3]), 1.06);
        assert_eq!(plain(2.0, 86.0).worst(&[0.0, 13.0]), 0.0);
        assert_eq!(plain(f64::NEG_INFINITY, 1.0).worst(&[0.5, 0.9]), 0.9);
    }
}
