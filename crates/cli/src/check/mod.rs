//! `okeanos check`: reads everything that has a checksum, follows every name, runs e2fsck on the
//! structure where possible, and changes nothing.

mod e2fsck;
mod image;
mod mounted;
mod tree;
mod verdict;

use crate::blocks;
use crate::daemon::control::find_mount;
use crate::error::CliError;
use crate::text::progress::Progress;
use e2fsck::Judgement;
use std::path::{Path, PathBuf};
use verdict::{CheckVerdict, FoundBy};

const NOTES: &str = "\
An unmounted volume is opened as a mount opens it, but read-only: superblock, journal, root
directory. Every name is followed; inodes, link counts, extent trees, directories and their indexes,
attribute blocks and bitmaps are read and compared with one another. Then e2fsck -fn, where it is
installed, judges the structure, too, within bounds of time and memory: its verdict is reported
beside ours, and the worse one counts. Where it is not asked, the last line says what nobody looked
at.

Of a mounted volume, check walks all files through the mount, so that the daemon reads and verifies
what they are made of; bitmaps and link counts are not compared, directories over which something
else is mounted are left out, and what kernel and daemon hold in memory is not read again. File data has no checksums.

Of a block volume (okeanos blocks) that is not attached, check reads both superblocks and the whole log. What lies in it is
for the checker of the file system above, once it is attached.

Repairing is for e2fsck(8).

Exit status, as of fsck(8); 4 and 8 add up:
  0    nothing is wrong in what was looked at
  4    something is wrong, or was and e2fsck has not looked since; it is printed
  8    it could not be checked, or not to the end: in use, not recovered, not readable, no volume
  16   wrong usage

With --json one object is printed: target, mounted, looked_at (null if it could not be checked),
problems (each with found_by, okeanos or e2fsck, and text), more_problems (how many are left out),
e2fsck (verdict: clean, errors, none or not asked; the reason), not_looked_at, not_checked (why, or
null), exit_status.

Examples:
  okeanos check disk.img
  okeanos check --journal-device /dev/sdc1 /dev/sdb1    a journal on a disk of its own
  okeanos check /mnt/a                                  while it is mounted";

/// Check a volume, mounted or not, without changing it
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct CheckArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The external journal of an unmounted volume, or of a block volume
    #[arg(long, value_name = "IMAGE|DEVICE")]
    journal_device: Option<PathBuf>,
    /// Do not ask e2fsck
    #[arg(long)]
    without_e2fsck: bool,
    /// An unmounted image file or block device, or where a volume is mounted
    #[arg(value_name = "DIR|IMAGE|DEVICE")]
    target: PathBuf,
}

/// Exit codes of fsck(8).
const DAMAGED: u8 = 4;
pub const NOT_CHECKED: u8 = 8;
pub const WRONG_USAGE: i32 = 16;

/// Maximum number listed; more would not help.
const PROBLEMS_MAX: usize = 100;

const LEFT_OF_MOUNTED: [&str; 4] = [
    "bitmaps",
    "link counts",
    "inodes and blocks that no name leads to",
    "what other mounts cover",
];
const LEFT_OF_HOST: [&str; 2] = ["the disks of the store", "what other mounts cover"];
const LEFT_OF_BLOCKS: [&str; 1] = ["the file system in the block volume"];
const LEFT_TO_E2FSCK: [&str; 4] = [
    "copies of the superblock and the descriptors",
    "inodes of the file system's own, such as those of quotas",
    "sizes of files against their blocks",
    "fields that neither a mount nor a walk over all names needs",
];

/// Findings of this program's own check.
#[derive(Default)]
pub struct Findings {
    problems: Vec<String>,
    more: usize,
    /// Whether the journal records an error that the superblock does not.
    journal_records_error: bool,
}

impl Findings {
    fn note(&mut self, problem: impl std::fmt::Display) {
        match self.problems.len() {
            PROBLEMS_MAX.. => self.more += 1,
            _ => self.problems.push(problem.to_string()),
        }
    }
    fn append(&mut self, other: Findings) {
        other.problems.into_iter().for_each(|problem| self.note(problem));
        self.more += other.more;
        self.journal_records_error |= other.journal_records_error;
    }
}

pub fn run(arguments: CheckArguments) -> Result<(), CliError> {
    let target = arguments.target.as_path();
    let mut verdict = CheckVerdict::new(target);
    let ended = match target.is_dir() {
        true => check_mounted(target, &mut verdict),
        false if blocks::holds_volume(target) => check_blocks(&arguments, &mut verdict),
        false => check_unmounted(&arguments, &mut verdict),
    };
    verdict.end(ended, arguments.json)
}

fn check_mounted(target: &Path, verdict: &mut CheckVerdict) -> Result<(), CliError> {
    verdict.mounted = true;
    verdict.remedy = "Copy what you need from it; then unmount it, replay what its journal holds, \
         and repair it: okeanos umount, okeanos recover, e2fsck -f.";
    let mut findings = Findings::default();
    let mount = find_mount(target)?;
    // All of it is walked, wherever in it the target lies.
    verdict.target = mount.directory.display().to_string();
    let statistics = mounted::ask(&mount)?;
    let is_host = statistics["host"].is_object();
    if is_host {
        verdict.remedy = "The system log names the files, and why the store refuses them. What was \
             synced is in the journal until they are there.";
    } else if statistics["blocks"].is_object() {
        verdict.remedy = blocks::CLEAR;
    }
    let looked_at = mounted::check(&mount, &statistics, &Progress::new(), &mut findings);
    verdict.add_own(findings, looked_at)?;
    match is_host {
        true => verdict.leave_out("a host is walked by its files", LEFT_OF_HOST),
        false => verdict.leave_out("a mounted volume is walked by its files", LEFT_OF_MOUNTED),
    }
    Ok(())
}

fn check_blocks(arguments: &CheckArguments, verdict: &mut CheckVerdict) -> Result<(), CliError> {
    let (target, log) = (arguments.target.as_path(), arguments.journal_device.as_deref());
    let blocks::offline::Checked { looked_at, problems, remedy } =
        blocks::offline::check(target, log)?;
    verdict.remedy = remedy;
    verdict.add_own(Findings { problems, ..Findings::default() }, Ok(looked_at))?;
    verdict.leave_out("its own checker looks at it, once it is attached", LEFT_OF_BLOCKS);
    Ok(())
}

fn check_unmounted(arguments: &CheckArguments, verdict: &mut CheckVerdict) -> Result<(), CliError> {
    let (target, journal_device) =
        (arguments.target.as_path(), arguments.journal_device.as_deref());
    crate::daemon::mounted::refuse_if_its_daemon_died(target)?;
    let _claim = image::claim_for_check(target)?;
    if let Some(journal) = journal_device.filter(|_| !image::wants_journal(target, journal_device))
    {
        tree::refuse_foreign_journal(target, journal)?;
    }
    let mut findings = Findings::default();
    let own = image::check(target, journal_device, &Progress::new(), &mut findings);
    let journal_records_error = findings.journal_records_error;
    let own = verdict.add_own(findings, own);
    if image::wants_journal(target, journal_device) {
        // e2fsck's verdict on a volume whose log it does not replay, or does not find, means
        // nothing.
        return own;
    }
    if arguments.without_e2fsck {
        verdict.leave_out("e2fsck was not asked", LEFT_TO_E2FSCK);
        return own;
    }
    if journal_records_error {
        // It cannot take the error over without writing, and ends there.
        verdict.leave_out("e2fsck -fn ends at the journal's error", LEFT_TO_E2FSCK);
        return own;
    }
    let progress = Progress::new();
    progress.show("e2fsck -fn");
    match e2fsck::judge(target, journal_device)? {
        Judgement::Clean => verdict.e2fsck = verdict::OfE2fsck::Clean,
        Judgement::Errors(printed) => {
            verdict.e2fsck = verdict::OfE2fsck::Errors;
            verdict.add(FoundBy::E2fsck, printed.lines, printed.more);
        }
        Judgement::NoVerdict { why, printed, errors } => {
            verdict.e2fsck = verdict::OfE2fsck::None { reason: why.clone() };
            verdict.is_damaged |= errors;
            if own.is_ok() || errors {
                verdict.add(FoundBy::E2fsck, printed.lines, printed.more);
            }
            own?;
            return Err(CliError::new(format!("{}: {why}", target.display()))
                .with_remedy("Run e2fsck -fn on it by hand to see why."));
        }
        Judgement::NotInstalled => {
            verdict.leave_out("e2fsck is not installed: apt-get install e2fsprogs", LEFT_TO_E2FSCK);
        }
    }
    own
}
