//! The NBD front end: requests of NBD clients to calls of a disk, and results to replies. It
//! decides nothing. Fixed newstyle handshake, structured replies, flush, FUA, trim, write-zeroes,
//! several connections, block-size constraints; no TLS, so it listens on this machine only. Facts:
//! the protocol document of the NBD project. Client input is bounded, checked and never trusted.
//! `kernel_device` makes block devices of the kernel's own client.
#![forbid(unsafe_code)]

mod clients;
mod connection;
mod export;
mod kernel_device;
mod listener;
mod negotiate;
mod netlink;
mod options;
mod patience;
mod request;
mod server;
mod window;

pub use clients::Connections;
pub use export::Export;
pub use kernel_device::{Backend, ConnectedDevice, NbdClient, NoNbdClient, look_often};
pub use listener::{ListenError, Listener};
pub use options::{OptionRequest, parse_option};
pub use request::{Command, NbdRequest, RequestError};
pub use server::{KernelConnection, serve, serve_client};
