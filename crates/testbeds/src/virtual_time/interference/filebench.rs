//! Instances of Filebench, each with a directory of its own and a limited rate.

use super::ready_workloads::ReadyWorkloads;
use super::{Waits, line_up};
use crate::virtual_time::StageError;
use device::LocalFuture;
use ext4::Volume;
use runtime::VirtualWorld;
use std::rc::Rc;
use std::time::Duration;
use workloads::{FilebenchOptions, Limit, Personality, SyncKind, filebench};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilebenchWriters {
    pub personality: Personality,
    pub instances: u32,
    /// Operations of one instance per second, of any kind.
    pub per_second: u32,
    /// Files of one instance.
    pub files: u64,
}

impl FilebenchWriters {
    /// Varmail calls fsync. Fileserver does not, so its writes are O_SYNC: otherwise nothing would
    /// wait for the disk.
    fn options(self, seconds: u64, seed: u64) -> FilebenchOptions {
        let sync = match self.personality {
            Personality::Varmail => SyncKind::None,
            _ => SyncKind::OSync,
        };
        FilebenchOptions {
            files: self.files,
            sync,
            per_second: Some(self.per_second),
            limit: Limit::Time(Duration::from_secs(seconds)),
            seed,
            ..FilebenchOptions::of(self.personality)
        }
    }

    pub(super) async fn prepare(
        self,
        world: &VirtualWorld,
        volume: &Rc<Volume>,
        seconds: u64,
        seed: u64,
    ) -> Result<ReadyWorkloads, StageError> {
        let is_mail = self.personality == Personality::Varmail;
        let workload = |files, seed| -> LocalFuture<_> {
            let options = self.options(seconds, seed);
            Box::pin(async move {
                let report = filebench(&files, &options, |_| ()).await?;
                let (count, mean_ms) = match is_mail {
                    true => (report.syncs, report.sync_mean_ms),
                    false => (report.writes, report.write_mean_ms),
                };
                Ok(Waits { count, mean_ms })
            })
        };
        line_up(world, volume, (self.instances, seed), workload).await
    }
}
