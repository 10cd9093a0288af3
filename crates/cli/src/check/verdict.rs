//! Verdict of a check: for a person, or as JSON, and as an exit code.

use super::{DAMAGED, Findings, NOT_CHECKED, PROBLEMS_MAX};
use crate::error::CliError;
use crate::text::output::{print, print_json};
use std::fmt;
use std::path::Path;

#[derive(serde::Serialize)]
pub struct CheckVerdict {
    pub target: String,
    pub mounted: bool,
    /// Description of what this program checked; `None` if it could not.
    looked_at: Option<String>,
    problems: Vec<Problem>,
    /// Number of problems that are left out.
    more_problems: usize,
    pub e2fsck: OfE2fsck,
    not_looked_at: Vec<&'static str>,
    not_checked: Option<String>,
    exit_status: u8,
    #[serde(skip)]
    pub is_damaged: bool,
    #[serde(skip)]
    pub remedy: &'static str,
}

#[derive(serde::Serialize)]
struct Problem {
    found_by: FoundBy,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FoundBy {
    Okeanos,
    E2fsck,
}

/// The verdict of e2fsck -fn.
#[derive(PartialEq, Eq, serde::Serialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum OfE2fsck {
    Clean,
    Errors,
    /// No verdict: e2fsck could not do its work or did not end.
    None {
        reason: String,
    },
    #[serde(rename = "not asked")]
    NotAsked {
        reason: &'static str,
    },
}

impl CheckVerdict {
    pub fn new(target: &Path) -> CheckVerdict {
        CheckVerdict {
            target: target.display().to_string(),
            mounted: false,
            looked_at: None,
            problems: Vec::new(),
            more_problems: 0,
            e2fsck: OfE2fsck::NotAsked { reason: "nothing could be read" },
            not_looked_at: Vec::new(),
            not_checked: None,
            exit_status: 0,
            is_damaged: false,
            remedy: "Copy what you need from it; then repair it: e2fsck -f.",
        }
    }

    /// Adds the findings of this program's own check; fails if it could not run.
    pub fn add_own(
        &mut self,
        findings: Findings,
        looked_at: Result<String, CliError>,
    ) -> Result<(), CliError> {
        self.add(FoundBy::Okeanos, findings.problems, findings.more);
        self.looked_at = Some(looked_at?);
        Ok(())
    }

    pub fn add(&mut self, found_by: FoundBy, texts: Vec<String>, more: usize) {
        let room = PROBLEMS_MAX.saturating_sub(self.count_of(found_by));
        self.more_problems += more + texts.len().saturating_sub(room);
        let texts = texts.into_iter().take(room);
        self.problems.extend(texts.map(|text| Problem { found_by, text }));
    }

    fn count_of(&self, found_by: FoundBy) -> usize {
        self.problems.iter().filter(|problem| problem.found_by == found_by).count()
    }

    /// Notes that e2fsck was not run, and what it would have checked.
    pub fn leave_out<const N: usize>(&mut self, reason: &'static str, left: [&'static str; N]) {
        self.e2fsck = OfE2fsck::NotAsked { reason };
        if !units::fault!("check-unread-unsaid") {
            self.not_looked_at = left.to_vec();
        }
    }

    /// Prints the verdict. The error, if there is one, has the exit code.
    pub fn end(mut self, ended: Result<(), CliError>, json: bool) -> Result<(), CliError> {
        let own = self.count_of(FoundBy::Okeanos) > 0;
        self.is_damaged |= own || self.e2fsck == OfE2fsck::Errors;
        let damaged = if self.is_damaged { DAMAGED } else { 0 };
        self.exit_status = damaged | if ended.is_err() { NOT_CHECKED } else { 0 };
        self.not_checked = ended.as_ref().err().map(ToString::to_string);
        let printed = if json { print_json(&self) } else { print(&self) };
        // A verdict that nobody gets is none.
        printed.map_err(|error| error.with_code(damaged | NOT_CHECKED))?;
        if let Err(error) = ended {
            return Err(error.with_code(self.exit_status));
        }
        match self.is_damaged {
            false => Ok(()),
            true => Err(CliError::new(format!("{}: {}", self.target, self.counted()))
                .with_remedy(self.remedy)
                .with_code(self.exit_status)),
        }
    }

    fn counted(&self) -> String {
        match self.problems.len() + self.more_problems {
            0 => "e2fsck finds errors".into(),
            1 => "1 problem".into(),
            count => format!("{count} problems"),
        }
    }
}

impl fmt::Display for CheckVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Problem { found_by, text } in &self.problems {
            let by = if *found_by == FoundBy::E2fsck { "e2fsck: " } else { "" };
            writeln!(f, "{by}{text}")?;
        }
        if self.more_problems > 0 {
            writeln!(f, "and {} more", self.more_problems)?;
        }
        let Some(looked_at) = &self.looked_at else { return Ok(()) };
        write!(f, "{}: {looked_at}", self.target)?;
        match &self.e2fsck {
            _ if self.exit_status & NOT_CHECKED != 0 => writeln!(f, ".")?,
            OfE2fsck::Clean if self.is_damaged => writeln!(f, "; e2fsck -fn finds nothing.")?,
            OfE2fsck::Clean => writeln!(f, "; nothing is wrong, and e2fsck -fn agrees.")?,
            _ if self.is_damaged => writeln!(f, ".")?,
            _ => writeln!(f, "; nothing is wrong there.")?,
        }
        match &self.e2fsck {
            OfE2fsck::NotAsked { reason } if !self.not_looked_at.is_empty() => {
                writeln!(f, "Not looked at: {} ({reason}).", self.not_looked_at.join(", "))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(of_e2fsck: OfE2fsck, own: &[&str], ended: Result<(), CliError>) -> u8 {
        let mut verdict = CheckVerdict::new(Path::new("x"));
        let own = own.iter().map(|text| (*text).to_owned()).collect();
        verdict.add(FoundBy::Okeanos, own, 0);
        verdict.e2fsck = of_e2fsck;
        match verdict.end(ended, true) {
            Ok(()) => 0,
            Err(error) => error.code(),
        }
    }

    #[test]
    fn the_worse_verdict_counts_and_codes_add_up() {
        let fails = || Err(CliError::new("it could not be read"));
        assert_eq!(ended(OfE2fsck::Clean, &[], Ok(())), 0);
        assert_eq!(ended(OfE2fsck::Clean, &["a"], Ok(())), 4);
        assert_eq!(ended(OfE2fsck::Errors, &[], Ok(())), 4);
        assert_eq!(ended(OfE2fsck::Clean, &[], fails()), 8);
        assert_eq!(ended(OfE2fsck::Errors, &[], fails()), 12);
        assert_eq!(ended(OfE2fsck::None { reason: "slow".into() }, &["a"], fails()), 12);
        assert_eq!(ended(OfE2fsck::NotAsked { reason: "absent" }, &[], Ok(())), 0);
    }
}
