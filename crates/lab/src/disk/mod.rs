//! `okeanos-lab disk`: lists emulated disks, compares them with recorded requests, and serves them.

mod serve;
mod time;

use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::quantity::{format_size, parse_size};
use crate::text::table::Table;
use clap::{Args, Subcommand, ValueEnum};
use device::{Disk, World};
use disks::Raid0;
use emulated::replay::{self, Comparison, KindComparison, ServiceTimes, Trace, TraceReport};
use emulated::{CacheMode, DriveOptions, EmulatedDisk, Model, SECTOR, shipped};
use runtime::VirtualWorld;
use serde::Serialize;
use serve::ServeArguments;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const EXAMPLES: &str = "\
Examples:
  okeanos-lab disk list                                          the models that come with the program
  okeanos-lab disk replay --model cheetah-15k5 requests.csv      a trace on an emulated drive, in virtual time
  zcat trace.csv.gz | okeanos-lab disk replay --model my-drive.toml --cache on --json -
  okeanos-lab disk serve --model hitachi-7k80 --size 4G /tmp/served                a disk in real time, for losetup";

/// Emulated disks: list the models, replay a trace on one, serve one in real time
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DiskArguments {
    #[command(subcommand)]
    command: DiskCommand,
}

#[derive(Subcommand)]
enum DiskCommand {
    /// The models that come with the program
    List {
        /// JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Replay a block trace on a model in virtual time, and compare with what the trace says was
    /// measured
    Replay(ReplayArguments),
    /// Serve a disk in real time as a file, for loop devices and so for any file system
    Serve(ServeArguments),
    /// Answers how long requests take on a disk: `okeanos inspect logs` asks
    #[command(hide = true)]
    Time,
}

/// A drive, or several equal ones in a RAID-0.
#[derive(Args)]
pub struct DriveArguments {
    #[arg(help = models_help("The drive"), long)]
    pub model: String,
    /// Number of these drives, in a RAID-0
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub drives: u32,
    /// Chunk size of a RAID-0
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = parse_chunk)]
    pub chunk: u64,
}

fn parse_chunk(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        chunk if chunk > 0 && chunk % SECTOR == 0 => Ok(chunk),
        chunk => Err(format!("{chunk} bytes are not whole sectors of {SECTOR}")),
    }
}

impl DriveArguments {
    /// Returns the drives, and the disk that they make together.
    pub fn disk(
        &self,
        world: &Rc<dyn World>,
        model: &Model,
        options: DriveOptions,
    ) -> (Vec<EmulatedDisk>, Rc<dyn Disk>) {
        let drive = || EmulatedDisk::new(world.clone(), model.clone(), options);
        let drives: Vec<EmulatedDisk> = (0..self.drives).map(|_| drive()).collect();
        let disks = drives.iter().map(|drive| Rc::new(drive.clone()) as Rc<dyn Disk>).collect();
        (drives, Raid0::of(disks, self.chunk))
    }
}

#[derive(Args)]
struct ReplayArguments {
    #[command(flatten)]
    drives: DriveArguments,
    /// The drive's write cache and read-ahead
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    cache: Switch,
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
    /// The trace; - for standard input
    trace: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

impl Switch {
    /// Returns the mode of a drive's cache.
    pub fn mode(self) -> CacheMode {
        match self {
            Switch::On => CacheMode::On,
            Switch::Off => CacheMode::Off,
        }
    }
}

pub fn run(arguments: DiskArguments) -> Result<(), CliError> {
    match arguments.command {
        DiskCommand::List { json } => list(json),
        DiskCommand::Replay(arguments) => replay_trace(arguments),
        DiskCommand::Serve(arguments) => serve::run(arguments),
        DiskCommand::Time => time::run(),
    }
}

#[derive(Serialize)]
struct ListedDisk {
    name: String,
    size: u64,
    about: String,
}

fn list(json: bool) -> Result<(), CliError> {
    let models: Vec<ListedDisk> = shipped()
        .map(|(name, text)| {
            let model = parse(name, text)?;
            Ok(ListedDisk { name: model.name, size: model.size.get(), about: model.about })
        })
        .collect::<Result<_, CliError>>()?;
    if json {
        return print_json(&models);
    }
    let mut table = Table::new(["model", "size", "about"]);
    for ListedDisk { name, size, about } in models {
        table.row([name, format_size(size), about]);
    }
    print(&table)
}

#[derive(Serialize)]
struct Replayed {
    model: String,
    #[serde(flatten)]
    report: TraceReport,
    virtual_seconds: f64,
    /// Processor time of this program, for the replay alone.
    processor_seconds: f64,
    requests_per_processor_second: f64,
}

fn replay_trace(arguments: ReplayArguments) -> Result<(), CliError> {
    let model = find(&arguments.drives.model)?;
    let text = read(&arguments.trace)?;
    let world = VirtualWorld::new(1);
    let options = DriveOptions { cache: arguments.cache.mode(), ..DriveOptions::default() };
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    let (_, disk) = arguments.drives.disk(&in_world, &model, options);
    let trace = Trace::parse(&text, disk.geometry().size)
        .map_err(|error| CliError::new(format!("{}: {error}", arguments.trace.display())))?;
    let trace = Rc::new(trace);
    let start = processor_seconds();
    let times = replay::run(&world, &disk, trace.clone())
        .map_err(|error| CliError::new(error.to_string()))?;
    let seconds = processor_seconds() - start;
    let replayed = Replayed {
        model: disk.name().to_owned(),
        report: TraceReport::new(&trace, &times),
        virtual_seconds: world.now().0 as f64 / 1e9,
        processor_seconds: seconds,
        requests_per_processor_second: times.len() as f64 / seconds,
    };
    if arguments.json { print_json(&replayed) } else { print(&text_of(&replayed)) }
}

fn text_of(replayed: &Replayed) -> String {
    let TraceReport { all, reads, writes, comparison } = &replayed.report;
    let mut table = Table::new(["ms", "requests", "mean", "sd", "p1", "p50", "p90", "p99", "max"]);
    let mut row = |name: &str, times: &ServiceTimes| {
        let ServiceTimes { requests, mean_ms, sd_ms, p1_ms, p50_ms, p90_ms, p99_ms, max_ms } =
            times;
        let cell = |time: &f64| format!("{time:.3}");
        let [mean, sd, p1, p50] = [mean_ms, sd_ms, p1_ms, p50_ms].map(cell);
        let [p90, p99, max] = [p90_ms, p99_ms, max_ms].map(cell);
        table.row([name.to_owned(), requests.to_string(), mean, sd, p1, p50, p90, p99, max]);
    };
    row(&replayed.model, all);
    for (name, times) in [("  reads", reads), ("  writes", writes)] {
        if let Some(times) = times {
            row(name, times);
        }
    }
    if let Some(comparison) = comparison {
        row("measured", &comparison.measured);
    }
    let mut text = table.to_string();
    if let Some(Comparison {
        mean_error_percent,
        demerit_ms,
        demerit_percent,
        request_error_ms,
        reads,
        writes,
        ..
    }) = comparison
    {
        text += &format!(
            "mean off by {mean_error_percent:+.2} %; demerit {demerit_ms:.3} ms, \
             {demerit_percent:.2} % of the mean; single requests off by {request_error_ms:.3} ms \
             (root mean square)\n"
        );
        for (kind, apart) in [("reads", reads), ("writes", writes)] {
            let Some(KindComparison { mean_error_percent, demerit_ms, demerit_percent }) = apart
            else {
                continue;
            };
            text += &format!(
                "{kind} alone: mean off by {mean_error_percent:+.2} %; demerit {demerit_ms:.3} ms, \
                 {demerit_percent:.2} % of their mean\n"
            );
        }
    }
    let Replayed {
        virtual_seconds, processor_seconds, requests_per_processor_second: speed, ..
    } = replayed;
    text + &format!(
        "{virtual_seconds:.1} s of the drive in {processor_seconds:.2} s of processor time: \
         {speed:.0} requests simulated each second\n"
    )
}

/// Returns the processor time of this thread since it began.
fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills `time`, which lives here. Its only error is an unknown clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the help of an option that takes a model: its purpose, and the names that it takes.
pub fn models_help(purpose: &str) -> String {
    let names: Vec<&str> = shipped().map(|(name, _)| name).collect();
    format!("{purpose}; a model file, or one of okeanos-lab disk list: {}", names.join(", "))
}

/// Finds a shipped model by name, or a model file by path.
pub fn find(name: &str) -> Result<Model, CliError> {
    if let Some((_, text)) = shipped().find(|(shipped, _)| *shipped == name) {
        return parse(name, text);
    }
    let text = std::fs::read_to_string(name).map_err(|error| {
        let like: Vec<&str> =
            shipped().map(|(known, _)| known).filter(|known| known.starts_with(name)).collect();
        let remedy = match like[..] {
            [] => "see `okeanos-lab disk list`, or give the path of a model file".to_owned(),
            _ => format!("there are {}", like.join(", ")),
        };
        CliError::new(format!("no model is called {name:?}, and as a file: {error}"))
            .with_remedy(remedy)
    })?;
    parse(name, &text)
}

fn parse(name: &str, text: &str) -> Result<Model, CliError> {
    Model::parse(text).map_err(|error| CliError::new(format!("{name}: {error}")))
}

fn read(path: &Path) -> Result<String, CliError> {
    let mut bytes = Vec::new();
    let result = if path == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes).map(drop)
    } else {
        std::fs::read(path).map(|content| bytes = content)
    };
    result.map_err(|error| CliError::system(path.display(), error))?;
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        CliError::new(format!("{}: line {} is not text", path.display(), line + 1))
            .with_remedy("unpack it first if it is compressed")
    })
}
