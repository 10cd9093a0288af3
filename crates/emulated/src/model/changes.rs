//! Changes of a model's numbers, to see what depends on them.

use crate::model::read::place_of;
use crate::model::{Model, ModelError};
use toml::{Table, Value};

/// A number of a model's file that is changed wherever it stands.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ModelChange {
    /// Section and key: `interface.hit_ms`, `mechanics.zones.band_skew_ms` for that of every zone,
    /// `mechanics.seek_ms` for the times of the curve.
    pub key: &'static str,
    pub change: Change,
}

/// Change of a number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Change {
    /// Multiplies the number by this factor.
    Times(f64),
    /// Replaces the number by this one.
    Value(f64),
}

impl Change {
    pub fn of(self, number: f64) -> f64 {
        match self {
            Change::Times(factor) => number * factor,
            Change::Value(value) => value,
        }
    }
}

impl Model {
    /// Parses a model's file with changed numbers. A number without a fraction in the file stays
    /// one, and is at least 1 if it was.
    ///
    /// # Errors
    ///
    /// The file is no model, it does not have a changed number, or the result is no model.
    pub fn parse_changed(text: &str, changes: &[ModelChange]) -> Result<Model, ModelError> {
        // A fault of the file itself is reported with its own line.
        let model = Model::parse(text)?;
        let Some(last) = changes.last() else { return Ok(model) };
        let mut table: Table = toml::from_str(text).expect("it was parsed above");
        let at = |key: &str, problem: String| {
            let name = key.rsplit('.').next().unwrap_or(key);
            ModelError::at(text, place_of(text, name), problem)
        };
        for ModelChange { key, change } in changes {
            let path: Vec<&str> = key.split('.').collect();
            if changed_in(&mut table, &path, *change) == 0 {
                return Err(at(key, format!("no number is called {key}")));
            }
        }
        let changed: Result<Model, _> = Value::Table(table).try_into();
        let changed = changed.map_err(|error| at(last.key, format!("changed: {error}")))?;
        changed.check().map_err(|(key, problem)| at(key, format!("changed: {problem}")))?;
        Ok(changed)
    }
}

/// Changes the number at a path, and returns the count of numbers that were changed.
fn changed_in(table: &mut Table, path: &[&str], change: Change) -> usize {
    let Some((name, rest)) = path.split_first() else { return 0 };
    match table.get_mut(*name) {
        Some(Value::Table(inner)) => changed_in(inner, rest, change),
        Some(Value::Array(list)) if rest.is_empty() => {
            list.iter_mut().map(|pair| changed_time(pair, change)).sum()
        }
        Some(Value::Array(list)) => {
            let inner = list.iter_mut().filter_map(Value::as_table_mut);
            inner.map(|inner| changed_in(inner, rest, change)).sum()
        }
        Some(number) if rest.is_empty() => changed_number(number, change),
        _ => 0,
    }
}

/// Changes the time of a pair of a distance and a time.
fn changed_time(pair: &mut Value, change: Change) -> usize {
    match pair.as_array_mut().map(Vec::as_mut_slice) {
        Some([_, time]) => changed_number(time, change),
        _ => 0,
    }
}

fn changed_number(number: &mut Value, change: Change) -> usize {
    match number {
        Value::Float(float) => *float = change.of(*float),
        Value::Integer(integer) => {
            let least = i64::from(*integer >= 1);
            *integer = (change.of(*integer as f64).round() as i64).max(least);
        }
        _ => return 0,
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cheetah(changes: &[ModelChange]) -> Result<Model, ModelError> {
        let (_, text) = crate::shipped().find(|(name, _)| *name == "cheetah-15k5").unwrap();
        Model::parse_changed(text, changes)
    }

    #[test]
    fn numbers_change_wherever_they_stand_and_no_others() {
        let times = |key, factor| ModelChange { key, change: Change::Times(factor) };
        let plain = cheetah(&[]).unwrap();
        let changed = cheetah(&[
            times("interface.hit_ms", 0.5),
            times("interface.queue_depth", 0.7),
            times("mechanics.zones.band_skew_ms", 2.0),
            times("mechanics.seek_ms", 2.0),
            ModelChange { key: "mechanics.phase", change: Change::Value(0.25) },
        ])
        .unwrap();
        let numbers = |model: &Model| {
            let mechanics = model.mechanics.clone().unwrap();
            let zones = mechanics.zones.iter();
            let skews: Vec<f64> = zones.map(|zone| zone.band_skew_ms.get()).collect();
            let Model { interface, .. } = model;
            let of_interface = (interface.hit_ms.get(), interface.queue_depth.get());
            let rest = (interface.read_ms.get(), mechanics.rpm.get());
            (of_interface, skews, mechanics.phase.get(), rest)
        };
        let (before, after) = (numbers(&plain), numbers(&changed));
        assert_eq!((before.0, after.0), ((0.1, 32), (0.05, 22)));
        let doubled: Vec<f64> = before.1.iter().map(|skew| skew * 2.0).collect();
        assert_eq!((after.1, after.2, after.3), (doubled, 0.25, before.3));
        let seek = |model: Model| format!("{:?}", model.mechanics.unwrap().seek_ms);
        assert_ne!(seek(plain), seek(changed));
    }

    #[test]
    fn a_number_that_is_not_there_is_refused() {
        for key in ["interface.no_such", "hit_ms", "cache.replacement", "name", ""] {
            let change = ModelChange { key, change: Change::Times(2.0) };
            assert!(cheetah(&[change]).is_err(), "{key:?}");
        }
    }
}
