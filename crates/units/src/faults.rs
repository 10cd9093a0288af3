//! Deliberate faults in the source: [`fault!`](crate::fault) marks where each breaks a promise.
//!
//! Only builds with `--cfg faults` have them. There the environment variable `OKEANOS_FAULT` names
//! the one fault that is on. `docs/FAULTS.md` lists all, and `scripts/hunt-faults.sh` shows
//! that a test or the crash explorer finds each.

/// Whether the fault of this name, as in `docs/FAULTS.md`, is on. Always false without `--cfg
/// faults`.
///
/// ```
/// let bound = if units::fault!("bound-doubled") { 16 } else { 8 };
/// assert_eq!(bound, 8);
/// ```
#[macro_export]
macro_rules! fault {
    ($name:literal) => {
        $crate::faults::is_on($name)
    };
}

/// Whether the environment variable `OKEANOS_FAULT` has this value. It is read once.
#[cfg(faults)]
pub fn is_on(name: &str) -> bool {
    static ON: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    ON.get_or_init(|| std::env::var("OKEANOS_FAULT").ok()).as_deref() == Some(name)
}

/// Returns false: this build has no faults.
#[cfg(not(faults))]
#[inline(always)]
pub const fn is_on(_name: &str) -> bool {
    false
}
