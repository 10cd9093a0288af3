//! Checks whether files hold what their writers were promised.

use crate::record;
use crate::streams::{Acknowledged, file_name};
use std::io;
use std::path::Path;

/// Findings of reading back.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct FileVerdict {
    pub acknowledged: u64,
    /// Acknowledged records that are not there, or not as written.
    pub lost: u64,
    /// Whole records beyond the acknowledged ones: written, but the answer did not get out.
    pub unacknowledged: u64,
    /// Files that end in something that is no whole record.
    pub torn: u64,
    /// The first of each writer's troubles, ten at most.
    pub complaints: Vec<String>,
}

impl FileVerdict {
    fn complain(&mut self, text: String) {
        if self.complaints.len() < 10 {
            self.complaints.push(text);
        }
    }
}

/// Reads every writer's file. An error only if a file cannot be read.
pub fn verify(directory: &Path, acknowledged: &Acknowledged) -> io::Result<FileVerdict> {
    let mut verdict = FileVerdict::default();
    for (writer, &appends) in (0..).zip(&acknowledged.appends) {
        let name = file_name(&acknowledged.prefix, writer);
        let bytes = match std::fs::read(directory.join(&name)) {
            Ok(bytes) => bytes,
            // Never acknowledged, so nothing was promised, not even the name.
            Err(error) if error.kind() == io::ErrorKind::NotFound && appends == 0 => continue,
            Err(error) => return Err(io::Error::new(error.kind(), format!("{name}: {error}"))),
        };
        check_file(&mut verdict, &name, &bytes, writer, appends, acknowledged.size);
    }
    Ok(verdict)
}

fn check_file(
    verdict: &mut FileVerdict,
    name: &str,
    bytes: &[u8],
    writer: u32,
    appends: u64,
    size: usize,
) {
    let mut records = (0..).zip(bytes.chunks(size));
    let is_right = |(sequence, record): &(u64, &[u8])| {
        record.len() == size && record::is_right(record, writer, *sequence)
    };
    let right = records.by_ref().take(appends as usize).filter(is_right).count() as u64;
    verdict.acknowledged += appends;
    verdict.lost += appends - right;
    if right < appends {
        verdict.complain(format!(
            "{name}: {} of {appends} acknowledged records are lost",
            appends - right
        ));
    }
    let (whole, torn): (Vec<_>, Vec<_>) = records.partition(is_right);
    verdict.unacknowledged += whole.len() as u64;
    if let Some((sequence, _)) = torn.first() {
        verdict.torn += 1;
        verdict.complain(format!("{name}: record {sequence}, never acknowledged, is torn"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], appends: u64) -> FileVerdict {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("s-00000"), bytes).unwrap();
        verify(
            directory.path(),
            &Acknowledged { prefix: "s-".into(), size: 64, appends: vec![appends] },
        )
        .unwrap()
    }
    fn records(count: u64) -> Vec<u8> {
        let mut bytes = vec![0; count as usize * 64];
        (0..)
            .zip(bytes.chunks_mut(64))
            .for_each(|(sequence, chunk)| record::write(chunk, 0, sequence));
        bytes
    }

    #[test]
    fn what_was_acknowledged_must_be_there() {
        assert_eq!(
            check(&records(3), 3),
            FileVerdict { acknowledged: 3, ..FileVerdict::default() }
        );
        assert_eq!(check(&records(2), 3).lost, 1);
        let mut damaged = records(3);
        damaged[70] ^= 1;
        assert_eq!(check(&damaged, 3).lost, 1);
        assert_eq!(check(&records(3)[64..], 2).lost, 2, "a shifted file is a lost file");
    }

    #[test]
    fn what_was_not_acknowledged_is_counted_apart() {
        assert_eq!(check(&records(4), 3).unacknowledged, 1);
        let torn = check(&records(4)[..200], 3);
        assert_eq!((torn.lost, torn.torn), (0, 1));
    }

    #[test]
    fn a_missing_file_is_an_error_only_if_something_was_acknowledged() {
        let directory = tempfile::tempdir().unwrap();
        let acknowledged =
            |appends| Acknowledged { prefix: "s-".into(), size: 64, appends: vec![appends] };
        assert!(verify(directory.path(), &acknowledged(0)).is_ok());
        assert!(verify(directory.path(), &acknowledged(1)).is_err());
    }
}
