//! Switch for FUSE over io_uring in the kernel: a parameter of its module, for the whole machine.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Lock on the parameter: no other test switches it while this lives; then it is restored.
pub struct Ring {
    before: String,
    _turn: MutexGuard<'static, ()>,
}

impl Ring {
    /// Takes the lock. `None` if the kernel, or OKEANOS_IO, allows no such transport, which is
    /// printed.
    pub fn take() -> Option<Ring> {
        if std::env::var_os("OKEANOS_IO").is_some_and(|choice| choice == "classic") {
            eprintln!("NOT TESTED: OKEANOS_IO=classic has no io_uring");
            return None;
        }
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(before) = fs::read_to_string(PARAMETER) else {
            eprintln!(
                "NOT TESTED: this kernel has no FUSE over io_uring (Linux 6.14 and later have)"
            );
            return None;
        };
        Some(Ring { before, _turn: turn })
    }
    pub fn allowed() -> Option<Ring> {
        let ring = Ring::take()?;
        ring.allow(true);
        Some(ring)
    }
    pub fn allow(&self, is_allowed: bool) {
        fs::write(PARAMETER, if is_allowed { "Y" } else { "N" }).unwrap();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let _ = fs::write(PARAMETER, self.before.trim());
    }
}
