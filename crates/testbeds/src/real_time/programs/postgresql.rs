//! Works of PostgreSQL: `pgbench` with its default transactions, each durable before it is
//! answered.

use super::servers::{Server, free_port, number_after};
use super::{Measured, Scale, Sources, Volume};
use crate::real_time::rig::{self, RigError};
use std::path::{Path, PathBuf};
use std::process::Command;

const USER: &str = "postgres";

/// Measures the database, and its write-ahead log with it, on the volume.
pub(super) fn database(
    volume: &mut Volume<'_>,
    _: &Sources,
    scale: Scale,
) -> Result<Vec<Measured>, RigError> {
    let cluster = Cluster::start(&volume.directory_of("postgresql", USER)?, None)?;
    let measured = [8, 1].map(|clients| {
        Ok(Measured::rate(format!("pgbench, {clients}"), cluster.bench(clients, scale)?))
    });
    cluster.stop()?;
    measured.into_iter().collect()
}

/// Measures the methods of syncing the write-ahead log, and the log alone on the volume.
pub(super) fn write_ahead_log(
    volume: &mut Volume<'_>,
    sources: &Sources,
    scale: Scale,
) -> Result<Vec<Measured>, RigError> {
    let mut measured = Vec::new();
    let cluster = Cluster::start(&volume.directory_of("postgresql", USER)?, None)?;
    for method in ["fdatasync", "open_datasync"] {
        cluster.ask(&format!("alter system set wal_sync_method = {method}"))?;
        cluster.ask("select pg_reload_conf()")?;
        for clients in [8, 1] {
            let name = format!("pgbench, {clients}, wal_sync_method={method}");
            measured.push(Measured::rate(name, cluster.bench(clients, scale)?));
        }
    }
    cluster.stop()?;
    let log = volume.directory_of("log", USER)?;
    let cluster = Cluster::start(&sources.directory_of("postgresql", USER)?, Some(&log))?;
    for clients in [8, 1] {
        let name = format!("pgbench, {clients}, pg_wal alone on it");
        measured.push(Measured::rate(name, cluster.bench(clients, scale)?));
    }
    cluster.stop()?;
    Ok(measured)
}

/// A database cluster that belongs to this program.
struct Cluster {
    programs: PathBuf,
    server: Server,
    port: String,
}

impl Cluster {
    /// Starts it. `log`: place of the write-ahead log, if not `data`.
    fn start(data: &Path, log: Option<&Path>) -> Result<Cluster, RigError> {
        let programs = programs()?;
        let mut initdb = as_postgres(&programs, "initdb");
        initdb.arg("-D").arg(data).args(["--auth", "trust"]);
        if let Some(log) = log {
            initdb.arg("--waldir").arg(log);
        }
        rig::run(&mut initdb)?;
        let port = free_port()?.to_string();
        let listening =
            ["-c", "unix_socket_directories=", "-c", "listen_addresses=127.0.0.1", "-p", &port];
        let server =
            Server::start(as_postgres(&programs, "postgres").arg("-D").arg(data).args(listening))?;
        let mut cluster = Cluster { programs, server, port };
        let mut ready = cluster.client("pg_isready");
        cluster.server.await_answer(|| rig::run(&mut ready).ok())?;
        rig::run(cluster.client("pgbench").args(["-i", "-q", "-s", "10", USER]))?;
        cluster.ask("checkpoint")?;
        Ok(cluster)
    }
    fn client(&self, program: &str) -> Command {
        let mut command = as_postgres(&self.programs, program);
        command.args(["-h", "127.0.0.1", "-p", &self.port]);
        command
    }
    fn ask(&self, query: &str) -> Result<(), RigError> {
        rig::run(self.client("psql").args(["-c", query, USER])).map(drop)
    }
    /// Returns transactions per second.
    fn bench(&self, clients: u32, scale: Scale) -> Result<f64, RigError> {
        let (clients, seconds) = (clients.to_string(), format!("{:.0}", scale.seconds(10.0)));
        let text = rig::run(
            self.client("pgbench").args(["-n", "-c", &clients, "-j", "2", "-T", &seconds, USER]),
        )?;
        number_after(&text, "tps = ").ok_or_else(|| RigError::new(text))
    }
    fn stop(self) -> Result<(), RigError> {
        self.server.stop(libc::SIGINT)
    }
}

fn as_postgres(programs: &Path, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    // A change of user clears the parent-death signal.
    command
        .args(["--pdeathsig", "KILL", "--reuid", USER, "--regid", USER, "--init-groups"])
        .arg(programs.join(program));
    command.current_dir("/");
    command
}

/// Returns Debian's directory of the newest PostgreSQL.
fn programs() -> Result<PathBuf, RigError> {
    let all = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = all.map(|entry| entry.path()).max_by_key(version);
    newest.map(|path| path.join("bin")).ok_or_else(|| RigError::new("PostgreSQL is not installed"))
}
