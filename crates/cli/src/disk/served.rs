//! Emulated disks served by `okeanos-lab disk serve`, as a command finds them beneath a volume.

use crate::daemon::control::{Ask, Client};
use crate::daemon::mount_table;
use crate::programs;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Write};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Parameters of an emulated disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedDisk {
    /// Name of a model, or absolute path of its file.
    pub model: String,
    pub drives: u32,
    pub chunk: u64,
    /// Whether the drives' write caches are on.
    pub caches: bool,
    /// Bytes of each drive.
    pub size: Option<u64>,
}

/// Requests to be timed, in bytes of the disk: first all is read, then all is written and flushed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimedRequests {
    pub reads: Vec<Range<u64>>,
    pub writes: Vec<Range<u64>>,
}

/// First reply of `okeanos-lab disk time`: the name of the disk's model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimedModel {
    pub name: String,
}

/// Later replies. `None`: the disk does not accept these requests.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TimeTaken {
    pub nanoseconds: Option<u64>,
}

/// Connects to the server of the disk that this file is, or on which this loop device stands.
pub fn client_of(source: &Path) -> Option<Client> {
    let serving = mount_table::mount_around(&mount_table::behind(source)).ok().flatten()?;
    if !serving.is_okeanos() {
        return None;
    }
    Client::connect_to_look(&serving).ok()
}

/// A copy of a served disk, for trials in virtual time: `okeanos-lab disk time` plays them. One
/// JSON object a line goes to it, and one comes back.
pub struct ServedModel {
    name: String,
    player: RefCell<Player>,
}

struct Player {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl ServedModel {
    /// Starts it. `None` if there is no emulated disk, its model cannot be read, or `okeanos-lab`
    /// is not installed.
    pub fn of(source: &Path) -> Option<ServedModel> {
        let statistics: Value = client_of(source)?.ask(Ask::Stats).ok()?;
        let served: ServedDisk = serde_json::from_value(statistics.get("served")?.clone()).ok()?;
        let mut player = Player::start().ok()?;
        let TimedModel { name } = player.ask(&served).ok()?;
        Some(ServedModel { name, player: RefCell::new(player) })
    }
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Returns the time of the requests on such a disk, with no others beside them.
    pub fn time_of(&self, requests: &TimedRequests) -> Option<Duration> {
        let taken: TimeTaken = self.player.borrow_mut().ask(requests).ok()?;
        taken.nanoseconds.map(Duration::from_nanos)
    }
}

impl Player {
    fn start() -> io::Result<Player> {
        let program = programs::of_ours("okeanos-lab").map_err(io::Error::other)?;
        let mut command = Command::new(program);
        command.args(["disk", "time"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn()?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let from = from.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Player { child, to, from: BufReader::new(from) })
    }
    fn ask<T: for<'de> Deserialize<'de>>(&mut self, what: &impl Serialize) -> io::Result<T> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.to.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(&line)?;
        let mut answer = String::new();
        self.from.read_line(&mut answer)?;
        Ok(serde_json::from_str(&answer)?)
    }
}

impl Drop for Player {
    /// Ends the program by closing its input.
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.child.wait();
    }
}
