//! Honest drives, liars, and drives of which time tells nothing.

use device::Disk;
use emulated::{CacheMode, EmulatedDisk, Lies, Model, Options};
use eviction::{Verdict, flush_test};
use runtime::VirtualWorld;
use std::rc::Rc;

fn verdict(model: &str, cache: CacheMode, lies: Lies) -> Verdict {
    let world = VirtualWorld::new(1);
    let (_, text) = emulated::shipped().find(|(name, _)| *name == model).expect("it is shipped");
    let model = Model::parse(text).unwrap();
    let size = model.size.get();
    let drive =
        EmulatedDisk::new(Rc::new(world.clone()), model, Options { cache, lies, ..Options::default() });
    let (of_run, disk) = (world.clone(), Rc::new(drive) as Rc<dyn Disk>);
    let test = world.run(async move {
        flush_test(&(Rc::new(of_run) as Rc<dyn device::World>), &disk, 0..size, &mut |_| ()).await.unwrap()
    });
    world.end();
    println!("{test:#?}");
    test.verdict
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
fn of_flash_time_tells_nothing() {
    assert_eq!(verdict("nvme-ssd", CacheMode::On, Lies::default()), Verdict::CannotTell);
}
