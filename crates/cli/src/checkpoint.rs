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
    /// Number of the checkpoint that the request is served by, and of the last finished one. Zero:
    /// a daemon that does not number them, or has none.
    #[serde(default)]
    number: u64,
    #[serde(default)]
    finished: u64,
    #[serde(default)]
    error: Option<String>,
    /// Report of the last finished checkpoint.
    #[serde(default)]
    report: Option<CheckpointReport>,
}

impl CheckpointAnswer {
    /// Whether the checkpoint of that number has ended.
    fn is_done(&self, number: u64) -> bool {
        match number {
            0 => !self.is_under_way,
            _ => self.finished >= number,
        }
    }
}

pub fn run(arguments: CheckpointArguments) -> Result<(), CliError> {
    let mount = find_mount(&arguments.directory)?;
    let subject = mount.directory.display();
    let mut client = Client::connect(&mount)?;
    let progress = Progress::new();
    let mut ask = |what: Ask| -> Result<CheckpointAnswer, CliError> {
        client.ask_in_time(what).map_err(|error| unanswered(&mount, &error))
    };
    let mut answer = ask(Ask::Checkpoint)?;
    let number = answer.number;
    while !answer.is_done(number) {
        let CheckpointAnswer { blocks, blocks_left, .. } = answer;
        progress.show(format_args!("{subject}: {blocks_left} of {blocks} blocks are not home yet"));
        std::thread::sleep(PAUSE);
        answer = ask(Ask::Checkpointing)?;
    }
    drop(progress);
    if let Some(error) = answer.error {
        return Err(CliError::new(format!("{subject}: {error}")));
    }
    let Some(report) = answer.report else {
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
        "{blocks_written} blocks of {blocks_logged} in the log were written home: {:.0} % were \
         overwritten by later ones.\n\
         {writes} writes did it in place of {writes_logged}: {:.0} % were merged with their \
         neighbours.\n\
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

/// The daemon's side: one checkpoint at a time, and every client is sent its progress. Checkpoints
/// are numbered from one. A request during one is served by the next: what was changed before the
/// request may have been changed behind the running one.
#[derive(Clone)]
pub struct Checkpointer {
    world: RealWorld,
    engine: Rc<Engine>,
    numbers: Rc<Numbers>,
    last: Rc<RefCell<Option<Result<CheckpointReport, String>>>>,
}

/// Numbers of the last checkpoint that was asked for, has begun, and has finished.
#[derive(Default)]
struct Numbers {
    wanted: Cell<u64>,
    begun: Cell<u64>,
    finished: Cell<u64>,
}

impl Checkpointer {
    pub fn new(world: &RealWorld, engine: &Rc<Engine>) -> Checkpointer {
        let (world, engine) = (world.clone(), engine.clone());
        Checkpointer { world, engine, numbers: Rc::default(), last: Rc::default() }
    }

    /// Answers a request, which begins a checkpoint or asks for its progress.
    pub fn answer(&self, ask: Ask) -> serde_json::Value {
        if ask == Ask::Checkpoint {
            self.begin();
        }
        self.progress()
    }

    /// Has a checkpoint made that begins from now on.
    fn begin(&self) {
        let Numbers { wanted, begun, finished } = &*self.numbers;
        let is_running = wanted.get() > finished.get();
        let joins = is_running && units::fault!("checkpoint-joins-another");
        wanted.set(begun.get() + u64::from(!joins));
        if is_running {
            return;
        }
        let this = self.clone();
        self.world.spawn(Box::pin(async move {
            let Numbers { wanted, begun, finished } = &*this.numbers;
            while begun.get() < wanted.get() {
                begun.set(begun.get() + 1);
                let ended = this.engine.checkpoint().await;
                *this.last.borrow_mut() = Some(ended.map_err(|error| error.to_string()));
                finished.set(begun.get());
            }
        }));
    }

    fn progress(&self) -> serde_json::Value {
        let progress = self.engine.checkpoint_progress();
        let Numbers { wanted, finished, .. } = &*self.numbers;
        let last = self.last.borrow().clone();
        serde_json::json!(CheckpointAnswer {
            is_under_way: wanted.get() > finished.get(),
            number: wanted.get(),
            finished: finished.get(),
            blocks: progress.blocks,
            blocks_left: progress.blocks_left,
            error: last.clone().and_then(Result::err),
            report: last.and_then(Result::ok),
        })
    }
}
