//! Arion: a journal on the host in front of a shared file system, on a simulated cluster of three
//! data servers that keep each byte.

mod figure_1;
mod figure_4;
mod figure_5;
mod recovery;

use crate::{Context, Figure};
use std::time::Duration;
use testbeds::{MetadataTimes, SharedClient, SharedOptions};

pub fn all() -> [Figure; 4] {
    [
        Figure {
            name: "arion-1",
            title: "Dirty data that only the client's memory has",
            source: "Arion (FAST 2015), Figure 1",
            about: "Filebench's fileserver for two minutes; each second, what a crash of the client would lose, with Ceph's own \
                    client and with a journal on the host.",
            minutes: 1,
            by_chance: true,
            real_time: false,
            run: figure_1::figure_1,
        },
        Figure {
            name: "arion-4",
            title: "Mail and new files",
            source: "Arion (FAST 2015), Figure 4",
            about: "Filebench's varmail for a minute, and createfiles: operations per second, and what a data server receives and sends for each.",
            minutes: 8,
            by_chance: true,
            real_time: false,
            run: figure_4::figure_4,
        },
        Figure {
            name: "arion-5",
            title: "Asynchronous writes by Zipf",
            source: "Arion (FAST 2015), Figure 5",
            about: "Writes of 2 to 16 KiB to a file that is there, their places chosen by Zipf (1.0001), as many bytes as the file has: \
                    latency, what a data server receives, and how busy the disks of its journal and of its file system are.",
            minutes: 1,
            by_chance: true,
            real_time: false,
            run: figure_5::figure_5,
        },
        Figure {
            name: "arion-recovery",
            title: "Recovery of a client",
            source: "Arion (FAST 2015), section 5.2",
            about: "A client that works crashes, starts again and brings its journal to the servers: how long that takes, by what it did before.",
            minutes: 1,
            by_chance: true,
            real_time: false,
            run: recovery::recovery,
        },
    ]
}

const SECOND: Duration = Duration::from_secs(1);

/// The paper's names of its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PaperSetting {
    Ceph,
    Ceph1,
    CephSync,
    Okeanos60,
    /// Okeanos, looking for old files more often than the paper's 60 s.
    Okeanos60Often,
    OkeanosInfinite,
}

impl PaperSetting {
    fn name(self) -> &'static str {
        match self {
            PaperSetting::Ceph => "Ceph",
            PaperSetting::Ceph1 => "Ceph, 1 s",
            PaperSetting::CephSync => "Ceph, sync",
            PaperSetting::Okeanos60 => "Okeanos, 60 s",
            PaperSetting::Okeanos60Often => "Okeanos, 60 s, looked for every 5 s",
            PaperSetting::OkeanosInfinite => "Okeanos, infinite",
        }
    }
    /// Divides all times by `scale`.
    fn client(self, scale: u32) -> SharedClient {
        let s = SECOND / scale;
        let journaled =
            |writeback, destage| SharedClient::Journaled { flush: s, writeback, destage };
        match self {
            PaperSetting::Ceph => SharedClient::Cached { writeback: 5 * s, expire: 30 * s },
            PaperSetting::Ceph1 => SharedClient::Cached { writeback: s, expire: s },
            PaperSetting::CephSync => SharedClient::Synchronous,
            PaperSetting::Okeanos60 => journaled(60 * s, Some(60 * s)),
            PaperSetting::Okeanos60Often => journaled(5 * s, Some(60 * s)),
            PaperSetting::OkeanosInfinite => journaled(s, None),
        }
    }
}

/// Returns the paper's cluster: links of 1 Gbit/s, drives of 15,000 rpm, a file system that syncs
/// every 5 s.
fn rig(context: &Context, setting: PaperSetting, scale: u32, processor: Duration) -> SharedOptions {
    let overrides = &context.overrides;
    SharedOptions {
        client: setting.client(scale),
        servers: 3,
        latency: overrides.time("arion", "latency", Duration::from_micros(100)),
        bytes_per_second: 125_000_000,
        home_every: overrides.time("arion", "home_every", 5 * SECOND) / scale,
        processor,
        metadata: METADATA_TIMES.times(1.0 / f64::from(scale)),
        changes: overrides.drive("cheetah-15k5-300"),
        seed: context.seed,
    }
}

/// Processor time of a real server (Ceph 16.2.15, one OSD in memory), all its threads together.
/// These are medians, to two digits, of three runs of `scripts/measure-metadata-server.py`, with
/// five repetitions each. A change was measured as a new file. A removal of a file with buffered
/// content takes 378 us; the part beyond a plain removal is `names_left`: the question, and the
/// reports of the discarded content. A token was measured with its return, as its grant comes with
/// the answer to an open.
const METADATA_TIMES: MetadataTimes = MetadataTimes {
    change: Duration::from_micros(190),
    removal: Duration::from_micros(170),
    open: Duration::from_micros(220),
    lookup: Duration::from_micros(110),
    names_left: Duration::from_micros(210),
    still_known: Duration::from_micros(64),
    attributes: Duration::from_micros(170),
    token: Duration::from_micros(39),
};
const CLIENT: &str = "Ceph's client is Linux's, as the paper's: fsync waits for content, and attributes follow. A new file comes open and with its \
capabilities. The host's journal stands before a client that waits for both, and that asks a question after each sync.";
const SERVERS: &str = "The servers are simulated: a data server journals what waits in one write and brings each dirty block to its place every 5 s; \
the metadata server's journal gets 2 KiB for each change, in three copies. Links, revolutions of the drives and sizes of the journals are the paper's.";
