//! The supported formats of block traces, with one function each from a line to a request.

use super::recorded::{Recorded, Timing};
use std::str::FromStr;
use std::time::Duration;

pub(super) const KNOWN: &str = "op,lbn,sectors,service_us,gap_us (or gap_before_us); \
                                time_us,op,offset_bytes,size_bytes; MSR Cambridge; Microsoft text \
                                dump; fio iolog version 2 or 3; blkparse";

/// Column and problem.
type Wrong = (usize, String);
type Parsed = Result<Option<Recorded>, Wrong>;

pub(super) struct Format {
    pub timing: Timing,
    /// Whether the gap of a line is that before its request, not that after it.
    pub gaps_before: bool,
    pub has_header: bool,
    /// Whether this line is the header's last.
    pub ends_header: fn(&str) -> bool,
    /// Parses a line; `None` for a line that is no request.
    pub parse: fn(&str) -> Parsed,
}

pub(super) fn recognise(text: &str) -> Option<Format> {
    let first = text.lines().find(|line| !line.trim().is_empty())?;
    let format = |timing, has_header, parse| Format {
        timing,
        gaps_before: false,
        has_header,
        ends_header: |_| true,
        parse,
    };
    let fields: Vec<&str> = first.split(',').map(str::trim).collect();
    Some(match first.trim() {
        "op,lbn,sectors,service_us,gap_us" => format(Timing::Gaps, true, measured),
        "op,lbn,sectors,service_us,gap_before_us" => {
            Format { gaps_before: true, ..format(Timing::Gaps, true, measured) }
        }
        "time_us,op,offset_bytes,size_bytes" => format(Timing::Timestamps, true, cloud_physics),
        "fio version 2 iolog" => format(Timing::Gaps, true, fio_2),
        "fio version 3 iolog" => format(Timing::Timestamps, true, fio_3),
        "BeginHeader" => Format {
            ends_header: |line| line.trim() == "EndHeader",
            ..format(Timing::Timestamps, true, microsoft)
        },
        _ if fields[0].starts_with("Disk") => format(Timing::Timestamps, false, microsoft),
        _ if fields.len() == 7 && fields[0].parse::<u64>().is_ok() => {
            format(Timing::Timestamps, false, cambridge)
        }
        _ if fields
            == [
                "Timestamp",
                "Hostname",
                "DiskNumber",
                "Type",
                "Offset",
                "Size",
                "ResponseTime",
            ] =>
        {
            format(Timing::Timestamps, true, cambridge)
        }
        _ if blkparse(first).is_ok() => format(Timing::Timestamps, false, blkparse),
        _ => return None,
    })
}

fn measured(line: &str) -> Parsed {
    let mut fields = Fields::new(line, ',');
    let is_write = fields.is_write("op")?;
    let sector: u64 = fields.number("lbn")?;
    let sectors: u64 = fields.number("sectors")?;
    let mut request =
        fields.request(is_write, sector.saturating_mul(512), sectors.saturating_mul(512))?;
    request.measured = Some(fields.microseconds("service_us")?);
    request.time = fields.microseconds("gap_us")?;
    Ok(Some(request))
}

fn cloud_physics(line: &str) -> Parsed {
    let mut fields = Fields::new(line, ',');
    let time = fields.microseconds("time_us")?;
    let is_write = fields.is_write("op")?;
    let (at, length) = (fields.number("offset_bytes")?, fields.number("size_bytes")?);
    Ok(Some(Recorded { time, ..fields.request(is_write, at, length)? }))
}

/// MSR Cambridge: times in units of 100 ns. Flushes and discards, which traces of Okeanos have, are
/// skipped.
fn cambridge(line: &str) -> Parsed {
    let mut fields = Fields::new(line, ',');
    let begin: u64 = fields.number("Timestamp")?;
    fields.next("Hostname")?;
    fields.next("DiskNumber")?;
    let is_write = match fields.next("Type")? {
        "Read" => false,
        "Write" => true,
        "Flush" | "Discard" => return Ok(None),
        text => return Err((fields.column, format!("Type is {text:?}, not Read or Write"))),
    };
    let (at, length) = (fields.number("Offset")?, fields.number("Size")?);
    let response: u64 = fields.number("ResponseTime")?;
    let request = fields.request(is_write, at, length)?;
    let time =
        |units: u64| Duration::from_micros(units / 10) + Duration::from_nanos(units % 10 * 100);
    Ok(Some(Recorded { time: time(begin), measured: Some(time(response)), ..request }))
}

/// Microsoft's traces. Lines of other events are skipped.
fn microsoft(line: &str) -> Parsed {
    let mut fields = Fields::new(line, ',');
    let is_write = match fields.next("event")? {
        "DiskRead" => false,
        "DiskWrite" => true,
        _ => return Ok(None),
    };
    let time = fields.microseconds("TimeStamp")?;
    for ignored in ["Process Name", "ThreadID", "IrpPtr"] {
        fields.next(ignored)?;
    }
    let (at, length) = (fields.hexadecimal("ByteOffset")?, fields.hexadecimal("IOSize")?);
    let measured = Some(fields.microseconds("ElapsedTime")?);
    Ok(Some(Recorded { time, measured, ..fields.request(is_write, at, length)? }))
}

/// fio's version 2, without times: one request after another. Waits and all but reads and writes
/// are skipped.
fn fio_2(line: &str) -> Parsed {
    let mut fields = Fields::new(line, ' ');
    fields.next("file")?;
    fio_action(&mut fields)
}

/// fio's version 3, with times in milliseconds.
fn fio_3(line: &str) -> Parsed {
    let mut fields = Fields::new(line, ' ');
    let time = Duration::from_millis(fields.number("timestamp")?);
    fields.next("file")?;
    Ok(fio_action(&mut fields)?.map(|request| Recorded { time, ..request }))
}

fn fio_action(fields: &mut Fields) -> Parsed {
    let is_write = match fields.next("action")? {
        "read" => false,
        "write" => true,
        _ => return Ok(None),
    };
    let (at, length) = (fields.number("offset")?, fields.number("length")?);
    fields.request(is_write, at, length).map(Some)
}

/// Requests as they are issued to the driver (action D). Other actions are skipped.
fn blkparse(line: &str) -> Parsed {
    let mut fields = Fields::new(line, ' ');
    let device = fields.next("device")?;
    if !device.split_once(',').is_some_and(|(major, minor)| is_number(major) && is_number(minor)) {
        // blkparse prints a summary after the last request.
        let is_summary =
            device.starts_with("CPU") || device.starts_with("Total") || line.starts_with(' ');
        return if is_summary {
            Ok(None)
        } else {
            Err((1, format!("{device:?} is not a device such as 8,0")))
        };
    }
    for ignored in ["cpu", "sequence"] {
        fields.next(ignored)?;
    }
    let seconds: f64 = fields.number("time")?;
    let time = Duration::try_from_secs_f64(seconds)
        .map_err(|_| (fields.column, "not a time".to_owned()))?;
    fields.next("process")?;
    let action = fields.next("action")?;
    let kind = fields.next("kind")?;
    if action != "D" || !kind.contains(['R', 'W']) {
        return Ok(None);
    }
    let is_write = kind.contains('W');
    let sector: u64 = fields.number("sector")?;
    let Ok("+") = fields.next("+") else { return Ok(None) };
    let sectors: u64 = fields.number("sectors")?;
    let request =
        fields.request(is_write, sector.saturating_mul(512), sectors.saturating_mul(512))?;
    Ok(Some(Recorded { time, ..request }))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The fields of a line, one after the other, with their columns. Many blanks are one.
struct Fields<'a> {
    line: &'a str,
    separator: char,
    at: usize,
    /// Column of the last field, from 1.
    column: usize,
}

impl<'a> Fields<'a> {
    fn new(line: &'a str, separator: char) -> Fields<'a> {
        Fields { line, separator, at: 0, column: 1 }
    }

    fn next(&mut self, name: &str) -> Result<&'a str, Wrong> {
        let rest = self.line.get(self.at..).unwrap_or("");
        let blanks = rest.len() - rest.trim_start().len();
        let (start, rest) = (self.at + blanks, &rest[blanks..]);
        self.column = self.line.get(..start).unwrap_or(self.line).chars().count() + 1;
        if rest.is_empty() {
            return Err((self.column, format!("the line ends before {name}")));
        }
        let length = rest.find(self.separator).unwrap_or(rest.len());
        self.at = start + length + 1;
        Ok(rest[..length].trim_end())
    }
    fn number<T: FromStr>(&mut self, name: &str) -> Result<T, Wrong> {
        let text = self.next(name)?;
        text.parse().map_err(|_| {
            (self.column, format!("{name} is {text:?}, which is not a number it can be"))
        })
    }
    fn hexadecimal(&mut self, name: &str) -> Result<u64, Wrong> {
        let text = self.next(name)?;
        let digits = text.strip_prefix("0x").unwrap_or(text);
        u64::from_str_radix(digits, 16).map_err(|_| {
            (self.column, format!("{name} is {text:?}, which is not a hexadecimal number"))
        })
    }
    fn microseconds(&mut self, name: &str) -> Result<Duration, Wrong> {
        let value: f64 = self.number(name)?;
        Duration::try_from_secs_f64(value / 1e6)
            .map_err(|_| (self.column, format!("{name} is {value}: no time")))
    }
    fn is_write(&mut self, name: &str) -> Result<bool, Wrong> {
        match self.next(name)? {
            "R" | "r" | "Read" | "read" => Ok(false),
            "W" | "w" | "Write" | "write" => Ok(true),
            text => Err((self.column, format!("{name} is {text:?}, not R or W"))),
        }
    }
    fn request(&self, is_write: bool, at: u64, length: u64) -> Result<Recorded, Wrong> {
        Recorded::new(is_write, at, length).map_err(|problem| (self.column, problem))
    }
}
