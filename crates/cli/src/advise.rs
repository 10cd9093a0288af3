//! `okeanos advise`: recommends the mode that suits the writes that a mount has seen.

use crate::daemon::control::{Ask, Client, Place, find_mount, no_answer};
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::quantity::format_size;
use crate::text::table::Table;
use serde_json::Value;
use std::path::PathBuf;

const NOTES: &str = "\
The daemon counts writes by the size of their request. From these counts follows what each mode would have
written: \"before the sync\" is what a sync waits for, in the journal and at home; \"home, later\" is at most this,
and less where blocks are written again before they are written back. Metadata is left out: all modes log it.

The advice: log a size of request where that at least halves what its syncs wait for; write the others home directly.
Let the mount see an hour of typical work first. Counts begin with the mount.

Examples:
  okeanos advise /mnt/a";

/// Recommend the mode and threshold that suit what a mounted volume has seen
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct AdviseArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Mount point of the volume, any path in it, or its image file or device
    #[arg(value_name = "DIR|IMAGE|DEVICE")]
    directory: PathBuf,
}

/// Journal bytes of a logged update beside its data: its tag.
const TAG: u64 = 16;
/// Number of updates below which no advice is given.
const UPDATES_MIN: u64 = 1000;

#[derive(Clone, Copy)]
struct Class {
    request_max: u64,
    updates: u64,
    bytes: u64,
    blocks: u64,
}

impl Class {
    fn logged(&self) -> u64 {
        self.bytes + TAG * self.updates
    }
    fn in_blocks(&self, block_size: u64) -> u64 {
        self.blocks * block_size
    }
    /// Whether logging its bytes at least halves the wait of a sync.
    fn is_small(&self, block_size: u64) -> bool {
        2 * self.logged() <= self.in_blocks(block_size)
    }
}

#[derive(serde::Serialize)]
struct Outcome {
    mode: String,
    journal_bytes: u64,
    home_bytes_before_sync: u64,
    home_bytes_later_at_most: u64,
}

#[derive(serde::Serialize)]
struct Advice {
    mounted: String,
    updates: u64,
    payload_bytes: u64,
    outcomes: Vec<Outcome>,
    /// Options for `-o`; none where too little was seen.
    options: Option<String>,
    /// Command that takes these options.
    #[serde(skip)]
    command: &'static str,
}

pub fn run(arguments: AdviseArguments) -> Result<(), CliError> {
    let mount = find_mount(&arguments.directory)?;
    let mut client = Client::connect_to_look(&mount)?;
    let statistics: Value = client.ask(Ask::Stats).map_err(|_| no_answer(&mount, None))?;
    if statistics["host"].is_object() {
        let name = mount.directory.display();
        return Err(CliError::new(format!("{name}: a host serves no volume"))
            .with_remedy("There is no mode to choose."));
    }
    let block_size = mount.space().map_or(4096, |space| space.unit);
    let mut advice = advise(&statistics, block_size).ok_or_else(|| {
        CliError::new(format!(
            "{}: its daemon does not count writes by size",
            mount.directory.display()
        ))
        .with_remedy(
            "It is of an older okeanos, or serves no volume. Mount it again with this one.",
        )
    })?;
    if Place::of_mount(&mount).is_some() {
        advice.command = "okeanos blocks attach";
    }
    if arguments.json { print_json(&advice) } else { print(&text_of(&advice)) }
}

fn advise(statistics: &Value, block_size: u64) -> Option<Advice> {
    let engine = &statistics["engine"];
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let classes: Vec<Class> = engine["requests"]
        .as_array()?
        .iter()
        .map(|class| Class {
            request_max: number(&class["request_bytes_max"]),
            updates: number(&class["updates"]),
            bytes: number(&class["bytes"]),
            blocks: number(&class["blocks"]),
        })
        .collect();
    // Requests are small up to a size: a class below a small one is small, too.
    let threshold = classes
        .iter()
        .filter(|class| class.is_small(block_size))
        .map(|class| class.request_max)
        .max();
    let largest = classes.iter().map(|class| class.request_max).max().unwrap_or(0);
    let updates = classes.iter().map(|class| class.updates).sum();
    let outcome = |mode: String, logs: &dyn Fn(&Class) -> bool, whole_blocks: bool| {
        let (logged, others): (Vec<&Class>, Vec<&Class>) =
            classes.iter().partition(|class| logs(class));
        let in_blocks =
            |classes: &[&Class]| classes.iter().map(|class| class.in_blocks(block_size)).sum();
        let in_bytes = logged.iter().map(|class| class.logged()).sum();
        Outcome {
            mode,
            journal_bytes: if whole_blocks { in_blocks(&logged) } else { in_bytes },
            home_bytes_before_sync: in_blocks(&others),
            home_bytes_later_at_most: in_blocks(&logged),
        }
    };
    // The mode calls small what is below the threshold.
    let selective = threshold.map(|most| most + 1);
    let mut outcomes = vec![
        outcome("ordered".into(), &|_| false, false),
        outcome("journal".into(), &|_| true, true),
        outcome("wasteless".into(), &|_| true, false),
    ];
    if let Some(most) = threshold.filter(|most| *most < largest) {
        let mode = format!("selective,threshold={}", most + 1);
        outcomes.push(outcome(mode, &|class| class.request_max <= most, false));
    }
    let options = match (updates, selective) {
        (..UPDATES_MIN, _) => None,
        (_, None) => Some("data=ordered".into()),
        (_, Some(threshold)) if threshold > largest => Some("data=wasteless".into()),
        (_, Some(threshold)) => Some(format!("data=selective,threshold={threshold}")),
    };
    Some(Advice {
        mounted: statistics["about"]["data"].as_str().unwrap_or("?").to_owned(),
        updates,
        payload_bytes: classes.iter().map(|class| class.bytes).sum(),
        outcomes,
        options,
        command: "mount",
    })
}

fn text_of(advice: &Advice) -> String {
    let mut table = Table::new([
        "data=",
        "before the sync: journal",
        "home",
        "together",
        "home, later, at most",
    ]);
    for outcome in &advice.outcomes {
        table.row([
            outcome.mode.clone(),
            format_size(outcome.journal_bytes),
            format_size(outcome.home_bytes_before_sync),
            format_size(outcome.journal_bytes + outcome.home_bytes_before_sync),
            format_size(outcome.home_bytes_later_at_most),
        ]);
    }
    let (mounted, updates, payload) =
        (&advice.mounted, advice.updates, format_size(advice.payload_bytes));
    let last = match &advice.options {
        Some(options) => format!("Advice: {} -o {options}", advice.command),
        None => format!("No advice yet: fewer than {UPDATES_MIN} updates of blocks were seen."),
    };
    format!(
        "Mounted data={mounted}: {updates} updates of blocks, {payload} written by programs.\n\n\
         {table}\n{last}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(classes: &[(u64, u64, u64, u64)]) -> Advice {
        let requests: Vec<Value> = classes
            .iter()
            .map(|(most, updates, bytes, blocks)| {
                serde_json::json!({
                    "request_bytes_max": most, "updates": updates, "bytes": bytes, "blocks": blocks,
                })
            })
            .collect();
        let statistics = serde_json::json!({
            "about": { "data": "ordered" }, "engine": { "requests": requests },
        });
        advise(&statistics, 4096).unwrap()
    }

    #[test]
    fn small_writes_want_the_log_large_ones_their_home_and_a_mixture_a_threshold() {
        let (small, large) = ((128, 2000, 256_000, 2000), (1 << 20, 2560, 10 << 20, 2560));
        assert_eq!(seen(&[small]).options.unwrap(), "data=wasteless");
        assert_eq!(seen(&[large]).options.unwrap(), "data=ordered");
        let both = seen(&[small, large]);
        assert_eq!(both.options.as_deref(), Some("data=selective,threshold=129"));
        let outcome = &both.outcomes[3];
        assert_eq!(
            (outcome.journal_bytes, outcome.home_bytes_before_sync),
            (256_000 + 16 * 2000, 10 << 20)
        );
        assert_eq!(
            both.outcomes[0].home_bytes_before_sync,
            4560 * 4096,
            "ordered sends all home first"
        );
        assert!(text_of(&both).contains("Advice: mount -o data=selective,threshold=129"));
        assert_eq!(seen(&[(128, 5, 640, 5)]).options, None, "too little was seen");
    }
}
