//! Parsing of models, with checks; errors have their position.

use super::Model;
use super::TrackLayout;
use crate::SECTOR;

/// An error of a model file, and its position (from 1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct ModelError {
    pub line: usize,
    pub column: usize,
    pub problem: String,
}

const CHANNELS_MAX: u32 = 65_536;

impl Model {
    pub fn parse(text: &str) -> Result<Model, ModelError> {
        let model: Model = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            ModelError::at(text, at, error.message().to_owned())
        })?;
        model
            .check()
            .map_err(|(key, problem)| ModelError::at(text, place_of(text, key), problem))?;
        Ok(model)
    }

    /// Checks relations between values: returns the key to point at, and the problem.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        let size = self.size.get();
        if size % SECTOR != 0 {
            return Err(("size", format!("{size} bytes are not whole sectors of {SECTOR}")));
        }
        let physical = u64::from(self.physical_sector.get());
        if physical == 0 || physical % SECTOR != 0 || size % physical != 0 {
            let problem = format!(
                "{physical} bytes are not whole sectors of {SECTOR}, or do not divide the size"
            );
            return Err(("physical_sector", problem));
        }
        let kinds = [self.mechanics.is_some(), self.flash.is_some(), self.volume.is_some()];
        if kinds.into_iter().filter(|present| *present).count() != 1 {
            return Err(("name", "a disk has one of [mechanics], [flash] and [volume]".to_owned()));
        }
        if let Some(mechanics) = &self.mechanics {
            if mechanics.zones.is_empty() {
                return Err(("zones", "a turning disk has at least one zone".to_owned()));
            }
            let Some(sectors) = TrackLayout::sectors_of(mechanics) else {
                return Err((
                    "zones",
                    "the zones hold more than 2^53 sectors or 2^32 cylinders".to_owned(),
                ));
            };
            if sectors < size / SECTOR {
                let held = sectors * SECTOR;
                return Err((
                    "size",
                    format!("{size} bytes do not fit on the zones, which hold {held}"),
                ));
            }
        }
        if self.flash.as_ref().is_some_and(|flash| flash.channels.get() > CHANNELS_MAX) {
            return Err(("channels", format!("more than {CHANNELS_MAX} channels")));
        }
        if let Some(cache) = &self.cache {
            let segment = u64::from(cache.segment_size.get());
            let write_size = cache.write_size().min(cache.dirty_size()).get();
            if segment < SECTOR {
                return Err(("segment_size", "a segment holds at least one sector".to_owned()));
            }
            if u64::from(cache.unit.get()) % SECTOR != 0 {
                return Err(("unit", format!("{} bytes are not a multiple of 512", cache.unit)));
            }
            if cache.stream_buffer.is_some_and(|buffer| u64::from(buffer.get()) < 2 * SECTOR) {
                return Err((
                    "stream_buffer",
                    "a buffer has two halves of at least one sector".to_owned(),
                ));
            }
            if segment > write_size {
                let problem = format!(
                    "a segment of {segment} bytes is more than writes may hold, {write_size}"
                );
                return Err(("segment_size", problem));
            }
        }
        Ok(())
    }
}

impl ModelError {
    pub(super) fn at(text: &str, offset: usize, problem: String) -> ModelError {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        ModelError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            problem,
        }
    }
}

/// Offset of the line that sets `key`.
pub(super) fn place_of(text: &str, key: &str) -> usize {
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let rest = line.trim_start().strip_prefix(key);
        if rest.is_some_and(|rest| rest.trim_start().starts_with('=')) {
            return offset;
        }
        offset += line.len();
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped;

    fn cheetah_with(from: &str, to: &str) -> ModelError {
        let (_, text) = shipped().find(|(name, _)| *name == "cheetah-15k5").expect("it is shipped");
        assert!(text.contains(from), "{from}");
        Model::parse(&text.replacen(from, to, 1)).expect_err("a broken model")
    }
    fn line_of(found: &str) -> usize {
        let (_, text) = shipped().find(|(name, _)| *name == "cheetah-15k5").expect("it is shipped");
        text.lines().position(|line| line.starts_with(found)).expect("it is there") + 1
    }

    #[test]
    fn every_shipped_model_is_valid_and_named_as_its_file() {
        for (name, text) in shipped() {
            let model = Model::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(model.name, name);
        }
    }
    #[test]
    fn a_broken_model_is_refused_with_line_and_column() {
        let error = cheetah_with("rpm = 15020", "rpm = -1");
        assert_eq!((error.line, error.column), (line_of("rpm"), 7), "{error}");
        assert!(error.problem.contains("-1 is not a number above 0"), "{error}");
        let error = cheetah_with("surfaces = 4", "surfaces = 4\nsurfasses = 5");
        assert_eq!((error.line, error.column), (line_of("surfaces") + 1, 1), "{error}");
        let error = cheetah_with("schedule = \"shortest", "schedule = \"longest");
        assert_eq!((error.line, error.column), (line_of("schedule"), 12), "{error}");
        let error = cheetah_with("[cache]", "[cache");
        assert_eq!(error.line, line_of("[cache]"), "{error}");
    }
    #[test]
    fn times_by_kind_and_policies_are_checked_with_line_and_column() {
        let after = |line: &str| format!("bus_mb_s = 400\n{line}");
        for (line, column, problem) in [
            ("overheads.read_hit_ms = -1", 25, "0 or more"),
            ("overheads.distant_write_ms = 2e12", 30, "at most 1e12"),
            ("overheads.read_hits_ms = 1", 11, "unknown field"),
            ("overheads.delay_by_chance = { share = 2, ms = 1 }", 39, "between 0 and 1"),
            ("overheads.delay_by_chance = { share = 0.5 }", 29, "missing field"),
            ("bus_paces_reads = 1", 19, "boolean"),
        ] {
            let error = cheetah_with("bus_mb_s = 400", &after(line));
            assert_eq!((error.line, error.column), (line_of("bus_mb_s") + 1, column), "{error}");
            assert!(error.problem.contains(problem), "{error}");
        }
        let error = cheetah_with("\nreplacement", "\nread_ahead_after = \"never\"\nreplacement");
        assert_eq!((error.line, error.column), (line_of("replacement"), 20), "{error}");
        let error = cheetah_with("\nreplacement", "\nread_before = -512\nreplacement");
        assert_eq!((error.line, error.column), (line_of("replacement"), 15), "{error}");
    }
    #[test]
    fn what_does_not_fit_together_is_refused() {
        let error = cheetah_with("size = 146815737344", "size = 1468157373440");
        assert_eq!(error.line, line_of("size"), "{error}");
        assert!(
            cheetah_with("size = 146815737344", "size = 1000").problem.contains("whole sectors")
        );
        assert!(cheetah_with("[2, 0.5695]", "[1, 0.5695]").problem.contains("grow"));
        assert!(cheetah_with("queue_depth = 32", "queue_depth = 0").problem.contains("nonzero"));
        assert!(
            cheetah_with("\nsegment_size", "\nunit = 1000\nsegment_size").problem.contains("512")
        );
    }
}
