//! Replayed databases' logs, each in a directory of its own.

use super::ready_workloads::ReadyWorkloads;
use super::{Waits, line_up};
use crate::virtual_time::StageError;
use device::LocalFuture;
use ext4::{DurableOnly, Volume};
use runtime::VirtualWorld;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use workloads::{LogTrace, ReplayOptions, replay_log};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogReplayWriters {
    pub trace: Arc<LogTrace>,
    pub instances: u32,
}

/// Prefix of the name of each log.
const PREFIX: &str = "log-";

impl LogReplayWriters {
    /// Selects the logs as files that need durability alone.
    pub fn durable_only() -> DurableOnly {
        format!("{PREFIX}*").parse().expect("a name with a star")
    }

    pub(super) async fn prepare(
        self,
        world: &VirtualWorld,
        volume: &Rc<Volume>,
        seconds: u64,
        seed: u64,
    ) -> Result<ReadyWorkloads, StageError> {
        let workload = |files, seed| -> LocalFuture<_> {
            let until = Some(Duration::from_secs(seconds));
            let prefix = PREFIX.to_owned();
            let options = ReplayOptions {
                until,
                preallocated: true,
                prefix,
                seed,
                ..ReplayOptions::default()
            };
            let trace = self.trace.clone();
            Box::pin(async move {
                let report = replay_log(&files, &trace, &options, |_| ()).await?;
                Ok(Waits { count: report.syncs, mean_ms: report.sync_mean_ms })
            })
        };
        line_up(world, volume, (self.instances, seed), workload).await
    }
}
