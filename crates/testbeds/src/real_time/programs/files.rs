//! Works of programs that read and write files themselves: SQLite, git, tar and similar, large
//! files.

use super::sources::NEEDLE;
use super::{Measured, Scale, Sources, Volume};
use crate::real_time::rig::{self, RigError};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const MIB: usize = 1 << 20;

/// Returns the seconds that `work` takes.
fn timed(work: impl FnOnce() -> Result<(), RigError>) -> Result<f64, RigError> {
    rig::timed(work).map(|((), seconds)| seconds)
}

fn timed_run(command: &mut Command) -> Result<f64, RigError> {
    timed(|| rig::run(command).map(drop))
}

/// Returns the seconds of a run: the mean of five runs, or of as many as fit into a second. A
/// single run is too short to be judged.
fn timed_often(run: impl Fn() -> Result<f64, RigError>) -> Result<f64, RigError> {
    let (mut all, mut runs) = (0.0, 0);
    while runs < 5 || all < 1.0 {
        all += run()?;
        runs += 1;
    }
    Ok(all / f64::from(runs))
}

/// Measures small transactions of one client, each durable before the next: with the rollback
/// journal, and with a write-ahead log.
pub(super) fn sqlite(
    volume: &mut Volume<'_>,
    _: &Sources,
    scale: Scale,
) -> Result<Vec<Measured>, RigError> {
    let transactions = scale.of(1500);
    let mut measured = Vec::new();
    for (journal, name) in [("delete", "SQLite, rollback journal"), ("wal", "SQLite, WAL")] {
        let path = volume.path(journal);
        let table = "create table rows(number integer primary key, text text)";
        rig::run(
            Command::new("sqlite3")
                .arg(&path)
                .arg(format!("pragma journal_mode={journal}; {table};")),
        )?;
        let mut script = format!("pragma journal_mode={journal}; pragma synchronous=full;\n");
        for number in 0..transactions {
            script += &format!("insert into rows values({number}, hex(randomblob(50)));\n");
        }
        let seconds = timed(|| feed(Command::new("sqlite3").arg("-bail").arg(&path), &script))?;
        measured.push(Measured::rate(name, transactions as f64 / seconds));
    }
    Ok(measured)
}

/// Runs a program with `text` as its input.
fn feed(command: &mut Command, text: &str) -> Result<(), RigError> {
    let name = format!("{command:?}");
    let mut run = || {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        // If the program ends early this fails; its status then says more.
        let fed = child.stdin.take().expect("piped").write_all(text.as_bytes());
        let status = child.wait()?;
        if status.success() { fed.map(|()| status) } else { Ok(status) }
    };
    match run().map_err(RigError::at(&name))? {
        status if status.success() => Ok(()),
        status => Err(RigError::new(format!("{name} ended ({status})"))),
    }
}

pub(super) fn git(
    volume: &mut Volume<'_>,
    sources: &Sources,
    _: Scale,
) -> Result<Vec<Measured>, RigError> {
    let clone = volume.path("clone");
    let repository = sources.repository();
    let made = timed_run(
        Command::new("git").args(["clone", "-q", "--no-local"]).arg(repository).arg(&clone),
    )?;
    let status =
        || timed_run(Command::new("git").arg("-C").arg(&clone).args(["status", "--porcelain"]));
    status()?;
    Ok(vec![
        Measured::seconds("git clone", made),
        Measured::seconds("git status, warm", timed_often(status)?),
    ])
}

/// Works on sources. Nothing is synced: the time is what the user waits.
pub(super) fn tree(
    volume: &mut Volume<'_>,
    sources: &Sources,
    _: Scale,
) -> Result<Vec<Measured>, RigError> {
    let (first, second) = (volume.path("first"), volume.path("second"));
    std::fs::create_dir(&first).map_err(RigError::at(first.display()))?;
    let untar =
        timed_run(Command::new("tar").arg("-C").arg(&first).arg("-xf").arg(sources.archive()))?;
    let copy = timed_run(Command::new("cp").arg("-a").arg(&first).arg(&second))?;
    volume.forget_content()?;
    let grep = || timed_run(Command::new("grep").args(["-r", "-l", NEEDLE]).arg(&first));
    let (cold, warm) = (grep()?, timed_often(grep)?);
    let remove = timed_run(Command::new("rm").arg("-rf").arg(&second))?;
    Ok(vec![
        Measured::seconds("untar", untar),
        Measured::seconds("cp -a", copy),
        Measured::seconds("grep -r, cold", cold),
        Measured::seconds("grep -r, warm", warm),
        Measured::seconds("rm -rf", remove),
    ])
}

/// Writes a file of 1 GiB in pieces of 1 MiB, with an fsync at the end, and reads it after a
/// remount.
pub(super) fn large(
    volume: &mut Volume<'_>,
    _: &Sources,
    scale: Scale,
) -> Result<Vec<Measured>, RigError> {
    let path = volume.path("large");
    let pieces = scale.of(1024);
    let write = || timed(|| write_large(&path, pieces).map_err(RigError::at(path.display())));
    let (written, overwritten) = (write()?, write()?);
    volume.forget_content()?;
    let read = timed(|| read_large(&path).map_err(RigError::at(path.display())))?;
    let named = |what: &str, seconds| Measured::seconds(format!("{pieces} MiB: {what}"), seconds);
    Ok(vec![named("write", written), named("overwrite", overwritten), named("read, cold", read)])
}

fn write_large(path: &Path, pieces: u64) -> std::io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(false).open(path)?;
    let piece: Vec<u8> = (0..MIB).map(|at| (at / 7) as u8).collect();
    for _ in 0..pieces {
        file.write_all(&piece)?;
    }
    file.sync_all()
}

fn read_large(path: &Path) -> std::io::Result<()> {
    let (mut file, mut piece) = (File::open(path)?, vec![0; MIB]);
    while file.read(&mut piece)? > 0 {}
    Ok(())
}
