//! A cluster in virtual time: data servers with disks and journals, a metadata server, a network.
//! The same seed is the same run.
//!
//! 1. Servers and clients exchange numbered messages ([`Cluster::messages`]). Each can be lost
//!    before it is carried out, or its answer after ([`Cut`]).
//! 2. What a server has answered is durable there. A crashed server comes back; clients send
//!    unanswered messages again, and carrying out a message twice is harmless.
//! 3. A client that is fenced, or whose connection was replaced, changes nothing any more.
//! 4. Buffered writes are made durable data first, then the attributes with the version. Data alone
//!    is sent earlier when there is much of it ([`Network::buffer_bytes`], overwritten bytes count
//!    once). The attributes of the write before are sent when a file outgrows its granted size
//!    ([`Network::object_bytes`]). Pieces of content are in flight concurrently. They share the
//!    link, and no write waits for them. With a recall the attributes are sent first
//!    (`client/recalls`).
//! 5. Size and time of change follow the data when a client ends that held the file exclusively.
//! 6. A fenced client forgets its buffer, as libcephfs does, and reports success for making it
//!    durable. So making a file durable ends with one more request to the servers.
//! 7. The metadata server may need time for each message ([`MetadataTimes`]), one after another. A
//!    client that has removed a name of a file that it holds must ask how many are left.
//! 8. A client that has made a name and holds its file knows the name until another client changes
//!    one.

mod client;
mod data_servers;
mod link;
mod locks;
mod servers;
mod tokens;

pub use client::SimulatedStore;
pub use data_servers::ServerDisks;
pub use servers::{Cluster, Cut, CutKind, MetadataTimes, Moment, Network, TrafficCount};
