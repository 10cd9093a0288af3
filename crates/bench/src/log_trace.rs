//! What a program did to its log file: appends and syncs with their times, for replay.
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
//! - `time_us`: microseconds since the first record, when the program asked. Never goes back.
//! - `offset_bytes`, `size_bytes`: the range written. A size of 0 is a sync without a write.
//! - `sync`: the call that made it durable. `none`: it was left in the page cache; `fsync`, `fdatasync`: called by the
//!   writer right after the write; `osync`, `odsync`: the file was opened O_SYNC or O_DSYNC.
//!
//! Nothing in a trace is trusted: it is read as a stream, every number has a limit, and what is wrong is reported
//! with its line and column. How the traces that come with the program were recorded: `docs/TRACES.md`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

/// One log file, as one program wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogTrace {
    pub name: String,
    /// In the order of their times; the first is at zero or later.
    pub records: Vec<LogRecord>,
}

/// An append, a sync, or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRecord {
    /// Since the start of the trace.
    pub at: Duration,
    /// Bytes from the start of the log.
    pub offset: u64,
    /// Bytes written. 0: only a sync of what was written before.
    pub size: u32,
    /// It counted as done when it, and all before it, was durable.
    pub sync: bool,
}

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
pub enum LogTraceError {
    #[error("{name}: {source}; the traces that come with the program are {}", shipped().join(", "))]
    NoSuchTrace { name: String, source: io::Error },
    #[error("{name}: {source}")]
    Read { name: String, source: io::Error },
    /// Lines and columns count from 1, columns in bytes.
    #[error("{name}, line {line}, column {column}: {what}")]
    Line { name: String, line: usize, column: usize, what: String },
}

/// The first line that is not a remark.
pub const HEADER: &str = "time_us,offset_bytes,size_bytes,sync";
/// A trace has at most so many records.
pub const RECORDS_MAX: usize = 1 << 22;
/// A record writes at most so many bytes, and ends before [`OFFSET_MAX`].
pub const SIZE_MAX: u64 = 64 << 20;
pub const OFFSET_MAX: u64 = 1 << 44;
/// A trace is at most so long: a year.
pub const TIME_MAX_US: u64 = 366 * 86_400 * 1_000_000;
/// Of a line, with its end; remarks too.
const LINE_BYTES_MAX: u64 = 1024;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const SHIPPED: &[(&str, &[u8])] = &[];

/// The names of the traces that come with the program.
pub fn shipped() -> Vec<&'static str> {
    SHIPPED.iter().map(|(name, _)| *name).collect()
}

impl LogTrace {
    /// The trace that comes with the program under this name, otherwise the file at this path.
    pub fn open(name: &str) -> Result<LogTrace, LogTraceError> {
        if let Some((_, packed)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
            return LogTrace::read(name, *packed);
        }
        let file = File::open(name)
            .map_err(|source| LogTraceError::NoSuchTrace { name: name.to_owned(), source })?;
        let stem = Path::new(name).file_name().map_or(name.into(), |name| name.to_string_lossy());
        let stem = stem.trim_end_matches(".zst").trim_end_matches(".csv");
        LogTrace::read(stem, file)
    }

    /// `source` is text or its zstd frame.
    pub fn read(name: &str, mut source: impl Read) -> Result<LogTrace, LogTraceError> {
        let broken = |source| LogTraceError::Read { name: name.to_owned(), source };
        let mut magic = Vec::new();
        source.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut magic).map_err(broken)?;
        let packed = magic == ZSTD_MAGIC;
        let mut source = magic.as_slice().chain(source);
        if !packed {
            return read_text(name, BufReader::new(source));
        }
        let unpacked = ruzstd::decoding::StreamingDecoder::new(&mut source)
            .map_err(|error| broken(io::Error::other(error)))?;
        let trace = read_text(name, BufReader::new(unpacked))?;
        match source.read(&mut [0]).map_err(broken)? {
            0 => Ok(trace),
            _ => Err(broken(io::Error::other("something follows the zstd frame"))),
        }
    }

    /// Bytes that the replayed log reaches.
    pub fn file_bytes(&self) -> u64 {
        self.records.iter().map(|record| record.offset + u64::from(record.size)).max().unwrap_or(0)
    }

    /// When the last record begins.
    pub fn duration(&self) -> Duration {
        self.records.last().map_or(Duration::ZERO, |record| record.at)
    }
}

fn read_text(name: &str, mut source: impl BufRead) -> Result<LogTrace, LogTraceError> {
    let mut records: Vec<LogRecord> = Vec::new();
    let mut header_seen = false;
    let mut bytes = Vec::new();
    for line in 1.. {
        let wrong = |wrong: Wrong| LogTraceError::Line {
            name: name.to_owned(),
            line,
            column: wrong.column,
            what: wrong.what,
        };
        bytes.clear();
        source
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut bytes)
            .map_err(|source| LogTraceError::Read { name: name.to_owned(), source })?;
        if bytes.is_empty() {
            break;
        }
        if bytes.len() as u64 == LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
            return Err(wrong(Wrong::at(bytes.len(), "the line does not end")));
        }
        let text = std::str::from_utf8(&bytes)
            .map_err(|error| wrong(Wrong::at(error.valid_up_to() + 1, "this is not text")))?;
        let text = text.trim_end_matches(['\n', '\r']);
        if text.starts_with('#') {
            continue;
        }
        if !header_seen {
            if text != HEADER {
                let column = text.bytes().zip(HEADER.bytes()).take_while(|(ours, wanted)| ours == wanted);
                return Err(wrong(Wrong::at(column.count() + 1, format!("expected the header {HEADER:?}"))));
            }
            header_seen = true;
            continue;
        }
        if records.len() == RECORDS_MAX {
            return Err(wrong(Wrong::at(1, format!("more than {RECORDS_MAX} records"))));
        }
        let earlier = records.last().map_or(Duration::ZERO, |record| record.at);
        records.push(read_record(text, earlier).map_err(wrong)?);
    }
    if records.is_empty() {
        let what = if header_seen { "no records" } else { "no header" };
        return Err(LogTraceError::Read {
            name: name.to_owned(),
            source: io::Error::new(io::ErrorKind::UnexpectedEof, what),
        });
    }
    Ok(LogTrace { name: name.to_owned(), records })
}

/// What is wrong in a line.
struct Wrong {
    column: usize,
    what: String,
}

impl Wrong {
    fn at(column: usize, what: impl Into<String>) -> Wrong {
        Wrong { column, what: what.into() }
    }
}

fn read_record(line: &str, earlier: Duration) -> Result<LogRecord, Wrong> {
    let mut fields = Fields { line, at: 0 };
    let (time_column, time_us) = fields.number("time_us", TIME_MAX_US)?;
    let (offset_column, offset) = fields.number("offset_bytes", OFFSET_MAX)?;
    let (size_column, size) = fields.number("size_bytes", SIZE_MAX)?;
    let (sync_column, sync) = fields.next("sync")?;
    if fields.at <= line.len() {
        return Err(Wrong::at(fields.at + 1, "a field too many"));
    }
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

struct Fields<'a> {
    line: &'a str,
    /// Where the next field begins; beyond the line's end when there is none.
    at: usize,
}

impl<'a> Fields<'a> {
    /// The field and the column where it begins.
    fn next(&mut self, what: &str) -> Result<(usize, &'a str), Wrong> {
        let column = self.at + 1;
        let Some(rest) = self.line.get(self.at..) else {
            return Err(Wrong::at(self.line.len() + 1, format!("{what} is missing")));
        };
        let field = rest.split(',').next().unwrap_or(rest);
        self.at += field.len() + 1;
        Ok((column, field))
    }

    fn number(&mut self, what: &str, largest: u64) -> Result<(usize, u64), Wrong> {
        let (column, field) = self.next(what)?;
        if field.is_empty() || !field.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Wrong::at(column, format!("{what} is a whole number, not {field:?}")));
        }
        match field.parse() {
            Ok(number) if number <= largest => Ok((column, number)),
            _ => Err(Wrong::at(column, format!("{what} is at most {largest}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# a remark\ntime_us,offset_bytes,size_bytes,sync\n0,4096,512,fdatasync\n1830,4608,1536,none\n\
                        2100,6144,0,osync\n";

    fn read(text: impl AsRef<[u8]>) -> Result<LogTrace, LogTraceError> {
        LogTrace::read("test", text.as_ref())
    }
    fn pack(text: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
    }
    /// Line, column and complaint about a record after the header, which is line 1.
    fn complaint(record: &str) -> (usize, usize, String) {
        match read(format!("{HEADER}\n0,0,1,none\n{record}\n")).expect_err(record) {
            LogTraceError::Line { line, column, what, .. } => (line, column, what),
            other => panic!("{record}: {other}"),
        }
    }

    #[test]
    fn a_trace_reads_the_same_as_text_and_packed() {
        let record = |us, offset, size, sync| LogRecord { at: Duration::from_micros(us), offset, size, sync };
        let wanted =
            [record(0, 4096, 512, true), record(1830, 4608, 1536, false), record(2100, 6144, 0, true)];
        let trace = read(TEXT).unwrap();
        assert_eq!(trace.records, wanted);
        assert_eq!((trace.file_bytes(), trace.duration()), (6144, Duration::from_micros(2100)));
        assert_eq!(read(TEXT.replace('\n', "\r\n")).unwrap(), trace);
        assert_eq!(read(TEXT.trim_end()).unwrap(), trace);
        assert_eq!(read(pack(TEXT.as_bytes())).unwrap(), trace);
    }

    #[test]
    fn a_trace_is_found_by_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mine.csv.zst");
        std::fs::write(&path, pack(TEXT.as_bytes())).unwrap();
        assert_eq!(LogTrace::open(path.to_str().unwrap()).unwrap().name, "mine");
        let missing = directory.path().join("missing");
        let error = LogTrace::open(missing.to_str().unwrap()).unwrap_err();
        assert!(matches!(error, LogTraceError::NoSuchTrace { .. }), "{error}");
    }

    #[test]
    fn every_trace_that_comes_with_the_program_reads() {
        for name in shipped() {
            let trace = LogTrace::open(name).unwrap_or_else(|error| panic!("{error}"));
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
        let backwards = read(format!("{HEADER}\n5,0,1,none\n4,1,1,none\n")).unwrap_err();
        assert_eq!(backwards.to_string(), "test, line 3, column 1: earlier than the record before");
        let header = read("time_us,offset,size,sync\n").unwrap_err();
        assert!(header.to_string().starts_with("test, line 1, column 15: expected the header"), "{header}");
        let binary = read(b"# \xff\n").unwrap_err();
        assert_eq!(binary.to_string(), "test, line 1, column 3: this is not text");
    }

    #[test]
    fn a_trace_without_records_is_no_trace() {
        for text in ["", "#\n", HEADER, "time_us,offset_bytes,size_bytes,sync\n#\n"] {
            assert!(matches!(read(text), Err(LogTraceError::Read { .. })), "{text:?}");
        }
    }

    #[test]
    fn a_line_without_end_is_not_kept_in_memory() {
        let endless = io::repeat(b'#').take(1 << 40);
        let error = LogTrace::read("test", endless).unwrap_err();
        assert_eq!(error.to_string(), "test, line 1, column 1024: the line does not end");
    }

    #[test]
    fn garbage_is_refused_without_panic() {
        let packed = pack(TEXT.as_bytes());
        for length in 0..packed.len() {
            assert!(read(&packed[..length]).is_err(), "cut at {length}");
        }
        assert!(read([packed.as_slice(), b"\0"].concat()).is_err(), "a byte after the frame");
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for source in [TEXT.as_bytes(), &packed] {
            for _ in 0..2000 {
                let mut bytes = source.to_vec();
                for _ in 0..=random() % 3 {
                    let at = random() as usize % bytes.len();
                    bytes[at] = random() as u8;
                }
                if let Ok(trace) = read(&bytes) {
                    assert!(trace.records.len() <= bytes.len().max(100));
                }
            }
        }
    }
}
