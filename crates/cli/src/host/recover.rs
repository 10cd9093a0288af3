//! `okeanos host recover`.

use super::HostRecoverArguments;
use super::store::{MakeJournal, StoreName, failed, open_journal};
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::quantity::format_duration;
use device::World;
use disks::DiskAccess;
use host::{FileFate, HostRecoveryReport, recover, recover_reconnecting, while_answered};
use runtime::RealWorld;
use std::time::Duration;
use store::Identity;

pub fn run(arguments: HostRecoverArguments) -> Result<(), CliError> {
    let world = RealWorld::new().map_err(CliError::no_ring)?;
    let (for_run, json) = (world.clone(), arguments.json);
    let report = world.run(async move {
        let store = StoreName::parse(&arguments.place)?;
        if !arguments.force && !arguments.dry_run {
            store.refuse_incoherent()?;
        }
        let access = if arguments.dry_run { DiskAccess::ReadOnly } else { DiskAccess::ReadWrite };
        let (journal, _disk) =
            open_journal(&for_run, &arguments.place, &store, MakeJournal::Never, access).await?;
        store.check(&journal).await?;
        let mut identity = journal.head.identity.clone();
        if arguments.dry_run && matches!(store, StoreName::Ceph { .. }) {
            // Under the host's own name this would end a running host.
            identity = Identity(format!("look-{:016x}", for_run.random()));
        }
        let connection = store.connect(&for_run, identity).await?;
        let report = match arguments.dry_run {
            true => recover(&for_run, &*connection, &journal, true).await,
            false => recover_reconnecting(&for_run, &*connection, &journal).await,
        };
        let report = report.map_err(failed)?;
        let ends = async {
            if !arguments.dry_run {
                while_answered(&for_run, &*connection, connection.unregister_host()).await?;
            }
            connection.disconnect().await
        };
        ends.await.map_err(|error| CliError::new(error.to_string()))?;
        Ok::<_, CliError>(report)
    });
    world.end();
    let report = report?;
    if json { print_json(&report) } else { print(&text_of(&report)) }
}

/// Formats the report for a person.
pub fn text_of(report: &HostRecoveryReport) -> String {
    if report.clean {
        return "The journal is empty: nothing to recover.\n".into();
    }
    let (would, was) = if report.dry_run { ("would be ", "would be") } else { ("", "was") };
    let mut text = format!(
        "{} transactions; {} files were at the store already.\n",
        report.transactions, report.slots_home
    );
    for file in &report.files {
        let bytes = file.bytes;
        text += &match &file.outcome {
            FileFate::Replayed => format!("file {}: {bytes} bytes {would}replayed\n", file.file),
            FileFate::Removed => {
                format!("file {}: removed on this host; {bytes} bytes {was} dropped\n", file.file)
            }
            FileFate::DoneBefore => {
                format!("file {}: replayed by an earlier recovery\n", file.file)
            }
            FileFate::SetAside { name, why } => {
                let at = if name.is_empty() {
                    String::new()
                } else {
                    format!(" as {}/{name}", host::CONFLICT_DIRECTORY)
                };
                format!("file {}: {bytes} bytes {was} set aside{at}. {why}\n", file.file)
            }
        };
    }
    if !report.dry_run {
        text +=
            &format!("It took {}.\n", format_duration(Duration::from_nanos(report.nanoseconds)));
    }
    text
}
