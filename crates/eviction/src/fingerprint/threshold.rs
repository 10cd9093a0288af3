//! Detection of slow reads: the border between the two modes of read times.

/// Border in microseconds; reads that take longer came from the medium.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Threshold(pub f64);

impl Threshold {
    pub fn is_slow(self, microseconds: f64) -> bool {
        microseconds > self.0
    }
}

/// Factor below which modes are not two.
const APART_MIN: f64 = 2.0;

/// The border that divides the logarithms of the times into two groups with the least variance
/// within them (Otsu 1979). `None` if the groups' means are less than [`APART_MIN`] apart. Times
/// must be positive.
pub fn threshold(times: &[f64]) -> Option<Threshold> {
    let mut logarithms: Vec<f64> =
        times.iter().filter(|time| **time > 0.0).map(|time| time.ln()).collect();
    logarithms.sort_by(f64::total_cmp);
    let total: f64 = logarithms.iter().sum();
    let count = logarithms.len();
    let mut best: Option<(f64, usize, f64)> = None;
    let mut below = 0.0;
    for border in 1..count {
        below += logarithms[border - 1];
        let (lower, upper) = (below / border as f64, (total - below) / (count - border) as f64);
        // The variance between the groups, which is greatest where that within them is least.
        let between = border as f64 * (count - border) as f64 * (upper - lower).powi(2);
        if best.is_none_or(|(most, ..)| between > most) {
            best = Some((between, border, upper - lower));
        }
    }
    let (_, border, apart) = best?;
    if apart < APART_MIN.ln() {
        return None;
    }
    Some(Threshold(((logarithms[border - 1] + logarithms[border]) / 2.0).exp()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_border_lies_between_the_modes() {
        let fast = (0..30).map(|step| 90.0 + f64::from(step));
        let slow = (0..200).map(|step| 3000.0 + 60.0 * f64::from(step));
        let times: Vec<f64> = fast.chain(slow).collect();
        let found = threshold(&times).unwrap();
        assert!(times.iter().all(|time| found.is_slow(*time) == (*time > 1000.0)), "{found:?}");
    }

    #[test]
    fn one_mode_has_no_border() {
        assert_eq!(threshold(&[100.0, 101.0, 99.0, 130.0]), None);
        assert_eq!(threshold(&[]), None);
        assert_eq!(threshold(&[5.0]), None);
    }
}
