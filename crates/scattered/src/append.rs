//! Appends records to logs: begun at once (place, sequence, header), then listed as open, written,
//! and only then in the table.
//!
//! Invariants: the task that begins a record holds `appending` shared until it is in the table.
//! Several are in flight, also of one log. Each is complete only when those before it in its log
//! are: a restart that misses one sees none after it. A durable one is acknowledged only when those
//! before it are durable.
//!
//! A record that follows another at once lies after a gap. The platter turns on until the drive has
//! begun with it: without a gap it would wait for a whole revolution.

use crate::choose_log::near_head_log;
use crate::drops::Dropped;
use crate::gap::Spaced;
use crate::layout::DataSums;
use crate::open_list::{OpenList, REGION_LOGS, REGIONS_MAX};
use crate::record::{Header, RecordEntry};
use crate::state::State;
use crate::table::Mapped;
use crate::{BLOCK, WHOLE};
use device::{Buffer, DeviceError, Durability};
use runtime::sync::ReadGuard;
use std::rc::Rc;
use std::time::Duration;

/// The fastest disks (250 MB/s) take this long for a gap of 64 KiB. Its end is still in front of
/// the head for a record that begins by then.
const AT_ONCE: Duration = Duration::from_micros(250);

/// Blocks that are being logged: homes with the sectors that count, and their content in the same
/// order.
#[derive(Clone)]
pub struct Piece {
    pub blocks: Vec<(u64, u8)>,
    pub content: Rc<Buffer>,
    /// Among those that are pending; 0: under a claim of its own.
    pub ticket: u64,
}

/// A record that has its place, and must be written.
pub struct Begun {
    header: Header,
    place: u64,
    /// Its place in its log, and the blocks left out before it.
    spaced: Spaced,
    pieces: Vec<Piece>,
    durability: Durability,
    how: Durability,
    _appending: ReadGuard,
}

impl State {
    /// Returns the near-head log for a record of `blocks` blocks, its header included.
    pub fn near_head(&self, blocks: u32) -> Option<u32> {
        let inner = self.inner.borrow();
        let is_open = |log: u32| {
            [&inner.regions, &inner.opening].iter().any(|of| of.contains(&(log / REGION_LOGS)))
        };
        let most = self.settings.scan_regions.clamp(1, REGIONS_MAX);
        let full = inner.regions.len() + inner.opening.len() >= most;
        near_head_log(&self.layout, &inner.logs, inner.head, blocks, |log| !full || is_open(log))
    }

    /// Begins a record; the log must have space for header and pieces, and may be opened.
    pub fn begin_record(
        &self,
        appending: ReadGuard,
        log: u32,
        pieces: Vec<Piece>,
        drops: &[Dropped],
        durability: Durability,
    ) -> Begun {
        let tag = self.world.random() | 1;
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        inner.assigned += 1;
        let now = self.world.now();
        let just_ended = inner.ended.is_some_and(|(of, at)| of == log && now.since(at) <= AT_ONCE);
        let of = &mut inner.logs[log as usize];
        let length = 1 + pieces.iter().map(|piece| piece.blocks.len() as u32).sum::<u32>();
        let at_once = just_ended || inner.in_flight.is_in(log);
        let gap = if at_once { inner.gap.blocks() } else { 0 };
        let fits = of.fill > 0 && of.free_blocks(self.layout.log_blocks()) >= length + gap;
        let gap = if fits { gap } else { 0 };
        let gap_begin = of.fill;
        of.fill += gap;
        let header = Header {
            log,
            epoch: of.epoch,
            position: of.fill,
            sequence: inner.assigned,
            tag,
            previous: of.tag,
            entries: entries(&pieces, drops, inner.assigned, self.layout.sums()),
        };
        let blocks = 1 + header.data_blocks() as u32;
        let free_blocks = of.free_blocks(self.layout.log_blocks());
        assert!(
            blocks <= free_blocks,
            "a record of {blocks} blocks for log {log} with space for {free_blocks}"
        );
        inner.in_use += usize::from(of.fill == 0);
        of.fill += blocks;
        let spaced = Spaced {
            log,
            gap_begin,
            begin: header.position,
            end: of.fill,
            at_once: at_once && fits,
        };
        of.tag = tag;
        of.used = now.0;
        let region = log / REGION_LOGS;
        if !inner.regions.contains(&region) {
            inner.opening.insert(region);
        }
        if let Some((since, _)) = &mut inner.since {
            since.insert(region);
        }
        let is_chained = inner.unflushed.contains_key(&log) || inner.in_flight.chains(log);
        let how = if is_chained { Durability::Cached } else { durability };
        inner.in_flight.begin(log, header.position, how == Durability::Cached);
        let place = self.layout.log_begin(log) + u64::from(header.position);
        Begun { header, place, spaced, pieces, durability, how, _appending: appending }
    }

    pub async fn write_record(&self, begun: Begun) -> Result<(), DeviceError> {
        let Begun { header, place, spaced, pieces, durability, how, _appending } = begun;
        let result = self.write_begun(&header, place, &pieces, how).await;
        self.learn_gap(spaced);
        // Behind a record that is lost no other is found.
        let (log, position) = (header.log, header.position);
        let is_first = || self.inner.borrow().in_flight.is_first(log, position).then_some(());
        self.advanced.until(is_first).await;
        let result = result.and_then(|()| self.check_failed());
        if result.is_ok() && how == Durability::Cached {
            self.inner.borrow_mut().completed_unflushed(log);
        }
        let result = match result {
            // Later ones may go on: they only need this one to be complete.
            Ok(()) if how != durability => {
                self.end_record(log, position);
                self.flush_records().await
            }
            result => {
                self.end_record(log, position);
                result
            }
        };
        if result.is_ok() {
            let gap = header.position - spaced.gap_begin;
            self.install(&header, place, gap, &pieces);
        }
        result
    }
    fn learn_gap(&self, spaced: Spaced) {
        let mut inner = self.inner.borrow_mut();
        let is_late = inner.gap.completed(spaced, self.world.now());
        inner.statistics.late_records += u64::from(is_late);
    }
    fn end_record(&self, log: u32, position: u32) {
        let mut inner = self.inner.borrow_mut();
        inner.in_flight.end(log, position);
        inner.ended = Some((log, self.world.now()));
        drop(inner);
        self.advanced.notify();
    }

    async fn write_begun(
        &self,
        header: &Header,
        place: u64,
        pieces: &[Piece],
        how: Durability,
    ) -> Result<(), DeviceError> {
        self.check_failed()?;
        self.open_region(header.log / REGION_LOGS).await?;
        let parts =
            std::iter::once(Rc::new(Buffer::copy_of(&header.serialize(self.layout.nonce()))));
        let parts = parts.chain(pieces.iter().map(|piece| piece.content.clone())).collect();
        self.fail(self.main.write(place * BLOCK as u64, parts, how).await)
    }

    /// Makes all complete records durable, and everything else that the disk has completed.
    pub async fn flush_records(&self) -> Result<(), DeviceError> {
        let until = self.inner.borrow().completions;
        self.flush_main().await?;
        self.inner.borrow_mut().unflushed.retain(|_, completion| *completion > until);
        Ok(())
    }

    /// Lists the region durably; with it all that wait for the same.
    async fn open_region(&self, region: u32) -> Result<(), DeviceError> {
        if self.inner.borrow().regions.contains(&region) {
            return Ok(());
        }
        let _one = self.listing.write().await;
        let list = {
            let mut inner = self.inner.borrow_mut();
            if inner.regions.contains(&region) {
                return Ok(());
            }
            inner.statistics.openings += 1;
            inner.list_counter += 1;
            let regions = inner.regions.union(&inner.opening).copied().collect();
            OpenList { snapshot: inner.snapshot, counter: inner.list_counter, regions }
        };
        let place = self.layout.list_place(list.counter);
        self.write_meta(place, &list.serialize(self.layout.nonce()), Durability::Durable).await?;
        let mut inner = self.inner.borrow_mut();
        inner.opening.retain(|region| !list.regions.contains(region));
        inner.regions = list.regions;
        Ok(())
    }

    fn install(&self, header: &Header, place: u64, gap: u32, pieces: &[Piece]) {
        let mut inner = self.inner.borrow_mut();
        // A restart reads gaps, too.
        let bytes = (u64::from(gap) + 1 + header.data_blocks() as u64) * BLOCK as u64;
        inner.installed = inner.installed.max(header.sequence);
        inner.unknown_bytes += bytes;
        if let Some((_, since)) = &mut inner.since {
            *since += bytes;
        }
        let mut at = place;
        for piece in pieces {
            for (number, (home, mask)) in piece.blocks.iter().enumerate() {
                at += 1;
                if piece.ticket != 0 && !inner.pending.installs(*home, piece.ticket) {
                    continue;
                }
                inner.map(&self.layout, *home, Mapped { place: at, mask: *mask, clean: false });
                if *mask != WHOLE {
                    let content = &piece.content[number * BLOCK..(number + 1) * BLOCK];
                    inner.keep_partial(at, Rc::new(Buffer::copy_of(content)));
                }
            }
        }
    }
}

fn entries(pieces: &[Piece], drops: &[Dropped], sequence: u64, sums: DataSums) -> Vec<RecordEntry> {
    let dropped = drops.iter().map(|dropped| RecordEntry::Drop {
        home: dropped.homes.start,
        length: (dropped.homes.end - dropped.homes.start) as u32,
        age: u32::try_from(sequence.saturating_sub(dropped.as_of)).unwrap_or(u32::MAX),
    });
    let data = pieces.iter().flat_map(|piece| {
        let blocks = piece.content.chunks_exact(BLOCK);
        piece.blocks.iter().zip(blocks).map(|((home, mask), block)| RecordEntry::Data {
            home: *home,
            mask: *mask,
            checksum: sums.of(block),
        })
    });
    dropped.chain(data).collect()
}
