//! An attached volume as a ublk device: its driver's commands.

use super::PATIENCE;
use crate::daemon::control::{About, Ask, Client, DriverDevice, Place, no_answer};
use crate::daemon::mount_table;
use crate::error::CliError;
use device::World;
use runtime::{Either, IoChoice, NoRing, RealWorld, RingRefusal, race};
use std::fs::File;
use std::io;
use std::rc::Rc;
use ublk::{Control, Device, ExportedDisk, Remains, Server, Unavailable, WantedDevice};

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
            error.with_remedy("Attach it as root, or with --via nbd --socket.")
        }
        Unavailable::NoDriver(_) => error.with_remedy("Load the driver: modprobe ublk_drv."),
        Unavailable::NoRing(_) => error.with_remedy("See what refuses it: okeanos doctor."),
        Unavailable::TooOld => error.with_remedy("Attach it with --via nbd, or --via loop."),
    }
}

/// Runs `work` for the device `number`, which an error names.
fn ask_driver<T: 'static>(
    number: u32,
    work: impl AsyncFnOnce(&RealWorld, &Control) -> io::Result<T> + 'static,
) -> Result<T, CliError> {
    let done = with_driver(work).map_err(unavailable)?;
    done.map_err(|error| CliError::system(DriverDevice::Ublk(number).path().display(), error))
}

/// Returns what the driver has of a device of this number.
pub fn remains(place: &Place, number: u32) -> Result<Remains, CliError> {
    let mark = place.mark();
    ask_driver(number, async move |_, control| ublk::look_at(control, number, mark).await)
}

/// Makes the volume's device, or takes up the one that waits unless that is refused, and begins to
/// serve it. Returns its number.
pub async fn serve(
    world: &RealWorld,
    place: &Place,
    export: &ExportedDisk,
    refuse: impl Fn(DriverDevice) -> Result<(), CliError>,
) -> Result<(u32, Server), CliError> {
    let control = Control::open(world).await.map_err(unavailable)?;
    let mark = place.mark();
    let waiting = match place.ublk_number() {
        Some(number) => match ublk::look_at(&control, number, mark).await {
            Ok(Remains::Waiting) => Some(number),
            _ => None,
        },
        None => None,
    };
    match waiting {
        Some(number) => refuse(DriverDevice::Ublk(number))?,
        None => place.unmark_unchecked(),
    }
    let wanted = WantedDevice { export, mark };
    let opened = Device::open(world, &control, &wanted, waiting).await;
    let device = opened.map_err(|error| match error {
        ublk::UblkError::Differs { .. } => CliError::new(error.to_string())
            .with_remedy("Attach it as before, or detach it first: its I/O fails then."),
        failed => CliError::new(failed.to_string()),
    })?;
    let own: Rc<dyn World> = Rc::new(world.clone());
    let server = Server::start(&own, device.queue, export);
    // The ring takes commands in their order, so when this one is answered the driver has all
    // slots. It reads partitions only if the process that gave them to it was privileged, which
    // this one soon is not.
    let _ = control.info(device.number).await;
    Ok((device.number, server))
}

/// Makes the block device that the daemon serves, or lets its I/O go on.
pub fn start(place: &Place, number: u32) -> Result<(), CliError> {
    let system = |error| CliError::system(place.0.display(), error);
    let gone = || CliError::new("the daemon has ended");
    let mount = mount_table::mount_on(&place.0).map_err(system)?.ok_or_else(gone)?;
    let asked = Client::connect(&mount)?.ask::<About>(Ask::About);
    let process = asked.map_err(|error| no_answer(&mount, Some((&place.0, error))))?.process;
    ask_driver(number, async move |_, control| ublk::start(control, number, process).await)
}

/// Refuses a device whose daemon lives, and is not seen from here: nobody would flush it.
pub fn refuse_served(number: u32) -> Result<(), CliError> {
    let info = ask_driver(number, async move |_, control| control.info(number).await)?;
    let process = info.process;
    // A process that has ended has no program any more, although its parent may not know yet.
    let lives = std::fs::read_link(format!("/proc/{process}/exe")).is_ok();
    match lives && info.state == ublk::abi::STATE_LIVE {
        true => Err(CliError::new(format!(
            "{} is served by process {process}, whose mount is not seen from here",
            DriverDevice::Ublk(number).path().display()
        ))
        .with_remedy(format!(
            "Detach it in the mount namespace that it was attached in. Where its mount was taken \
             away, end the daemon when nobody uses the device, and detach it then: kill {process}."
        ))),
        false => Ok(()),
    }
}

/// Removes a device, which is held until it is stopped. Returns whether its last user has closed
/// it.
pub fn remove(number: u32, held: Option<File>) -> Result<bool, CliError> {
    ask_driver(number, async move |world, control| {
        control.stop(number).await?;
        drop(held);
        let patience = world.sleep_until(world.now().plus(PATIENCE));
        match race(std::pin::pin!(control.delete(number)), patience).await {
            Either::Left(deleted) => deleted.map(|()| true),
            Either::Right(()) => Ok(false),
        }
    })
}

/// Refuses to grow a device that keeps its size while it is in use.
pub fn refuse_to_grow(number: u32) -> Result<(), CliError> {
    let grows = ask_driver(number, async move |_, control| {
        let info = control.info(number).await?;
        Ok(info.flags & ublk::abi::UPDATE_SIZE != 0)
    })?;
    match grows {
        true => Ok(()),
        false => Err(CliError::new(format!(
            "{} keeps its size while it is attached: that takes Linux 6.16",
            DriverDevice::Ublk(number).path().display()
        ))
        .with_remedy("Detach it, grow it, and attach it again.")),
    }
}

/// Gives a device the size that its volume has now.
pub fn take_size(number: u32, bytes: u64) -> Result<(), CliError> {
    let sectors = bytes / ublk::abi::SECTOR;
    ask_driver(number, async move |_, control| control.update_size(number, sectors).await)
}
