//! The exploration: every script of a world up to its bounds, shortest first, and of the shorter
//! ones every cut of every step. The first operation is the first host's: the hosts are alike.

use super::life::{Played, play};
use super::operation::Operation;
use super::script::{CutPlace, Script, Step};
use super::spec::HOSTS;
use super::world::HostWorld;
use store::Moment;

/// Adds to the bounds of each world.
const MORE: &str = "OKEANOS_SMALL_WORLD_MORE";

#[derive(Clone, Copy, Default, Debug)]
pub struct Report {
    pub scripts: u64,
    /// Scripts of which a step was cut.
    pub cuts: u64,
    /// Runs in which bytes were set aside.
    pub conflicts: u64,
}

struct Explorer {
    report: Report,
    operations: usize,
    cut_operations: usize,
}

/// Explores a world; panics with the script that breaks a promise.
pub fn explore(world: &'static HostWorld) -> Report {
    let more = std::env::var(MORE).map_or(0, |more| more.parse().expect("a number"));
    let mut explorer = Explorer {
        report: Report::default(),
        operations: world.operations + more,
        cut_operations: world.cut_operations + more,
    };
    let mut scripts = vec![Script { world, steps: Vec::new(), cut: None }];
    while !scripts.is_empty() {
        let mut longer = Vec::new();
        for script in &scripts {
            for step in steps_behind(script) {
                explorer.explore(script.with(step), &mut longer);
            }
        }
        scripts = longer;
    }
    let Report { scripts, cuts, .. } = explorer.report;
    // After each script both hosts crash, recover, write on, and crash again.
    let counts =
        [("scripts", scripts), ("cuts", cuts), ("images", 2 * scripts), ("second lives", scripts)];
    disks::explored::record(&format!("hosts, small world {}", world.name), 0, &counts);
    explorer.report
}

fn steps_behind(script: &Script) -> Vec<Step> {
    let world = script.world;
    let mut operations: Vec<Operation> = world.alphabet.to_vec();
    if script.steps.is_empty() {
        operations.extend((1..=world.bursts).map(Operation::Burst));
    }
    let hosts = if script.steps.is_empty() { 1 } else { HOSTS };
    let all = (0..hosts).flat_map(|host| operations.iter().map(move |one| (host, *one)));
    all.filter(|(host, operation)| *host == 0 || !operation.is_of_no_host())
        .map(|(host, operation)| Step { host, operation })
        .collect()
}

impl Explorer {
    /// Plays a script, and cuts its last step. Adds what longer scripts begin with.
    fn explore(&mut self, script: Script, longer: &mut Vec<Script>) {
        let Some(played) = self.play(&script) else { return };
        let (length, is_cut) = (script.steps.len(), script.cut.is_some());
        if length <= self.cut_operations && !is_cut {
            for place in places(&played) {
                let cut = script.cut_at(place);
                self.report.cuts += 1;
                if self.play(&cut).is_some() && length < self.cut_operations {
                    longer.push(cut);
                }
            }
        }
        let bound = if is_cut { self.cut_operations } else { self.operations };
        if played.has_effect && length < bound {
            longer.push(script);
        }
    }

    fn play(&mut self, script: &Script) -> Option<Played> {
        let played = play(script).unwrap_or_else(|why| {
            panic!("{why}\nreplay: OKEANOS_HOST_SCRIPT='{script}' cargo test -p host replay")
        })?;
        self.report.scripts += 1;
        self.report.conflicts += u64::from(played.has_conflict);
        Some(played)
    }
}

/// Returns every point at which a host may die in the last step.
fn places(played: &Played) -> Vec<CutPlace> {
    let moments = [Moment::Request, Moment::Answer];
    let messages = (1..=played.messages)
        .flat_map(|message| moments.map(|moment| CutPlace::Message(message, moment)));
    let writes = (0..HOSTS)
        .flat_map(|host| (0..played.writes[host]).map(move |write| CutPlace::Journal(host, write)));
    messages.chain(writes).collect()
}
