//! Lines of traces, which are not trusted. They are read as a stream, packed or not, with limits.
//! What is wrong is reported with its line and column.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Reasons why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("{name}: {source}; the traces that come with the program are {shipped}")]
    NoSuchTrace { name: String, source: io::Error, shipped: String },
    #[error("{name}: {source}")]
    Read { name: String, source: io::Error },
    /// Lines and columns count from 1, columns in bytes.
    #[error("{name}, line {line}, column {column}: {what}")]
    Line { name: String, line: usize, column: usize, what: String },
}

/// Name and zstd frame of the traces that come with the program.
pub(crate) type Shipped = [(&'static str, &'static [u8])];

/// Number of records in a trace, at most.
pub const RECORDS_MAX: usize = 1 << 22;
/// Bytes that a record reads or writes, at most; it ends before [`OFFSET_MAX`].
pub const SIZE_MAX: u64 = 64 << 20;
pub const OFFSET_MAX: u64 = 1 << 44;
/// Length of a trace, at most: a year.
pub const TIME_MAX_US: u64 = 366 * 86_400 * 1_000_000;
/// Length of a line with its end, remarks included.
const LINE_BYTES_MAX: u64 = 1024;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Opens the trace that comes with the program under this name, otherwise the file at this path.
/// Returns its name for messages, too.
pub(crate) fn open(name: &str, shipped: &Shipped) -> Result<(String, Box<dyn Read>), TraceError> {
    if let Some((_, packed)) = shipped.iter().find(|(shipped, _)| *shipped == name) {
        return Ok((name.to_owned(), Box::new(*packed)));
    }
    let file = File::open(name).map_err(|source| {
        let names: Vec<_> = shipped.iter().map(|(name, _)| *name).collect();
        TraceError::NoSuchTrace { name: name.to_owned(), source, shipped: names.join(", ") }
    })?;
    let stem = Path::new(name).file_name().map_or(name.into(), |name| name.to_string_lossy());
    Ok((stem.trim_end_matches(".zst").trim_end_matches(".csv").to_owned(), Box::new(file)))
}

/// Gives each line after the header, without its end, to `record`. Remarks (`#`) are left out.
/// There is one at least. `source` is text or its zstd frame.
pub(crate) fn read(
    name: &str,
    mut source: impl Read,
    header: &str,
    record: impl FnMut(&str) -> Result<(), Wrong>,
) -> Result<(), TraceError> {
    let broken = |source| TraceError::Read { name: name.to_owned(), source };
    let mut magic = Vec::new();
    source.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut magic).map_err(broken)?;
    let packed = magic == ZSTD_MAGIC;
    let mut source = magic.as_slice().chain(source);
    if !packed {
        return read_lines(name, BufReader::new(source), header, record);
    }
    let unpacked = ruzstd::decoding::StreamingDecoder::new(&mut source)
        .map_err(|error| broken(io::Error::other(error)))?;
    read_lines(name, BufReader::new(unpacked), header, record)?;
    match source.read(&mut [0]).map_err(broken)? {
        0 => Ok(()),
        _ => Err(broken(io::Error::other("something follows the zstd frame"))),
    }
}

fn read_lines(
    name: &str,
    mut source: impl BufRead,
    header: &str,
    mut record: impl FnMut(&str) -> Result<(), Wrong>,
) -> Result<(), TraceError> {
    let broken = |source| TraceError::Read { name: name.to_owned(), source };
    let (mut header_seen, mut records) = (false, 0);
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        source.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes).map_err(broken)?;
        if bytes.is_empty() {
            break;
        }
        let taken = match text_of(&bytes) {
            Ok(text) if text.starts_with('#') => Ok(()),
            Ok(text) if !header_seen => {
                header_seen = true;
                check_header(text, header)
            }
            Ok(_) if records == RECORDS_MAX => {
                Err(Wrong::at(1, format!("more than {RECORDS_MAX} records")))
            }
            Ok(text) => {
                records += 1;
                record(text)
            }
            Err(wrong) => Err(wrong),
        };
        taken.map_err(|wrong| TraceError::Line {
            name: name.to_owned(),
            line,
            column: wrong.column,
            what: wrong.what,
        })?;
    }
    if records == 0 {
        let what = if header_seen { "no records" } else { "no header" };
        return Err(broken(io::Error::new(io::ErrorKind::UnexpectedEof, what)));
    }
    Ok(())
}

fn text_of(bytes: &[u8]) -> Result<&str, Wrong> {
    if bytes.len() as u64 == LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
        return Err(Wrong::at(bytes.len(), "the line does not end"));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Wrong::at(error.valid_up_to() + 1, "this is not text"))?;
    Ok(text.trim_end_matches(['\n', '\r']))
}

fn check_header(text: &str, header: &str) -> Result<(), Wrong> {
    if text == header {
        return Ok(());
    }
    let same = text.bytes().zip(header.bytes()).take_while(|(ours, wanted)| ours == wanted).count();
    Err(Wrong::at(same + 1, format!("expected the header {header:?}")))
}

/// The fault in a line.
pub(crate) struct Wrong {
    pub column: usize,
    pub what: String,
}

impl Wrong {
    pub fn at(column: usize, what: impl Into<String>) -> Wrong {
        Wrong { column, what: what.into() }
    }
}

/// The fields of a line, split at commas, and the columns where they begin.
pub(crate) struct Fields<'a> {
    line: &'a str,
    /// Start of the next field; beyond the line's end when there is none.
    at: usize,
}

impl<'a> Fields<'a> {
    pub fn of(line: &'a str) -> Fields<'a> {
        Fields { line, at: 0 }
    }

    pub fn next(&mut self, what: &str) -> Result<(usize, &'a str), Wrong> {
        let column = self.at + 1;
        let Some(rest) = self.line.get(self.at..) else {
            return Err(Wrong::at(self.line.len() + 1, format!("{what} is missing")));
        };
        let field = rest.split(',').next().unwrap_or(rest);
        self.at += field.len() + 1;
        Ok((column, field))
    }

    pub fn number(&mut self, what: &str, largest: u64) -> Result<(usize, u64), Wrong> {
        let field = self.next(what)?;
        Ok((field.0, number(field, what, largest)?))
    }

    pub fn end(&self) -> Result<(), Wrong> {
        if self.at > self.line.len() {
            Ok(())
        } else {
            Err(Wrong::at(self.at + 1, "a field too many"))
        }
    }
}

/// The whole number in a field.
pub(crate) fn number(
    (column, field): (usize, &str),
    what: &str,
    largest: u64,
) -> Result<u64, Wrong> {
    if field.is_empty() || !field.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Wrong::at(column, format!("{what} is a whole number, not {field:?}")));
    }
    match field.parse() {
        Ok(number) if number <= largest => Ok(number),
        _ => Err(Wrong::at(column, format!("{what} is at most {largest}"))),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use units::SplitMix;

    pub fn pack(text: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
    }

    /// Cuts `text` everywhere and changes bytes of it, packed and not: `read` may refuse, but
    /// returns.
    pub fn garbage<T>(text: &str, read: impl Fn(&[u8]) -> Result<T, TraceError>) {
        let packed = pack(text.as_bytes());
        for length in 0..packed.len() {
            assert!(read(&packed[..length]).is_err(), "cut at {length}");
        }
        assert!(read(&[packed.as_slice(), b"\0"].concat()).is_err(), "a byte after the frame");
        let random = SplitMix::new(1);
        let random = || random.next();
        for source in [text.as_bytes(), &packed] {
            for _ in 0..2000 {
                let mut bytes = source.to_vec();
                for _ in 0..=random() % 3 {
                    let at = random() as usize % bytes.len();
                    bytes[at] = random() as u8;
                }
                let _ = read(&bytes);
            }
        }
    }

    fn lines(source: impl Read) -> Result<Vec<String>, TraceError> {
        let mut lines = Vec::new();
        read("test", source, "a,b", |line| {
            lines.push(line.to_owned());
            Ok(())
        })?;
        Ok(lines)
    }

    #[test]
    fn a_trace_reads_the_same_as_text_and_packed() {
        let text = "# a remark\na,b\n1,2\n\n# another\n3\n";
        let wanted = ["1,2", "", "3"];
        assert_eq!(lines(text.as_bytes()).unwrap(), wanted);
        assert_eq!(lines(text.replace('\n', "\r\n").as_bytes()).unwrap(), wanted);
        assert_eq!(lines(text.trim_end().as_bytes()).unwrap(), wanted);
        assert_eq!(lines(pack(text.as_bytes()).as_slice()).unwrap(), wanted);
    }

    #[test]
    fn what_is_no_trace_is_refused_with_line_and_column() {
        let header = lines("a,c\n".as_bytes()).unwrap_err();
        assert_eq!(header.to_string(), "test, line 1, column 3: expected the header \"a,b\"");
        let binary = lines(&b"# \xff\n"[..]).unwrap_err();
        assert_eq!(binary.to_string(), "test, line 1, column 3: this is not text");
        for text in ["", "#\n", "a,b", "a,b\n#\n"] {
            assert!(matches!(lines(text.as_bytes()), Err(TraceError::Read { .. })), "{text:?}");
        }
    }

    #[test]
    fn an_endless_line_is_not_kept_in_memory() {
        let error = lines(io::repeat(b'#').take(1 << 40)).unwrap_err();
        assert_eq!(error.to_string(), "test, line 1, column 1024: the line does not end");
    }

    #[test]
    fn a_trace_is_found_by_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mine.csv.zst");
        std::fs::write(&path, "").unwrap();
        assert_eq!(open(path.to_str().unwrap(), &[]).unwrap().0, "mine");
        let missing = directory.path().join("missing");
        let Err(error) = open(missing.to_str().unwrap(), &[("one", b""), ("two", b"")]) else {
            panic!("there is no such file")
        };
        assert!(
            error.to_string().ends_with("the traces that come with the program are one, two"),
            "{error}"
        );
    }
}
