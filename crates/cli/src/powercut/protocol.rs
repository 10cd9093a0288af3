//! Lines between the machine that loses its power and the listener.
//!
//! Each request is one line, answered by `ok`, by `error` and words, or, for a report, by the run's
//! lines of the log and `end`. The log consists of the same lines, each after the time and the run.

use std::fmt;
use std::io::{BufRead, Read};
use std::str::FromStr;

/// Bytes of a line, its end included.
pub const LINE_MAX: u64 = 200;
/// Maximum blocks of a file under test.
pub const PLACES_MAX: u64 = 1 << 20;
pub const OK: &str = "ok";
pub const END: &str = "end";

#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("{0}")]
    System(#[from] std::io::Error),
    #[error("a line is longer than {LINE_MAX} bytes")]
    TooLong,
    #[error("a line is not text")]
    NotText,
    #[error("a line ends too soon")]
    CutOff,
}

/// Returns the next line without its end; `None` after the last.
pub fn read_line(reader: &mut impl BufRead) -> Result<Option<String>, LineError> {
    let mut line = Vec::new();
    reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => String::from_utf8(line).map(Some).map_err(|_| LineError::NotText),
        Some(_) if line.len() as u64 + 1 == LINE_MAX => Err(LineError::TooLong),
        Some(_) => Err(LineError::CutOff),
    }
}

/// A file under test: `places` blocks of `size` bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileLayout {
    pub size: u32,
    pub places: u64,
}

/// An event that a writer reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    Begins(FileLayout),
    /// Announces that this write is about to start.
    About(u64),
    /// Reports that this write is durable, according to the writer's system.
    Acknowledged(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Records an event in the log.
    Record { run: u64, event: Event },
    /// Report of this run, or of the last.
    Report(Option<u64>),
}

/// A line of the log: time in milliseconds on the listener's clock, run and event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Logged {
    pub at: u64,
    pub run: u64,
    pub event: Event,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not understood: {0:?}")]
pub struct NotUnderstood(String);

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Begins(FileLayout { size, places }) => write!(f, "begins {size} {places}"),
            Event::About(number) => write!(f, "about {number}"),
            Event::Acknowledged(number) => write!(f, "acknowledged {number}"),
        }
    }
}
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Record { run, event } => write!(f, "{run:016x} {event}"),
            Request::Report(Some(run)) => write!(f, "report {run:016x}"),
            Request::Report(None) => write!(f, "report"),
        }
    }
}
impl fmt::Display for Logged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:016x} {}", self.at, self.run, self.event)
    }
}

pub fn parse_run(text: &str) -> Option<u64> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten()
}
fn parse_event(words: &[&str]) -> Option<Event> {
    let number = |text: &str| text.parse().ok();
    match words {
        ["begins", size, places] => {
            let layout = FileLayout { size: size.parse().ok()?, places: number(places)? };
            let possible = (super::record::SIZE_MIN..=super::record::SIZE_MAX)
                .contains(&(layout.size as usize))
                && layout.size % 512 == 0
                && layout.places.is_power_of_two()
                && layout.places <= PLACES_MAX;
            possible.then_some(Event::Begins(layout))
        }
        ["about", about] => number(about).map(Event::About),
        ["acknowledged", acknowledged] => number(acknowledged).map(Event::Acknowledged),
        _ => None,
    }
}

impl FromStr for Request {
    type Err = NotUnderstood;
    fn from_str(line: &str) -> Result<Request, NotUnderstood> {
        let words: Vec<&str> = line.split(' ').collect();
        let request = match &words[..] {
            ["report"] => Some(Request::Report(None)),
            ["report", run] => parse_run(run).map(|run| Request::Report(Some(run))),
            [run, event @ ..] => parse_run(run)
                .zip(parse_event(event))
                .map(|(run, event)| Request::Record { run, event }),
            [] => None,
        };
        request.ok_or_else(|| NotUnderstood(line.to_owned()))
    }
}
impl FromStr for Logged {
    type Err = NotUnderstood;
    fn from_str(line: &str) -> Result<Logged, NotUnderstood> {
        let words: Vec<&str> = line.split(' ').collect();
        let logged = match &words[..] {
            [at, run, event @ ..] => at.parse().ok().zip(parse_run(run)).zip(parse_event(event)),
            _ => None,
        };
        logged
            .map(|((at, run), event)| Logged { at, run, event })
            .ok_or_else(|| NotUnderstood(line.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let layout = FileLayout { size: 4096, places: 64 };
        for event in [Event::Begins(layout), Event::About(7), Event::Acknowledged(u64::MAX)] {
            let request = Request::Record { run: 1 << 63, event };
            assert_eq!(request.to_string().parse(), Ok(request));
            let logged = Logged { at: 1, run: 2, event };
            assert_eq!(logged.to_string().parse(), Ok(logged));
        }
        for request in [Request::Report(None), Request::Report(Some(5))] {
            assert_eq!(request.to_string().parse(), Ok(request));
        }
    }

    #[test]
    fn garbage_is_refused() {
        let run = "0123456789abcdef";
        for line in [
            "".to_owned(),
            "GET / HTTP/1.1".to_owned(),
            format!("{run} about"),
            format!("{run} about -1"),
            format!("{run} begins 4096 63"),
            format!("{run} begins 513 64"),
            format!("{run} begins 4096 {}", PLACES_MAX * 2),
            "report x".to_owned(),
            "1 about 1".to_owned(),
        ] {
            assert!(line.parse::<Request>().is_err(), "{line}");
        }
    }

    #[test]
    fn lines_without_end_do_not_grow() {
        let long = [b'x'; 100_000];
        let read = |bytes: &[u8]| read_line(&mut std::io::Cursor::new(bytes.to_vec()));
        assert!(matches!(read(&long), Err(LineError::TooLong)));
        assert!(matches!(read(b"half"), Err(LineError::CutOff)));
        assert!(matches!(read(b"\xff\n"), Err(LineError::NotText)));
        assert_eq!(read(b"").unwrap(), None);
        assert_eq!(read(b"ok\nmore").unwrap().as_deref(), Some(OK));
    }
}
