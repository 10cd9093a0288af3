//! Listener, on a machine that keeps its power: it logs events, and reports them after the cut.

use super::protocol::{END, Event, LineError, Logged, OK, Request, read_line};
use crate::error::CliError;
use crate::text::output::{harmless, print};
use runtime::standard_error;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const CONNECTIONS_MAX: usize = 16;
/// Timeout of a connection: a silent one belongs to a machine that has lost its power.
const PATIENCE: Duration = Duration::from_secs(300);
/// Time, and bytes, for which a refused client may go on sending.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
const LAST_MAX: u64 = 4 << 20;
/// Maximum bytes of the log. At some 40 a line more than a hundred million lines.
const LOG_MAX: u64 = 8 << 30;

struct Listener {
    path: PathBuf,
    log: Mutex<Log>,
    /// Monotonic start time.
    begun: Instant,
    begun_at: u64,
    connections: AtomicUsize,
}

struct Log {
    file: File,
    /// Whether the last line has no end: its writer was killed, or the disk was full.
    is_torn: bool,
}

impl Log {
    fn open(path: &Path) -> std::io::Result<Log> {
        let file = File::options().create(true).append(true).read(true).open(path)?;
        let mut last = [b'\n'];
        if let Some(at) = file.metadata()?.len().checked_sub(1) {
            file.read_exact_at(&mut last, at)?;
        }
        Ok(Log { file, is_torn: last != *b"\n" })
    }
    fn add(&mut self, line: Logged) -> std::io::Result<()> {
        if self.file.metadata()?.len() > LOG_MAX {
            return Err(std::io::Error::other("it is full"));
        }
        let end = if self.is_torn { "\n" } else { "" };
        self.is_torn = true;
        self.file.write_all(format!("{end}{line}\n").as_bytes())?;
        self.is_torn = false;
        Ok(())
    }
}

/// Serves until the program is ended.
pub fn run(address: &str, path: &Path) -> Result<(), CliError> {
    standard_error::print_panics_without_waiting();
    let log = Log::open(path).map_err(|error| CliError::system(path.display(), error))?;
    let socket = TcpListener::bind(address).map_err(|error| CliError::system(address, error))?;
    let own = socket.local_addr().map_err(|error| CliError::system(address, error))?;
    print(&format_args!("listening on {own}\n"))?;
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let listener = Listener {
        path: path.to_owned(),
        log: Mutex::new(log),
        begun: Instant::now(),
        begun_at: since_epoch.as_millis() as u64,
        connections: AtomicUsize::new(0),
    };
    std::thread::scope(|scope| {
        for stream in socket.incoming() {
            // Such as a connection that was closed before it was accepted, or too many open files:
            // the next may work.
            let Ok(stream) = stream else {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            let listener = &listener;
            // Numbered in order of arrival.
            let open = listener.connections.fetch_add(1, Ordering::Relaxed);
            scope.spawn(move || {
                listener.admit(stream, open < CONNECTIONS_MAX);
                listener.connections.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    Ok(())
}

impl Listener {
    fn admit(&self, stream: TcpStream, has_room: bool) {
        if !has_room {
            refuse(stream, &format!("{CONNECTIONS_MAX} connections are open already"));
        } else if let Err(error) = self.serve(&stream) {
            let text = format!("okeanos: a connection ends: {error}");
            let _ = standard_error::print_line(&harmless(&text), Duration::ZERO);
            refuse(stream, &error.to_string());
        }
    }

    fn serve(&self, stream: &TcpStream) -> Result<(), LineError> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        let mut conversation = Conversation::default();
        while let Some(line) = read_line(&mut reader)? {
            let mut writer = BufWriter::new(stream);
            match line.parse() {
                Err(error) => writeln!(writer, "error {error}")?,
                Ok(Request::Report(run)) => self.report(run, &mut writer)?,
                Ok(Request::Record { run, event }) => match conversation.take(run, event) {
                    Err(why) => writeln!(writer, "error {why}")?,
                    Ok(()) => match self.write_down(run, event) {
                        Err(error) => writeln!(writer, "error the log: {error}")?,
                        Ok(()) => writeln!(writer, "{OK}")?,
                    },
                },
            }
            writer.flush()?;
        }
        Ok(())
    }

    fn write_down(&self, run: u64, event: Event) -> std::io::Result<()> {
        let at = self.begun_at + self.begun.elapsed().as_millis() as u64;
        self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).add(Logged {
            at,
            run,
            event,
        })
    }

    fn report(&self, run: Option<u64>, writer: &mut impl Write) -> Result<(), LineError> {
        let mut wanted = run;
        if run.is_none() {
            for line in logged(&self.path)? {
                let line = line?;
                if matches!(line.event, Event::Begins(_)) {
                    wanted = Some(line.run);
                }
            }
        }
        for line in logged(&self.path)? {
            let line = line?;
            if Some(line.run) == wanted {
                writeln!(writer, "{line}")?;
            }
        }
        Ok(writeln!(writer, "{END}")?)
    }
}

/// Returns the log from its first line on; lines that cannot be parsed are left out.
fn logged(path: &Path) -> Result<impl Iterator<Item = Result<Logged, LineError>>, LineError> {
    let mut reader = BufReader::new(File::open(path)?);
    Ok(std::iter::from_fn(move || {
        loop {
            match read_line(&mut reader) {
                Ok(None) | Err(LineError::CutOff) => return None,
                Err(LineError::System(error)) => return Some(Err(error.into())),
                Ok(Some(line)) => match line.parse() {
                    Ok(line) => return Some(Ok(line)),
                    Err(_) => continue,
                },
                Err(LineError::NotText | LineError::TooLong) => continue,
            }
        }
    }))
}

/// Sends the last reply. Input that has arrived is read first: closing with bytes unread would
/// discard the reply.
fn refuse(mut stream: TcpStream, why: &str) {
    _ = stream.set_read_timeout(Some(LAST_PATIENCE));
    _ = writeln!(stream, "error {why}");
    _ = stream.shutdown(Shutdown::Write);
    _ = std::io::copy(&mut stream.take(LAST_MAX), &mut std::io::sink());
}

/// State of one connection: writes come one after the other.
#[derive(Default)]
struct Conversation {
    run: Option<u64>,
    /// Number of writes acknowledged.
    done: u64,
    about: bool,
}

impl Conversation {
    fn take(&mut self, run: u64, event: Event) -> Result<(), &'static str> {
        match event {
            Event::Begins(_) if self.run.is_none() => self.run = Some(run),
            Event::Begins(_) => return Err("this connection has begun a run already"),
            _ if self.run != Some(run) => return Err("this connection has not begun that run"),
            Event::About(number) if number == self.done && !self.about => self.about = true,
            Event::Acknowledged(number) if number == self.done && self.about => {
                (self.done, self.about) = (number + 1, false);
            }
            _ => return Err("that write is not the next"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::FileLayout;
    use super::*;

    #[test]
    fn only_the_next_write_is_taken_down() {
        let mut conversation = Conversation::default();
        let begins = Event::Begins(FileLayout { size: 4096, places: 1 });
        assert!(conversation.take(1, Event::About(0)).is_err());
        assert!(conversation.take(1, begins).is_ok() && conversation.take(2, begins).is_err());
        assert!(
            conversation.take(1, Event::Acknowledged(0)).is_err()
                && conversation.take(1, Event::About(1)).is_err()
        );
        assert!(
            conversation.take(1, Event::About(0)).is_ok()
                && conversation.take(1, Event::About(0)).is_err()
        );
        assert!(
            conversation.take(2, Event::Acknowledged(0)).is_err()
                && conversation.take(1, Event::Acknowledged(0)).is_ok()
        );
        assert!(conversation.take(1, Event::About(1)).is_ok());
    }

    #[test]
    fn what_another_left_in_the_log_hides_no_later_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let line = |run| Logged { at: 1, run, event: Event::About(7) };
        let found =
            || -> Vec<u64> { logged(&path).unwrap().map(|line| line.unwrap().run).collect() };
        Log::open(&path).unwrap().add(line(1)).unwrap();
        for (run, garbage) in
            (2..).zip([&b"12 half of a li"[..], &[0; 1000], b"\xff\xfe\n", b"words\n\n"])
        {
            File::options().append(true).open(&path).unwrap().write_all(garbage).unwrap();
            Log::open(&path).unwrap().add(line(run)).unwrap();
            assert_eq!(found(), (1..=run).collect::<Vec<_>>());
        }
    }
}
