//! `okeanos sim`: the crash tests from the command line, to replay one or to run many.

use crate::error::CliError;
use crate::progress::Progress;
use clap::Args;
use engine::{BarrierKind, DataMode};
use sim::script::ScriptSize;
use sim::setup::{self, SETUPS, Setup};
use sim::{Case, Report};

const EXAMPLES: &str = "\
Examples:
  okeanos sim --seed 1 --cases 20                       all modes on all kinds of volumes, seeds 1 to 20
  okeanos sim --mode wasteless --setup ext4-1k --seed 17 --cut 42     one power cut again

Volumes are in memory and time is virtual; mke2fs makes the volumes and e2fsck judges a sample of what is
recovered.";

/// Cut the power at every write of random scripts, recover, and check what is there
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct SimArguments {
    /// Only this mode: writeback, ordered, journal, wasteless or selective
    #[arg(long)]
    mode: Option<DataMode>,
    /// Only this kind of volume: ext4-4k, ext4-2k, ext4-1k, ext3-4k or external-4k
    #[arg(long, value_parser = known_setup)]
    setup: Option<Setup>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, one after the other
    #[arg(long, default_value_t = 1)]
    cases: u64,
    /// Writers that run at once, each its own script
    #[arg(long, default_value_t = 3)]
    writers: usize,
    /// Actions in each script
    #[arg(long, default_value_t = 14)]
    steps: usize,
    /// Look at this power cut only
    #[arg(long)]
    cut: Option<u64>,
    /// One JSON object instead of a sentence
    #[arg(long)]
    json: bool,
}

fn known_setup(name: &str) -> Result<Setup, String> {
    setup::find(name).ok_or_else(|| {
        let names: Vec<_> = SETUPS.iter().map(|setup| setup.name).collect();
        format!("there is {}", names.join(", "))
    })
}

pub fn run(arguments: SimArguments) -> Result<(), CliError> {
    let modes = arguments.mode.map_or(DataMode::ALL.to_vec(), |mode| vec![mode]);
    let setups = arguments.setup.map_or(SETUPS.to_vec(), |setup| vec![setup]);
    let size = ScriptSize { steps: arguments.steps, files: 3, length_max: 9000 };
    let mut total = Report::default();
    let progress = Progress::new();
    for setup in &setups {
        let fresh = setup::make(*setup).map_err(|error| {
            CliError::new(format!("cannot make a volume: {error}")).with_remedy("install e2fsprogs")
        })?;
        for mode in &modes {
            for seed in arguments.seed..arguments.seed.saturating_add(arguments.cases) {
                let (setup, mode, writers) = (*setup, *mode, arguments.writers);
                let case = Case { setup, mode, barrier: BarrierKind::Flush, seed, writers, size, sample: 24 };
                let report = sim::run(case, &fresh, arguments.cut)
                    .map_err(|failure| CliError::new(failure.to_string()))?;
                total.add(report);
                progress.show(format!("{} {} seed {seed}: {} images", setup.name, mode.name(), total.images));
            }
        }
    }
    drop(progress);
    if arguments.json {
        println!("{}", serde_json::to_string(&total).expect("counts are valid JSON"));
    } else {
        let Report { cuts, images, recoveries_cut, checked } = total;
        println!(
            "{cuts} places to cut, {images} crash images recovered and judged ({recoveries_cut} of them cut again \
             while recovering, {checked} seen by e2fsck): nothing lost"
        );
    }
    Ok(())
}
