//! `okeanos inspect`: prints the content of a volume in readable form. Reads only; the volume may
//! be damaged.

mod checkpoint_cost;
mod directory;
mod flush_zone;
mod groups;
mod inode;
mod journal;
mod log_reader;
mod logs;
mod packed;
pub mod reader;
mod record;
mod source;
mod superblock;

use crate::error::CliError;
use crate::text::output;
use flush_zone::JournalDeviceReport;
use log_reader::LogReader;
use reader::Reader;
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  okeanos inspect super disk.img
  okeanos inspect groups disk.img
  okeanos inspect journal disk.img               one line per record that a recovery would replay
  okeanos inspect journal --all disk.img         what is left of old records, too
  okeanos inspect logs disk.img                  scattered logs: place, fill, age, what a checkpoint takes
  okeanos inspect inode 12 disk.img              by number
  okeanos inspect inode /mail/queue disk.img     by path
  okeanos inspect dir / disk.img
  okeanos inspect super /mnt/a                   the image or device that is mounted there

A mounted volume changes while it is read: the parts of a report may then not agree.";

/// Report what is on a volume, without changing it
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct InspectArguments {
    #[command(subcommand)]
    what: InspectCommand,
}

#[derive(clap::Subcommand)]
enum InspectCommand {
    /// The superblock: sizes, features, state, flush zone; of a volume, or of a journal device
    Super(Printed),
    /// Every block group: where its parts are, and what is free
    Groups(Printed),
    /// The journal: one line per record
    Journal {
        /// Report old records, too, wherever they are in the log
        #[arg(long)]
        all: bool,
        /// The external journal of the volume
        #[arg(long, value_name = "IMAGE|DEVICE")]
        journal_device: Option<PathBuf>,
        #[command(flatten)]
        printed: Printed,
    },
    /// The scattered logs of a volume: where those lie that a restart would look at, and what is in
    /// them
    Logs {
        /// Report every log of a volume
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        printed: Printed,
    },
    /// An inode: its fields, where its content lies, its extended attributes
    Inode {
        /// A number, or a path from the volume's root
        #[arg(value_name = "NUMBER|PATH")]
        inode: OsString,
        #[command(flatten)]
        printed: Printed,
    },
    /// The entries of a directory, as they stand in its blocks
    Dir {
        /// A number, or a path from the volume's root
        #[arg(value_name = "NUMBER|PATH")]
        inode: OsString,
        #[command(flatten)]
        printed: Printed,
    },
}

#[derive(clap::Args)]
struct Printed {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// An image file or block device, or where a volume is mounted
    #[arg(value_name = "DIR|IMAGE|DEVICE")]
    source: PathBuf,
}

pub fn run(arguments: InspectArguments) -> Result<(), CliError> {
    match arguments.what {
        InspectCommand::Super(printed) => {
            let source = printed.source()?;
            match JournalDeviceReport::report(&source)? {
                Some(report) => printed.print(&report),
                None => printed.print(&superblock::report(&Reader::open(&source)?)),
            }
        }
        InspectCommand::Groups(printed) => {
            printed.print(&groups::report(&Reader::open(&printed.source()?)?)?)
        }
        InspectCommand::Journal { all, journal_device, printed } => {
            let log = LogReader::open(&printed.source()?, journal_device.as_deref())?;
            printed.print(&journal::report(&log, all)?)
        }
        InspectCommand::Logs { all, printed } => {
            printed.print(&logs::report(&printed.source()?, all)?)
        }
        InspectCommand::Inode { inode, printed } => {
            let reader = Reader::open(&printed.source()?)?;
            let number = reader.find(&inode)?;
            printed.print(&inode::report(&reader, number)?)
        }
        InspectCommand::Dir { inode, printed } => {
            let reader = Reader::open(&printed.source()?)?;
            let number = reader.find(&inode)?;
            printed.print(&directory::report(&reader, number)?)
        }
    }
}

impl Printed {
    fn source(&self) -> Result<PathBuf, CliError> {
        source::source_of(&self.source)
    }
    fn print<T: serde::Serialize + std::fmt::Display>(&self, report: &T) -> Result<(), CliError> {
        match self.json {
            true => output::print_json(report),
            false => output::print(report),
        }
    }
}
