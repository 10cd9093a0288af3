//! Packed transactions in units that the log's disk can write, and in shorter ones than it likes.

use crate::common::{Layout, Rig, Setup};
use crate::restart::overwrite;
use device::{Disk, Geometry};
use disks::{Watch, Watched};
use engine::{DiskHome, Engine, EngineParts, LogDevice};
use format::jbd2::JournalSuperblock;
use journal::DataMode;
use std::rc::Rc;
use units::{BlockRange, LogBlock};

/// A disk with longer sectors than the one behind it.
struct Sectors {
    logical: u32,
    physical: u32,
}

impl Watch for Sectors {
    fn geometry(&self, disk: &dyn Disk) -> Geometry {
        Geometry { logical_sector: self.logical, ..disk.geometry() }
    }
    fn physical_sector(&self, _disk: &dyn Disk) -> u32 {
        self.physical
    }
}

/// The log lies on a disk of its own, or inside a home, with such sectors.
fn rig(layout: Layout, log_unit: Option<u32>, logical: u32, physical: u32) -> Rig {
    rig_of(layout, 4096, log_unit, logical, physical)
}
fn rig_of(layout: Layout, block: u32, log_unit: Option<u32>, logical: u32, physical: u32) -> Rig {
    let mut setup = Setup::new(DataMode::Wasteless, layout, block);
    (setup.options.records, setup.options.log_unit) = (None, log_unit);
    let mut rig = Rig::new(&setup, 1, setup.images());
    let disk = Rc::new(rig.disks[rig.disks.len() - 1].clone());
    let disk: Rc<dyn Disk> = Rc::new(Watched { disk, watch: Sectors { logical, physical } });
    match layout {
        Layout::Internal => rig.parts.home = Rc::new(DiskHome::whole(disk, setup.block_size)),
        Layout::Separate | Layout::Files => {
            rig.parts.log.as_mut().unwrap().device = LogDevice::Own(disk)
        }
    }
    rig
}

fn open(rig: &Rig) -> Result<Rc<Engine>, String> {
    let parts = rig.parts.clone();
    rig.run(async move { Engine::open(parts).await.map_err(|error| error.to_string()) }).unwrap()
}

#[test]
fn a_unit_that_the_disk_cannot_write_is_refused_with_the_way_out() {
    for layout in [Layout::Internal, Layout::Separate] {
        let refused = open(&rig(layout, Some(512), 4096, 4096)).err().expect("refused");
        for part in ["log_unit=512", "at least 4096 bytes", "without log_unit=", "log_unit=4096"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        for unit in [None, Some(4096)] {
            assert!(open(&rig(layout, unit, 4096, 4096)).is_ok());
        }
    }
}

#[test]
fn a_log_unit_shorter_than_a_sector_gives_a_warning() {
    let warnings = |rig: Rig| {
        open(&rig).expect("it opens");
        EngineParts::warnings(&rig.parts)
    };
    for layout in [Layout::Internal, Layout::Separate] {
        let found = warnings(rig(layout, Some(512), 512, 4096));
        assert!(found.len() == 1 && found[0].contains("log_unit=4096 is safe"), "{found:?}");
        for (unit, physical) in [(None, 4096), (Some(4096), 4096), (Some(512), 512)] {
            assert_eq!(warnings(rig(layout, unit, 512, physical)), [""; 0]);
        }
    }
    // No unit is longer than a block.
    for asked in [1024, 4096] {
        let found = warnings(rig_of(Layout::Internal, 1024, Some(asked), 512, 4096));
        let right = found.len() == 1
            && found[0].starts_with("log_unit=1024")
            && !found[0].contains("is safe");
        assert!(right && found[0].contains("blocks of 4096 bytes"), "{found:?}");
    }
    let mut blocks = rig(Layout::Internal, Some(512), 512, 4096);
    blocks.parts.options.records = Some(engine::RecordFormat::Blocks);
    assert_eq!(warnings(blocks), [""; 0]);
}

#[test]
fn a_mode_that_logs_data_gives_a_warning_without_a_log() {
    for mode in DataMode::ALL {
        let mut rig = rig(Layout::Internal, None, 512, 512);
        rig.parts.log = None;
        rig.parts.options.data = mode;
        let found = rig.parts.warnings();
        let logs = mode.policy(rig.parts.options.threshold).logs_data();
        assert_eq!(found.len(), usize::from(logs), "{mode}: {found:?}");
        assert!(
            found
                .iter()
                .all(|warning| warning.contains(mode.name()) && warning.contains("no journal")),
            "{found:?}"
        );
    }
}

#[test]
fn a_log_is_written_in_sectors_that_its_disk_writes_as_one() {
    for physical in [512, 1024, 4096] {
        let rig = rig(Layout::Separate, None, 512, physical);
        rig.play(async |engine| {
            overwrite(&engine, 1, BlockRange::new(0, 100), &[1; 100], 1).await;
        });
        let (block, _) = rig.parts.log.as_ref().unwrap().locate(LogBlock(0)).unwrap();
        let bytes = rig.disks[rig.disks.len() - 1].image().copy(block << 12, 4096).to_vec();
        let superblock = JournalSuperblock::parse(&bytes, rig.parts.block_size, 1024).unwrap();
        assert_eq!(superblock.log_block_bytes(), physical as usize);
    }
}
