//! Rules for two commits in flight at once (`commits_in_flight=2`): which may overlap, and which
//! waits.
//!
//! | the transaction that is to be issued | while another is in flight |
//! |---|---|
//! | the log is of another format, or has not begun | waits: a transaction must say which ones were durable before it |
//! | it brings data home | waits: its barriers mean what lies before them |
//! | it takes the log's tail along | waits: the superblock says where the other begins |
//! | nothing happened in it | waits: its waiters wait for all before it |
//! | none of these: it writes its log, and one barrier behind it | is issued |
//!
//! Those that wait are issued alone, and nothing passes them: the commit task itself carries them
//! out. Addresses are bound and announced in order, by that task. Answers, checkpoints and frees
//! are in order, too: each waits until it is the oldest.

use crate::interface::options::EngineOptions;
use crate::log::move_tail::TailMover;
use commit::IN_FLIGHT_MAX;
use commit::Pipeline;
use journal::Plan;

/// Decides which commits may be in flight together.
#[derive(Clone, Copy)]
pub(crate) struct Overlap<'a> {
    pub tail: TailMover<'a>,
    pub options: &'a EngineOptions,
    pub pipeline: &'a Pipeline,
}

impl Overlap<'_> {
    fn in_flight_max(&self) -> usize {
        if self.options.overlaps() { self.options.commits_in_flight.min(IN_FLIGHT_MAX) } else { 1 }
    }

    /// Waits until the running transaction may be locked, as far as its open handles are known.
    /// Other handles may join it before this returns.
    pub(crate) async fn wait_until_startable(&self) {
        self.pipeline.until(|| self.may_overlap(self.pipeline.transaction().is_all_logged())).await;
    }

    /// Waits until the transaction may be locked, after its handles have stopped: they may have
    /// done what makes it wait.
    pub(crate) async fn wait_until_lockable(&self) {
        let is_fit = || {
            let transaction = self.pipeline.transaction();
            transaction.is_all_logged()
                && (!transaction.is_empty() || units::fault!("overlap-empty-answered"))
        };
        self.pipeline.until(|| self.may_overlap(is_fit())).await;
    }

    /// Whether the commit may overlap; `fit` if the transaction to be issued may.
    fn may_overlap(&self, fit: bool) -> bool {
        let in_flight = self.pipeline.in_flight();
        in_flight == 0 || fit && in_flight < self.in_flight_max() && !self.tail.tail_goes_along()
    }

    /// Whether another may be issued while this plan is carried out.
    pub(crate) fn may_be_passed(&self, plan: &Plan) -> bool {
        self.in_flight_max() > 1 && plan.is_log_alone() && !self.tail.tail_goes_along()
    }
}
