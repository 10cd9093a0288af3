//! Memory of a daemon, as the kernel counts it.

use crate::real_time::rig::RigError;

/// Resident bytes, pages of the program's own file included.
pub(super) struct Resident {
    pub now: f64,
    /// Maximum since the process began.
    pub peak: f64,
}

pub(super) fn resident(process: u32) -> Result<Resident, RigError> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path).map_err(RigError::at(&path))?;
    of_status(&text).ok_or_else(|| RigError::new(format!("{path} lacks numbers")))
}

fn of_status(text: &str) -> Option<Resident> {
    let bytes = |name: &str| -> Option<f64> {
        let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(rest.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
    };
    Some(Resident { now: bytes("VmRSS")?, peak: bytes("VmHWM")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_process_is_read() {
        let memory = of_status("Name:\tx\nVmHWM:\t     300 kB\nVmRSS:\t     200 kB\n").unwrap();
        assert_eq!((memory.now, memory.peak), (200.0 * 1024.0, 300.0 * 1024.0));
        assert!(of_status("VmRSS:\t 200 kB\n").is_none());
        let own = resident(std::process::id()).unwrap();
        assert!(own.now > 0.0 && own.now <= own.peak);
    }
}
