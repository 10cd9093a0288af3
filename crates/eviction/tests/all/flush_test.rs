//! Honest drives, lying drives, and drives of which times prove nothing.

use device::{DeviceError, Disk, Durability, LocalFuture, World};
use disks::{Watch, Watched};
use emulated::{CacheMode, DriveOptions, EmulatedDisk, Lies, Model};
use eviction::{Verdict, flush_test};
use runtime::VirtualWorld;
use std::rc::Rc;
use std::time::Duration;

fn drive(world: &VirtualWorld, model: &str, cache: CacheMode, lies: Lies) -> EmulatedDisk {
    let (_, text) = emulated::shipped().find(|(name, _)| *name == model).expect("it is shipped");
    let model = Model::parse(text).unwrap();
    EmulatedDisk::new(
        Rc::new(world.clone()),
        model,
        DriveOptions { cache, lies, ..DriveOptions::default() },
    )
}

fn verdict(model: &str, cache: CacheMode, lies: Lies) -> Verdict {
    let world = VirtualWorld::new(1);
    let drive = drive(&world, model, cache, lies);
    verdict_on(world, Rc::new(drive))
}

fn verdict_on(world: VirtualWorld, disk: Rc<dyn Disk>) -> Verdict {
    let (of_run, size) = (world.clone(), disk.geometry().size);
    let test = world.run(async move {
        flush_test(&(Rc::new(of_run) as Rc<dyn World>), &disk, 0..size, &mut |_| ()).await.unwrap()
    });
    world.end();
    println!("{test:#?}");
    test.verdict
}

/// An honest drive behind a layer that lies in one respect.
struct Between {
    world: VirtualWorld,
    /// Answers a flush after this time, without flushing.
    flush: Option<Duration>,
    /// Makes a durable write a cached one.
    ignores_durable: bool,
}

impl Watch for Between {
    fn durability(&self, asked: Durability) -> Durability {
        if self.ignores_durable { Durability::Cached } else { asked }
    }
    fn flush(&self, drive: &dyn Disk) -> LocalFuture<Result<(), DeviceError>> {
        let (Some(after), world) = (self.flush, self.world.clone()) else { return drive.flush() };
        Box::pin(async move {
            world.sleep_until(world.now().plus(after)).await;
            Ok(())
        })
    }
}

fn verdict_between(flush: Option<Duration>, ignores_durable: bool) -> Verdict {
    let world = VirtualWorld::new(1);
    let disk = Rc::new(drive(&world, "hitachi-7k80", CacheMode::On, Lies::default()));
    let watch = Between { world: world.clone(), flush, ignores_durable };
    verdict_on(world, Rc::new(Watched { disk, watch }))
}

#[test]
fn a_lie_about_durable_writes_alone_or_about_flushes_alone_is_suspicious() {
    assert_eq!(verdict_between(None, false), Verdict::Honest);
    assert_eq!(verdict_between(None, true), Verdict::Suspicious);
    assert_eq!(verdict_between(Some(Duration::ZERO), false), Verdict::Suspicious);
}

/// Slow enough for every count of writes, but never slower.
#[test]
fn a_flush_of_constant_time_is_suspicious() {
    assert_eq!(verdict_between(Some(Duration::from_millis(80)), false), Verdict::Suspicious);
}

/// Tests every kind of drive: times may prove nothing, but never accuse.
#[test]
fn no_honest_drive_is_suspicious() {
    for (name, _) in emulated::shipped() {
        for cache in [CacheMode::On, CacheMode::Off] {
            assert_ne!(
                verdict(name, cache, Lies::default()),
                Verdict::Suspicious,
                "{name}, {cache:?}"
            );
        }
    }
}

#[test]
fn a_drive_that_flushes_is_honest_and_one_that_ignores_flushes_is_suspicious() {
    for model in ["hitachi-7k80", "barracuda-7200.11", "cheetah-15k5"] {
        assert_eq!(verdict(model, CacheMode::On, Lies::default()), Verdict::Honest, "{model}");
        let lies = Lies { ignores_flush: true, ..Lies::default() };
        assert_eq!(verdict(model, CacheMode::On, lies), Verdict::Suspicious, "{model}");
    }
}

#[test]
fn switching_the_cache_off_makes_a_drive_honest_unless_it_ignores_that() {
    let lies = Lies { ignores_flush: true, ignores_cache_off: false };
    assert_eq!(verdict("hitachi-7k80", CacheMode::Off, lies), Verdict::Honest);
    let lies = Lies { ignores_flush: true, ignores_cache_off: true };
    assert_eq!(verdict("hitachi-7k80", CacheMode::Off, lies), Verdict::Suspicious);
}

#[test]
fn times_of_flash_prove_nothing() {
    assert_eq!(verdict("nvme-ssd", CacheMode::On, Lies::default()), Verdict::CannotTell);
}
