//! The demonstration. In each mode, a volume and its journal lie on a loop device each. Many
//! writers are measured. The same writers then meet a kill -9 of the daemon. Recovery and e2fsck
//! follow, and everything that was acknowledged is read back.

use crate::real_time::contender::mode_option;
use crate::real_time::installed::Programs;
use crate::real_time::rig::{self, LoopDevice, MountedDirectory, RigError, Workspace};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use workloads::{Acknowledged, Limit, StreamOptions, StreamReport, run_streams};
use workloads::{SyncKind, verify};

pub struct DemoOptions {
    /// Values of `data=`; [`DEFAULT`] is a mount that names none, [`KERNEL`] the kernel's ext4,
    /// which is measured and not killed.
    pub modes: Vec<String>,
    pub writers: u32,
    /// Bytes of a record.
    pub size: usize,
    /// Duration of the measurement.
    pub measured: Duration,
    /// Duration of the writes before the crash.
    pub crash_after: Duration,
    /// Directory of the images.
    pub directory: PathBuf,
    pub programs: Programs,
}

/// Results of one mode.
#[derive(Clone, Debug, serde::Serialize)]
pub struct DemoRow {
    pub mode: String,
    pub measured: StreamReport,
    /// Bytes that the kernel counted as written to the two devices, from before the mount until
    /// after the unmount, when everything is home.
    pub journal_bytes: u64,
    pub home_bytes: u64,
    pub payload_bytes: u64,
    pub journal_bytes_per_payload_byte: f64,
    pub home_bytes_per_payload_byte: f64,
    /// Output of `okeanos stats` before the unmount.
    pub stats: Value,
    /// Output of `okeanos recover` after the crash.
    pub recovery: Value,
    /// Records acknowledged in both runs, all of which were read back.
    pub acknowledged: u64,
    pub lost: u64,
}

/// The kernel's ext4 with its default mode.
pub const KERNEL: &str = "ext4";

/// Okeanos, mounted without a mode.
const DEFAULT: &str = "okeanos";

const HOME_SIZE: u64 = 512 << 20;
const JOURNAL_SIZE: u64 = 128 << 20;

/// Runs the demonstration; lost records are in the rows. `progress` gets a description of each
/// step.
///
/// # Errors
/// A step failed.
pub fn demo(options: &DemoOptions, progress: impl Fn(&str)) -> Result<Vec<DemoRow>, RigError> {
    rig::hide_mounts()?;
    let place = Workspace::new(&options.directory)?;
    progress("filling the images");
    rig::fill_image(&place.image("home"), HOME_SIZE)?;
    rig::fill_image(&place.image("journal"), JOURNAL_SIZE)?;
    options
        .modes
        .iter()
        .map(|mode| ModeStage::new(options, &place, mode)?.play(&progress))
        .collect()
}

/// A fresh volume for one mode.
struct ModeStage<'a> {
    options: &'a DemoOptions,
    mode: &'a str,
    home: LoopDevice,
    journal: LoopDevice,
    mount_point: PathBuf,
}

impl<'a> ModeStage<'a> {
    fn new(
        options: &'a DemoOptions,
        place: &Workspace,
        mode: &'a str,
    ) -> Result<ModeStage<'a>, RigError> {
        rig::wipe_image(&place.image("home"))?;
        rig::wipe_image(&place.image("journal"))?;
        let home = LoopDevice::attach(&place.image("home"))?;
        let journal = LoopDevice::attach(&place.image("journal"))?;
        let mut mkfs = Command::new(&options.programs.okeanos);
        mkfs.env("UNIX_IO_NOZEROOUT", "1").args(["mkfs", "--journal-device"]).arg(&journal.path);
        mkfs.arg(&home.path).args(["--", "-q", "-E", "nodiscard"]);
        rig::run(&mut mkfs)?;
        Ok(ModeStage { options, mode, home, journal, mount_point: place.mount_point() })
    }

    fn play(&self, progress: &impl Fn(&str)) -> Result<DemoRow, RigError> {
        let writers = self.options.writers;
        progress(&format!("{}: {writers} writers, measured", self.mode));
        let before = (self.journal.bytes_written()?, self.home.bytes_written()?);
        let mounted = self.mount()?;
        let (measured, first) = self.write("measured-", Limit::Time(self.options.measured))?;
        if let Some(failure) = measured.failure {
            return Err(RigError::new(format!("{}: a write failed: {failure}", self.mode)));
        }
        let is_kernel = self.mode == KERNEL;
        let mut ask = Command::new(&self.options.programs.okeanos);
        let stats = match is_kernel {
            true => Value::Null,
            false => self.json(ask.args(["stats", "--json"]).arg(&self.mount_point))?,
        };
        mounted.unmount()?;
        let journal_bytes = self.journal.bytes_written()? - before.0;
        let home_bytes = self.home.bytes_written()? - before.1;
        let payload_bytes = measured.operations * measured.size as u64;
        let per_payload_byte = |bytes: u64| bytes as f64 / payload_bytes.max(1) as f64;
        let row = DemoRow {
            mode: self.mode.to_owned(),
            measured,
            journal_bytes,
            home_bytes,
            payload_bytes,
            journal_bytes_per_payload_byte: per_payload_byte(journal_bytes),
            home_bytes_per_payload_byte: per_payload_byte(home_bytes),
            stats,
            recovery: Value::Null,
            acknowledged: 0,
            lost: 0,
        };
        if is_kernel {
            return Ok(row);
        }

        progress(&format!("{}: {writers} writers, and a crash", self.mode));
        let second = self.crash()?;
        progress(&format!("{}: recovery and proof", self.mode));
        let mut recover = Command::new(&self.options.programs.okeanos);
        recover
            .args(["recover", "--json", "--journal-device"])
            .arg(&self.journal.path)
            .arg(&self.home.path);
        let recovery = self.json(&mut recover)?;
        self.check()?;
        let mounted = self.mount()?;
        let verdicts = [self.read_back(&first)?, self.read_back(&second)?];
        mounted.unmount()?;
        self.check()?;

        Ok(DemoRow {
            recovery,
            acknowledged: verdicts.iter().map(|verdict| verdict.acknowledged).sum(),
            lost: verdicts.iter().map(|verdict| verdict.lost).sum(),
            ..row
        })
    }

    fn mount(&self) -> Result<MountedDirectory, RigError> {
        if self.mode == KERNEL {
            let options = format!("data=ordered,journal_path={}", self.journal.path.display());
            return MountedDirectory::kernel("ext4", &options, &self.home.path, &self.mount_point);
        }
        let mode = mode_option((self.mode != DEFAULT).then_some(self.mode));
        let options = format!("{mode}journal_dev={}", self.journal.path.display());
        MountedDirectory::okeanos(
            Command::new(&self.options.programs.okeanos),
            &options,
            &self.home.path,
            &self.mount_point,
        )
    }

    fn write(&self, prefix: &str, limit: Limit) -> Result<(StreamReport, Acknowledged), RigError> {
        let streams = StreamOptions {
            writers: self.options.writers,
            size: self.options.size,
            limit,
            rate: None,
            sync: SyncKind::OSync,
            prefix: prefix.to_owned(),
        };
        run_streams(&self.mount_point, &streams, |_| ())
            .map_err(RigError::at(self.mount_point.display()))
    }

    /// Kills the daemon while the writers write; returns the writes acknowledged until then.
    fn crash(&self) -> Result<Acknowledged, RigError> {
        let mut mounted = self.mount()?;
        let outcome = std::thread::scope(|scope| {
            let writers = scope.spawn(|| self.write("crash-", Limit::Count(u64::MAX)));
            std::thread::sleep(self.options.crash_after);
            let killed = mounted.kill_daemon();
            // Their calls fail from now on, and they close their files, so that the mount can be
            // taken down.
            let outcome = writers.join().expect("writers return their failures");
            killed.and(outcome)
        });
        drop(mounted);
        let (report, acknowledged) = outcome?;
        match report.failure {
            Some(_) if report.operations > 0 => Ok(acknowledged),
            Some(failure) => {
                Err(RigError::new(format!("{}: nothing was written: {failure}", self.mode)))
            }
            None => Err(RigError::new(format!("{}: the writers survived the crash", self.mode))),
        }
    }

    fn read_back(&self, acknowledged: &Acknowledged) -> Result<workloads::FileVerdict, RigError> {
        verify(&self.mount_point, acknowledged)
            .map_err(RigError::at(format!("{}: reading back", self.mode)))
    }

    fn check(&self) -> Result<(), RigError> {
        let mut e2fsck = Command::new("e2fsck");
        e2fsck.args(["-f", "-n", "-j"]).arg(&self.journal.path).arg(&self.home.path);
        rig::run(&mut e2fsck).map(drop)
    }

    fn json(&self, command: &mut Command) -> Result<Value, RigError> {
        let text = rig::run(command)?;
        serde_json::from_str(&text)
            .map_err(|error| RigError::new(format!("{command:?}: {error}\n{text}")))
    }
}
