//! When logs are checkpointed and swapped.

use crate::choose_log::near_head_log;
use crate::state::State;
use crate::swap::SwapTime;
use std::rc::Weak;
use std::time::Duration;
use units::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointPolicy {
    /// Only when asked, or when every log is full.
    Manual,
    /// All logs, each time this has passed.
    Periodic(Duration),
    /// Log by log, after this time without a request.
    Idle(Duration),
    /// All logs, once a day, from the first hour on and begun before the second (0-23, UTC).
    OffHours { from: u8, until: u8 },
}

/// Destination of a small write whose home is as near to the arm as any log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NearHome {
    /// The paper's: to a log as any other. So each small write is as atomic as records are.
    IsLogged,
    /// A log would save it no seek, and would have it written twice. It is as atomic as the disk's
    /// sectors.
    WrittenHome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Writes of at most this many bytes are logged.
    pub logged_write_size: u64,
    pub near_home: NearHome,
    pub checkpoint: CheckpointPolicy,
    /// A log filled to more than this share is swapped in idle time, in percent; 100 or more:
    /// never.
    pub swap_above: u32,
    /// Time without a request that counts as idle for swapping.
    pub swap_idle: Duration,
    /// A snapshot is scheduled when this many bytes of records are not in one,
    pub scan_bytes: u64,
    /// or when records went to this many regions of 16 logs since.
    pub scan_regions: usize,
    /// Bytes that a checkpoint holds at once.
    pub checkpoint_memory: usize,
}
impl Default for Settings {
    fn default() -> Settings {
        Settings {
            logged_write_size: 32 << 10,
            near_home: NearHome::IsLogged,
            checkpoint: CheckpointPolicy::Idle(Duration::from_secs(5)),
            swap_above: 80,
            swap_idle: Duration::from_millis(100),
            scan_bytes: 128 << 20,
            scan_regions: 64,
            checkpoint_memory: 32 << 20,
        }
    }
}

/// Interval at which the policy is applied.
const GLANCE: Duration = Duration::from_millis(10);

/// Runs until the disk is gone. Errors are kept by the disk itself: every later write reports them.
pub async fn mind(state: Weak<State>, world: std::rc::Rc<dyn device::World>) {
    let (mut last, mut done_today) = (world.now(), false);
    loop {
        world.sleep_until(world.now().plus(GLANCE)).await;
        let Some(state) = state.upgrade() else { return };
        if state.has_failed() {
            return;
        }
        let idle = state.idle_time();
        if state.snapshot_is_due() {
            let _ = state.snapshot().await;
        }
        if idle >= state.settings.swap_idle {
            if let Some(log) = state.log_to_swap() {
                let _ = state.swap_step(log, SwapTime::Idle).await;
            }
        }
        if state.needs_space() {
            let _ = state.checkpoint_all().await;
        }
        match state.settings.checkpoint {
            CheckpointPolicy::Manual => {}
            CheckpointPolicy::Periodic(period) if world.now().since(last) >= period => {
                let _ = state.checkpoint_all().await;
                last = world.now();
            }
            CheckpointPolicy::Periodic(_) => {}
            CheckpointPolicy::Idle(quiet) if idle >= quiet => {
                let _ = state.checkpoint_gradually(quiet).await;
            }
            CheckpointPolicy::Idle(_) => {}
            CheckpointPolicy::OffHours { from, until } => {
                let is_time = within(hour(&*world), from, until);
                if is_time && !done_today {
                    let _ = state.checkpoint_all().await;
                }
                done_today = is_time;
            }
        }
    }
}

fn hour(world: &dyn device::World) -> u8 {
    (world.wall_clock().seconds.rem_euclid(86_400) / 3600) as u8
}
/// Hours may go over midnight.
fn within(hour: u8, from: u8, until: u8) -> bool {
    if from <= until { (from..until).contains(&hour) } else { hour >= from || hour < until }
}

impl State {
    pub fn idle_time(&self) -> Duration {
        let inner = self.inner.borrow();
        if inner.requests > 0 { Duration::ZERO } else { self.world.now().since(inner.last_request) }
    }
    pub fn request_begins(&self) {
        self.inner.borrow_mut().requests += 1;
    }
    pub fn request_ends(&self) {
        let now: Instant = self.world.now();
        let mut inner = self.inner.borrow_mut();
        inner.requests -= 1;
        inner.last_request = now;
    }
    pub fn snapshot_is_due(&self) -> bool {
        let inner = self.inner.borrow();
        inner.unknown_bytes >= self.settings.scan_bytes
            || inner.regions.len() >= self.settings.scan_regions
    }
    /// Returns whether every log is full: none has space for a record of the usual size.
    pub fn needs_space(&self) -> bool {
        let inner = self.inner.borrow();
        let blocks = self.logged_blocks() as u32 + 1;
        !inner.table.is_empty()
            && near_head_log(&self.layout, &inner.logs, 0, blocks, |_| true).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn off_hours_may_go_over_midnight() {
        assert!(within(2, 1, 5) && !within(5, 1, 5) && !within(0, 1, 5));
        assert!(within(23, 22, 6) && within(5, 22, 6) && !within(6, 22, 6) && !within(12, 22, 6));
    }
}
