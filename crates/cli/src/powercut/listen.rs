//! The machine that keeps its power: it writes down what it is told, and tells it after the cut.

use super::protocol::{END, Event, LineError, Logged, OK, Request, read_line};
use crate::error::CliError;
use crate::output::print;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const CONNECTIONS_MAX: usize = 16;
/// A connection on which nothing comes is one whose machine has lost its power.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long, and how many bytes, one that is refused may go on to send.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
const LAST_MAX: u64 = 4 << 20;
/// Bytes. At some 40 a line more than a hundred million of them.
const LOG_MAX: u64 = 8 << 30;

struct Listener {
    path: PathBuf,
    log: Mutex<File>,
    /// A clock that never goes back.
    begun: Instant,
    begun_at: u64,
    connections: AtomicUsize,
}

/// Until the program is ended.
pub fn run(address: &str, path: &Path) -> Result<(), CliError> {
    let log = File::options().create(true).append(true).read(true).open(path);
    let log = log.map_err(|error| CliError::system(path.display(), error))?;
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
            // Such as a connection that is gone before it was taken, or too many open files: the next may work.
            let Ok(stream) = stream else {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            let listener = &listener;
            // Counted in the order in which they come.
            let open = listener.connections.fetch_add(1, Ordering::Relaxed);
            scope.spawn(move || {
                listener.welcome(stream, open < CONNECTIONS_MAX);
                listener.connections.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    Ok(())
}

impl Listener {
    fn welcome(&self, stream: TcpStream, has_room: bool) {
        if !has_room {
            refuse(stream, &format!("{CONNECTIONS_MAX} connections are open already"));
        } else if let Err(error) = self.serve(&stream) {
            eprintln!("okeanos: a connection ends: {error}");
            refuse(stream, &error.to_string());
        }
    }

    fn serve(&self, stream: &TcpStream) -> Result<(), LineError> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        let mut told = Told::default();
        while let Some(line) = read_line(&mut reader)? {
            let mut writer = BufWriter::new(stream);
            match line.parse() {
                Err(error) => writeln!(writer, "error {error}")?,
                Ok(Request::Report(run)) => self.report(run, &mut writer)?,
                Ok(Request::Tell { run, event }) => match told.take(run, event) {
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
        let line = format!("{}\n", Logged { at, run, event });
        let mut log = self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if log.metadata()?.len() > LOG_MAX {
            return Err(std::io::Error::other("it is full"));
        }
        log.write_all(line.as_bytes())
    }

    fn report(&self, run: Option<u64>, writer: &mut impl Write) -> Result<(), LineError> {
        let wanted = match run {
            Some(run) => Some(run),
            None => self
                .logged()?
                .filter(|line| matches!(line.event, Event::Begins(_)))
                .last()
                .map(|line| line.run),
        };
        for line in self.logged()?.filter(|line| Some(line.run) == wanted) {
            writeln!(writer, "{line}")?;
        }
        Ok(writeln!(writer, "{END}")?)
    }
    /// From the first on; what is no line of ours is left out.
    fn logged(&self) -> Result<impl Iterator<Item = Logged>, LineError> {
        let mut reader = BufReader::new(File::open(&self.path)?);
        let lines = std::iter::from_fn(move || read_line(&mut reader).ok().flatten());
        Ok(lines.filter_map(|line| line.parse().ok()))
    }
}

/// The last answer. What has come meanwhile is read first: closing with bytes unread takes the answer back.
fn refuse(mut stream: TcpStream, why: &str) {
    _ = stream.set_read_timeout(Some(LAST_PATIENCE));
    _ = writeln!(stream, "error {why}");
    _ = stream.shutdown(Shutdown::Write);
    _ = std::io::copy(&mut stream.take(LAST_MAX), &mut std::io::sink());
}

/// What one connection has told so far: writes come one after the other.
#[derive(Default)]
struct Told {
    run: Option<u64>,
    /// Writes acknowledged.
    done: u64,
    about: bool,
}

impl Told {
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
    use super::super::protocol::Layout;
    use super::*;

    #[test]
    fn only_the_next_write_is_taken_down() {
        let mut told = Told::default();
        let begins = Event::Begins(Layout { size: 4096, places: 1 });
        assert!(told.take(1, Event::About(0)).is_err());
        assert!(told.take(1, begins).is_ok() && told.take(2, begins).is_err());
        assert!(told.take(1, Event::Acknowledged(0)).is_err() && told.take(1, Event::About(1)).is_err());
        assert!(told.take(1, Event::About(0)).is_ok() && told.take(1, Event::About(0)).is_err());
        assert!(
            told.take(2, Event::Acknowledged(0)).is_err() && told.take(1, Event::Acknowledged(0)).is_ok()
        );
        assert!(told.take(1, Event::About(1)).is_ok());
    }
}
