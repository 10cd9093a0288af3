//! One script, played with two hosts on one store, and its judgement.

use super::operation::{FileState, Operation};
use super::perform::{CREATED_CONTENT, Kernel, Performer};
use super::script::{CutPlace, Script, Step};
use super::shared_store::{CONTENT, MODE, SharedStore};
use super::spec::{HOSTS, Outcome, Reach, Spec};
use super::world::Ending;
use crate::common::*;
use disks::{CrashPolicy, MemoryDisk};
use host::Host;
use runtime::{Either, race};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;
use store::{Cut, CutKind, FileId, Identity};

/// Time after which an operation counts as hung.
const HANGS: Duration = Duration::from_secs(600);
const WAIT: Duration = Duration::from_secs(3);
const WAIT_LEASE: Duration = Duration::from_secs(40);

/// Operations of the first host in a world that has it lose its connection again.
const RECONNECTION: [Operation; 3] = [Operation::Silence, Operation::Read, Operation::Sync];

/// Operations of both hosts after the first crash.
const SECOND_LIFE: [(usize, Operation); 7] = [
    (1, Operation::Read),
    (0, Operation::Read),
    (1, Operation::Reopen),
    (0, Operation::Reopen),
    (1, Operation::AppendNow),
    (0, Operation::AppendNow),
    (1, Operation::WriteNow),
];

/// Counts of a run.
#[derive(Clone, Copy, Default, Debug)]
pub struct Played {
    /// Messages and journal writes of the last step.
    pub messages: u64,
    pub writes: [u64; HOSTS],
    /// Whether the last step may matter to later ones.
    pub has_effect: bool,
    /// Whether bytes were set aside.
    pub has_conflict: bool,
}

/// Outcome of an operation; the other host if it died, and what the servers had then.
type Performed = (Outcome, Option<(usize, FileState)>);

/// A machine with a host's journal, which outlives the host.
struct Machine {
    name: Identity,
    disk: MemoryDisk,
    host: Option<Rc<Host>>,
    is_open: bool,
    kernel: Rc<Kernel>,
    reconnections: u64,
}

struct Life {
    shared: Rc<SharedStore>,
    script: Script,
    machines: Vec<Machine>,
    file: FileId,
    spec: Spec,
    step: u8,
    is_created: bool,
}

/// Plays a script. `None`: a step is not possible, as its host does not run, or runs.
pub fn play(script: &Script) -> Result<Option<Played>, String> {
    match catch_unwind(AssertUnwindSafe(|| play_unguarded(script))) {
        Ok(played) => played,
        Err(panicked) => {
            let text = panicked.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panicked.downcast_ref::<&str>().map(|text| (*text).into()));
            Err(format!("a panic: {}", text.unwrap_or_default()))
        }
    }
}

fn play_unguarded(script: &Script) -> Result<Option<Played>, String> {
    let shared = Rc::new(SharedStore::new(script.world.shared));
    let stage = &shared.stage;
    let machines = ["host-1", "host-2"].map(|name| {
        let name = Identity(name.into());
        let disk = stage.disk(stage.formatted_for(name.clone(), &shared.name(), JOURNAL_BYTES));
        Machine { name, disk, host: None, is_open: false, kernel: Rc::default(), reconnections: 0 }
    });
    let (inner, script) = (shared.clone(), script.clone());
    let played = stage.world.try_run(async move {
        let file = inner.make_files().await;
        let spec = Spec::new(FileState { content: CONTENT.into(), mode: MODE, modified: None });
        let mut life = Life {
            shared: inner,
            script,
            machines: machines.into(),
            file,
            spec,
            step: 0,
            is_created: false,
        };
        let played = life.live().await?;
        Ok::<_, String>(played.map(|played| (life, played)))
    });
    let played = match played {
        Ok(played) => played?,
        Err(deadlock) => return Err(format!("{deadlock:?}: all wait")),
    };
    let Some((mut life, mut played)) = played else {
        stage.world.end();
        return Ok(None);
    };
    stage.world.end();
    let aside = shared.set_aside(life.file);
    played.has_conflict = !aside.is_empty();
    life.judge(&aside)?;
    stage.world.end();
    Ok(Some(played))
}

impl Life {
    async fn live(&mut self) -> Result<Option<Played>, String> {
        for host in 0..HOSTS {
            self.start(host).await.map_err(|error| error.to_string())?;
        }
        let mut played = Played::default();
        for (index, step) in self.script.steps.clone().into_iter().enumerate() {
            let messages = self.shared.stage.cluster.messages();
            let writes = self.writes();
            if !self.is_possible(step) {
                return Ok(None);
            }
            if let Some((_, place)) = self.script.cut.filter(|(cut, _)| *cut == index) {
                self.arm(place);
            }
            self.take(step).await?;
            self.shared.stage.cluster.cancel_cut();
            played.messages = self.shared.stage.cluster.messages() - messages;
            let (before, after) = (writes, self.writes());
            played.writes = std::array::from_fn(|host| after[host].saturating_sub(before[host]));
            let looks = matches!(step.operation, Operation::Sync | Operation::Read);
            let is_seen = !looks || self.shared.is_directory();
            played.has_effect = is_seen || played.messages > 0 || played.writes != [0; HOSTS];
        }
        self.end().await?;
        Ok(Some(played))
    }

    fn writes(&self) -> [u64; HOSTS] {
        std::array::from_fn(|host| self.machines[host].disk.changes())
    }
    fn arm(&self, place: CutPlace) {
        match place {
            CutPlace::Message(message, moment) => {
                let message = self.shared.stage.cluster.messages() + message;
                self.shared.stage.cluster.cut_at(Cut { kind: CutKind::Client, message, moment });
            }
            CutPlace::Journal(host, write) => {
                let disk = &self.machines[host].disk;
                disk.cut_at(disk.changes() + write);
            }
        }
    }
    fn is_possible(&self, Step { host, operation }: Step) -> bool {
        let (is_dead, reach) = (self.machines[host].host.is_none(), self.spec.reach[host]);
        if operation.needs_descriptor() && !self.machines[host].is_open {
            return false;
        }
        match operation {
            Operation::Recover => is_dead,
            Operation::Silence => reach == Reach::Connected,
            Operation::Create => !is_dead && !self.is_created,
            operation if operation.is_of_no_host() => true,
            _ => !is_dead,
        }
    }

    async fn take_all(&mut self, steps: &[(usize, Operation)]) -> Result<(), String> {
        for (host, operation) in steps {
            self.take(Step { host: *host, operation: *operation }).await?;
        }
        Ok(())
    }

    /// Takes one step, and compares its outcome.
    async fn take(&mut self, step: Step) -> Result<(), String> {
        let Step { host, operation } = step;
        let number = self.step;
        self.step += 1;
        let context = |why: String| format!("step {}, {operation}: {why}", number + 1);
        match operation {
            Operation::Wait => sleep(&self.shared.stage.world, WAIT).await,
            Operation::WaitLease => sleep(&self.shared.stage.world, WAIT_LEASE).await,
            Operation::Silence => {
                self.shared.stage.cluster.silence(&self.machines[host].name);
                self.spec.reach[host] = Reach::Silent;
            }
            Operation::Crash => self.crash(host),
            _ => {
                let before = self.servers();
                let (outcome, died) = self.perform(step, number).await.map_err(context)?;
                let servers = died.as_ref().map_or(before, |(_, servers)| servers.clone());
                let died = died.map(|(died, _)| died);
                if let Some(died) = died {
                    self.crash(died);
                    self.spec.reach[died] = Reach::Connected;
                }
                for host in self.reconnected() {
                    self.spec.win_back(host);
                }
                let followed =
                    self.spec.follow((host, operation, number), &outcome, died, &servers);
                followed.map_err(context)?;
                self.is_created |=
                    operation == Operation::Create && matches!(outcome, Outcome::Done(_));
                self.machines[host].is_open &= operation != Operation::Remove;
                if outcome == Outcome::Cut {
                    self.crash(host);
                } else if operation == Operation::Recover {
                    self.spec.reconnect(host);
                }
            }
        }
        self.note_reconnections();
        Ok(())
    }

    /// Returns the hosts that have reconnected since that was noted.
    fn reconnected(&self) -> Vec<usize> {
        let has = |host: &usize| {
            let machine = &self.machines[*host];
            let running = machine.host.as_ref();
            running.is_some_and(|host| host.statistics().reconnections > machine.reconnections)
        };
        (0..HOSTS).filter(has).collect()
    }
    fn note_reconnections(&mut self) {
        for host in self.reconnected() {
            self.spec.reconnect(host);
            let machine = &mut self.machines[host];
            let running = machine.host.as_ref().expect("a running host");
            machine.reconnections = running.statistics().reconnections;
        }
    }
    fn servers(&self) -> FileState {
        self.shared.has(self.file)
    }

    /// Cuts the power of a host, or of what a cut has left of it.
    fn crash(&mut self, host: usize) {
        let machine = &mut self.machines[host];
        self.shared.stage.cluster.kill(&machine.name);
        machine.disk.power_off();
        machine.host = None;
        machine.disk = self.shared.stage.disk(machine.disk.crash(CrashPolicy::LoseAll));
        self.spec.crash(host);
    }

    /// Recovers a host and starts it, with the file open.
    async fn start(&mut self, host: usize) -> Result<(), host::HostError> {
        let machine = &mut self.machines[host];
        let store = self.shared.connect(machine.name.clone());
        let options = self.script.world.options();
        let world = self.shared.world();
        let (running, _) = begin_host(world, store, machine.disk.clone(), options).await?;
        machine.kernel = Rc::default();
        let mut size = CONTENT.len() as u64;
        if !self.shared.is_directory() {
            size = running.attributes(self.file).await.map_or(0, |found| found.version.size);
        }
        machine.kernel.size.set(size);
        machine.reconnections = 0;
        running.open_file(self.file).await?;
        machine.is_open = true;
        machine.host = Some(running);
        Ok(())
    }

    /// Performs an operation until it ends or its host dies. Returns the other host if that died.
    async fn perform(&mut self, step: Step, number: u8) -> Result<Performed, String> {
        let Step { host, operation } = step;
        let other = 1 - host;
        let (dies, other_dies) = (self.dies(host), self.dies(other));
        let (cluster, name) =
            (self.shared.stage.cluster.clone(), self.machines[other].name.clone());
        let (disk, world) = (self.machines[other].disk.clone(), self.shared.stage.world());
        let died = Rc::new(std::cell::RefCell::new(None));
        let (shared, file) = (self.shared.clone(), self.file);
        let kills = {
            let died = died.clone();
            async move {
                other_dies.await;
                cluster.kill(&name);
                disk.power_off();
                *died.borrow_mut() = Some((other, shared.has(file)));
                std::future::pending::<()>().await;
            }
        };
        let hangs = async move { sleep(&*world, HANGS).await };
        let work = async {
            match operation {
                Operation::Recover => outcome_of(self.start(host).await),
                Operation::Remount => self.remount(host).await,
                _ => {
                    let machine = &self.machines[host];
                    let host = machine.host.clone().expect("a running host");
                    let (kernel, file) = (machine.kernel.clone(), self.file);
                    Performer { host, kernel, file }.perform(operation, number).await
                }
            }
        };
        // Deaths first: a host may die at the moment of the answer.
        match race(race(kills, hangs), race(dies, work)).await {
            Either::Right(Either::Right(outcome)) => Ok((outcome, died.take())),
            Either::Right(Either::Left(())) => Ok((Outcome::Cut, died.take())),
            Either::Left(_) => Err(format!("it did not end within {HANGS:?}")),
        }
    }
    async fn remount(&mut self, host: usize) -> Outcome {
        let running = self.machines[host].host.clone().expect("a running host");
        let closed = match running.close().await {
            Ok(()) => self.start(host).await,
            closed => closed,
        };
        outcome_of(closed)
    }

    /// Waits until a host that lives is cut off or loses its power.
    fn dies(&self, host: usize) -> impl Future<Output = ()> + use<> {
        let machine = &self.machines[host];
        let (is_dead, disk) =
            (self.shared.stage.cluster.until_dead(&machine.name), machine.disk.clone());
        async move {
            race(is_dead, disk.power_lost()).await;
        }
    }

    /// Lets the first host die unless it has, and both go on; then the second one dies. Both see
    /// the same in the end.
    async fn end(&mut self) -> Result<(), String> {
        let crashes = !self.shared.is_directory();
        if self.script.world.ending == Ending::FirstReconnects {
            for operation in RECONNECTION {
                let step = Step { host: 0, operation };
                if self.is_possible(step) {
                    self.take(step).await?;
                }
            }
        }
        if crashes {
            self.die_and_recover().await?;
        }
        if !self.spec.is_removed() {
            self.take_all(&SECOND_LIFE).await?;
        }
        if crashes {
            self.take_all(&[(1, Operation::Crash), (1, Operation::Recover)]).await?;
        }
        if !self.spec.is_removed() {
            self.take_all(&[(0, Operation::Read), (1, Operation::Read)]).await?;
        }
        for machine in &self.machines {
            let closed = machine.host.as_ref().expect("a running host").close().await;
            if let Err(error) = closed {
                if !self.spec.is_removed() {
                    return Err(format!("at the end a host does not unmount: {error}"));
                }
            }
        }
        Ok(())
    }

    async fn die_and_recover(&mut self) -> Result<(), String> {
        let (dying, recovered) = match self.script.world.ending {
            Ending::FirstDies | Ending::FirstReconnects => (1, [0, 1]),
            Ending::BothDie { first } => (HOSTS, [first, 1 - first]),
        };
        for host in 0..dying {
            if self.machines[host].host.is_some() {
                self.take(Step { host, operation: Operation::Crash }).await?;
            }
        }
        for host in recovered {
            if self.machines[host].host.is_none() {
                self.take(Step { host, operation: Operation::Recover }).await?;
            }
        }
        Ok(())
    }

    /// Compares what the servers have at the end.
    fn judge(&mut self, aside: &[Vec<u8>]) -> Result<(), String> {
        if self.is_created && self.shared.created().as_deref() != Some(CREATED_CONTENT) {
            return Err(format!("the other file has {:?}", self.shared.created()));
        }
        if self.spec.is_removed() {
            return Ok(());
        }
        let (found, name) = self.shared.found(self.file).ok_or("the file is gone")?;
        self.spec.judge(&found, name, aside)
    }
}

fn outcome_of(result: Result<(), host::HostError>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done(None),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}
