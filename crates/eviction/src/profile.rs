//! Result of a fingerprint for one kind of drive, as a file that people read and `mkfs` stores.

use crate::EvictionWorkload;
use serde::{Deserialize, Serialize};

/// The cheapest workload that evicted in every trial, and the drive that it was found on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The drive's model string.
    pub model: String,
    /// Size of the drive in bytes.
    pub size: u64,
    pub workload: EvictionWorkload,
    /// Number of trials of the workload; the target was evicted each time.
    pub trials: u32,
    /// Mean time of one eviction.
    pub milliseconds: f64,
}

/// An error of a profile file, and its position (from 1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct ProfileError {
    pub line: usize,
    pub column: usize,
    pub problem: String,
}

impl Profile {
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let at = |offset: usize, problem: String| {
            let before = &text[..offset.min(text.len())];
            let line_start = before.rfind('\n').map_or(0, |end| end + 1);
            let line = before.matches('\n').count() + 1;
            ProfileError { line, column: before[line_start..].chars().count() + 1, problem }
        };
        let profile: Profile = toml::from_str(text).map_err(|error| {
            at(error.span().map_or(0, |span| span.start), error.message().to_owned())
        })?;
        let problem = |key: &str, problem: String| at(text.find(key).unwrap_or(0), problem);
        profile.workload.check().map_err(|why| problem("[workload]", why))?;
        if profile.trials == 0 {
            return Err(problem("trials", "a profile rests on at least one trial".to_owned()));
        }
        if profile.model.chars().any(char::is_control) {
            return Err(problem("model", "a model string holds no control characters".to_owned()));
        }
        Ok(profile)
    }

    /// Returns the text that [`Profile::parse`] reads.
    pub fn format(&self) -> String {
        let EvictionWorkload { pattern, writes, bytes } = self.workload;
        let pattern = pattern.name();
        format!(
            "# How to push data out of this drive's cache: see `okeanos fingerprint --help`.\n\
             model = {:?}\nsize = {}\n\
             # Tried so often, and the target was gone each time: with 95 % confidence an eviction fails\n\
             # at most once in {:.0}. That counts all trials; half of them, and none with\n\
             # --as-paper, began right behind another eviction.\n\
             trials = {}\nmilliseconds = {:.3}\n\n\
             [workload]\npattern = \"{pattern}\"\nwrites = {writes}\nbytes = {bytes}\n",
            self.model,
            self.size,
            1.0 / self.loss_bound(),
            self.trials,
            self.milliseconds,
        )
    }

    /// The largest probability of a failed eviction that all trials succeeding still allows, with
    /// 95 % confidence.
    ///
    /// Counts all trials. Only every other one at once begins right behind another eviction, as on
    /// a volume in use, and none of the paper's does: of a failure that needs this, 50 trials bound
    /// the probability as 25 do, at once in 8.9.
    pub fn loss_bound(&self) -> f64 {
        1.0 - 0.05f64.powf(1.0 / f64::from(self.trials))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pattern;

    fn profile() -> Profile {
        let workload =
            EvictionWorkload { pattern: Pattern::Random, writes: 128, bytes: 17_000_000 };
        Profile {
            model: "Disk \"7\"".into(),
            size: 1 << 40,
            workload,
            trials: 50,
            milliseconds: 342.5,
        }
    }

    #[test]
    fn a_profile_reads_back_as_it_was_written() {
        assert_eq!(Profile::parse(&profile().format()).unwrap(), profile());
    }

    #[test]
    fn errors_have_their_position() {
        let broken = profile().format().replace("trials = 50", "trials = many");
        let error = Profile::parse(&broken).unwrap_err();
        assert_eq!((error.line, error.column), (7, 10), "{error}");
        let none = profile().format().replace("writes = 128", "writes = 0");
        assert!(Profile::parse(&none).unwrap_err().problem.contains("0 writes"));
    }

    #[test]
    fn fifty_trials_bound_the_loss_at_six_percent() {
        assert!((profile().loss_bound() - 0.058).abs() < 0.001);
    }
}
