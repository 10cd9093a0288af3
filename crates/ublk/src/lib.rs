//! The ublk front end: requests of the kernel's ublk driver to calls of a disk, and results to
//! replies. It decides nothing. One queue, whose requests arrive as commands on the world's one
//! ring. Data is copied by system calls that wait for nothing. Facts: `linux/ublk_cmd.h`, and
//! Documentation/block/ublk.rst of the kernel. Unsafe code is in `control` and `driver_queue`
//! alone.
#![deny(unsafe_code)]

pub mod abi;
#[allow(unsafe_code)]
mod control;
mod driver_device;
#[allow(unsafe_code)]
mod driver_queue;
mod export;
mod queue;
mod request;
mod server;

pub use control::{Control, Unavailable};
pub use driver_device::{DEPTH, Device, Remains, UblkError, WantedDevice, look_at, start};
pub use driver_queue::DriverQueue;
pub use export::ExportedDisk;
pub use queue::Queue;
pub use request::{REQUEST_BYTES_MAX, RequestRefusal, UblkRequest};
pub use server::Server;
