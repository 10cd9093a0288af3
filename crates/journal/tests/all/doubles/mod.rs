//! Test doubles: a second alternative for each choice, as small as possible. Nothing in planner and
//! recovery may depend on the ones in use.

mod capacitor_log;
mod drive;
mod stream;

pub use capacitor_log::{CapacitorLog, Map};
pub use drive::{BarrierCase, Drive};
pub use stream::Stream;

use journal::*;
use units::HomeBlock;

/// WHAT: an update in the first half of a block is logged as bytes, any other as the whole block.
pub struct Halves;

impl Policy for Halves {
    fn decide(&self, update: &Update) -> Decision {
        match (update.range.end as usize) <= update.block_size.bytes() / 2 {
            true => Decision::LogBytes,
            false => Decision::LogBlock,
        }
    }
    fn logs_data(&self) -> bool {
        true
    }
    fn logs_bytes(&self) -> bool {
        true
    }
}

/// WHOSE: addresses of the home blocks `0..HOME_BLOCKS` of the test.
#[derive(Clone, Copy, Debug)]
pub enum HomeAddresses {
    Volume,
    /// Files of 16 blocks each: the file's slot above, the block in it below.
    Files,
    /// Data of a block volume: behind its journal, around the logs at the ends of its groups.
    Blocks,
}

impl HomeAddresses {
    pub const ALL: [HomeAddresses; 3] =
        [HomeAddresses::Volume, HomeAddresses::Files, HomeAddresses::Blocks];
}

const DATA_AT: u64 = 512;
const GROUP_BLOCKS: u64 = 24;
const DATA_A_GROUP: u64 = 20;
const FILE_BLOCKS: u64 = 16;
const SLOT_SHIFT: u32 = 40;

impl HomeAddresses {
    pub fn address(self, index: u64) -> HomeBlock {
        HomeBlock(match self {
            HomeAddresses::Volume => index,
            HomeAddresses::Files => (7 + index / FILE_BLOCKS) << SLOT_SHIFT | (index % FILE_BLOCKS),
            HomeAddresses::Blocks => {
                DATA_AT + index / DATA_A_GROUP * GROUP_BLOCKS + index % DATA_A_GROUP
            }
        })
    }
    pub fn index_of(self) -> fn(HomeBlock) -> usize {
        match self {
            HomeAddresses::Volume => |home| home.get() as usize,
            HomeAddresses::Files => |home| {
                let block = home.get() & ((1 << SLOT_SHIFT) - 1);
                (((home.get() >> SLOT_SHIFT) - 7) * FILE_BLOCKS + block) as usize
            },
            HomeAddresses::Blocks => |home| {
                let at = home.get() - DATA_AT;
                (at / GROUP_BLOCKS * DATA_A_GROUP + at % GROUP_BLOCKS) as usize
            },
        }
    }
    /// Returns the number of what becomes durable together.
    pub fn file(self, home: HomeBlock) -> u64 {
        match self {
            HomeAddresses::Volume | HomeAddresses::Blocks => 0,
            HomeAddresses::Files => home.get() >> SLOT_SHIFT,
        }
    }
    pub fn contains(self, home: HomeBlock, blocks: u64) -> bool {
        match self {
            HomeAddresses::Volume => home.get() < blocks,
            HomeAddresses::Files => {
                let (slot, block) =
                    (home.get() >> SLOT_SHIFT, home.get() & ((1 << SLOT_SHIFT) - 1));
                (7..7 + blocks / FILE_BLOCKS).contains(&slot) && block < FILE_BLOCKS
            }
            HomeAddresses::Blocks => home.get().checked_sub(DATA_AT).is_some_and(|at| {
                at % GROUP_BLOCKS < DATA_A_GROUP && (self.index_of())(home) < blocks as usize
            }),
        }
    }
}

pub struct HomeWithin(pub HomeAddresses, pub u64);

impl Bounds for HomeWithin {
    fn refuses(&self, home: HomeBlock) -> Option<&'static str> {
        (!self.0.contains(home, self.1)).then_some("which is no block of this home")
    }
}
