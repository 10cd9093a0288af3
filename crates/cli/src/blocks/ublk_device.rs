//! An attached volume as a ublk device. The daemon makes it and serves it; the command that started
//! the daemon makes its block device, and `detach` removes it.
//!
//! A link beside the volume's directory names the device. It counts only where the device has the
//! volume's mark: device numbers are used again.

use crate::daemon::control::{About, Ask, Client, Place, no_answer};
use crate::daemon::holders::refuse_open_device;
use crate::daemon::mount_table;
use crate::daemon::mounted::{not_opened, refuse_mounted};
use crate::disk::identity::identity;
use crate::disk::open_disk::hold_unlocked;
use crate::error::CliError;
use device::World;
use runtime::{Either, IoChoice, NoRing, RealWorld, RingRefusal, race};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use ublk::{Control, Device, ExportedDisk, Remains, Server, Unavailable, WantedDevice};

/// Time limit for others to close a device that is taken away: udev may hold it for a moment.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns why no ublk device can be had; call it before anything that a fork does not share.
pub fn probe() -> Result<(), Unavailable> {
    with_driver(async |_, _| ())
}

/// Runs `work` with the driver, in a world of its own.
fn with_driver<T: 'static>(
    work: impl AsyncFnOnce(&RealWorld, &Control) -> T + 'static,
) -> Result<T, Unavailable> {
    let refused = |error: io::Error| {
        let why = RingRefusal::of(&error).map(|refusal| refusal.to_string());
        Unavailable::NoRing(why.unwrap_or_else(|| error.to_string()))
    };
    Control::exists()?;
    let world = match IoChoice::of_environment().map_err(refused)? {
        // Its threads are not made: a process that forks has one.
        IoChoice::Classic => return Err(Unavailable::NoRing(NoRing::NotWanted.to_string())),
        _ => RealWorld::over(IoChoice::Ring).map_err(refused)?,
    };
    let own = world.clone();
    world.run(async move {
        let control = Control::open(&own).await?;
        Ok(work(&own, &control).await)
    })
}

/// Returns the error of a command that needs the driver.
pub fn unavailable(why: Unavailable) -> CliError {
    let error = CliError::new(format!("no ublk device: {why}"));
    match why {
        Unavailable::NoDriver(why) if why.kind() == io::ErrorKind::PermissionDenied => {
            error.with_remedy("Attach it as root, or with --via nbd.")
        }
        Unavailable::NoDriver(_) => error.with_remedy("Load the driver: modprobe ublk_drv."),
        Unavailable::NoRing(_) => error.with_remedy("See what refuses it: okeanos doctor."),
        Unavailable::TooOld => error.with_remedy("Attach it with --via loop, or --via nbd."),
    }
}

/// Runs `work` for the device `number`, which an error names.
fn ask_driver<T: 'static>(
    number: u32,
    work: impl AsyncFnOnce(&RealWorld, &Control) -> io::Result<T> + 'static,
) -> Result<T, CliError> {
    let done = with_driver(work).map_err(unavailable)?;
    done.map_err(|error| CliError::system(Place::ublk_path(number).display(), error))
}

/// Returns what is left of an earlier attachment as a ublk device, and its number.
fn remains(place: &Place) -> Result<(Remains, u32), CliError> {
    let Some(number) = place.ublk_number() else { return Ok((Remains::Nothing, 0)) };
    let mark = place.mark();
    let remains =
        ask_driver(number, async move |_, control| ublk::look_at(control, number, mark).await)?;
    if remains == Remains::Nothing {
        place.unlink_ublk();
    }
    Ok((remains, number))
}

/// Removes the device of a daemon that has ended. Returns whether there is one that waits for the
/// next daemon.
///
/// A device that does not wait shows no difference whether its daemon lives. So the disk is asked:
/// a daemon holds it, also one whose mount is not visible from this namespace.
pub fn clean_up(place: &Place, source: &Path) -> Result<bool, CliError> {
    match remains(place)? {
        (Remains::Nothing, _) => Ok(false),
        (Remains::Waiting, _) => Ok(true),
        (Remains::Ended, number) => {
            let _held = hold_unlocked(source).map_err(not_opened)?;
            refuse_mounted(&Place::ublk_path(number))?;
            remove(place, number, None)?;
            Ok(false)
        }
    }
}

/// Refuses a disk other than the one behind the volume's device: a copy has the same UUID. What is
/// above the device would go on over the copy, without what was acknowledged since it was made.
pub fn refuse_copy(place: &Place, source: &Path) -> Result<(), CliError> {
    let system = |error| CliError::system(source.display(), error);
    let Some(disk) = place.disk_of_ublk() else { return Ok(()) };
    if disk == identity(source).map_err(system)? {
        return Ok(());
    }
    match remains(place)? {
        (Remains::Nothing, _) => Ok(()),
        (_, number) => {
            let (name, device) = (source.display(), Place::ublk_path(number));
            let device = device.display();
            Err(CliError::new(format!(
                "{device} is the device of another disk, of which {name} is a copy"
            ))
            .with_remedy(format!(
                "Attach that disk, or remove its device first: okeanos blocks detach {device}. \
                     I/O that waits fails then."
            )))
        }
    }
}

/// Refuses to change a volume past a device whose I/O waits for the next daemon: its writes come
/// after the change.
pub fn refuse_waiting(place: &Place) -> Result<(), CliError> {
    match remains(place)? {
        (Remains::Waiting, _) => Err(waits(place)),
        _ => Ok(()),
    }
}

/// Returns the error that I/O waits for a daemon that attaches the volume as before.
pub fn waits(place: &Place) -> CliError {
    CliError::new(format!("I/O waits for its daemon{}", place.attached_as()))
        .with_remedy("Attach it with --via ublk, or detach it first: its I/O fails then.")
}

/// Makes the volume's device, or takes up the one that waits, and begins to serve it.
pub async fn serve(
    world: &RealWorld,
    (place, source): (&Place, &Path),
    export: &ExportedDisk,
) -> Result<Server, CliError> {
    let control = Control::open(world).await.map_err(unavailable)?;
    let mark = place.mark();
    let waiting = match place.ublk_number() {
        Some(number) => match ublk::look_at(&control, number, mark).await {
            Ok(Remains::Waiting) => Some(number),
            _ => None,
        },
        None => None,
    };
    let wanted = WantedDevice { export, mark };
    let opened = Device::open(world, &control, &wanted, waiting).await;
    let device = opened.map_err(|error| match error {
        ublk::UblkError::Differs { .. } => CliError::new(error.to_string())
            .with_remedy("Attach it as before, or detach it first: its I/O fails then."),
        failed => CliError::new(failed.to_string()),
    })?;
    let linked = identity(source).and_then(|disk| place.link_ublk(device.number, &disk));
    linked.map_err(|error| CliError::system(place.0.display(), error))?;
    let own: Rc<dyn World> = Rc::new(world.clone());
    let server = Server::start(&own, device.queue, export);
    // The ring takes commands in their order, so when this one is answered the driver has all
    // slots. It reads partitions only if the process that gave them to it was privileged, which
    // this one soon is not.
    let _ = control.info(device.number).await;
    Ok(server)
}

/// Makes the block device that the daemon serves, or lets its I/O go on. Returns its path.
pub fn start(place: &Place) -> Result<PathBuf, CliError> {
    let system = |error| CliError::system(place.0.display(), error);
    let gone = || CliError::new("the daemon has ended");
    let number = place.ublk_number().ok_or_else(gone)?;
    let mount = mount_table::mount_on(&place.0).map_err(system)?.ok_or_else(gone)?;
    let asked = Client::connect(&mount)?.ask::<About>(Ask::About);
    let process = asked.map_err(|error| no_answer(&mount, Some((&place.0, error))))?.process;
    ask_driver(number, async move |_, control| ublk::start(control, number, process).await)?;
    Ok(Place::ublk_path(number))
}

/// Removes the device of an attachment that failed, behind its daemon. One that another attachment
/// has made stays.
pub fn remove_unstarted(place: &Place, source: &Path) {
    // The first error is the one to report.
    let _ = clean_up(place, source);
}

/// Flushes a device if its daemon serves it, and removes it.
pub fn take_away(place: &Place) -> Result<(), CliError> {
    let (remains, number) = remains(place)?;
    if remains == Remains::Nothing {
        return Ok(());
    }
    let path = Place::ublk_path(number);
    let mount = mount_table::mount_on(&place.0).ok().flatten();
    let is_served = mount.is_some_and(|mount| !mount.is_dead());
    if !is_served {
        refuse_served(number)?;
    }
    refuse_mounted(&path).map_err(|error| match is_served || remains == Remains::Ended {
        true => error,
        false => CliError::new(format!("{} waits for its daemon, and is mounted", path.display()))
            .with_remedy("Attach the volume again as before, and unmount then."),
    })?;
    // Nobody mounts it any more from here on.
    let exclusive = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&path);
    let held = match exclusive {
        Ok(held) => Some(held),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Err(in_use(number)),
        // One that has ended has no block device.
        Err(_) => None,
    };
    if let Some(held) = held.as_ref().filter(|_| is_served) {
        refuse_open_device(&path, held, PATIENCE)?;
        held.sync_all().map_err(|error| CliError::system(path.display(), error))?;
    }
    remove(place, number, held)
}

/// Refuses a device whose daemon lives, and is not seen from here: nobody would flush it.
fn refuse_served(number: u32) -> Result<(), CliError> {
    let info = ask_driver(number, async move |_, control| control.info(number).await)?;
    let process = info.process;
    // A process that has ended has no program any more, although its parent may not know yet.
    let lives = std::fs::read_link(format!("/proc/{process}/exe")).is_ok();
    match lives && info.state == ublk::abi::STATE_LIVE {
        true => Err(CliError::new(format!(
            "{} is served by process {process}, whose mount is not seen from here",
            Place::ublk_path(number).display()
        ))
        .with_remedy(format!(
            "Detach it in the mount namespace that it was attached in. Where its mount was taken \
             away, end the daemon when nobody uses the device, and detach it then: kill {process}."
        ))),
        false => Ok(()),
    }
}

/// Removes a device, which is held until it is stopped.
fn remove(place: &Place, number: u32, held: Option<File>) -> Result<(), CliError> {
    let is_deleted = ask_driver(number, async move |world, control| {
        control.stop(number).await?;
        drop(held);
        let patience = world.sleep_until(world.now().plus(PATIENCE));
        match race(std::pin::pin!(control.delete(number)), patience).await {
            Either::Left(deleted) => deleted.map(|()| true),
            Either::Right(()) => Ok(false),
        }
    })?;
    if !is_deleted {
        return Err(in_use(number));
    }
    place.unlink_ublk();
    Ok(())
}

fn in_use(number: u32) -> CliError {
    let name = Place::ublk_path(number).display().to_string();
    CliError::new(format!("{name} is in use"))
        .with_remedy(format!("See who uses it: fuser -v {name}, lsblk {name}."))
}

/// Refuses to grow a device that keeps its size while it is in use.
pub fn refuse_to_grow(place: &Place) -> Result<(), CliError> {
    let Some(number) = place.ublk_number() else { return Ok(()) };
    let grows = ask_driver(number, async move |_, control| {
        let info = control.info(number).await?;
        Ok(info.flags & ublk::abi::UPDATE_SIZE != 0)
    })?;
    match grows {
        true => Ok(()),
        false => Err(CliError::new(format!(
            "{} keeps its size while it is attached: that takes Linux 6.16",
            Place::ublk_path(number).display()
        ))
        .with_remedy("Detach it, grow it, and attach it again.")),
    }
}

/// Gives a device the size that its volume has now.
pub fn take_size(place: &Place, bytes: u64) -> Result<(), CliError> {
    let Some(number) = place.ublk_number() else { return Ok(()) };
    let sectors = bytes / ublk::abi::SECTOR;
    ask_driver(number, async move |_, control| control.update_size(number, sectors).await)
}
