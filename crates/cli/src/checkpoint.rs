//! `okeanos checkpoint`: makes a mounted volume write home what its log holds, and reports what
//! deferring has saved.

use crate::daemon::control::{Ask, Client, find_mount, unanswered};
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::progress::Progress;
use crate::text::quantity::format_duration;
use device::World;
use engine::{CheckpointReport, Engine};
use runtime::RealWorld;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  okeanos mount -o log=scattered,checkpoint=manual disk.img /mnt/a
  okeanos checkpoint /mnt/a                     at night, from cron
  okeanos checkpoint --json /mnt/a

Overwritten: blocks in the log of which a later version was written home in their place. Merged: writes that became part
of another one's, since they were neighbours. Both count from the checkpoint before.";

/// Write home all that the log of a mounted volume holds
///
/// Returns when everything that was changed before is home. Without this the log is written home as
/// mount -o checkpoint= says, or when it is full.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckpointArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Mount point of the volume, any path in it, or its image file or device
    #[arg(value_name = "DIR|IMAGE|DEVICE")]
    directory: PathBuf,
}

/// Interval at which a daemon is asked for its progress.
const PAUSE: Duration = Duration::from_millis(100);

/// Reply of a daemon.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
struct CheckpointAnswer {
    is_under_way: bool,
    blocks: u64,
    blocks_left: u64,
    #[serde(default)]
    error: Option<String>,
    /// Report of the last finished checkpoint.
    #[serde(default)]
    report: Option<CheckpointReport>,
}

pub fn run(arguments: CheckpointArguments) -> Result<(), CliError> {
    let mount = find_mount(&arguments.directory)?;
    let subject = mount.directory.display();
    let mut client = Client::connect(&mount)?;
    let progress = Progress::new();
    let mut ask = Ask::Checkpoint;
    let report = loop {
        let answer: CheckpointAnswer =
            client.ask_in_time(ask).map_err(|error| unanswered(&mount, &error))?;
        match answer {
            CheckpointAnswer { is_under_way: true, blocks, blocks_left, .. } => {
                progress.show(format_args!(
                    "{subject}: {blocks_left} of {blocks} blocks are not home yet"
                ));
            }
            CheckpointAnswer { error: Some(error), .. } => {
                return Err(CliError::new(format!("{subject}: {error}")));
            }
            CheckpointAnswer { report, .. } => break report,
        }
        ask = Ask::Checkpointing;
        std::thread::sleep(PAUSE);
    };
    drop(progress);
    let Some(report) = report else {
        return Err(CliError::new(format!("{subject}: this mount has no log to be written home")));
    };
    if arguments.json { print_json(&report) } else { print(&text_of(&report)) }
}

fn text_of(report: &CheckpointReport) -> String {
    if report.blocks_logged == 0 {
        return "The log held nothing that was not home.\n".into();
    }
    let CheckpointReport { blocks_logged, writes_logged, blocks_written, writes, .. } = *report;
    format!(
        "{blocks_written} blocks of {blocks_logged} in the log were written home: {:.0} % were overwritten by later ones.\n\
         {writes} writes did it in place of {writes_logged}: {:.0} % were merged with their neighbours.\n\
         This checkpoint took {}.\n",
        report.blocks_skipped,
        report.writes_merged,
        format_duration(Duration::from_nanos(report.nanoseconds)),
    )
}

/// Refuses a checkpoint, where there is no log to be written home.
pub fn refused(why: &str) -> serde_json::Value {
    serde_json::json!(CheckpointAnswer { error: Some(why.into()), ..CheckpointAnswer::default() })
}

/// The daemon's side: one checkpoint at a time, and every client is sent its progress.
#[derive(Clone)]
pub struct Checkpointer {
    world: RealWorld,
    engine: Rc<Engine>,
    in_flight: Rc<Cell<bool>>,
    last: Rc<RefCell<Option<Result<CheckpointReport, String>>>>,
}

impl Checkpointer {
    pub fn new(world: &RealWorld, engine: &Rc<Engine>) -> Checkpointer {
        let (world, engine) = (world.clone(), engine.clone());
        Checkpointer { world, engine, in_flight: Rc::default(), last: Rc::default() }
    }

    /// Answers a request, which begins a checkpoint or asks for its progress.
    pub fn answer(&self, ask: Ask) -> serde_json::Value {
        if ask == Ask::Checkpoint {
            self.begin();
        }
        self.progress()
    }

    fn begin(&self) {
        if self.in_flight.replace(true) {
            return;
        }
        let this = self.clone();
        self.world.spawn(Box::pin(async move {
            let ended = this.engine.checkpoint().await;
            *this.last.borrow_mut() = Some(ended.map_err(|error| error.to_string()));
            this.in_flight.set(false);
        }));
    }

    fn progress(&self) -> serde_json::Value {
        let progress = self.engine.checkpoint_progress();
        let last = self.last.borrow().clone().filter(|_| !self.in_flight.get());
        serde_json::json!(CheckpointAnswer {
            is_under_way: self.in_flight.get(),
            blocks: progress.blocks,
            blocks_left: progress.blocks_left,
            error: last.clone().and_then(Result::err),
            report: last.and_then(Result::ok),
        })
    }
}
