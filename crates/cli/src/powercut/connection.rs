//! Connection from the machine under test to the listener.

use super::protocol::{END, Event, Logged, OK, Request, read_line};
use crate::error::CliError;
use std::io::{BufReader, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

pub struct Connection {
    listener: String,
    reader: BufReader<TcpStream>,
}

impl Connection {
    pub fn open(listener: &str) -> Result<Connection, CliError> {
        let connect = || {
            let mut last = std::io::Error::other("no such host");
            for address in listener.to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, PATIENCE) {
                    Ok(stream) => {
                        stream.set_nodelay(true)?;
                        stream.set_read_timeout(Some(PATIENCE))?;
                        stream.set_write_timeout(Some(PATIENCE))?;
                        return Ok(stream);
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        };
        let stream = connect().map_err(|error| {
            CliError::system(format!("listener {listener}"), error)
                .with_remedy("Run `okeanos powercut listen --log FILE` there first.")
        })?;
        Ok(Connection { listener: listener.to_owned(), reader: BufReader::new(stream) })
    }

    /// Records an event; returns when the listener has logged it.
    pub fn record(&mut self, run: u64, event: Event) -> Result<(), CliError> {
        self.send(Request::Record { run, event })?;
        match self.line()? {
            line if line == OK => Ok(()),
            line => Err(self.unexpected(&line)),
        }
    }

    /// Returns the events of a run, or of the last one, from its beginning on.
    pub fn report(
        &mut self,
        run: Option<u64>,
        mut each: impl FnMut(Logged) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        self.send(Request::Report(run))?;
        loop {
            let line = self.line()?;
            if line == END {
                return Ok(());
            }
            each(line.parse().map_err(|_| self.unexpected(&line))?)?;
        }
    }

    fn send(&mut self, request: Request) -> Result<(), CliError> {
        let line = format!("{request}\n");
        self.reader.get_mut().write_all(line.as_bytes()).map_err(|error| self.failed(error))
    }
    fn line(&mut self) -> Result<String, CliError> {
        let line = read_line(&mut self.reader).map_err(|error| self.failed(error))?;
        line.ok_or_else(|| self.failed("the connection was closed"))
    }
    fn failed(&self, error: impl std::fmt::Display) -> CliError {
        CliError::new(format!("listener {}: {error}", self.listener))
    }
    fn unexpected(&self, line: &str) -> CliError {
        self.failed(format_args!("it answers {line:?}"))
    }
}
