//! Positions of values on an axis, and the labels of the axis.

use crate::figure::{Axis, Scale};
use crate::number::short;

/// Values mapped to 0..=1 along the axis.
pub(super) struct Ruler {
    kind: Kind,
    low: f64,
    high: f64,
    /// Values with their labels, all within the range.
    pub ticks: Vec<(f64, String)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Linear,
    Logarithmic { base: f64 },
    Names,
}

/// Approximate number of ticks on a linear axis.
const TICKS: f64 = 6.0;
/// Maximum number of labels on a logarithmic axis.
const TICKS_MAX: usize = 9;
/// Margin between the outermost points and the ends of an x axis, as a fraction of its length.
const MARGIN: f64 = 0.03;

impl Ruler {
    /// Builds an axis on which a value's height counts: a linear one begins at zero, and both end
    /// at a tick.
    pub fn upright(axis: &Axis, values: &[f64]) -> Ruler {
        match axis.scale {
            Scale::Logarithmic => Ruler::logarithmic(axis, values),
            _ => Ruler::linear(values, true),
        }
    }

    /// Builds an axis whose outermost points keep some distance from its ends.
    pub fn across(axis: &Axis, values: &[f64]) -> Ruler {
        let mut ruler = match &axis.scale {
            Scale::Logarithmic => Ruler::logarithmic(axis, values),
            Scale::Linear | Scale::Shades { .. } => Ruler::linear(values, false),
            Scale::Names(names) => {
                let ticks =
                    names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect();
                return Ruler {
                    kind: Kind::Names,
                    low: -0.5,
                    high: names.len() as f64 - 0.5,
                    ticks,
                };
            }
        };
        let drawn = values.iter().copied().filter(|value| ruler.can_show(*value));
        let (low, high) = ends(drawn).unwrap_or((ruler.low, ruler.high));
        let margin = (ruler.measure(high) - ruler.measure(low)).max(0.1) * MARGIN;
        let (low, high) = match ruler.kind {
            Kind::Logarithmic { base } => {
                (base.powf(ruler.measure(low) - margin), base.powf(ruler.measure(high) + margin))
            }
            _ => (if ruler.low == 0.0 { 0.0 } else { low - margin }, high + margin),
        };
        let inside = |value: f64| (low..=high).contains(&value);
        // Points too close together for two ticks keep the whole range between their neighbours.
        if ruler.ticks.iter().filter(|(value, _)| inside(*value)).count() > 1 {
            ruler.ticks.retain(|(value, _)| inside(*value));
            (ruler.low, ruler.high) = (low, high);
        }
        ruler
    }

    /// Zero has no place on a logarithmic axis.
    pub fn can_show(&self, value: f64) -> bool {
        !matches!(self.kind, Kind::Logarithmic { .. }) || value > 0.0
    }

    pub fn place(&self, value: f64) -> f64 {
        let (low, high) = (self.measure(self.low), self.measure(self.high));
        (self.measure(value) - low) / (high - low)
    }

    /// Returns the base of bars.
    pub fn ground(&self) -> f64 {
        if self.low <= 0.0 && self.kind == Kind::Linear { self.place(0.0) } else { 0.0 }
    }

    fn measure(&self, value: f64) -> f64 {
        match self.kind {
            Kind::Logarithmic { base } => value.log(base),
            _ => value,
        }
    }

    fn linear(values: &[f64], from_zero: bool) -> Ruler {
        let (low, high) = ends(values.iter().copied()).unwrap_or((0.0, 1.0));
        let from_zero = low >= 0.0 && (from_zero || low < 0.3 * high);
        let low = if from_zero { 0.0 } else { low };
        let high = if high > low { high } else { low + 1.0 };
        let step = round_step((high - low) / TICKS);
        let (first, last) = ((low / step).floor() as i64, (high / step - 1e-9).ceil() as i64);
        let ticks = (first..=last).map(|count| count as f64 * step);
        let ticks: Vec<_> = ticks.map(|value| (value, short(value))).collect();
        Ruler { kind: Kind::Linear, low: first as f64 * step, high: last as f64 * step, ticks }
    }

    fn logarithmic(axis: &Axis, values: &[f64]) -> Ruler {
        let positive = || values.iter().copied().filter(|value| *value > 0.0);
        let (low, high) = ends(positive()).unwrap_or((1.0, 10.0));
        let twos = positive().all(is_power_of_two) && high >= 2.0;
        let ticks = if twos { powers_of_two(low, high) } else { steps_of_decades(low, high) };
        let (low, high) = (ticks[0], *ticks.last().expect("at least two"));
        let label = |value: f64| match twos && axis.label.contains("bytes") && value >= 1024.0 {
            true => format!("{} Ki", short(value / 1024.0)),
            false => short(value),
        };
        let ticks = ticks.iter().map(|&value| (value, label(value))).collect();
        Ruler { kind: Kind::Logarithmic { base: if twos { 2.0 } else { 10.0 } }, low, high, ticks }
    }
}

fn ends(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    let low = values.clone().min_by(f64::total_cmp)?;
    Some((low, values.max_by(f64::total_cmp)?))
}

/// Returns the next of 1, 2, 5, 10, …
fn round_step(least: f64) -> f64 {
    let decade = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|step| step * decade)
        .into_iter()
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(least)
}

fn is_power_of_two(value: f64) -> bool {
    value.log2().fract() == 0.0
}

fn powers_of_two(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log2() as i32, high.log2() as i32);
    (first..=last.max(first + 1)).map(|exponent| 2f64.powi(exponent)).collect()
}

/// Returns ticks from below the least to above the greatest: 1, 2, 5, 10, … if they are few,
/// otherwise powers of ten.
fn steps_of_decades(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let spread = |steps: &[f64]| -> Vec<f64> {
        let all: Vec<f64> = (first..=last)
            .flat_map(|exponent| steps.iter().map(move |step| step * 10f64.powi(exponent)))
            .collect();
        let begin = all.iter().rposition(|value| *value <= low * (1.0 + 1e-9)).unwrap_or(0);
        let end =
            all.iter().position(|value| *value >= high * (1.0 - 1e-9)).unwrap_or(all.len() - 1);
        all[begin..=end.max(begin + 1).min(all.len() - 1)].to_vec()
    };
    let fine = spread(&[1.0, 2.0, 5.0]);
    if fine.len() <= TICKS_MAX { fine } else { spread(&[1.0]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(label: &str, scale: Scale) -> Axis {
        Axis { label: label.into(), scale }
    }
    fn labels(ruler: &Ruler) -> Vec<&str> {
        ruler.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn linear_axes_begin_at_zero_and_end_at_a_tick() {
        let ruler = Ruler::upright(&axis("MiB/s", Scale::Linear), &[3.0, 27.0]);
        assert_eq!(labels(&ruler), ["0", "5", "10", "15", "20", "25", "30"]);
        assert_eq!((ruler.place(0.0), ruler.place(30.0)), (0.0, 1.0));
    }

    #[test]
    fn logarithmic_axes_show_decades_or_parts_of_them() {
        let wide = Ruler::upright(&axis("ms", Scale::Logarithmic), &[0.0, 0.3, 4000.0]);
        assert_eq!(labels(&wide), ["0.1", "1", "10", "100", "1,000", "10,000"]);
        let narrow = Ruler::upright(&axis("ms", Scale::Logarithmic), &[90.0, 600.0]);
        assert_eq!(labels(&narrow), ["50", "100", "200", "500", "1,000"]);
        assert!(!wide.can_show(0.0) && wide.can_show(0.3));
    }

    #[test]
    fn powers_of_two_are_counted_in_twos() {
        let values: Vec<f64> = (7..=17).map(|exponent| 2f64.powi(exponent)).collect();
        let ruler = Ruler::across(&axis("request (bytes)", Scale::Logarithmic), &values);
        assert_eq!(labels(&ruler)[..5], ["128", "256", "512", "1 Ki", "2 Ki"]);
        assert_eq!(labels(&ruler).len(), 11);
        assert!(ruler.place(128.0) > 0.0 && ruler.place(131072.0) < 1.0);
    }

    #[test]
    fn a_single_value_or_none_still_makes_an_axis() {
        for values in [&[][..], &[0.0], &[7.0], &[1.0]] {
            for scale in [Scale::Linear, Scale::Logarithmic] {
                for ruler in [
                    Ruler::upright(&axis("", scale.clone()), values),
                    Ruler::across(&axis("", scale), values),
                ] {
                    assert!(!ruler.ticks.is_empty(), "{values:?}");
                    assert!(
                        values.iter().all(|v| !ruler.can_show(*v) || ruler.place(*v).is_finite())
                    );
                }
            }
        }
    }
}
