//! Appends and syncs of a program to its log file, with their times, for replay.
//!
//! A trace is text, plain or packed as one zstd frame:
//!
//! ```text
//! # any number of remarks
//! time_us,offset_bytes,size_bytes,sync
//! 0,4096,512,fdatasync
//! 1830,4608,1536,none
//! 2100,6144,0,fdatasync
//! ```
//!
//! - `time_us`: microseconds since the first record, when the program issued it. Never decreases.
//! - `offset_bytes`, `size_bytes`: the range written. A size of 0 is a sync without a write.
//! - `sync`: the call that made it durable. `none`: it was left in the page cache. `fsync`,
//!   `fdatasync`: called by the writer right after the write. `osync`, `odsync`: the file was
//!   opened O_SYNC or O_DSYNC.
//!
//! How the traces that come with the program were recorded: `docs/TRACES.md`.

use crate::trace_text::{self, Fields, Wrong};
use std::io::Read;
use std::time::Duration;

pub use crate::trace_text::{OFFSET_MAX, SIZE_MAX, TIME_MAX_US, TraceError as LogTraceError};

/// One log file, as one program wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogTrace {
    pub name: String,
    /// Ordered by time; the first is at zero or later.
    pub records: Vec<LogRecord>,
}

/// An append, a sync, or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRecord {
    /// Time since the start of the trace.
    pub at: Duration,
    /// Bytes from the start of the log.
    pub offset: u64,
    /// Bytes written. 0: only a sync of what was written before.
    pub size: u32,
    /// Whether it counted as done when it, and all before it, was durable.
    pub sync: bool,
}

/// The first line that is not a remark.
pub const HEADER: &str = "time_us,offset_bytes,size_bytes,sync";

const SHIPPED: &trace_text::Shipped = &[
    ("innodb-cmt-disk", include_bytes!("../traces/innodb-cmt-disk.csv.zst")),
    ("innodb-cmt-cache", include_bytes!("../traces/innodb-cmt-cache.csv.zst")),
    ("innodb-prd-disk", include_bytes!("../traces/innodb-prd-disk.csv.zst")),
    ("mail-store", include_bytes!("../traces/mail-store.csv.zst")),
    ("postgres-tpcb", include_bytes!("../traces/postgres-tpcb.csv.zst")),
];

/// The names of the traces that come with the program.
pub fn shipped() -> Vec<&'static str> {
    SHIPPED.iter().map(|(name, _)| *name).collect()
}

impl LogTrace {
    /// Opens the trace that comes with the program under this name, otherwise the file at this
    /// path.
    pub fn open(name: &str) -> Result<LogTrace, LogTraceError> {
        let (name, source) = trace_text::open(name, SHIPPED)?;
        LogTrace::read(&name, source)
    }

    /// `source` is text or its zstd frame.
    pub fn read(name: &str, source: impl Read) -> Result<LogTrace, LogTraceError> {
        let mut records: Vec<LogRecord> = Vec::new();
        trace_text::read(name, source, HEADER, |line| {
            let earlier = records.last().map_or(Duration::ZERO, |record| record.at);
            records.push(read_record(line, earlier)?);
            Ok(())
        })?;
        Ok(LogTrace { name: name.to_owned(), records })
    }

    /// Bytes that the replayed log reaches.
    pub fn file_bytes(&self) -> u64 {
        self.records.iter().map(|record| record.offset + u64::from(record.size)).max().unwrap_or(0)
    }

    /// Returns when the last record begins.
    pub fn duration(&self) -> Duration {
        self.records.last().map_or(Duration::ZERO, |record| record.at)
    }
}

fn read_record(line: &str, earlier: Duration) -> Result<LogRecord, Wrong> {
    let mut fields = Fields::of(line);
    let (time_column, time_us) = fields.number("time_us", TIME_MAX_US)?;
    let (offset_column, offset) = fields.number("offset_bytes", OFFSET_MAX)?;
    let (size_column, size) = fields.number("size_bytes", SIZE_MAX)?;
    let (sync_column, sync) = fields.next("sync")?;
    fields.end()?;
    let sync = match sync {
        "none" => false,
        "fsync" | "fdatasync" | "osync" | "odsync" => true,
        other => {
            let what = format!("sync is none, fsync, fdatasync, osync or odsync, not {other:?}");
            return Err(Wrong::at(sync_column, what));
        }
    };
    let at = Duration::from_micros(time_us);
    if at < earlier {
        return Err(Wrong::at(time_column, "earlier than the record before"));
    }
    if offset + size > OFFSET_MAX {
        return Err(Wrong::at(offset_column, format!("the write ends beyond {OFFSET_MAX}")));
    }
    if size == 0 && !sync {
        return Err(Wrong::at(size_column, "neither writes nor syncs"));
    }
    Ok(LogRecord { at, offset, size: size as u32, sync })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace_text::tests::garbage;

    const TEXT: &str = "# a remark\ntime_us,offset_bytes,size_bytes,sync\n0,4096,512,fdatasync\n1830,4608,1536,none\n\
                        2100,6144,0,osync\n";

    fn read(text: &str) -> Result<LogTrace, LogTraceError> {
        LogTrace::read("test", text.as_bytes())
    }
    /// Line, column and complaint about a record that follows one at time 0.
    fn complaint(record: &str) -> (usize, usize, String) {
        match read(&format!("{HEADER}\n0,0,1,none\n{record}\n")).expect_err(record) {
            LogTraceError::Line { line, column, what, .. } => (line, column, what),
            other => panic!("{record}: {other}"),
        }
    }

    #[test]
    fn a_trace_has_times_of_writes_and_syncs() {
        let record = |us, offset, size, sync| LogRecord {
            at: Duration::from_micros(us),
            offset,
            size,
            sync,
        };
        let trace = read(TEXT).unwrap();
        let wanted = [
            record(0, 4096, 512, true),
            record(1830, 4608, 1536, false),
            record(2100, 6144, 0, true),
        ];
        assert_eq!(trace.records, wanted);
        assert_eq!((trace.file_bytes(), trace.duration()), (6144, Duration::from_micros(2100)));
    }

    #[test]
    fn every_trace_that_comes_with_the_program_reads() {
        for name in shipped() {
            let trace = LogTrace::open(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(trace.name, name);
            assert!(trace.records.iter().any(|record| record.sync), "{name} never syncs");
            assert_eq!(trace.records[0].at, Duration::ZERO, "{name}");
        }
    }

    #[test]
    fn what_is_wrong_is_reported_with_line_and_column() {
        let (line, column, what) = complaint("12,x,3,none");
        assert_eq!((line, column), (3, 4), "{what}");
        assert_eq!(what, "offset_bytes is a whole number, not \"x\"");
        for (record, column) in [
            ("", 1),
            ("-1,0,1,none", 1),
            ("+1,0,1,none", 1),
            ("1,0,1", 6),
            ("1,0,1,", 7),
            ("1,0,1,maybe", 7),
            ("1,0,1,none,", 12),
            ("1,0,1,none,5", 12),
            ("1,0,0,none", 5),
            ("1,0,99999999999,none", 5),
            ("1,99999999999999999999999999,1,none", 3),
            ("1,17592186044416,1,none", 3),
            ("99999999999999999,0,1,none", 1),
            ("1, 0,1,none", 3),
            ("1,0,\u{661},none", 5),
        ] {
            assert_eq!((complaint(record).0, complaint(record).1), (3, column), "{record}");
        }
        let backwards = read(&format!("{HEADER}\n5,0,1,none\n4,1,1,none\n")).unwrap_err();
        assert_eq!(backwards.to_string(), "test, line 3, column 1: earlier than the record before");
    }

    #[test]
    fn garbage_is_refused_without_panic() {
        garbage(TEXT, |bytes| LogTrace::read("test", bytes));
    }
}
