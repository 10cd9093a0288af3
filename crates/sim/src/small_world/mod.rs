//! Exhaustive exploration of small worlds: the real engine and journal on a disk of some hundred
//! blocks, without a file system. `docs/CRASH_MODEL.md` states the bounds.

mod cut;
mod explore;
mod life;
mod operation;
mod replay;
mod stopped_world;
mod transactions;
mod world;

pub use cut::{SurvivingWrites, Torn};
pub use explore::{SmallBounds, SmallExplorer, SmallFailure, SmallReport};
pub use operation::SmallOperation;
pub use replay::{PowerCut, Replay};
pub use world::{BROKEN, SMALL_WORLDS, SmallWorld, Snapshots, find};
