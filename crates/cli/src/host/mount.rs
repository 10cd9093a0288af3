//! `okeanos host mount`: starts the host, serves it, and writes everything to the store at the end.
//!
//! Order: mount helper forked; journal claimed; rights given up; connected to the store; recovered;
//! mounted by the helper; served. The daemon keeps its paths, as it uses a store that is a
//! directory by them: never a path below its own mount.

use super::HostMountArguments;
use super::options::HostSettings;
use super::store::{MakeJournal, StoreName, failed, open_journal};
use crate::daemon::control::{About, Ask, End, HOST, socket_directory_beside};
use crate::daemon::control_server::{ControlServer, ControlSocket, no_control};
use crate::daemon::mount_helper::MountHelper;
use crate::daemon::reporter::{Level, Reporter};
use crate::daemon::{self, Side, StartNotifier, mount_table, privileges};
use crate::error::CliError;
use crate::mount::renew;
use disks::DiskAccess;
use fuse::HostFrontEnd;
use fuse_session::{MountKind, MountOptions, Session};
use host::{Host, recover_reconnecting};
use runtime::{Either, RealWorld, race, spawn_with_result};
use std::path::PathBuf;
use std::rc::Rc;

/// No read-ahead: reads bypass the page cache.
const READ_AHEAD: u64 = 0;

struct Plan {
    arguments: HostMountArguments,
    store: StoreName,
    settings: HostSettings,
    directory: PathBuf,
}

pub fn run(mut arguments: HostMountArguments) -> Result<(), CliError> {
    let absolute = |path: &PathBuf| {
        std::fs::canonicalize(path).map_err(|error| CliError::system(path.display(), error))
    };
    let settings = HostSettings::parse(&arguments.options)?;
    let store = StoreName::parse(&arguments.place)?;
    if !arguments.force {
        store.refuse_incoherent()?;
    }
    arguments.place.journal = absolute(&arguments.place.journal)?;
    let at = mount_table::resolve(&arguments.directory)
        .map_err(|error| CliError::system(arguments.directory.display(), error))?;
    renew::take_dead_host_away(&at, &store.full_name(), &arguments.place.journal)?;
    crate::daemon::mounted::refuse_if_its_daemon_died(&arguments.directory)?;
    let directory = absolute(&arguments.directory)?;
    if store.lies_below(&directory) || arguments.place.journal.starts_with(&directory) {
        return Err(CliError::new(format!(
            "{} would lie over its own store or journal",
            directory.display()
        ))
        .with_remedy("Mount on another directory."));
    }
    let foreground = arguments.foreground;
    let mut plan = Plan { arguments, store, settings, directory };
    // Each dirty file of a directory is two open ones: itself and its token. Twice as many may be
    // dirty for a while.
    let most = daemon::allow_open_files() / 8;
    plan.settings.host.dirty_files_max =
        plan.settings.host.dirty_files_max.min(most as usize).max(1);
    if foreground {
        return serve(plan, StartNotifier::foreground());
    }
    match daemon::detach()? {
        Side::Starter(starter) => starter.wait(),
        Side::Daemon(notifier) => serve(plan, notifier),
    }
}

fn serve(plan: Plan, notifier: StartNotifier) -> Result<(), CliError> {
    let reporter = Reporter::open(notifier.is_background(), Level::Info, None);
    if let Err(error) = runtime::block_signals() {
        return notifier.failed(CliError::system("signals", error));
    }
    let helper = match MountHelper::start(&plan.directory, &|text| reporter.report(text)) {
        Ok(helper) => helper.keep_paths(&[plan.store.path(), &plan.arguments.place.journal]),
        Err(error) => return notifier.failed(error),
    };
    let world = match RealWorld::new() {
        Ok(world) => world,
        Err(error) => return notifier.failed(CliError::no_ring(error)),
    };
    let result = world.run(run_daemon(world.clone(), plan, helper, reporter, notifier));
    world.end();
    result
}

async fn bring_up(
    world: &RealWorld,
    plan: &Plan,
    reporter: &Reporter,
) -> Result<(Rc<Host>, Option<String>), CliError> {
    let Plan { arguments, store, settings, .. } = plan;
    let make = MakeJournal::new(arguments.format, arguments.force);
    let (journal, _disk) =
        open_journal(world, &arguments.place, store, make, DiskAccess::ReadWrite).await?;
    store.check(&journal).await?;
    // A journal that is made has another program look at what is there. From here on the daemon
    // reads bytes of others: records, what the store sends, and requests.
    let kept = privileges::give_up_for_host(store.programs()).err();
    world.ring().renew_threads();
    let connection = store.connect(world, journal.head.identity.clone()).await?;
    let report = recover_reconnecting(world, &*connection, &journal).await.map_err(failed)?;
    if !report.clean {
        reporter.report(super::recover::text_of(&report).trim_end());
    }
    let host =
        Host::open(Rc::new(world.clone()), connection, &journal, settings.host.clone()).await;
    let (host, reporter) = (host.map_err(failed)?, reporter.clone());
    host.count_set_aside(&report);
    let trouble = reporter.clone();
    host.on_trouble(Box::new(move |what| trouble.report(what)));
    host.on_reconnection(Box::new(move |report| {
        let recovered = super::recover::text_of(report);
        reporter.report(&format!(
            "the connection to the store was lost, and is back: {}",
            recovered.trim_end()
        ));
    }));
    Ok((host, kept.map(|error| privileges::kept_rights(&error))))
}

async fn run_daemon(
    world: RealWorld,
    plan: Plan,
    helper: MountHelper,
    reporter: Reporter,
    notifier: StartNotifier,
) -> Result<(), CliError> {
    let started = async {
        let signals = world.signals().map_err(|error| CliError::system("signals", error))?;
        let control =
            ControlSocket::bind(&socket_directory_beside(&plan.directory)).map_err(no_control)?;
        let (host, kept) = bring_up(&world, &plan, &reporter).await?;
        let warnings = daemon::settle_in_for_write_back().into_iter().chain(kept);
        let warnings: Vec<String> = warnings.collect();
        warnings.iter().for_each(|warning| reporter.report_at(Level::Warning, warning));
        world.ring().renew_threads();
        daemon::io_path::report(&world, &reporter);
        let kind = MountKind::Plain { name: plan.store.full_name() };
        let (flags, allow_other) = (plan.settings.flags(), plan.settings.session.allow_other);
        let options =
            MountOptions { kind, subtype: mount_table::subtype(None), flags, allow_other };
        match helper.mount(&options, READ_AHEAD) {
            Ok(standing) => Ok((signals, control, host, standing, warnings)),
            Err(error) => {
                let _ = host.close().await;
                Err(error)
            }
        }
    };
    let (signals, control, host, standing, warnings) = match started.await {
        Ok(started) => started,
        Err(error) => return notifier.failed(error),
    };
    let requests = reporter.clone();
    let report = Box::new(move |text: &str| requests.report(text));
    let front_end = HostFrontEnd::new(host.clone(), fuse::strips_set_group(), report);
    let session = Session::new(
        world.clone(),
        standing.connection,
        front_end.clone(),
        plan.settings.session.transport,
    );
    // Other kernels may show an old page behind a write, and write it back for as long as it lives.
    if !fuse::drops_written_pages() {
        session.disable_shared_mappings();
    }
    let (knows, asks) = (Rc::downgrade(&front_end), Rc::downgrade(&session));
    host.on_forget(Box::new(move |file| {
        if let (Some(node), Some(session)) =
            (knows.upgrade().and_then(|front_end| front_end.node_of(file)), asks.upgrade())
        {
            session.invalidate_attributes(node);
        }
    }));
    let serving = session.clone();
    let mut served = spawn_with_result(&world, async move { serving.serve().await });
    let begun = race(&mut served, session.until_started()).await;
    let answers = answers(world.clone(), host, session.clone(), &plan);
    let control =
        match ControlServer::start(&world, control, standing.device, answers).map_err(no_control) {
            Ok(control) => control,
            Err(error) => {
                if matches!(begun, Either::Right(_)) {
                    drop(helper.end(&world, &session, served, signals).await);
                }
                let _ = front_end.close().await;
                return notifier.failed(error);
            }
        };
    notifier.up(&warnings);
    let result = match begun {
        Either::Left(result) => result,
        Either::Right(_) => helper.until_over(&world, &session, served, signals).await,
    };
    let clean = front_end.close().await;
    control.end(End { clean });
    match result {
        Some(Ok(())) if clean => Ok(()),
        Some(Err(error)) => Err(CliError::new(error.to_string())),
        _ => Err(CliError::new(format!(
            "{}: not everything came to the store",
            plan.store.full_name()
        ))
        .with_remedy("It is in the journal: mount again to bring it there.")),
    }
}

fn answers(
    world: RealWorld,
    host: Rc<Host>,
    session: Rc<Session<HostFrontEnd>>,
    plan: &Plan,
) -> Box<crate::daemon::control_server::Answers> {
    let about = About {
        process: std::process::id(),
        version: crate::VERSION.into(),
        source: plan.store.full_name(),
        directory: plan.directory.display().to_string(),
        data: HOST.into(),
        options: plan.arguments.options.clone(),
        live: None,
    };
    let journal = plan.arguments.place.journal.display().to_string();
    Box::new(move |ask| {
        let answer = match ask {
            Ask::Stats => {
                let requests: serde_json::Map<String, serde_json::Value> = session
                    .requests_by_operation()
                    .map(|(name, count)| (name.to_owned(), count.into()))
                    .collect();
                serde_json::json!({
                    "about": about,
                    "journal": journal,
                    "host": host.statistics(),
                    "transport": daemon::io_path::transport(session.negotiated()),
                    "io": daemon::io_path::about(&world),
                    "long_steps": crate::stats::long_steps(&world),
                    "front_end": { "by_operation": requests },
                })
            }
            Ask::Checkpoint | Ask::Checkpointing => crate::checkpoint::refused(
                "a host's files go to the store by destage=, or at umount",
            ),
            Ask::Change(_) => {
                serde_json::json!(Err::<(), _>(
                    "a host's mount cannot be changed: unmount it first"
                ))
            }
            _ => serde_json::json!(about),
        };
        Box::pin(async { answer })
    })
}
