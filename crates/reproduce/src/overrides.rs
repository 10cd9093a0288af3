//! Overridden values of chosen parameters, as a figure's stages ask for them.

use emulated::{Change, ModelChange};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

/// A parameter of one owner: a rig, a drive ("drive MODEL") or a figure, as in the records.
pub(crate) type Key = (&'static str, &'static str);

/// Changes of parameters, by owner and name. It notes which of them a figure asked for, so that
/// what does not reach a figure is known.
#[derive(Debug, Default)]
pub struct Overrides {
    changes: BTreeMap<Key, Change>,
    asked: Mutex<BTreeSet<Key>>,
}

/// Equal if they change the same; what was asked for plays no part.
impl PartialEq for Overrides {
    fn eq(&self, other: &Overrides) -> bool {
        self.changes == other.changes
    }
}

impl Overrides {
    pub fn new(changes: BTreeMap<Key, Change>) -> Overrides {
        Overrides { changes, asked: Mutex::default() }
    }

    /// Returns the parameters that were asked for and are changed.
    pub fn reached(&self) -> BTreeSet<Key> {
        self.asked.lock().expect("nobody panics while holding it").clone()
    }

    /// Notes what was asked for when a cell was played whose result is used again.
    pub(crate) fn note(&self, asked: &BTreeSet<Key>) {
        self.asked.lock().expect("nobody panics while holding it").extend(asked);
    }

    fn find(&self, owner: &str, name: &str) -> Option<Change> {
        let is_it = |((of, it), _): &(&Key, &Change)| *of == owner && *it == name;
        let (key, change) = self.changes.iter().find(is_it)?;
        self.asked.lock().expect("nobody panics while holding it").insert(*key);
        Some(*change)
    }

    /// Returns the value in place of the chosen one. A figure asks for it with what it would play
    /// otherwise, so that a factor also holds for what a quick run shortens.
    pub(crate) fn number(&self, owner: &str, name: &str, chosen: f64) -> f64 {
        self.find(owner, name).map_or(chosen, |change| change.of(chosen))
    }
    /// Returns a count or a size, at least 1; at least 0 if 0 was chosen.
    pub(crate) fn whole(&self, owner: &str, name: &str, chosen: u64) -> u64 {
        let change = self.find(owner, name);
        change.map_or(chosen, |it| (it.of(chosen as f64).round() as u64).max(chosen.min(1)))
    }
    /// Returns a time. Values of a record are in seconds.
    pub(crate) fn time(&self, owner: &str, name: &str, chosen: Duration) -> Duration {
        let change = self.find(owner, name);
        change.map_or(chosen, |it| Duration::from_secs_f64(it.of(chosen.as_secs_f64()).max(0.0)))
    }
    /// Returns the changed numbers of a drive's model.
    pub(crate) fn drive(&self, model: &str) -> Vec<ModelChange> {
        let owner = format!("drive {model}");
        let of_drive = self.changes.keys().filter(|(of, _)| *of == owner);
        let change = |(_, key): &Key| Some(ModelChange { key, change: self.find(&owner, key)? });
        of_drive.filter_map(change).collect()
    }
    /// Changes what every stage of a rig has: both disks, the host's tick, memory and journal.
    pub(crate) fn apply(&self, rig: &str, options: &mut testbeds::StageOptions) {
        for disk in std::iter::once(&mut options.home).chain(&mut options.journal) {
            disk.changes.extend(self.drive(&disk.model));
        }
        options.tick = self.time(rig, "tick", options.tick);
        options.engine.cache_bytes = self.whole(rig, "cache_bytes", options.engine.cache_bytes);
        options.journal_size =
            self.whole(rig, "journal_size", options.journal_size).next_multiple_of(1 << 20);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::DataMode;
    use testbeds::StageOptions;

    fn overrides(changes: &[(Key, Change)]) -> Overrides {
        Overrides::new(changes.iter().copied().collect())
    }

    #[test]
    fn a_stage_has_the_changed_numbers_and_no_others() {
        let overrides = overrides(&[
            (("okeanos", "tick"), Change::Times(2.0)),
            (("manylogs", "cache_bytes"), Change::Times(2.0)),
            (("drive cheetah-15k5-300", "interface.hit_ms"), Change::Times(3.0)),
            (("drive hitachi-7k80", "interface.hit_ms"), Change::Times(3.0)),
        ]);
        let plain = StageOptions::of_paper(DataMode::Ordered);
        let mut changed = plain.clone();
        overrides.apply("okeanos", &mut changed);
        assert_eq!(changed.tick, plain.tick * 2);
        assert_eq!(changed.engine.cache_bytes, plain.engine.cache_bytes);
        assert_eq!(changed.journal_size, plain.journal_size);
        let hit_ms = |options: &StageOptions| {
            let disks = [&options.home, options.journal.as_ref().unwrap()];
            disks.map(|disk| disk.find_model().unwrap().interface.hit_ms.get())
        };
        assert_eq!(hit_ms(&changed), hit_ms(&plain).map(|time| time * 3.0));
        let reached = [("drive cheetah-15k5-300", "interface.hit_ms"), ("okeanos", "tick")];
        assert_eq!(overrides.reached(), reached.into());
    }

    #[test]
    fn values_replace_and_factors_multiply() {
        let overrides = overrides(&[
            (("a", "half"), Change::Times(0.5)),
            (("a", "none"), Change::Value(0.0)),
            (("a", "seconds"), Change::Value(0.25)),
        ]);
        assert_eq!(overrides.whole("a", "half", 7), 4);
        assert_eq!([1, 0].map(|chosen| overrides.whole("a", "half", chosen)), [1, 0]);
        assert_eq!(overrides.whole("a", "none", 7), 1, "a count is never none");
        assert_eq!(overrides.number("a", "none", 7.0), 0.0);
        assert_eq!(overrides.number("b", "none", 7.0), 7.0);
        assert_eq!(overrides.time("a", "seconds", Duration::ZERO), Duration::from_millis(250));
        assert!(overrides != Overrides::default());
    }
}
