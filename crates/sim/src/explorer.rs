//! Rounds of cases without end. Each seed gives one round over all modes and volumes, with random
//! scripts, a slice of the enumerated ones, and faults. Or the enumerated ones alone, until all
//! have been seen.

use crate::ace::{Ace, Workload};
use crate::case::{Case, LEAST_CACHE, SMALL_CACHE};
use crate::enumerate;
use crate::faults::{FaultPlan, KINDS};
use crate::script::{Mix, Script};
use crate::setup::Setup;
use engine::DataMode;
use runtime::SplitMix;

/// Configuration of an exploration.
pub struct Explorer {
    pub modes: Vec<DataMode>,
    pub setups: Vec<Setup>,
    pub writers: usize,
    pub steps: usize,
    enumerated: Vec<Script>,
}

/// Enumerated scripts of one slice when only these are explored.
const ENUMERATED_A_SLICE: usize = 40;
/// Enumerated scripts, and scripts that meet faults, of one mode in one round.
const ENUMERATED_A_ROUND: usize = 6;
const FAULTS_A_ROUND: usize = 2 * KINDS.len();
/// Volumes with scripts that scatter their writes, of one mode in one round.
const SCATTERED_A_ROUND: usize = 2;
/// Scripts under bitmaps that lie, of one mode in one round.
const HOSTILE_A_ROUND: usize = 2;
/// Number of changes within which faults occur: later ones would miss most scripts of their length.
const FAULT_PLACES: u64 = 24;

impl Explorer {
    /// Creates an explorer. `letters`: the length of the enumerated scripts.
    pub fn new(
        modes: Vec<DataMode>,
        setups: Vec<Setup>,
        writers: usize,
        steps: usize,
        letters: usize,
    ) -> Explorer {
        Explorer { modes, setups, writers, steps, enumerated: enumerate::scripts(letters) }
    }

    /// Returns slice `slice` of all enumerated scripts, each in every mode on one of the volumes;
    /// empty behind the last.
    pub fn enumerated(&self, slice: u64) -> Vec<Case> {
        let first = ENUMERATED_A_SLICE.saturating_mul(slice as usize);
        let scripts = self.enumerated.iter().enumerate().skip(first).take(ENUMERATED_A_SLICE);
        scripts.flat_map(|(index, script)| self.in_every_mode(index, script, 1)).collect()
    }
    /// Returns the workloads of one of ACE's sequences in the same way; `None` behind the last.
    pub fn ace(&self, ace: &Ace, sequence: u64) -> Option<Vec<Case>> {
        let sequence = usize::try_from(sequence).ok().filter(|at| *at < ace.sequences())?;
        let workloads = ace.workloads(sequence).into_iter().enumerate();
        let each = |(at, Workload { script, quiet }): (usize, Workload)| {
            self.in_every_mode(sequence + at, &script, quiet)
        };
        Some(workloads.flat_map(each).collect())
    }
    /// Returns the script in each mode, on volumes by turns.
    fn in_every_mode(&self, index: usize, script: &Script, quiet: usize) -> Vec<Case> {
        let fits = |setup: &Setup| setup.has_extents() || !needs_extents(script);
        let setups: Vec<Setup> = self.setups.iter().copied().filter(fits).collect();
        let case = |(at, mode): (usize, &DataMode)| {
            let setup = *setups.get((index + at) % setups.len().max(1))?;
            Some(Case::given(setup, *mode, index as u64, vec![script.clone()], quiet))
        };
        self.modes.iter().enumerate().filter_map(case).collect()
    }

    /// Returns the cases of one seed; they do not depend on each other.
    pub fn round(&self, seed: u64) -> Vec<Case> {
        let rng = SplitMix::new(seed);
        let mut cases = Vec::new();
        for mode in &self.modes {
            for setup in &self.setups {
                let mut case = Case::random(*setup, *mode, seed, self.writers, self.steps);
                if rng.next() % 4 == 0 {
                    // Scattered logs know the addresses of blocks that leave memory before they are
                    // home.
                    let leaves = setup.logs.is_some();
                    case.cache_bytes = if leaves { LEAST_CACHE } else { SMALL_CACHE };
                }
                cases.push(case);
            }
            cases.extend(self.scattered(*mode, seed));
            for index in 0..ENUMERATED_A_ROUND {
                let index = seed as usize * ENUMERATED_A_ROUND + index;
                let script = self.enumerated[index % self.enumerated.len()].clone();
                let setup = self.setups[(index + seed as usize / 7) % self.setups.len()];
                if setup.has_extents() || !needs_extents(&script) {
                    cases.push(Case::given(setup, *mode, seed, vec![script], 1));
                }
            }
            for index in 0..HOSTILE_A_ROUND {
                let setup =
                    self.setups[(seed as usize * HOSTILE_A_ROUND + index) % self.setups.len()];
                let random = Case::random(setup, *mode, seed, 3, 30);
                cases.push(Case { hostile: true, ..random });
            }
            for index in 0..FAULTS_A_ROUND {
                let (operation, kind) = KINDS[index % KINDS.len()];
                let place = rng.next() % FAULT_PLACES;
                let setup = self.setups[rng.next() as usize % self.setups.len()];
                let random = Case::random(setup, *mode, seed, 3, 30);
                cases.push(random.with_fault(FaultPlan { operation, kind, place }));
            }
        }
        cases
    }

    /// Returns a case on each of a few volumes with space for it; other seeds use other volumes.
    fn scattered(&self, mode: DataMode, seed: u64) -> impl Iterator<Item = Case> {
        let roomy: Vec<Setup> =
            self.setups.iter().copied().filter(|setup| !setup.is_tight()).collect();
        let count = roomy.len().min(SCATTERED_A_ROUND);
        let first = seed as usize * count;
        let (writers, steps) = (self.writers, self.steps);
        (first..first + count).map(move |index| Case {
            mix: Some(Mix::Scattered),
            ..Case::random(roomy[index % roomy.len()], mode, seed, writers, steps)
        })
    }
}

fn needs_extents(script: &Script) -> bool {
    script.iter().any(|step| matches!(step.action, crate::script::Action::Allocate { .. }))
}
