//! Servers, and the works of those that keep their data on the volume: Redis, etcd.

use super::{Measured, Scale, Sources, Volume};
use crate::real_time::rig::{self, RigError, ends_with_us};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that ends with this program, and when it is dropped.
pub(super) struct Server {
    name: String,
    child: Child,
}

/// Time limit for a server's start, and for its end.
const PATIENCE: Duration = Duration::from_secs(30);

impl Server {
    pub fn start(command: &mut Command) -> Result<Server, RigError> {
        let name = format!("{command:?}");
        // Its output is of no interest unless it ends, and then `await_answer` reports that.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = ends_with_us(command).spawn().map_err(RigError::at(&name))?;
        Ok(Server { name, child })
    }

    /// Tries until the server answers. Fails if the server has ended instead, or takes too long.
    pub fn await_answer<T>(
        &mut self,
        mut attempt: impl FnMut() -> Option<T>,
    ) -> Result<T, RigError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(value) = attempt() {
                return Ok(value);
            }
            if let Some(status) = self.child.try_wait().map_err(RigError::at(&self.name))? {
                return Err(RigError::new(format!("{} ended ({status})", self.name)));
            }
            if Instant::now() > deadline {
                return Err(RigError::new(format!("{} does not answer", self.name)));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Signals the server to end, and waits until it has.
    pub fn stop(mut self, signal: i32) -> Result<(), RigError> {
        self.signal(signal);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.child.try_wait().map_err(RigError::at(&self.name))? {
                Some(_) => return Ok(()),
                None if Instant::now() > deadline => {
                    return Err(RigError::new(format!("{} does not end", self.name)));
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: kill takes no pointers; the child has not been waited for, so the number is still
        // its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // PostgreSQL ends its child processes on this signal.
            self.signal(libc::SIGQUIT);
            std::thread::sleep(Duration::from_millis(500));
            // The server may have ended already.
            let _ = self.child.kill().and_then(|()| self.child.wait().map(drop));
        }
    }
}

/// Returns a free port of the loopback interface.
pub(super) fn free_port() -> Result<u16, RigError> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(RigError::at("a free port"))
}

/// Returns the number that follows the last `label` in `text`.
pub(super) fn number_after(text: &str, label: &str) -> Option<f64> {
    let (_, after) = text.rsplit_once(label)?;
    after.split(|c: char| !(c.is_ascii_digit() || c == '.')).next()?.parse().ok()
}

/// Measures `SET`s with `appendfsync always`.
pub(super) fn redis(
    volume: &mut Volume<'_>,
    _: &Sources,
    scale: Scale,
) -> Result<Vec<Measured>, RigError> {
    let data = volume.path("redis");
    std::fs::create_dir(&data).map_err(RigError::at(data.display()))?;
    let port = free_port()?.to_string();
    let mut server = Server::start(
        Command::new("redis-server").args(["--port", &port, "--bind", "127.0.0.1"]).args([
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--dir",
            text(&data)?,
        ]),
    )?;
    server.await_answer(|| rig::run(Command::new("redis-cli").args(["-p", &port, "ping"])).ok())?;
    let mut measured = Vec::new();
    for (clients, requests) in [(50, 100_000), (1, 6_000)] {
        let (count, requests) = (clients.to_string(), scale.of(requests).to_string());
        let out = rig::run(Command::new("redis-benchmark").args([
            "-p", &port, "-t", "set", "-c", &count, "-n", &requests, "-q", "-r", "100000",
        ]))?;
        let rate = number_after(&out, "SET: ").ok_or_else(|| RigError::new(out.clone()))?;
        measured.push(Measured::rate(format!("Redis appendfsync always, {clients}"), rate));
    }
    server.stop(libc::SIGTERM)?;
    Ok(measured)
}

fn text(path: &Path) -> Result<&str, RigError> {
    path.to_str().ok_or_else(|| RigError::new("the directory's name is not UTF-8"))
}

/// Measures puts of 8 clients, each over a connection of its own, through etcd's JSON gateway.
pub(super) fn etcd(
    volume: &mut Volume<'_>,
    _: &Sources,
    scale: Scale,
) -> Result<Vec<Measured>, RigError> {
    const PUTTERS: u64 = 8;
    let (data, port, peers) = (volume.path("etcd"), free_port()?, free_port()?);
    let [here, peer] = [port, peers].map(|port| format!("http://127.0.0.1:{port}"));
    let mut server = Server::start(
        Command::new("etcd")
            .arg("--data-dir")
            .arg(&data)
            .args(["--listen-client-urls", &here, "--advertise-client-urls", &here])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")]),
    )?;
    server.await_answer(|| Putter::connect(port).ok()?.put("first").ok())?;
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(scale.seconds(4.0));
    let put_until_end = |number: u64| -> std::io::Result<u64> {
        let mut putter = Putter::connect(port)?;
        let mut done = 0;
        while Instant::now() < end {
            putter.put(&format!("{number}-{done}"))?;
            done += 1;
        }
        Ok(done)
    };
    let puts = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..PUTTERS).map(|number| scope.spawn(move || put_until_end(number))).collect();
        let all = threads.into_iter().map(|thread| thread.join().expect("a putter does not panic"));
        all.sum::<std::io::Result<u64>>()
    });
    let rate = puts.map_err(RigError::at("etcd"))? as f64 / begun.elapsed().as_secs_f64();
    server.stop(libc::SIGTERM)?;
    Ok(vec![Measured::rate(format!("etcd, {PUTTERS} putters"), rate)])
}

/// A persistent connection to etcd: HTTP/1.1, one request after the other.
struct Putter(BufReader<TcpStream>);

impl Putter {
    fn connect(port: u16) -> std::io::Result<Putter> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Putter(BufReader::new(stream)))
    }
    /// Puts a key, given in base64; the gateway requires a multiple of four letters.
    fn put(&mut self, key: &str) -> std::io::Result<()> {
        let key: String = key.bytes().map(|byte| format!("{byte:04}")).collect();
        let body = format!("{{\"key\":\"{key}\",\"value\":\"{}\"}}", "dmFs".repeat(25));
        let head = format!(
            "POST /v3/kv/put HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.get_mut().write_all((head + &body).as_bytes())?;
        let bad = |why: &str| std::io::Error::other(format!("etcd's gateway answered {why:?}"));
        let (mut line, mut length, mut status) = (String::new(), 0, String::new());
        loop {
            line.clear();
            if self.0.read_line(&mut line)? == 0 {
                return Err(bad("nothing"));
            }
            let text = line.trim_end().to_ascii_lowercase();
            if status.is_empty() {
                status = text;
            } else if let Some(value) = text.strip_prefix("content-length: ") {
                length = value.parse().map_err(|_| bad(value))?;
            } else if text.is_empty() {
                break;
            }
        }
        // An answer is a few hundred bytes; anything longer is no answer to a put.
        let mut answer = vec![0; std::cmp::min(length, 1 << 16)];
        self.0.read_exact(&mut answer)?;
        if status.contains(" 200 ") { Ok(()) } else { Err(bad(&status)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_after_their_labels() {
        assert_eq!(number_after("tps = 1\ntps = 1234.5 (without)", "tps = "), Some(1234.5));
        assert_eq!(number_after("SET: 77.25 requests", "SET: "), Some(77.25));
        assert_eq!(number_after("nothing", "tps = "), None);
    }
}
