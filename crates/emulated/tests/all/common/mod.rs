//! Drives for scripts.

use device::{Buffer, World};
use emulated::{CacheMode, DriveOptions, EmulatedDisk, Model, shipped};
use runtime::VirtualWorld;
use std::future::Future;
use std::rc::Rc;

pub fn model(wanted: &str) -> Model {
    let (_, text) = shipped().find(|(name, _)| *name == wanted).expect("it is shipped");
    Model::parse(text).expect("a valid model")
}
pub fn filled(length: usize, byte: u8) -> Vec<Rc<Buffer>> {
    let mut buffer = Buffer::zeroed(length);
    buffer.fill(byte);
    vec![Rc::new(buffer)]
}
/// Runs a script on a fresh drive and returns its result.
pub fn on_drive<T: 'static, F: Future<Output = T> + 'static>(
    name: &str,
    options: DriveOptions,
    script: impl FnOnce(VirtualWorld, EmulatedDisk) -> F,
) -> T {
    let world = VirtualWorld::new(7);
    let disk = EmulatedDisk::new(Rc::new(world.clone()), model(name), options);
    let value = world.run(script(world.clone(), disk));
    world.end();
    value
}
pub async fn timed<T>(world: &VirtualWorld, work: impl Future<Output = T>) -> f64 {
    let begin = world.now();
    work.await;
    world.now().since(begin).as_secs_f64() * 1e3
}
pub fn honest(cache: CacheMode) -> DriveOptions {
    DriveOptions { cache, ..DriveOptions::default() }
}
