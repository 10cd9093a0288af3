//! Latin hypercube over the ranges of all chosen numbers.
//!
//! Each dimension is cut into as many strata as there are points, and each point lies in another
//! stratum of it. So few points cover every range, whatever the number of dimensions is.

use crate::overrides::Overrides;
use crate::provenance::{Parameter, Span, parameters};
use emulated::Change;
use std::collections::BTreeMap;
use workloads::ActorRandom;

/// A chosen number that is varied. Rigs and drives of one record share its value.
#[derive(Clone, Copy, Debug)]
pub struct Dimension {
    pub parameter: &'static Parameter,
    pub name: &'static str,
    pub span: Span,
}

impl Dimension {
    /// Returns the name with its first owner: "okeanos: tick".
    pub fn in_words(&self) -> String {
        let others = if self.parameter.of.len() > 1 { " and others" } else { "" };
        format!("{}{others}: {}", self.parameter.of[0], self.name)
    }
    fn change(&self, share: f64) -> Change {
        match self.span {
            Span::Times(low, high) => Change::Times(low * (high / low).powf(share)),
            Span::Between(low, high) => Change::Value(low + (high - low) * share),
        }
    }
}

/// Returns all dimensions in the order of the records.
pub fn dimensions() -> Vec<Dimension> {
    let of_parameter = |parameter: &'static Parameter| {
        let ranges = parameter.ranges.iter();
        ranges.map(move |range| Dimension { parameter, name: &range.name, span: range.span() })
    };
    parameters().iter().flat_map(of_parameter).collect()
}

/// Returns for each point its share of each dimension's range, from 0 to 1.
pub fn shares(seed: u64, points: usize, dimensions: usize) -> Vec<Vec<f64>> {
    let mut shares = vec![Vec::with_capacity(dimensions); points];
    for dimension in 0..dimensions {
        let random = ActorRandom::new(seed, dimension as u64);
        let mut strata: Vec<usize> = (0..points).collect();
        for last in (1..points).rev() {
            strata.swap(last, random.below(last as u64 + 1) as usize);
        }
        for (point, stratum) in strata.into_iter().enumerate() {
            shares[point].push((stratum as f64 + random.fraction()) / points as f64);
        }
    }
    shares
}

/// Returns the changes of a point with these shares of all dimensions.
pub fn overrides(shares: &[f64]) -> Overrides {
    let mut changes = BTreeMap::new();
    for (dimension, share) in dimensions().iter().zip(shares) {
        let change = dimension.change(*share);
        let owners = dimension.parameter.of.iter();
        changes.extend(owners.map(|owner| ((owner.as_str(), dimension.name), change)));
    }
    Overrides::new(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use emulated::{Model, ModelChange};

    const POINTS: usize = 32;

    #[test]
    fn the_same_seed_gives_the_same_points() {
        let count = dimensions().len();
        assert_eq!(shares(1, POINTS, count), shares(1, POINTS, count));
        assert_ne!(shares(1, POINTS, count), shares(2, POINTS, count));
        let first = &shares(1, POINTS, count)[0];
        assert!(overrides(first) == overrides(first));
    }

    #[test]
    fn each_number_lies_once_in_each_stratum() {
        let count = dimensions().len();
        assert!(count > 40, "the ranges are not found: {count}");
        let points = shares(1, POINTS, count);
        for dimension in 0..count {
            let mut strata: Vec<usize> =
                points.iter().map(|point| (point[dimension] * POINTS as f64) as usize).collect();
            strata.sort_unstable();
            assert_eq!(strata, (0..POINTS).collect::<Vec<_>>(), "{dimension}");
        }
        // Dimensions are not drawn alike.
        assert!(points.iter().any(|point| point[0] != point[1]));
    }

    #[test]
    fn every_drive_is_a_model_at_the_ends_of_all_ranges() {
        for share in [0.0, 1.0] {
            let overrides = overrides(&vec![share; dimensions().len()]);
            for (name, text) in emulated::shipped() {
                let changes: Vec<ModelChange> = overrides.drive(name);
                if let Err(error) = Model::parse_changed(text, &changes) {
                    panic!("{name} at {share}: {error}");
                }
            }
        }
    }
}
