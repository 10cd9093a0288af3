//! System call interface of a daemon: an io_uring, or threads where the kernel refuses one.

use super::reporter::{Level, Reporter};
use fuse_session::Negotiated;
use runtime::{NoRing, RealWorld};
use serde_json::{Value, json};

/// Returns the I/O path for `stats`: `by`, and where it is not a ring, `why`.
pub fn about(world: &RealWorld) -> Value {
    match world.ring().no_ring() {
        None => json!({ "by": "io_uring" }),
        Some(why) => json!({ "by": "threads", "why": why.to_string() }),
    }
}

/// Returns the transport of requests for `stats`.
pub fn transport(negotiated: Option<Negotiated>) -> &'static str {
    match negotiated {
        Some(Negotiated { uring: true, .. }) => "io_uring",
        _ => "classic",
    }
}

/// Reports that there is no ring, with the reason.
pub fn report(world: &RealWorld, reporter: &Reporter) {
    report_with(world, &|text| reporter.report_at(Level::Info, text));
}

/// Reports like [`report`], for programs without a log. Reports nothing if the caller chose
/// threads.
pub fn report_with(world: &RealWorld, say: &dyn Fn(&str)) {
    if let Some(why @ NoRing::Refused(_)) = world.ring().no_ring() {
        say(&format!("threads make the system calls that wait for disks, no io_uring: {why}"));
    }
}
