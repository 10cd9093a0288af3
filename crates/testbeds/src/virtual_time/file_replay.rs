//! Replay of a file trace on a volume in virtual time, one call after the other. Between two calls
//! the processes compute for as long as they did when the trace was recorded.

use crate::virtual_time::virtual_files::VirtualFiles;
use std::io;
use std::time::Duration;
use workloads::{FileOperation, FileTrace, Files, TracedOperation};

/// Length of a part of a trace if its calls took no time; its recorded times are stretched to that.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PhaseLength {
    pub name: &'static str,
    pub seconds: f64,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FileReplayReport {
    pub seconds: f64,
    /// Time of the calls alone, without the processes' computing.
    pub waited: f64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// Plays the parts that `lengths` names, from the first on; a part that is not named ends the
/// replay. The directory must be empty at first.
pub async fn replay_files(
    files: &VirtualFiles,
    trace: &FileTrace,
    lengths: &[PhaseLength],
) -> io::Result<FileReplayReport> {
    let mut report = FileReplayReport::default();
    let (begin, mut waited, mut stretch) = (files.now(), Duration::ZERO, 1.0);
    for (number, record) in trace.records.iter().enumerate() {
        let thought =
            number.checked_sub(1).map_or(Duration::ZERO, |last| record.at - trace.records[last].at);
        files.sleep_until(files.now().plus(thought.mul_f64(stretch))).await;
        if record.operation == FileOperation::Phase {
            let Some(length) = lengths.iter().find(|length| length.name == &*record.path) else {
                break;
            };
            let next = trace.records[number + 1..]
                .iter()
                .find(|later| later.operation == FileOperation::Phase);
            let end = next.or(trace.records.last()).map_or(record.at, |later| later.at);
            stretch = length.seconds / (end - record.at).as_secs_f64().max(1e-9);
            continue;
        }
        let called = files.now();
        perform(files, record).await.map_err(|error| at_record(number, record, error))?;
        waited += files.now().since(called);
        match record.operation {
            FileOperation::Read { size, .. } => report.bytes_read += u64::from(size),
            FileOperation::Write { size, .. } => report.bytes_written += u64::from(size),
            _ => {}
        }
    }
    report.seconds = files.now().since(begin).as_secs_f64();
    report.waited = waited.as_secs_f64();
    Ok(report)
}

async fn perform(files: &VirtualFiles, record: &TracedOperation) -> io::Result<()> {
    let path = &*record.path;
    match &record.operation {
        FileOperation::Phase => Ok(()),
        FileOperation::MakeDirectory => files.make_directory(path).await,
        FileOperation::RemoveDirectory => files.remove_directory(path).await,
        FileOperation::Create => {
            let made = files.create(path, workloads::SyncKind::None).await?;
            files.close(made).await;
            Ok(())
        }
        FileOperation::Open => files.length(path).await.map(drop),
        FileOperation::Read { offset, size } => {
            let file = files.open(path, workloads::SyncKind::None).await?;
            let read = files.read_at(&file, *offset, &mut vec![0; *size as usize]).await;
            files.close(file).await;
            read.map(drop)
        }
        FileOperation::Write { offset, size } => {
            let mut file = files.open(path, workloads::SyncKind::None).await?;
            let written = files.write_at(&mut file, *offset, &vec![0x6f; *size as usize]).await;
            files.close(file).await;
            written
        }
        FileOperation::Truncate { size } => files.truncate(path, *size).await,
        FileOperation::Rename { to } => files.rename(path, to).await,
        FileOperation::Link { to } => files.link(path, to).await,
        FileOperation::Symlink { target } => files.symlink(path, target).await,
        FileOperation::Unlink => files.unlink(path).await,
        FileOperation::Attributes => files.touch(path).await,
        FileOperation::Fsync | FileOperation::Fdatasync => {
            let file = files.open(path, workloads::SyncKind::None).await?;
            let synced = files.sync(&file).await;
            files.close(file).await;
            synced
        }
    }
}

fn at_record(number: usize, record: &TracedOperation, error: io::Error) -> io::Error {
    let TracedOperation { path, operation, .. } = record;
    io::Error::new(error.kind(), format!("record {}, {operation:?} of {path}: {error}", number + 1))
}
