//! One record to one log: chosen, listed as open, written, and only then in the table.
//!
//! Invariants: the caller holds `appending`, so records are written one after the other. A durable record is promised only when the records
//! before it in its log are durable too, for a restart that misses one sees none behind it.

use crate::choose_log::near_head_log;
use crate::drops::Dropped;
use crate::open_list::{OpenList, REGION_LOGS, REGIONS_MAX};
use crate::record::{Entry, Header};
use crate::state::State;
use crate::table::Mapped;
use crate::{BLOCK, WHOLE};
use device::{Buffer, DeviceError, Durability};
use runtime::sync::WriteGuard;
use std::rc::Rc;

/// Blocks on their way to a log: homes with the sectors that count, and their content one after the other.
#[derive(Clone)]
pub struct Piece {
    pub blocks: Vec<(u64, u8)>,
    pub content: Rc<Buffer>,
}

impl State {
    /// The near-head log for a record of so many blocks, its header included.
    pub fn near_head(&self, blocks: u32) -> Option<u32> {
        let inner = self.inner.borrow();
        let most = self.settings.scan_regions.clamp(1, REGIONS_MAX);
        let full = inner.regions.len() >= most;
        let may = |log: u32| !full || inner.regions.contains(&(log / REGION_LOGS));
        near_head_log(&self.layout, &inner.logs, inner.head, blocks, may)
    }

    /// The log has room for header and pieces.
    pub async fn append(
        &self,
        appending: &WriteGuard,
        log: u32,
        pieces: &[Piece],
        drops: &[Dropped],
        durability: Durability,
    ) -> Result<(), DeviceError> {
        self.open_region(appending, log / REGION_LOGS).await?;
        let tag = self.world.random() | 1;
        let (header, place) = {
            let mut inner = self.inner.borrow_mut();
            inner.assigned += 1;
            let of = &inner.logs[log as usize];
            let header = Header {
                log,
                epoch: of.epoch,
                position: of.fill,
                sequence: inner.assigned,
                tag,
                previous: of.tag,
                entries: entries(pieces, drops, inner.assigned),
            };
            let place = self.layout.log_begin(log) + u64::from(of.fill);
            (header, place)
        };
        let data_blocks = header.data_blocks();
        assert!(
            header.position as usize + 1 + data_blocks <= self.layout.log_blocks() as usize,
            "the record does not fit its log"
        );
        let parts = std::iter::once(Rc::new(Buffer::copy_of(&header.serialize(self.layout.nonce()))));
        let parts = parts.chain(pieces.iter().map(|piece| piece.content.clone())).collect();
        let chained = self.inner.borrow().unflushed.contains(&log);
        let how = if chained { Durability::Cached } else { durability };
        self.fail(self.main.write(place * BLOCK as u64, parts, how).await)?;
        if how == Durability::Cached {
            self.inner.borrow_mut().unflushed.insert(log);
        }
        if how != durability {
            self.flush_records(appending).await?;
        }
        self.install(&header, place, pieces);
        Ok(())
    }

    /// All records written so far are durable, and everything else that the disk has completed.
    pub async fn flush_records(&self, _appending: &WriteGuard) -> Result<(), DeviceError> {
        self.flush_main().await?;
        self.inner.borrow_mut().unflushed.clear();
        Ok(())
    }

    async fn open_region(&self, _appending: &WriteGuard, region: u32) -> Result<(), DeviceError> {
        let list = {
            let mut inner = self.inner.borrow_mut();
            if let Some((since, _)) = &mut inner.since {
                since.insert(region);
            }
            if inner.regions.contains(&region) {
                return Ok(());
            }
            inner.statistics.openings += 1;
            inner.list_counter += 1;
            let mut regions = inner.regions.clone();
            regions.insert(region);
            OpenList { snapshot: inner.snapshot, counter: inner.list_counter, regions }
        };
        let place = self.layout.list_place(list.counter);
        self.write_meta(place, &list.serialize(self.layout.nonce()), Durability::Durable).await?;
        self.inner.borrow_mut().regions = list.regions;
        Ok(())
    }

    fn install(&self, header: &Header, place: u64, pieces: &[Piece]) {
        let mut inner = self.inner.borrow_mut();
        let bytes = (1 + header.data_blocks() as u64) * BLOCK as u64;
        inner.installed = header.sequence;
        inner.unknown_bytes += bytes;
        if let Some((_, since)) = &mut inner.since {
            *since += bytes;
        }
        let used = self.world.now().0;
        let log = &mut inner.logs[header.log as usize];
        log.fill = header.position + 1 + header.data_blocks() as u32;
        log.tag = header.tag;
        log.used = used;
        let mut at = place;
        for piece in pieces {
            for (number, (home, mask)) in piece.blocks.iter().enumerate() {
                at += 1;
                inner.map(&self.layout, *home, Mapped { place: at, mask: *mask, clean: false });
                if *mask != WHOLE {
                    let content = &piece.content[number * BLOCK..(number + 1) * BLOCK];
                    inner.keep_partial(at, Rc::new(Buffer::copy_of(content)));
                }
            }
        }
    }
}

fn entries(pieces: &[Piece], drops: &[Dropped], sequence: u64) -> Vec<Entry> {
    let dropped = drops.iter().map(|dropped| Entry::Drop {
        home: dropped.homes.start,
        length: (dropped.homes.end - dropped.homes.start) as u32,
        age: u32::try_from(sequence.saturating_sub(dropped.as_of)).unwrap_or(u32::MAX),
    });
    let data = pieces.iter().flat_map(|piece| {
        let blocks = piece.content.chunks_exact(BLOCK);
        piece.blocks.iter().zip(blocks).map(|((home, mask), block)| Entry::Data {
            home: *home,
            mask: *mask,
            checksum: crc32c::crc32c(block),
        })
    });
    dropped.chain(data).collect()
}
