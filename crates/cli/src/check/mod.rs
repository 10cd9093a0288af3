//! `okeanos check`: reads everything that has a checksum, and changes nothing.

mod image;
mod mounted;

use crate::daemon::control::find_mount;
use crate::error::CliError;
use crate::text::output::print;
use crate::text::progress::Progress;
use std::path::PathBuf;

const NOTES: &str = "\
Of an unmounted volume, check reads superblock, group descriptors, bitmaps, inodes, extent trees, directories and attribute
blocks, compares the bitmaps with what is in use, and tells of blocks that belong to two. Of a mounted one,
it walks all files through the mount, so that the daemon reads and verifies what they are made of; bitmaps are
not compared, and what kernel and daemon hold in memory is not read again. File data has no checksums.

Of a block volume (okeanos blocks) that is not attached, check reads both superblocks and the whole log. What lies in it is
for the checker of the file system above, once it is attached.

Repairing is for e2fsck(8).

Exit status, as of fsck(8):
  0    nothing is wrong
  4    something is wrong, or was and e2fsck has not looked since; it is told, and nothing is changed
  8    it could not be checked: in use, not recovered after a crash, not readable
  16   wrong usage

Examples:
  okeanos check disk.img
  okeanos check /mnt/a          while it is mounted";

/// Check a volume, mounted or not, without changing it
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct CheckArguments {
    /// An unmounted image file or block device, or where a volume is mounted
    #[arg(value_name = "DIR|IMAGE|DEVICE")]
    pub target: PathBuf,
}

/// Exit codes of fsck(8).
pub const DAMAGED: u8 = 4;
pub const NOT_CHECKED: u8 = 8;
pub const WRONG_USAGE: i32 = 16;

/// More of them help nobody.
const TOLD_MAX: usize = 100;

/// By whoever found damage, and by a recovery that left something out.
const MARKED: &str =
    "the volume is marked: errors were found on it earlier, or a recovery left something out";

/// What was found, and how much was looked at.
#[derive(Default)]
pub struct Findings {
    problems: Vec<String>,
    more: usize,
}

impl Findings {
    fn note(&mut self, problem: impl std::fmt::Display) {
        match self.problems.len() {
            TOLD_MAX.. => self.more += 1,
            _ => self.problems.push(problem.to_string()),
        }
    }
}

pub fn run(arguments: CheckArguments) -> Result<(), CliError> {
    let not_checked = |error: CliError| error.with_code(NOT_CHECKED);
    let target = arguments.target.as_path();
    let progress = Progress::new();
    let mut findings = Findings::default();
    let looked_at = match target.is_dir() {
        true => {
            find_mount(target).and_then(|mount| mounted::check(&mount, &progress, &mut findings))
        }
        false => {
            crate::daemon::mounted::refuse_if_its_daemon_died(target).map_err(not_checked)?;
            image::check(target, &progress, &mut findings)
        }
    };
    drop(progress);
    let looked_at = looked_at.map_err(not_checked)?;
    let Findings { problems, more } = findings;
    let name = target.display();
    if problems.is_empty() {
        return print(&format_args!("{name}: {looked_at}; nothing is wrong.\n"));
    }
    let lines: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
    let rest = if more > 0 { format!("and {more} more\n") } else { String::new() };
    print(&format_args!("{lines}{rest}{name}: {looked_at}.\n"))?;
    let count = problems.len() + more;
    Err(CliError::new(format!("{name}: {count} problems"))
        .with_remedy("Copy what you need from it; then unmount it and repair it: e2fsck -f.")
        .with_code(DAMAGED))
}
