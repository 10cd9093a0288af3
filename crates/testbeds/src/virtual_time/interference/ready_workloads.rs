//! Workloads that prepare their files and then begin together.

use super::Waits;
use crate::virtual_time::StageError;
use crate::virtual_time::start_line::StartLine;
use device::LocalFuture;
use runtime::{Receiver, VirtualWorld, spawn_with_result};
use std::io;
use std::rc::Rc;

/// Workloads that wait at the start line.
pub(super) struct ReadyWorkloads {
    line: Rc<StartLine>,
    workloads: Vec<Receiver<io::Result<Waits>>>,
}

impl ReadyWorkloads {
    /// Waits until all are ready.
    pub async fn new(
        world: &VirtualWorld,
        line: Rc<StartLine>,
        workloads: Vec<LocalFuture<io::Result<Waits>>>,
    ) -> ReadyWorkloads {
        let count = workloads.len();
        let begin = |workload: LocalFuture<io::Result<Waits>>| {
            let line = line.clone();
            spawn_with_result(world, async move {
                let result = workload.await;
                // A workload that failed will never be ready.
                line.arrive();
                result
            })
        };
        let workloads = workloads.into_iter().map(begin).collect();
        line.until_ready(count).await;
        ReadyWorkloads { line, workloads }
    }

    pub async fn play(self) -> Result<Waits, StageError> {
        self.line.go();
        let (mut count, mut waited) = (0, 0.0);
        for workload in self.workloads {
            let waits = workload
                .await
                .expect("a workload runs to its end")
                .map_err(StageError::Workload)?;
            count += waits.count;
            waited += waits.mean_ms * waits.count as f64;
        }
        Ok(Waits { count, mean_ms: waited / count.max(1) as f64 })
    }
}
