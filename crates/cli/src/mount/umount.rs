//! `okeanos umount`: unmounts, and returns only when the daemon has ended.

use crate::daemon::control::{About, Again, Ask, Client, End, Place, no_answer, unanswered};
use crate::daemon::held_mount::HeldParent;
use crate::daemon::holders::holders_of;
use crate::daemon::mount_table::{self, Liveness, Mount};
use crate::daemon::mounted::stopped_user_of;
use crate::daemon::{not_home, reporter};
use crate::error::CliError;
use crate::mount::users;
use crate::text::shell::word;
use rustix::event::{PollFd, PollFlags, poll};
use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Unmount a volume; returns when everything is home and the daemon is gone
///
/// A volume that was unmounted this way needs no recovery, and any Linux mounts it. A mount whose
/// daemon has died is taken away; then its volume does need one, which is printed.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct UmountArguments {
    /// Unmount now, though files are open; the volume closes when the last of them does
    #[arg(short, long)]
    pub lazy: bool,
    /// Cut the connection to a daemon that does not answer: what was not synced is lost, and the
    /// next mount recovers the rest
    #[arg(short, long)]
    pub force: bool,
    /// Unmount a mount whose daemon has died, and leave a living one, or none, as it is
    #[arg(long, conflicts_with_all = ["lazy", "force"])]
    pub if_dead: bool,
    /// Mount point of the volume, or its image file or device
    #[arg(value_name = "DIR|IMAGE|DEVICE")]
    pub directory: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  okeanos umount /mnt/a
  okeanos umount disk.img
  okeanos umount --lazy /mnt/a      files are open, and may stay so
  okeanos umount --force /mnt/a     the daemon does not answer";

pub fn run(arguments: UmountArguments) -> Result<(), CliError> {
    let directory = &arguments.directory;
    let subject = directory.display();
    let found = mount_table::mount_on(directory)
        .map_err(|error| CliError::system(directory.display(), error))?;
    let found = found.or_else(|| mount_table::mount_of(directory));
    if arguments.if_dead {
        return match found.filter(|mount| mount.is_okeanos() && mount.is_dead()) {
            Some(mount) if Place::of_mount(&mount).is_some() => Err(is_attached(&mount, directory)),
            Some(mount) => take_dead_away(&mount),
            None => Ok(()),
        };
    }
    if let Some(mount) = found.as_ref().filter(|mount| Place::of_mount(mount).is_some()) {
        return Err(is_attached(mount, directory));
    }
    let behind = Place::behind(directory).filter(|_| found.is_none());
    let behind = behind.and_then(|place| mount_table::mount_on(&place.0).ok().flatten());
    if let Some(mount) = behind {
        return Err(is_attached(&mount, directory));
    }
    let mount = match found {
        Some(mount) if mount.is_okeanos() => mount,
        Some(mount) => {
            return Err(CliError::new(format!(
                "{subject}: a file system of type {} is mounted there",
                mount.kind
            ))
            .with_remedy("Use umount(8)."));
        }
        None => {
            return Err(CliError::new(format!("{subject}: nothing is mounted there"))
                .with_remedy("See what is mounted: okeanos list"));
        }
    };
    // Called from inside, this process would keep it busy itself.
    let _ = std::env::set_current_dir("/");
    if arguments.force { cut(&mount) } else { end(&mount, arguments.lazy) }
}

/// Refuses an attached block volume: without its mount, the loop device on its file stays, and no
/// command finds it.
fn is_attached(mount: &Mount, named: &Path) -> CliError {
    CliError::new(format!("{} is an attached block volume", named.display()))
        .with_remedy(format!("Detach it: okeanos blocks detach {}.", word(&mount.image())))
}

/// Unmounts, and returns when the daemon has ended; with `lazy`, at once.
pub fn end(mount: &Mount, lazy: bool) -> Result<(), CliError> {
    let liveness = mount.liveness();
    if liveness == Liveness::Dead {
        return take_dead_away(mount);
    }
    let daemon = match Daemon::of(mount) {
        Err(error) if liveness == Liveness::Silent => return Err(error),
        // The kernel takes a moment to see that a process is gone.
        Err(_) if mount.is_dead() => return take_dead_away(mount),
        daemon => daemon?,
    };
    take_away(mount, if lazy { libc::MNT_DETACH } else { 0 })?;
    name_other_mounts(mount);
    if lazy { Ok(()) } else { daemon.wait(mount) }
}

/// Names what else keeps the volume: bind mounts, which the kernel takes away one by one. Until the
/// last of them is, the daemon goes on.
fn name_other_mounts(mount: &Mount) {
    let mounts = mount_table::mounts().unwrap_or_default();
    let others: Vec<&Path> = mounts
        .iter()
        .filter(|other| other.device == mount.device)
        .map(|other| other.directory.as_path())
        .collect();
    if let [first, ..] = others.as_slice() {
        let named: Vec<String> = others.iter().map(|at| at.display().to_string()).collect();
        reporter::complain(&format!(
            "okeanos: {} is mounted on {}, too, and closes when that is unmounted as well: umount \
             {}",
            mount.image().display(),
            named.join(", "),
            word(first)
        ));
    }
}

/// The process behind a mount, and the connection on which it reports its end.
struct Daemon {
    process: OwnedFd,
    client: Client,
}

impl Daemon {
    fn of(mount: &Mount) -> Result<Daemon, CliError> {
        let system =
            |error| CliError::system(format!("daemon of {}", mount.directory.display()), error);
        let mut client = Client::connect(mount)?;
        let about: About =
            client.ask_in_time(Ask::End).map_err(|error| unanswered(mount, &error))?;
        // A user's daemon may name any process, and root would wait for its end.
        let owner = std::fs::metadata(format!("/proc/{}", about.process)).map(|it| it.uid());
        if mount.user() != Some(0) && owner.is_ok_and(|owner| Some(owner) != mount.user()) {
            return Err(no_answer(mount, None));
        }
        // SAFETY: the call takes two integers and makes a new descriptor, which nobody else owns.
        let process = unsafe {
            let number = libc::syscall(libc::SYS_pidfd_open, about.process as libc::pid_t, 0);
            if number < 0 {
                return Err(system(io::Error::last_os_error()));
            }
            OwnedFd::from_raw_fd(number as libc::c_int)
        };
        Ok(Daemon { process, client })
    }

    fn wait(mut self, mount: &Mount) -> Result<(), CliError> {
        let end = self.client.hear::<End>();
        // Interrupted or not, the process ends after its last reply.
        while poll(&mut [PollFd::new(&self.process, PollFlags::IN)], None).is_err() {}
        match end {
            Ok(Some(End { clean: true })) => Ok(()),
            _ => Err(not_home(mount.source.display()).with_remedy(after_stop(mount))),
        }
    }
}

/// Returns the remedy for what an error has stopped and is unmounted.
fn after_stop(mount: &Mount) -> String {
    let next = match Again::of(mount) {
        // What stays in the journal of a host is nobody's to check: it goes to the store later.
        Again::Mount(command) if command.starts_with("okeanos host ") => {
            format!(
                "Then make room at the store where it is full, and mount the host again: {command}."
            )
        }
        Again::Check(command) => format!("Then have the volume checked: {command}."),
        Again::Mount(_) | Again::Serve => {
            "Then replay the journal, and have the volume checked: okeanos recover, e2fsck -f."
                .into()
        }
    };
    format!("See the system log for the cause. {next}")
}

fn take_dead_away(mount: &Mount) -> Result<(), CliError> {
    let next = match Again::of(mount) {
        Again::Mount(command) => format!("\n  The next mount recovers the volume: {command}."),
        Again::Check(command) => {
            format!("\n  The volume has no journal: nothing can be replayed. Repair it: {command}.")
        }
        Again::Serve => String::new(),
    };
    detach_dead(mount, &next)
}

/// Takes a dead mount away for a new one.
pub fn make_room(mount: &Mount) -> Result<(), CliError> {
    detach_dead(mount, "")
}

fn detach_dead(mount: &Mount, next: &str) -> Result<(), CliError> {
    let at = mount.directory.display();
    reporter::complain(&format!(
        "okeanos: the daemon of {at} had died; the dead mount is taken away{next}"
    ));
    take_away(mount, libc::MNT_DETACH)?;
    let holders = holders_of(mount.device);
    if !holders.is_empty() {
        reporter::complain(&format!(
            "okeanos: {} still have files of it open, which answer with errors; a device is free \
             when they have ended",
            holders.join(", ")
        ));
    }
    Ok(())
}

fn cut(mount: &Mount) -> Result<(), CliError> {
    let image = mount.image();
    // MNT_FORCE aborts the connection: waiting callers get an error. It may still leave the
    // directory busy.
    take_away(mount, libc::MNT_FORCE).or_else(|_| take_away(mount, libc::MNT_DETACH))?;
    if let Some(by) = stopped_user_of(&image) {
        reporter::complain(&format!("okeanos: {by}"));
    }
    Ok(())
}

fn take_away(mount: &Mount, flags: libc::c_int) -> Result<(), CliError> {
    unmount_held(mount, flags).map_err(|error| {
        let text = CliError::system(format!("unmount {}", mount.directory.display()), error);
        let users = match users::users_of(&mount.directory) {
            users if users.is_empty() => "See who uses it: fuser -vm DIR.".into(),
            users => format!("It is used by {}.", users.join(", ")),
        };
        text.with_remedy(format!(
            "{users} To unmount it for new users at once, and for these when they close it: \
             okeanos umount --lazy {}.",
            word(&mount.directory)
        ))
    })
}

/// Unmounts this mount, whatever its user has made of its path since it was found.
fn unmount_held(mount: &Mount, flags: libc::c_int) -> io::Result<()> {
    let held = HeldParent::of(mount)?;
    unmount_at(&held.path(), &mount.directory, flags)
}

/// Unmounts what is on a directory that no other user can exchange.
pub fn unmount(directory: &Path, flags: libc::c_int) -> io::Result<()> {
    unmount_at(directory, directory, flags)
}

/// Unmounts by umount2(2) at `path` as root, otherwise through fusermount3, which holds the
/// directory itself.
fn unmount_at(path: &Path, directory: &Path, flags: libc::c_int) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a zero byte.
    if unsafe { libc::umount2(path.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::EPERM) {
        return Err(error);
    }
    let mut helper = Command::new("fusermount3");
    if flags != 0 {
        helper.arg("-z");
    }
    match helper.arg("-u").arg("--").arg(directory).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(io::Error::other("fusermount3 refused")),
        Err(_) => Err(error),
    }
}
