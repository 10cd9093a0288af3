//! `okeanos powercut`: two machines determine whether one of them keeps acknowledged writes when
//! its power fails.

mod connection;
mod listen;
mod protocol;
mod record;
mod verify;
mod write;

use crate::error::CliError;
use crate::text::quantity::parse_size;
use clap::{Args, Subcommand};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples, in three steps:

1. On a machine that keeps its power:
  okeanos powercut listen --log run.log

2. On the machine under test, on a file of any file system, or on a whole device. Then pull the plug; a reset
would keep the drive's cache alive:
  okeanos powercut write --listener HOST:5155 /mnt/a/test
  okeanos powercut write --listener HOST:5155 --destroy /dev/sdb

3. When it is up again (and mounted, if it was a file):
  okeanos powercut verify --listener HOST:5155 /mnt/a/test

Each write is reported to the listener before it begins and after fdatasync has returned. What was
reported as acknowledged must be there: verify shows how much is, by how long before the
cut it was acknowledged, and exits with 1 if anything is missing. A clean verdict is no proof; some
cuts make one likely. No write is forced (FUA), as commits of Okeanos are where the drive takes such
writes: a drive that honours flushes and ignores FUA passes. Any program that reaches the listener's port can write to its log: use a
network of your own.";

/// Cut the power of a machine, and find out whether its drives had what they acknowledged
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PowercutArguments {
    #[command(subcommand)]
    command: PowercutCommand,
}

#[derive(Subcommand)]
enum PowercutCommand {
    /// On a machine that keeps its power: log what the other reports
    Listen {
        /// Address to listen on; port 0 for any that is free
        #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:5155")]
        address: String,
        /// Reports are appended to this file
        #[arg(long, value_name = "FILE")]
        log: PathBuf,
    },
    /// On the machine under test: write durably, and report, until the power fails
    Write(WriteArguments),
    /// On the machine under test, after the cut: is everything there that was acknowledged?
    Verify {
        /// The machine that listens
        #[arg(long, value_name = "HOST:PORT")]
        listener: String,
        /// This run instead of the last one, as write or the log names it
        #[arg(long, value_parser = parse_run)]
        run: Option<u64>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// The file or device that was written to
        #[arg(value_name = "FILE|DEVICE")]
        path: PathBuf,
    },
}

#[derive(Args)]
struct WriteArguments {
    /// The machine that listens
    #[arg(long, value_name = "HOST:PORT")]
    listener: String,
    /// Yes, what is in this file or on this device may be overwritten
    #[arg(long)]
    destroy: bool,
    /// Open with O_DSYNC instead of calling fdatasync after each write
    #[arg(long)]
    o_dsync: bool,
    /// Bytes of a write, a multiple of 512
    #[arg(long, default_value = "4096", value_parser = parse_block)]
    size: u32,
    /// Room that the writes go to in turn; rounded down to a power of two of writes
    #[arg(long, default_value = "64M", value_parser = parse_size)]
    length: u64,
    /// End by itself after this number of writes
    #[arg(long, value_name = "WRITES", default_value_t = u64::MAX, hide_default_value = true)]
    count: u64,
    /// Print JSON at the end
    #[arg(long)]
    json: bool,
    /// A file, which is made, or a block device
    #[arg(value_name = "FILE|DEVICE")]
    path: PathBuf,
}

fn parse_run(text: &str) -> Result<u64, String> {
    protocol::parse_run(text).ok_or_else(|| "a run is 16 hexadecimal digits".into())
}
fn parse_block(text: &str) -> Result<u32, String> {
    let size = parse_size(text)?;
    let possible = (record::SIZE_MIN as u64..=record::SIZE_MAX as u64).contains(&size);
    match possible && size % 512 == 0 {
        true => Ok(size as u32),
        false => Err("a multiple of 512, at most 1M".into()),
    }
}

pub fn run(arguments: PowercutArguments) -> Result<(), CliError> {
    match arguments.command {
        PowercutCommand::Listen { address, log } => listen::run(&address, &log),
        PowercutCommand::Verify { listener, run, json, path } => {
            verify::run(&listener, run, &path, json)
        }
        PowercutCommand::Write(WriteArguments {
            listener,
            destroy,
            o_dsync,
            size,
            length,
            count,
            json,
            path,
        }) => write::run(
            &listener,
            &write::Writing { path: &path, destroy, o_dsync, size, length, count, json },
        ),
    }
}
