//! A block volume of ours between a disk and the file system above.

use crate::real_time::rig::{self, RigError, ends_with_us};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// An attached block volume. Whatever is mounted on it is unmounted before it is dropped.
pub(crate) struct BlockVolume {
    program: PathBuf,
    options: String,
    source: PathBuf,
    /// The loop device as which it is attached.
    pub device: PathBuf,
    daemon: Option<Child>,
}

impl BlockVolume {
    /// Formats `source`, and attaches it with `options`, those of `okeanos blocks attach -o`.
    pub fn new(program: &Path, options: &str, source: &Path) -> Result<BlockVolume, RigError> {
        let format = ["blocks", "format", "--force"];
        rig::run(Command::new(program).args(format).arg(source))?;
        BlockVolume::attach(program, options, source)
    }

    fn attach(program: &Path, options: &str, source: &Path) -> Result<BlockVolume, RigError> {
        let mut command = Command::new(program);
        // The same kind on every machine.
        command.args(["blocks", "attach", "-f", "--via", "loop", "-o", options]).arg(source);
        ends_with_us(command.stdout(Stdio::piped())).process_group(0);
        let name = format!("{command:?}");
        let mut daemon = command.spawn().map_err(RigError::at(&name))?;
        let mut line = String::new();
        let output = daemon.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).map_err(RigError::at(&name))?;
        let device = PathBuf::from(line.trim_end());
        let volume = BlockVolume {
            program: program.into(),
            options: options.into(),
            source: source.into(),
            device,
            daemon: Some(daemon),
        };
        match line.is_empty() {
            true => Err(RigError::new(format!("{name} made no device"))),
            false => Ok(volume),
        }
    }

    pub fn process(&self) -> Option<u32> {
        self.daemon.as_ref().map(Child::id)
    }

    /// Writes everything home, and attaches the volume anew, with an empty log.
    pub fn drain(self) -> Result<BlockVolume, RigError> {
        let (program, options, source) =
            (self.program.clone(), self.options.clone(), self.source.clone());
        self.detach()?;
        BlockVolume::attach(&program, &options, &source)
    }

    /// Writes everything home, and takes the device away.
    pub fn detach(mut self) -> Result<(), RigError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), RigError> {
        let Some(mut daemon) = self.daemon.take() else { return Ok(()) };
        let detached =
            rig::run(Command::new(&self.program).args(["blocks", "detach"]).arg(&self.source));
        if detached.is_err() {
            let _ = daemon.kill();
        }
        daemon.wait().map_err(RigError::at(self.source.display()))?;
        detached.map(drop)
    }
}

impl Drop for BlockVolume {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
