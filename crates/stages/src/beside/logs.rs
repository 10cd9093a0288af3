//! Databases' logs played again, each in a directory of its own.

use super::start_line::Started;
use super::{StartLine, Waits, tenant};
use crate::StageError;
use crate::virtual_files::VirtualFiles;
use device::LocalFuture;
use ext4::Volume;
use runtime::VirtualWorld;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use workloads::{LogTrace, ReplayOptions, replay_log};

#[derive(Clone, Debug)]
pub struct LogsBeside {
    pub trace: Arc<LogTrace>,
    pub instances: u32,
}

impl LogsBeside {
    pub(super) async fn prepare(
        self,
        world: &VirtualWorld,
        volume: &Rc<Volume>,
        seconds: u64,
        seed: u64,
    ) -> Result<Started, StageError> {
        let line = Rc::new(StartLine::default());
        let mut workloads = Vec::new();
        for number in 0..self.instances {
            let directory = tenant(volume, number).await?.number;
            let files = VirtualFiles::new(world.clone(), volume.clone(), directory, false).starting_at(&line);
            let options = ReplayOptions {
                until: Some(Duration::from_secs(seconds)),
                preallocated: true,
                seed: seed + u64::from(number) * 1000,
                ..ReplayOptions::default()
            };
            let trace = self.trace.clone();
            workloads.push(Box::pin(async move {
                let report = replay_log(&files, &trace, &options, |_| ()).await?;
                Ok(Waits { count: report.syncs, mean_ms: report.sync_mean_ms })
            }) as LocalFuture<_>);
        }
        Ok(Started::new(world, line, workloads).await)
    }
}
