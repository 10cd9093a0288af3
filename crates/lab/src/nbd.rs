//! `okeanos-lab nbd`: an emulated drive in real time to NBD clients, as `okeanos nbd` exports a
//! real one.

use crate::disk::{Switch, find, models_help};
use crate::error::CliError;
use crate::text::quantity::parse_size;
use cli::nbd::{BackingDisk, ExportArguments, NOTES, serve_disk};
use emulated::{DriveOptions, EmulatedDisk, SECTOR};
use std::rc::Rc;

const EXAMPLES: &str = "\
Examples:
  okeanos-lab nbd --listen 127.0.0.1:10809 --model constellation-es3 --size 8G --cache off
  okeanos-lab nbd --socket s --model cheetah-15k5 --json

The drive is full of zeros at first, costs memory only for what is written, and is gone when this program ends.

";

/// Export an emulated drive over NBD, in real time
#[derive(clap::Args)]
#[command(after_help = format!("{EXAMPLES}{NOTES}"))]
pub struct NbdArguments {
    #[arg(help = models_help("The drive"), long, value_name = "M")]
    model: String,
    /// Size of the drive; less than the model's
    #[arg(long, value_parser = parse_size)]
    size: Option<u64>,
    /// The drive's write cache
    #[arg(long, value_enum, default_value_t = Switch::On)]
    cache: Switch,
    /// Print what the drive did, as JSON, at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    export: ExportArguments,
}

pub fn run(arguments: NbdArguments) -> Result<(), CliError> {
    let NbdArguments { model, size, cache, json, export } = arguments;
    serve_disk(export, |world, _| {
        let model = find(&model)?;
        let most = model.size.get();
        if let Some(size) = size {
            if size == 0 || size % SECTOR != 0 || size > most {
                return Err(CliError::new(format!(
                    "--size: {size} bytes; it takes whole sectors of {SECTOR}, at most {most} bytes"
                )));
            }
        }
        let options = DriveOptions { cache: cache.mode(), size, ..DriveOptions::default() };
        let drive = EmulatedDisk::new(Rc::new(world.clone()), model, options);
        let disk = Rc::new(drive.clone());
        let report = move || serde_json::json!({ "drive": drive.statistics() });
        let report = json.then_some(Box::new(report) as Box<dyn Fn() -> _>);
        Ok(BackingDisk { disk, rotational: true, report })
    })
}
