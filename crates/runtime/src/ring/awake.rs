//! Keeps the processors of others awake. The answer to a request wakes a sleeping program, mostly
//! with its processor: half of the time of the request. The kernel has an interface for programs
//! that cannot wait for that. As long as a latency stands in `/dev/cpu_dma_latency`, idle
//! processors stay in states that they leave as quickly. It ends when the file is closed.

use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::path::Path;

const FILE: &str = "/dev/cpu_dma_latency";
/// Governor of the idling of a virtual machine. Its processors poll if the latency is zero, and
/// otherwise are given back to the host, from which it takes long to return.
const GOVERNOR: (&str, &str) = ("/sys/devices/system/cpu/cpuidle/current_governor", "haltpoll");
/// Latency elsewhere, in microseconds: the first idle state is left as quickly, and saves power.
const LATENCY: i32 = 2;
/// No requirement (`PM_QOS_DEFAULT_VALUE`).
const ANY: i32 = -1;

pub(super) struct Awake {
    latency: i32,
    file: File,
    is_held: Cell<bool>,
}

impl Awake {
    /// Opens the file; `None` without the right to.
    pub fn new() -> Option<Awake> {
        let (path, polls) = GOVERNOR;
        let is_virtual = std::fs::read_to_string(path).is_ok_and(|name| name.trim() == polls);
        Awake::at(Path::new(FILE), if is_virtual { 0 } else { LATENCY })
    }

    pub fn at(path: &Path, latency: i32) -> Option<Awake> {
        let file = File::options().write(true).open(path).ok()?;
        Some(Awake { latency, file, is_held: Cell::new(false) })
    }

    /// Sets whether the latency is held. Returns whether that is a change.
    pub fn hold(&self, hold: bool) -> bool {
        if self.is_held.get() == hold {
            return false;
        }
        self.is_held.set(hold);
        let value = if hold { self.latency } else { ANY };
        (&self.file).write_all(&value.to_ne_bytes()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_asked_for_once_and_taken_back_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("latency");
        std::fs::write(&path, []).unwrap();
        let awake = Awake::at(&path, 0).unwrap();
        let written = [awake.hold(false), awake.hold(true), awake.hold(true), awake.hold(false)];
        assert_eq!(written, [false, true, false, true]);
        let values = [0i32.to_ne_bytes(), ANY.to_ne_bytes()].concat();
        assert_eq!(std::fs::read(&path).unwrap(), values);
    }
}
