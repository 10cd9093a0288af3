//! The daemon's part of `-o remount`: changes while the volume is mounted.

use crate::daemon::control::{About, AccessTimes, Changed, Live};
use crate::daemon::reporter::{Level, Reporter};
use crate::mount::MountPlan;
use disks::FileDisk;
use engine::BarrierKind;
use ext4::{Atime, LiveOptions, OnError, Volume};
use runtime::sync::RwLock;
use std::rc::Rc;

#[derive(Clone)]
pub struct Changing {
    volume: Rc<Volume>,
    disks: Vec<FileDisk>,
    reporter: Reporter,
    /// Description without the live settings.
    about: About,
    /// Serialises changes: each claims the disks or releases them.
    changes: Rc<RwLock>,
}

impl Changing {
    pub fn new(
        volume: &Rc<Volume>,
        disks: &[FileDisk],
        reporter: &Reporter,
        plan: &MountPlan,
    ) -> Changing {
        let about = About {
            process: std::process::id(),
            version: crate::VERSION.into(),
            source: plan.source.display().to_string(),
            directory: plan.directory.display().to_string(),
            data: volume.options().engine.data.to_string(),
            options: plan.words.clone(),
            live: None,
        };
        let (volume, disks, reporter) = (volume.clone(), disks.to_vec(), reporter.clone());
        Changing { volume, disks, reporter, about, changes: Rc::default() }
    }

    pub fn about(&self) -> About {
        About { live: Some(self.live()), ..self.about.clone() }
    }

    fn live(&self) -> Live {
        let options = self.volume.live_options();
        Live {
            read_only: self.volume.is_read_only(),
            atime: match options.atime {
                Atime::Never => AccessTimes::Never,
                Atime::Relative => AccessTimes::Relative,
                Atime::Always => AccessTimes::Always,
            },
            stop_on_error: options.on_error == OnError::Stop,
            commit: options.commit,
            barrier: options.barrier == BarrierKind::Flush,
        }
    }

    /// Changes all settings, or none: but a volume that fails in between may have become writable.
    /// Barriers that are wanted again flush what was written without them, while the volume is
    /// ours; and as long as there are any they order how the journal is emptied.
    pub async fn change(&self, wanted: Live) -> Changed {
        let _turn = self.changes.write().await;
        let before = self.volume.live_options();
        match self.change_in_order(wanted).await {
            Ok(()) => Changed::Done(self.about()),
            Err(error) => {
                // A volume that has failed says so by itself.
                let _ = self.volume.set_live_options(before).await;
                Changed::Refused { error }
            }
        }
    }

    async fn change_in_order(&self, wanted: Live) -> Result<(), String> {
        if wanted.read_only && wanted.barrier {
            self.set_live(wanted).await?;
            return self.forbid_changes().await;
        }
        match wanted.read_only {
            true => self.forbid_changes().await?,
            false => self.allow_changes().await?,
        }
        self.set_live(wanted).await
    }

    async fn set_live(&self, wanted: Live) -> Result<(), String> {
        let set = self.volume.set_live_options(LiveOptions {
            atime: match wanted.atime {
                AccessTimes::Never => Atime::Never,
                AccessTimes::Relative => Atime::Relative,
                AccessTimes::Always => Atime::Always,
            },
            on_error: if wanted.stop_on_error { OnError::Stop } else { OnError::Continue },
            commit: wanted.commit,
            barrier: if wanted.barrier { BarrierKind::Flush } else { BarrierKind::None },
        });
        set.await.map_err(|error| error.to_string())
    }

    async fn allow_changes(&self) -> Result<(), String> {
        let was_read_only = self.volume.is_read_only();
        let claimed = self
            .disks
            .iter()
            .try_for_each(|disk| disk.begin_writing().map_err(|error| error.to_string()));
        let allowed = match claimed {
            Ok(()) => self.volume.allow_changes().await.map_err(|error| error.to_string()),
            Err(error) => Err(error),
        };
        match &allowed {
            Ok(report) => report
                .warnings
                .iter()
                .for_each(|warning| self.reporter.report_at(Level::Warning, warning)),
            Err(_) if was_read_only => self.give_back(),
            Err(_) => {}
        }
        allowed.map(drop)
    }

    async fn forbid_changes(&self) -> Result<(), String> {
        self.volume.forbid_changes().await.map_err(|error| error.to_string())?;
        self.give_back();
        Ok(())
    }

    /// Lets others read the disks, too.
    fn give_back(&self) {
        self.disks.iter().for_each(FileDisk::end_writing);
    }
}
