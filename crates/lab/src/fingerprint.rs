//! `okeanos-lab fingerprint`: an emulated drive in virtual time, examined as `okeanos fingerprint`
//! examines a real one.

use crate::disk::{find, models_help};
use crate::error::CliError;
use cli::fingerprint::{Behaviour, Examination, METHOD, Subject, examine};
use emulated::{CacheMode, DriveOptions, EmulatedDisk, Lies};
use runtime::VirtualWorld;
use std::rc::Rc;

const EXAMPLES: &str = "\
Examples:
  okeanos-lab fingerprint --model hitachi-7k80 --ignore-flush
  okeanos-lab fingerprint --model samsung-16 --ignore-flush --as-paper
  okeanos-lab fingerprint --model hitachi-7k80 --flush-test

";

/// Find out which writes push data out of an emulated drive's cache, or whether its flush lies
#[derive(clap::Args)]
#[command(after_help = format!("{EXAMPLES}{METHOD}"))]
pub struct FingerprintArguments {
    #[arg(help = models_help("The drive, in virtual time"), long)]
    model: String,
    /// The drive ignores flushes
    #[arg(long)]
    ignore_flush: bool,
    /// The drive's cache is switched off
    #[arg(long)]
    cache_off: bool,
    /// Decides everything that chance decides
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    examination: Examination,
}

pub fn run(arguments: FingerprintArguments) -> Result<(), CliError> {
    let FingerprintArguments { model, ignore_flush, cache_off, seed, examination } = arguments;
    let model = find(&model)?;
    let world = VirtualWorld::new(seed);
    let options = DriveOptions {
        cache: if cache_off { CacheMode::Off } else { CacheMode::On },
        lies: Lies { ignores_flush: ignore_flush, ignores_cache_off: false },
        size: None,
    };
    let (name, size) = (model.name.clone(), model.size.get());
    let in_world = Rc::new(world.clone());
    let subject = Subject {
        name,
        size,
        disk: Rc::new(EmulatedDisk::new(in_world.clone(), model, options)),
        world: in_world,
        range: 0..size,
        has_holes: false,
        behaviour: Behaviour { ignores_flush: ignore_flush, cache_off },
    };
    let result = world.run(examine(subject, examination));
    world.end();
    result
}
