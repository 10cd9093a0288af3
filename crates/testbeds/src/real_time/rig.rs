//! Base of demonstrations and comparisons: image files, loop devices, mounts, and other programs.
//!
//! Everything is taken down when its value is dropped. Needs root.

use crate::virtual_time::Traffic;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use workloads::{StreamOptions, StreamReport, run_streams};

/// A failure of something outside this program.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RigError(String);

impl RigError {
    pub(crate) fn new(text: impl Into<String>) -> RigError {
        RigError(text.into())
    }
    pub(crate) fn at(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> RigError {
        move |error| RigError(format!("{what}: {error}"))
    }
}

/// Hides mounts: from now on, mounts of this thread and of those it starts are visible only to
/// them.
pub(crate) fn hide_mounts() -> Result<(), RigError> {
    // SAFETY: unshare takes no pointers; mount gets strings that end in zero, or null where it
    // allows it.
    let failed = unsafe {
        libc::unshare(libc::CLONE_NEWNS) != 0
            || libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) != 0
    };
    if failed {
        return Err(RigError::at("cannot make a private mount namespace (this needs root)")(
            io::Error::last_os_error(),
        ));
    }
    Ok(())
}

/// Runs a program to its end and returns its standard output; its standard error is in the error.
pub(crate) fn run(command: &mut Command) -> Result<String, RigError> {
    let name = format!("{command:?}");
    let output = command.output().map_err(RigError::at(&name))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(RigError(format!("{name} failed ({}):\n{}{}", output.status, out, err)))
}

/// Makes a file of zeros that are really written, so that no later write has to allocate or
/// convert.
pub(crate) fn fill_image(path: &Path, size: u64) -> Result<(), RigError> {
    let fill = || {
        let mut file = File::create(path)?;
        let zeros = vec![0; 1 << 20];
        let mut left = size;
        while left > 0 {
            let part = left.min(zeros.len() as u64) as usize;
            file.write_all(&zeros[..part])?;
            left -= part as u64;
        }
        file.sync_all()
    };
    fill().map_err(RigError::at(path.display()))
}

/// Overwrites the first and last MiB, where file systems are recognised.
pub(crate) fn wipe_image(path: &Path) -> Result<(), RigError> {
    let wipe = || {
        let file = File::options().write(true).open(path)?;
        let zeros = vec![0; 1 << 20];
        let end = file.metadata()?.len().saturating_sub(zeros.len() as u64);
        file.write_all_at(&zeros, 0)?;
        file.write_all_at(&zeros, end)?;
        file.sync_all()
    };
    wipe().map_err(RigError::at(path.display()))
}

/// Makes a directory to which `user` alone has access.
pub(crate) fn directory_of(path: &Path, user: &str) -> Result<(), RigError> {
    let make = || {
        std::fs::create_dir(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
    };
    make().map_err(RigError::at(path.display()))?;
    let id = run(Command::new("id").args(["-u", user]))?;
    let id = id.trim().parse().map_err(|_| RigError::new(format!("{user} has no number")))?;
    chown(path, Some(id), Some(id)).map_err(RigError::at(path.display()))
}

const PLACES: &str = "okeanos-bench-";

/// Removes the directories of programs that were killed.
fn remove_orphans(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PLACES)?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            // A directory that cannot be removed is not empty, so in use; or another program is
            // removing it.
            let _ = remove_place(&entry.path());
        }
    }
}

/// A directory for images and a mount point, removed at the end.
pub(crate) struct Workspace(PathBuf);

impl Workspace {
    pub fn new(parent: &Path) -> Result<Workspace, RigError> {
        remove_orphans(parent);
        let path = parent.join(format!("{PLACES}{}", std::process::id()));
        std::fs::create_dir_all(path.join("mount")).map_err(RigError::at(path.display()))?;
        Ok(Workspace(path.canonicalize().map_err(RigError::at(path.display()))?))
    }
    pub fn image(&self, name: &str) -> PathBuf {
        self.0.join(format!("image-{name}"))
    }
    /// Makes another directory to mount on.
    pub fn directory(&self, name: &str) -> Result<PathBuf, RigError> {
        let path = self.0.join(name);
        std::fs::create_dir_all(&path).map_err(RigError::at(path.display()))?;
        Ok(path)
    }
    pub fn mount_point(&self) -> PathBuf {
        self.0.join("mount")
    }
}

/// Returns the result of `work`, and the seconds it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> Result<T, RigError>) -> Result<(T, f64), RigError> {
    let begun = Instant::now();
    let done = work()?;
    Ok((done, begun.elapsed().as_secs_f64()))
}

/// Plays streams in a directory. A failed write is an error that names `who`.
pub(crate) fn play_streams(
    directory: &Path,
    streams: &StreamOptions,
    who: impl std::fmt::Display,
) -> Result<StreamReport, RigError> {
    let (report, _) =
        run_streams(directory, streams, |_| ()).map_err(RigError::at(directory.display()))?;
    match &report.failure {
        Some(failure) => Err(RigError::new(format!("{who}: a write failed: {failure}"))),
        None => Ok(report),
    }
}

/// Prints a failure of taking down; the rest is taken down all the same.
pub(crate) fn complain(text: &str) {
    let _ = runtime::standard_error::print_line(text, Duration::from_secs(1));
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if let Err(error) = remove_place(&self.0) {
            complain(&format!("{}: {error}", self.0.display()));
        }
    }
}

/// Removes images and empty directories, and never enters one: it could be a mount that was not
/// taken down.
fn remove_place(path: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    std::fs::remove_dir(path)
}

/// A loop device with direct I/O on a file. The kernel detaches it when nobody has it open, so also
/// if this program is killed.
pub(crate) struct LoopDevice {
    pub path: PathBuf,
    _open: File,
}

impl LoopDevice {
    pub fn attach(image: &Path) -> Result<LoopDevice, RigError> {
        let shown =
            run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(image))?;
        let path = PathBuf::from(shown.trim());
        let opened = File::options().read(true).write(true).open(&path);
        // For an open device, losetup marks it to be detached when it is closed.
        run(Command::new("losetup").arg("-d").arg(&path))?;
        let device = LoopDevice { _open: opened.map_err(RigError::at(path.display()))?, path };
        // The cache setting of a loop device outlives its attachment.
        device.set_flushes("write back")?;
        Ok(device)
    }
    /// Returns the bytes written to the device since it was attached, as the kernel counts them.
    pub fn bytes_written(&self) -> Result<u64, RigError> {
        Ok(self.traffic()?.bytes_written)
    }
    /// Returns the requests to the device since it was attached, as the kernel counts them.
    pub fn traffic(&self) -> Result<Traffic, RigError> {
        let path = self.in_sysfs("stat");
        let text = std::fs::read_to_string(&path).map_err(RigError::at(path.display()))?;
        traffic(&text).ok_or_else(|| RigError(format!("{} lacks numbers", path.display())))
    }
    /// Makes the kernel treat the device's cache as one that needs no flush, and send none.
    pub fn ignore_flushes(&self) -> Result<(), RigError> {
        self.set_flushes("write through")
    }
    fn set_flushes(&self, cache: &str) -> Result<(), RigError> {
        let path = self.in_sysfs("queue/write_cache");
        std::fs::write(&path, cache).map_err(RigError::at(path.display()))
    }
    fn in_sysfs(&self, file: &str) -> PathBuf {
        let name = self.path.file_name().expect("a device has a name");
        Path::new("/sys/block").join(name).join(file)
    }
}

/// Parses the numbers of Documentation/block/stat.rst: sectors are 512 bytes, the sixteenth number
/// counts flushes.
fn traffic(text: &str) -> Option<Traffic> {
    let numbers: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let at = |index: usize| numbers.get(index).copied();
    Some(Traffic {
        reads: at(0)?,
        writes: at(4)?,
        flushes: at(15)?,
        bytes_read: at(2)? * 512,
        bytes_written: at(6)? * 512,
    })
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // The next user of this device must not lose data.
        if let Err(error) = self.set_flushes("write back") {
            complain(&error.to_string());
        }
    }
}

/// Kills the child when this program ends, for whatever reason.
pub(crate) fn ends_with_us(command: &mut Command) -> &mut Command {
    // SAFETY: prctl may be called between fork and exec, and takes no pointers here.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        })
    }
}

/// Returns a daemon's command. Ctrl-C ends this program and the daemon; the mount ends with it, and
/// then the loop device. Its standard error is reported if it fails.
pub(crate) fn daemon(program: &Path) -> Command {
    let mut command = Command::new(program);
    ends_with_us(&mut command).process_group(0).stderr(Stdio::piped());
    command
}

/// A mount made by a program of the kernel or of Okeanos.
pub(crate) struct MountedDirectory {
    directory: PathBuf,
    /// The daemon, if there is one: it ends when the directory is unmounted.
    daemon: Option<Child>,
}

impl MountedDirectory {
    /// Runs `mount -t KIND -o OPTIONS DEVICE DIRECTORY`.
    pub fn kernel(
        kind: &str,
        options: &str,
        device: &Path,
        directory: &Path,
    ) -> Result<MountedDirectory, RigError> {
        run(Command::new("mount").args(["-t", kind, "-o", options]).arg(device).arg(directory))?;
        Ok(MountedDirectory { directory: directory.to_owned(), daemon: None })
    }
    /// Has the program of `daemon` run `mount -f -o OPTIONS DEVICE DIRECTORY`; returns once the
    /// mount answers.
    pub fn okeanos(
        mut daemon: Command,
        options: &str,
        device: &Path,
        directory: &Path,
    ) -> Result<MountedDirectory, RigError> {
        ends_with_us(&mut daemon).process_group(0).args(["mount", "-f", "-o", options]).arg(device);
        MountedDirectory::by(daemon, directory)
    }
    /// Starts a daemon that mounts on the directory, its last argument; returns once the mount
    /// answers. If its standard error is piped, its output is in the error.
    pub fn by(mut command: Command, directory: &Path) -> Result<MountedDirectory, RigError> {
        command.arg(directory);
        let name = format!("{command:?}");
        let child = command.spawn().map_err(RigError::at(&name))?;
        let mut mounted = MountedDirectory { directory: directory.to_owned(), daemon: Some(child) };
        let child = mounted.daemon.as_mut().expect("just put there");
        let deadline = Instant::now() + Duration::from_secs(60);
        while !answers(directory)? {
            if let Some(status) = child.try_wait().map_err(RigError::at(&name))? {
                let mut why = String::new();
                if let Some(mut errors) = child.stderr.take() {
                    errors.read_to_string(&mut why).map_err(RigError::at(&name))?;
                }
                return Err(RigError(format!("{name} ended ({status})\n{why}").trim_end().into()));
            }
            if Instant::now() > deadline {
                return Err(RigError(format!("{name} did not mount within a minute")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(mounted)
    }
    pub fn process(&self) -> Option<u32> {
        self.daemon.as_ref().map(Child::id)
    }
    /// Kills the daemon, as a power cut would: it gets no chance to act.
    pub fn kill_daemon(&mut self) -> Result<(), RigError> {
        let daemon =
            self.daemon.as_mut().ok_or_else(|| RigError::new("there is no daemon to kill"))?;
        daemon
            .kill()
            .and_then(|()| daemon.wait())
            .map_err(RigError::at("kill -9 of the daemon"))?;
        self.daemon = None;
        Ok(())
    }
    /// Unmounts and waits for the daemon's end.
    pub fn unmount(mut self) -> Result<(), RigError> {
        self.take_down()
    }
    fn take_down(&mut self) -> Result<(), RigError> {
        // The files of an io_uring are closed some time after its process has ended.
        let deadline = Instant::now() + Duration::from_secs(20);
        while is_mount_point(&self.directory)? {
            let Err(error) = run(Command::new("umount").arg(&self.directory)) else { break };
            if Instant::now() > deadline || !error.to_string().contains("busy") {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        match self.daemon.take().map(|mut daemon| daemon.wait()) {
            None => Ok(()),
            Some(Ok(status)) if status.success() => Ok(()),
            Some(Ok(status)) => Err(RigError(format!("the daemon ended with {status}"))),
            Some(Err(error)) => Err(RigError::at("the daemon")(error)),
        }
    }
}

impl Drop for MountedDirectory {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            complain(&error.to_string());
        }
    }
}

fn is_mount_point(directory: &Path) -> Result<bool, RigError> {
    let path = "/proc/self/mountinfo";
    let text = std::fs::read_to_string(path).map_err(RigError::at(path))?;
    let wanted =
        directory.to_str().ok_or_else(|| RigError::new("the directory's name is not UTF-8"))?;
    // The fifth word is the mount point; blanks in it are written \040.
    Ok(text
        .lines()
        .any(|line| line.split(' ').nth(4).is_some_and(|at| at.replace("\\040", " ") == wanted)))
}

/// Whether something is mounted there, and its daemon serves it. The kernel shows a mount before
/// its daemon has begun, and blocks calls on it.
fn answers(directory: &Path) -> Result<bool, RigError> {
    Ok(is_mount_point(directory)? && directory.symlink_metadata().is_ok())
}

/// Returns the median; 0 for an empty list.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 0 => (values[count / 2 - 1] + values[count / 2]) / 2.0,
        count => values[count / 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![]), 0.0);
    }

    #[test]
    fn the_root_is_a_mount_point_and_nothing_below_a_fresh_directory_is() {
        assert!(is_mount_point(Path::new("/")).unwrap());
        assert!(!is_mount_point(tempfile::tempdir().unwrap().path()).unwrap());
    }

    #[test]
    fn a_filled_image_occupies_its_whole_size() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        fill_image(&path, 3 << 20).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert!(metadata.len() == 3 << 20 && metadata.blocks() * 512 >= 3 << 20);
    }

    #[test]
    fn leftovers_of_a_killed_program_are_removed_and_a_running_ones_are_not() {
        let parent = tempfile::tempdir().unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let left = parent.path().join(format!("{PLACES}{}", child.id()));
        std::fs::create_dir_all(left.join("mount")).unwrap();
        let running = parent.path().join(format!("{PLACES}1"));
        std::fs::create_dir_all(running.join("mount")).unwrap();
        let place = Workspace::new(parent.path()).unwrap();
        assert!(!left.exists() && running.exists() && place.mount_point().exists());
    }

    #[test]
    fn a_loop_device_is_gone_when_the_program_that_had_it_is() {
        use std::os::fd::AsRawFd;
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(1 << 20).unwrap();
        let attached = || run(Command::new("losetup").arg("-j").arg(image.path())).unwrap();
        let device =
            LoopDevice::attach(image.path()).unwrap_or_else(|error| panic!("needs root: {error}"));
        assert!(attached().contains(device.path.to_str().unwrap()));
        // The kernel closes it so for a process that is killed. SAFETY: nothing else uses this
        // descriptor, and the device is never dropped.
        unsafe { libc::close(device._open.as_raw_fd()) };
        std::mem::forget(device);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !attached().is_empty() {
            assert!(Instant::now() < deadline, "{}", attached());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_place_is_removed_but_never_what_is_mounted_there() {
        let parent = tempfile::tempdir().unwrap();
        let place = Workspace::new(parent.path()).unwrap();
        let kept = place.directory("home").unwrap().join("disk");
        std::fs::write(&kept, "somebody's").unwrap();
        std::fs::write(place.image("1"), "").unwrap();
        drop(place);
        assert!(kept.exists());
        std::fs::remove_file(&kept).unwrap();
        drop(Workspace::new(parent.path()).unwrap());
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_numbers_of_a_device_are_read() {
        let text = " 10 0 80 5 7 0 56 3 0 8 8 0 0 0 0 2 1\n";
        let expected = Traffic {
            reads: 10,
            writes: 7,
            flushes: 2,
            bytes_read: 80 * 512,
            bytes_written: 56 * 512,
        };
        assert_eq!(traffic(text), Some(expected));
        assert_eq!(traffic("1 2 3"), None);
    }

    #[test]
    fn a_daemon_that_does_not_mount_says_why() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo because >&2; exit 3"]).stderr(std::process::Stdio::piped());
        let Err(error) = MountedDirectory::by(command, directory.path()) else {
            panic!("nothing was mounted")
        };
        assert!(error.to_string().ends_with("because"), "{error}");
    }

    /// Needs root.
    #[test]
    fn unmounting_waits_for_who_is_about_to_leave() {
        hide_mounts().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mounted =
            MountedDirectory::kernel("tmpfs", "size=1m", Path::new("none"), directory.path())
                .unwrap();
        let held = File::create(directory.path().join("held")).unwrap();
        let leaving = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(held);
        });
        mounted.unmount().unwrap();
        leaving.join().unwrap();
        assert!(!is_mount_point(directory.path()).unwrap());
    }

    #[test]
    fn a_failing_program_says_why() {
        let error = run(Command::new("sh").args(["-c", "echo because >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("because"), "{error}");
    }
}
