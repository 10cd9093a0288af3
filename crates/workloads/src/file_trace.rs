//! Operations of many processes on the files below one directory, in one order, for replay.
//!
//! A trace is text, plain or packed as one zstd frame:
//!
//! ```text
//! # any number of remarks
//! time_us,operation,path,to,offset_bytes,size_bytes
//! 0,phase,unpack,,,
//! 75,mkdir,src,,,
//! 90,create,src/main.c,,,
//! 120,write,src/main.c,,0,512
//! 300,rename,src/main.c,src/first.c,,
//! ```
//!
//! - `time_us`: microseconds since the first record, when the process issued the operation. Never
//!   decreases.
//! - `path`, `to`: relative to the directory, which is empty at first; `to` of a symbolic link is
//!   its target.
//! - Operations on names are `mkdir`, `rmdir`, `create` (a file that did not exist), `open` (one
//!   that did), `rename`, `link`, `symlink` and `unlink`. Operations on files are `read` and
//!   `write` (where and how much was really transferred), `truncate` (to a size), `attributes`
//!   (mode or times), `fsync`, `fdatasync`. `phase` begins a part of the work and names it.
//!
//! How the trace that comes with the program was recorded: `docs/TRACES.md`.

use crate::trace_text::{
    self, Fields, OFFSET_MAX, SIZE_MAX, TIME_MAX_US, TraceError, Wrong, number,
};
use std::collections::HashMap;
use std::io::Read;
use std::rc::Rc;
use std::time::Duration;

/// The operations, in the order in which they began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileTrace {
    pub name: String,
    pub records: Vec<TracedOperation>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TracedOperation {
    /// Time since the start of the trace.
    pub at: Duration,
    /// Relative, without `.` and `..`; the name of a phase.
    pub path: Rc<str>,
    pub operation: FileOperation,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileOperation {
    /// Begins a part of the work, to which the following records belong.
    Phase,
    MakeDirectory,
    RemoveDirectory,
    /// Creates a file that does not exist.
    Create,
    Open,
    Read {
        offset: u64,
        size: u32,
    },
    Write {
        offset: u64,
        size: u32,
    },
    /// Changes the size to this many bytes, longer or shorter.
    Truncate {
        size: u64,
    },
    /// Replaces what is there.
    Rename {
        to: Rc<str>,
    },
    Link {
        to: Rc<str>,
    },
    Symlink {
        target: Rc<str>,
    },
    Unlink,
    Attributes,
    Fsync,
    Fdatasync,
}

/// The first line that is not a remark.
pub const HEADER: &str = "time_us,operation,path,to,offset_bytes,size_bytes";
/// Number of different paths that a trace names at most.
pub const PATHS_MAX: usize = 1 << 18;

const SHIPPED: &trace_text::Shipped =
    &[("openssh-build", include_bytes!("../traces/openssh-build.csv.zst"))];

/// The names of the traces that come with the program.
pub fn shipped() -> Vec<&'static str> {
    SHIPPED.iter().map(|(name, _)| *name).collect()
}

impl FileTrace {
    /// Opens the trace that comes with the program under this name, otherwise the file at this
    /// path.
    pub fn open(name: &str) -> Result<FileTrace, TraceError> {
        let (name, source) = trace_text::open(name, SHIPPED)?;
        FileTrace::read(&name, source)
    }

    /// `source` is text or its zstd frame.
    pub fn read(name: &str, source: impl Read) -> Result<FileTrace, TraceError> {
        let mut records: Vec<TracedOperation> = Vec::new();
        let mut paths = Paths::default();
        trace_text::read(name, source, HEADER, |line| {
            let earlier = records.last().map_or(Duration::ZERO, |record| record.at);
            records.push(read_record(line, earlier, &mut paths)?);
            Ok(())
        })?;
        Ok(FileTrace { name: name.to_owned(), records })
    }
}

fn read_record(line: &str, earlier: Duration, paths: &mut Paths) -> Result<TracedOperation, Wrong> {
    let mut fields = Fields::of(line);
    let (time_column, time_us) = fields.number("time_us", TIME_MAX_US)?;
    let at = Duration::from_micros(time_us);
    if at < earlier {
        return Err(Wrong::at(time_column, "earlier than the record before"));
    }
    let (column, operation) = fields.next("operation")?;
    let path = paths.path(fields.next("path")?)?;
    let (to, offset, size) =
        (fields.next("to")?, fields.next("offset_bytes")?, fields.next("size_bytes")?);
    fields.end()?;
    let unused: &[_] = match operation {
        "rename" | "link" | "symlink" => &[offset, size],
        "truncate" => &[to, size],
        "read" | "write" => &[to],
        _ => &[to, offset, size],
    };
    if let Some((column, field)) = unused.iter().find(|(_, field)| !field.is_empty()) {
        return Err(Wrong::at(*column, format!("{operation} has no use for {field:?}")));
    }
    let operation = match operation {
        "phase" => FileOperation::Phase,
        "mkdir" => FileOperation::MakeDirectory,
        "rmdir" => FileOperation::RemoveDirectory,
        "create" => FileOperation::Create,
        "open" => FileOperation::Open,
        "unlink" => FileOperation::Unlink,
        "attributes" => FileOperation::Attributes,
        "fsync" => FileOperation::Fsync,
        "fdatasync" => FileOperation::Fdatasync,
        "rename" => FileOperation::Rename { to: paths.path(to)? },
        "link" => FileOperation::Link { to: paths.path(to)? },
        "symlink" => FileOperation::Symlink { target: paths.text(to)? },
        "truncate" => FileOperation::Truncate { size: number(offset, "offset_bytes", OFFSET_MAX)? },
        "read" => range(offset, size).map(|(offset, size)| FileOperation::Read { offset, size })?,
        "write" => {
            range(offset, size).map(|(offset, size)| FileOperation::Write { offset, size })?
        }
        other => return Err(Wrong::at(column, format!("there is no operation {other:?}"))),
    };
    Ok(TracedOperation { at, path, operation })
}

fn range(offset: (usize, &str), size: (usize, &str)) -> Result<(u64, u32), Wrong> {
    let column = offset.0;
    let offset = number(offset, "offset_bytes", OFFSET_MAX)?;
    let size = number(size, "size_bytes", SIZE_MAX)?;
    if offset + size > OFFSET_MAX {
        return Err(Wrong::at(column, format!("the range ends beyond {OFFSET_MAX}")));
    }
    Ok((offset, size as u32))
}

/// Interned paths: each different path is kept once.
#[derive(Default)]
struct Paths(HashMap<Rc<str>, Rc<str>>);

impl Paths {
    fn path(&mut self, (column, path): (usize, &str)) -> Result<Rc<str>, Wrong> {
        if path.split('/').any(|name| ["", ".", ".."].contains(&name) || name.contains('\0')) {
            let what = format!("a path is relative, without empty names, . and .., not {path:?}");
            return Err(Wrong::at(column, what));
        }
        self.text((column, path))
    }

    fn text(&mut self, (column, text): (usize, &str)) -> Result<Rc<str>, Wrong> {
        if let Some(known) = self.0.get(text) {
            return Ok(known.clone());
        }
        if self.0.len() == PATHS_MAX {
            return Err(Wrong::at(column, format!("more than {PATHS_MAX} paths")));
        }
        let text: Rc<str> = text.into();
        self.0.insert(text.clone(), text.clone());
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace_text::tests::garbage;
    use std::collections::BTreeMap;

    const TEXT: &str = "# a remark\ntime_us,operation,path,to,offset_bytes,size_bytes\n0,phase,unpack,,,\n\
                        75,mkdir,src,,,\n90,create,src/a,,,\n120,write,src/a,,0,512\n130,truncate,src/a,,100,\n\
                        300,rename,src/a,src/b,,\n400,symlink,a,/x/../y,,\n500,read,src/b,,5,10\n";

    fn read(text: &str) -> Result<FileTrace, TraceError> {
        FileTrace::read("test", text.as_bytes())
    }

    #[test]
    fn a_trace_says_what_was_done_to_which_file() {
        let trace = read(TEXT).unwrap();
        let operations: Vec<_> =
            trace.records.iter().map(|record| record.operation.clone()).collect();
        use FileOperation::*;
        assert_eq!(
            operations,
            [
                Phase,
                MakeDirectory,
                Create,
                Write { offset: 0, size: 512 },
                Truncate { size: 100 },
                Rename { to: "src/b".into() },
                Symlink { target: "/x/../y".into() },
                Read { offset: 5, size: 10 },
            ]
        );
        assert_eq!(
            (&*trace.records[3].path, trace.records[3].at),
            ("src/a", Duration::from_micros(120))
        );
    }

    #[test]
    fn the_build_that_comes_with_the_program_can_be_followed() {
        let trace = FileTrace::open("openssh-build").unwrap_or_else(|error| panic!("{error}"));
        let mut files = BTreeMap::new();
        for TracedOperation { path, operation, .. } in &trace.records {
            match operation {
                FileOperation::Create => {
                    assert_eq!(files.insert(path.clone(), 0), None, "{path} is there")
                }
                FileOperation::Write { offset, size } => {
                    let bytes =
                        files.get_mut(path).unwrap_or_else(|| panic!("{path} is not there"));
                    *bytes = u64::max(*bytes, offset + u64::from(*size));
                }
                FileOperation::Read { offset, size } => {
                    assert!(offset + u64::from(*size) <= files[path], "{path} is shorter");
                }
                FileOperation::Truncate { size } => {
                    files.insert(path.clone(), *size).map(drop).unwrap()
                }
                FileOperation::Open => assert!(files.contains_key(path), "{path} is not there"),
                FileOperation::Unlink => drop(files.remove(path)),
                FileOperation::Rename { to } => {
                    if let Some(bytes) = files.remove(path) {
                        files.insert(to.clone(), bytes);
                    }
                }
                FileOperation::Link { to } => drop(files.insert(to.clone(), files[path])),
                _ => {}
            }
        }
        assert!(files.keys().any(|path| path.ends_with("/sshd")), "nothing was built");
    }

    #[test]
    fn what_is_wrong_is_reported_with_line_and_column() {
        for (record, column) in [
            ("", 1),
            ("0,mkdir", 8),
            ("0,explode,a,,,", 3),
            ("0,mkdir,a,,", 12),
            ("0,mkdir,/a,,,", 9),
            ("0,mkdir,a/../b,,,", 9),
            ("0,mkdir,,,,", 9),
            ("0,mkdir,a", 10),
            ("0,mkdir,a,b,,", 11),
            ("0,mkdir,a,,,,", 14),
            ("0,mkdir,a,,,5", 13),
            ("0,write,a,,x,5", 12),
            ("0,write,a,b,0,5", 11),
            ("0,write,a,,17592186044416,5", 12),
            ("0,rename,a,..,,", 12),
            ("0,truncate,a,,,5", 16),
        ] {
            match read(&format!("{HEADER}\n{record}\n")).expect_err(record) {
                TraceError::Line { line, column: found, what, .. } => {
                    assert_eq!((line, found), (2, column), "{record}: {what}");
                }
                other => panic!("{record}: {other}"),
            }
        }
    }

    #[test]
    fn garbage_is_refused_without_panic() {
        garbage(TEXT, |bytes| FileTrace::read("test", bytes));
    }
}
