//! Specification of two hosts with one file: every state that the file may be in after what was
//! done and answered so far.
//!
//! Where a crash, or a host that was cut off, leaves several outcomes, each is a branch; what is
//! seen later ends branches. A run in which no branch is left has broken a promise.

use super::operation::{Change, FileState, Operation};

pub const HOSTS: usize = 2;

/// Whether the servers can reach a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    Connected,
    /// Cut off from the network, perhaps without knowing it.
    Silent,
    Dead,
}

/// Fate of the bytes that a host's descriptor has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Kept,
    /// Overtaken: another host has changed the file past this one, and bytes may have been set
    /// aside.
    Overtaken,
    /// Lost: some bytes are not in the file, and no sync of the descriptor may succeed.
    Lost,
}

/// Synced bytes that another host has overtaken: they must be set aside.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Aside {
    host: usize,
    base: FileState,
    states: Vec<FileState>,
}

/// One branch.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Branch {
    /// States of the file. The servers have the first one, and may have later ones.
    chain: Vec<FileState>,
    /// Index of the state that survives a crash of the holder, and its recovery.
    promised: usize,
    /// The host that alone may have states behind that.
    holder: Option<usize>,
    fates: [Fate; HOSTS],
    /// Whether another host changed the file while this one was silent.
    is_stale: [bool; HOSTS],
    /// Index of the file's name; `None` if it was removed.
    name: Option<usize>,
    aside: Vec<Aside>,
    /// States of a host that was overtaken: they come back if the other host's change never reaches
    /// the servers.
    rivals: Vec<Rival>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Rival {
    host: usize,
    chain: Vec<FileState>,
    promised: usize,
}

/// Answer to an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done(Option<FileState>),
    /// The host has set bytes of the file aside.
    SetAside,
    Failed(String),
    /// The host died during it.
    Cut,
}

pub struct Spec {
    branches: Vec<Branch>,
    /// Whether each host is reached, as far as is certain.
    pub reach: [Reach; HOSTS],
}

impl Spec {
    pub fn new(state: FileState) -> Spec {
        let branch = Branch {
            chain: vec![state],
            promised: 0,
            holder: None,
            fates: [Fate::Kept; HOSTS],
            is_stale: [false; HOSTS],
            name: Some(0),
            aside: Vec::new(),
            rivals: Vec::new(),
        };
        Spec { branches: vec![branch], reach: [Reach::Connected; HOSTS] }
    }

    /// Follows an operation. `died`: the other host died during it. `servers`: what they had when
    /// it began, or when that host died. Fails if that may not be.
    pub fn follow(
        &mut self,
        (host, operation, step): (usize, Operation, u8),
        outcome: &Outcome,
        died: Option<usize>,
        servers: &FileState,
    ) -> Result<(), String> {
        if self.is_removed() {
            return Ok(());
        }
        if let Outcome::Failed(why) = outcome {
            if !self.may_fail(host, died.is_some()) {
                return Err(format!("refused without a cause: {why}"));
            }
        }
        let mut reaches = vec![self.reach];
        if let Some(died) = died {
            self.reach[died] = Reach::Dead;
            reaches.push(self.reach);
        }
        let mut next: Vec<Branch> = Vec::new();
        for branch in &self.branches {
            for reach in &reaches {
                let action = Action { host, operation, step, reach: *reach, outcome, servers };
                for branch in action.follow(branch) {
                    if !next.contains(&branch) {
                        next.push(branch);
                    }
                }
            }
        }
        if next.is_empty() {
            return Err(format!(
                "{outcome:?}, the servers had {servers:?}, but expected is one of\n{}",
                self.list()
            ));
        }
        self.branches = next;
        Ok(())
    }

    /// Whether a failure breaks no promise: bytes may have been set aside, or a connection lost.
    fn may_fail(&self, host: usize, died: bool) -> bool {
        let is_overtaken = |branch: &Branch| branch.fates[host] != Fate::Kept;
        died || self.reach[host] == Reach::Silent || self.branches.iter().any(is_overtaken)
    }
    pub fn is_removed(&self) -> bool {
        self.branches.iter().any(|branch| branch.name.is_none())
    }
    /// Cuts the power of a host: its descriptors are gone.
    pub fn crash(&mut self, host: usize) {
        self.reach[host] = Reach::Dead;
        for branch in &mut self.branches {
            (branch.fates[host], branch.is_stale[host]) = (Fate::Kept, false);
        }
    }
    /// Follows the recovery of a silent host's files, perhaps before another host's change of them
    /// reached the servers.
    pub fn win_back(&mut self, host: usize) {
        let reach = self.reach;
        let won = self.branches.iter().flat_map(|branch| branch.won_back(host, reach));
        let won: Vec<Branch> = won.collect();
        self.branches.extend(won);
    }
    /// Reconnects a silent host: it knows what became of its files.
    pub fn reconnect(&mut self, host: usize) {
        self.reach[host] = Reach::Connected;
        self.branches.iter_mut().for_each(|branch| branch.is_stale[host] = false);
    }

    /// Judges what the servers have when no host holds anything, and what was set aside.
    pub fn judge(
        &mut self,
        found: &FileState,
        name: Option<usize>,
        aside: &[Vec<u8>],
    ) -> Result<(), String> {
        if self.is_removed() {
            return Ok(());
        }
        let is_this = |branch: &Branch| branch.last().is(found) && branch.name == name;
        if !self.branches.iter().any(is_this) {
            return Err(format!(
                "the servers have {found:?} as {name:?}, but expected is one of\n{}",
                self.list()
            ));
        }
        let list = self.list();
        self.branches.retain(|branch| {
            is_this(branch) && branch.aside.iter().all(|lost| lost.is_among(aside))
        });
        match self.branches.is_empty() {
            true => Err(format!("synced bytes are lost; set aside are {aside:?}, of\n{list}")),
            false => Ok(()),
        }
    }

    fn list(&self) -> String {
        self.branches.iter().map(|branch| format!("  {branch:?}\n")).collect()
    }
}

impl Aside {
    /// Whether each byte is set aside that the file does not have instead.
    fn is_among(&self, aside: &[Vec<u8>]) -> bool {
        (0..self.states[0].content.len()).all(|at| {
            let has = |place: &[u8]| {
                let byte = place.get(at);
                byte.is_some() && self.states.iter().any(|state| state.content.get(at) == byte)
            };
            has(&self.base.content) || aside.iter().any(|place| has(place))
        })
    }
}

impl Branch {
    fn last(&self) -> &FileState {
        self.chain.last().expect("a state")
    }
    /// Returns the branch in which the servers have this state alone.
    fn settled(&self, state: FileState) -> Branch {
        Branch { chain: vec![state], promised: 0, holder: None, ..self.clone() }
    }
    /// Returns what is left when another host gets the file; `None`: the servers may not have that.
    fn taken_over(&self, action: &Action, changes: bool) -> Option<Branch> {
        let Some(holder) = self.holder.filter(|holder| *holder != action.host) else {
            return Some(self.clone());
        };
        if action.reach[holder] == Reach::Connected {
            return Some(Branch { rivals: Vec::new(), ..self.settled(self.last().clone()) });
        }
        // What a client sends as it dies may arrive in part.
        self.has_parts(action.servers).then(|| match changes {
            false => self.behind(action.servers),
            true => self.overtaken(holder, action),
        })
    }
    fn behind(&self, servers: &FileState) -> Branch {
        let chain = [std::slice::from_ref(servers), &self.chain[1..]].concat();
        Branch { chain, ..self.clone() }
    }
    /// Whether each byte is one of a state of the chain, or is not written yet.
    fn has_parts(&self, servers: &FileState) -> bool {
        let sizes = self.chain.iter().map(|state| state.content.len());
        let size = servers.content.len();
        let is_known = |(at, byte): (usize, &u8)| {
            let is_hole = *byte == 0 && at >= self.chain[0].content.len();
            is_hole || self.chain.iter().any(|state| state.content.get(at) == Some(byte))
        };
        (sizes.clone().min() <= Some(size) && Some(size) <= sizes.max())
            && self.chain.iter().any(|state| state.mode == servers.mode)
            && servers.content.iter().enumerate().all(is_known)
    }
    fn overtaken(&self, holder: usize, action: &Action) -> Branch {
        let base = action.servers.clone();
        let mut branch = self.settled(base.clone());
        let is_lost = self.last().content != base.content || self.last().mode != base.mode;
        if action.reach[holder] == Reach::Silent {
            branch.fates[holder] = if is_lost { Fate::Lost } else { Fate::Overtaken };
        }
        if self.promised > 0 {
            let states = self.chain[self.promised..].to_vec();
            branch.aside.push(Aside { host: holder, base, states });
        }
        if is_lost {
            let (chain, promised) = (self.behind(action.servers).chain, self.promised);
            branch.rivals.push(Rival { host: holder, chain, promised });
        }
        branch
    }
    /// Returns the branches in which a host that recovers finds its own states still possible: the
    /// change of the host that overtook it is with that host alone, which is not reached and has
    /// not promised it. The later owner wins what it has synced, whichever is recovered first.
    fn won_back(&self, host: usize, reach: [Reach; HOSTS]) -> Vec<Branch> {
        let Some(rival) = self.rivals.iter().find(|rival| rival.host == host) else {
            return Vec::new();
        };
        let (base, now) = (&rival.chain[0], &self.chain[0]);
        let is_unchanged = base.content == now.content && base.mode == now.mode;
        let holder = 1 - host;
        let is_alone = self.holder == Some(holder) && reach[holder] != Reach::Connected;
        let is_promised = is_alone && self.promised > 0;
        if is_promised || !is_alone && (self.holder.is_some() || !is_unchanged) {
            return Vec::new();
        }
        let win = |state: &FileState| {
            let mut branch = self.settled(state.clone());
            branch.rivals.clear();
            branch.aside.retain(|aside| aside.host != host);
            branch.fates[host] = Fate::Overtaken;
            if is_alone && reach[holder] == Reach::Silent {
                branch.fates[holder] = Fate::Lost;
                branch.is_stale[holder] = true;
            }
            branch
        };
        rival.chain[rival.promised..].iter().map(win).collect()
    }
    fn note_change(&mut self, host: usize, reach: [Reach; HOSTS]) {
        for other in (0..HOSTS).filter(|other| *other != host) {
            self.is_stale[other] |= reach[other] == Reach::Silent;
        }
    }
    fn promise(&mut self, host: usize) {
        if self.holder == Some(host) {
            self.promised = self.chain.len() - 1;
        }
    }
}

/// An operation and its answer.
struct Action<'a> {
    host: usize,
    operation: Operation,
    step: u8,
    reach: [Reach; HOSTS],
    outcome: &'a Outcome,
    servers: &'a FileState,
}

impl Action<'_> {
    fn is_done(&self) -> bool {
        matches!(self.outcome, Outcome::Done(_))
    }

    fn follow(&self, branch: &Branch) -> Vec<Branch> {
        let changes = self.operation.changes(self.step);
        let mut next = match self.operation {
            _ if !changes.is_empty() => self.changed(branch, &changes),
            Operation::Sync => self.synced(branch),
            Operation::Read => self.read(branch),
            Operation::Rename | Operation::Unlink | Operation::Remove => self.named(branch),
            Operation::Recover => self.recovered(branch),
            Operation::Remount => self.remounted(branch),
            Operation::Reopen => self.reopened(branch),
            _ => vec![branch.clone()],
        };
        if self.operation.renames() && !changes.is_empty() {
            next.iter_mut().for_each(|branch| branch.name = branch.name.map(|name| 1 - name));
        }
        let fate = |branch: &Branch| branch.fates[self.host];
        match self.outcome {
            Outcome::SetAside => next.retain(|branch| fate(branch) != Fate::Kept),
            Outcome::Done(_)
                if self.operation.promises() && self.operation != Operation::Remount =>
            {
                next.retain(|branch| fate(branch) != Fate::Lost);
            }
            _ => {}
        }
        next
    }

    fn changed(&self, branch: &Branch, changes: &[Change]) -> Vec<Branch> {
        let mut next = Vec::new();
        if !self.is_done() {
            next.push(branch.clone());
        }
        let is_silent = self.reach[self.host] == Reach::Silent;
        if is_silent && branch.is_stale[self.host] {
            // The host does not know that another has the file.
            let mut apart = branch.clone();
            apart.fates[self.host] = Fate::Lost;
            next.push(apart);
        }
        if branch.fates[self.host] == Fate::Lost && !is_silent || *self.outcome == Outcome::SetAside
        {
            return next;
        }
        if let Some(mut branch) = branch.taken_over(self, true) {
            // Nothing is promised of a file that has the size already.
            let is_same = *changes == [Change::Size(branch.last().content.len())];
            for change in changes {
                branch.chain.push(branch.last().after(change));
            }
            branch.holder = Some(self.host);
            branch.note_change(self.host, self.reach);
            if self.is_done() && self.operation.promises() && !is_same {
                branch.promise(self.host);
            }
            next.push(branch);
        }
        next
    }
    fn synced(&self, branch: &Branch) -> Vec<Branch> {
        let mut branch = branch.clone();
        if self.is_done() {
            branch.promise(self.host);
        }
        vec![branch]
    }
    fn read(&self, branch: &Branch) -> Vec<Branch> {
        let Outcome::Done(Some(found)) = self.outcome else { return vec![branch.clone()] };
        let Some(seen) = branch.taken_over(self, false) else { return Vec::new() };
        let is_seen = match seen.holder.is_some_and(|holder| holder != self.host) {
            true => seen.chain[0].is(found),
            false => seen.last().is(found),
        };
        if is_seen { vec![seen] } else { Vec::new() }
    }
    /// Follows a change of names. The store may count it as a change of the file.
    fn named(&self, branch: &Branch) -> Vec<Branch> {
        let mut next = vec![branch.clone()];
        next.extend(branch.taken_over(self, true));
        for branch in &mut next {
            branch.note_change(self.host, self.reach);
            branch.name = match self.operation {
                Operation::Rename => branch.name.map(|name| 1 - name),
                _ => None,
            };
        }
        if !self.is_done() {
            next.push(branch.clone());
        }
        next
    }
    fn recovered(&self, branch: &Branch) -> Vec<Branch> {
        if !self.is_done() {
            return vec![branch.clone()];
        }
        if branch.holder == Some(self.host) {
            // Of a client that has died the servers set the time of change after its content. What
            // is replayed has the time that it had.
            let settled = |state: &FileState| {
                let untimed = FileState { modified: None, ..state.clone() };
                let is_home = untimed.is(self.servers);
                branch.settled(if branch.promised == 0 || is_home {
                    untimed
                } else {
                    state.clone()
                })
            };
            return branch.chain[branch.promised..].iter().map(settled).collect();
        }
        [vec![branch.clone()], branch.won_back(self.host, self.reach)].concat()
    }
    fn remounted(&self, branch: &Branch) -> Vec<Branch> {
        let mut next = vec![branch.clone()];
        if branch.holder == Some(self.host) && self.is_done() {
            next = vec![branch.settled(branch.last().clone())];
        }
        next.iter_mut().for_each(|branch| branch.fates[self.host] = Fate::Kept);
        next
    }
    fn reopened(&self, branch: &Branch) -> Vec<Branch> {
        let mut branch = branch.clone();
        let fate = &mut branch.fates[self.host];
        *fate = match (self.reach[self.host], *fate) {
            (Reach::Silent, Fate::Lost) => Fate::Overtaken,
            _ => Fate::Kept,
        };
        vec![branch]
    }
}
