//! The table of runs (`mtl=PATH`): the address of each run of the scattered logs, on memory that
//! survives a power cut.
//!
//! Pages of 4096 bytes. The first identifies the table. The next two hold the header of the latest
//! run of even transactions and of odd ones. Slots follow. The slot of a transaction holds a copy
//! of the header of its run.
//!
//! A header is valid by its checksum alone, which begins with the journal's UUID, the nonce of the
//! log's life, and the *mark*, which each mount sets in the journal superblock. So headers of
//! another volume or of an earlier mount are invalid.

use crate::scattered::RunHeader;
use crate::seed::Seed;
use std::ops::Range;
use units::TransactionId;

pub const TABLE_MAGIC: [u8; 8] = *b"OKEANMTL";
const VERSION: u32 = 1;
pub const TABLE_PAGE: usize = 4096;
const SLOT: usize = 32;
/// Slots of one page.
const PAGE_SLOTS: u32 = (TABLE_PAGE / SLOT) as u32;
/// Slots of the table. A power of two: transaction numbers wrap.
const SLOTS: u32 = 1 << 18;
/// The first page with slots.
const SLOT_PAGES: u64 = 3;
pub const TABLE_BYTES: u64 = (SLOT_PAGES + (SLOTS / PAGE_SLOTS) as u64) * TABLE_PAGE as u64;

/// Seed of a table's checksums. `scattered`: [`crate::jbd2::JournalSuperblock::scattered_seed`].
pub fn table_seed(scattered: Seed, mark: u32) -> Seed {
    if units::fault!("run-table-any-mark") {
        return scattered;
    }
    scattered.with(&mark.to_be_bytes())
}

/// The pages that hold the header of the latest run.
pub const LATEST_PAGES: Range<u64> = 1..SLOT_PAGES;

pub fn latest_page(transaction: TransactionId) -> u64 {
    LATEST_PAGES.start + u64::from(transaction.0 % 2)
}
pub fn slot_page(transaction: TransactionId) -> u64 {
    SLOT_PAGES + u64::from(transaction.0 % SLOTS / PAGE_SLOTS)
}
/// Number of transactions with slots of their own.
pub fn slots() -> u32 {
    SLOTS
}
/// The transactions whose slots share a page with that of `transaction`.
pub fn slot_neighbours(transaction: TransactionId) -> impl Iterator<Item = TransactionId> {
    let first = transaction.0 - transaction.0 % PAGE_SLOTS;
    (0..PAGE_SLOTS).map(move |index| TransactionId(first + index))
}

/// The content of the first page.
pub fn head() -> Vec<u8> {
    let mut page = vec![0; TABLE_PAGE];
    page[..8].copy_from_slice(&TABLE_MAGIC);
    page[8..12].copy_from_slice(&VERSION.to_be_bytes());
    page
}
/// Whether a file that begins with `page` is a table, or was never written to: foreign content is
/// not overwritten.
pub fn may_be_table(page: &[u8]) -> bool {
    let head = head();
    page.get(..12).is_some_and(|start| *start == head[..12]) || page.iter().all(|byte| *byte == 0)
}

pub fn put_latest(header: &RunHeader, seed: Seed, page: &mut [u8]) {
    header.serialize(seed, page);
}
pub fn latest(page: &[u8], seed: Seed) -> Option<RunHeader> {
    RunHeader::parse_copy(page, seed)
}
pub fn put_slot(header: &RunHeader, seed: Seed, page: &mut [u8]) {
    header.serialize(seed, &mut page[slot_at(header.transaction)..][..SLOT]);
}
/// The header of a transaction in the page that has its slot.
pub fn slot(page: &[u8], transaction: TransactionId, seed: Seed) -> Option<RunHeader> {
    let header = RunHeader::parse_copy(page.get(slot_at(transaction)..)?, seed)?;
    (header.transaction == transaction).then_some(header)
}
fn slot_at(transaction: TransactionId) -> usize {
    (transaction.0 % PAGE_SLOTS) as usize * SLOT
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::LogBlock;

    const SEED: Seed = Seed(0x1234_5678);

    fn header(number: u32) -> RunHeader {
        let transaction = TransactionId(number);
        RunHeader { at: LogBlock(70), transaction, blocks: 9, durable: transaction.previous() }
    }

    #[test]
    fn a_slot_is_read_back_only_of_its_transaction_and_under_its_mark() {
        let (mut page, number) = (vec![0; TABLE_PAGE], TransactionId(SLOTS + 130));
        let seed = table_seed(SEED, 7);
        put_slot(&header(number.0), seed, &mut page);
        assert_eq!(slot(&page, number, seed), Some(header(number.0)));
        assert_eq!(slot(&page, TransactionId(130), seed), None, "of an earlier round");
        assert_eq!(slot(&page, number.next(), seed), None);
        assert_eq!(slot(&page, number, table_seed(SEED, 8)), None, "of another mount");
        assert_eq!(slot(&page, number, table_seed(Seed(1), 7)), None, "of another volume");
    }

    #[test]
    fn slots_of_consecutive_transactions_do_not_overlap_across_the_wrap() {
        let numbers = [u32::MAX - 1, u32::MAX, 0, 1].map(TransactionId);
        let places = numbers.map(|number| (slot_page(number), slot_at(number)));
        let pages = TABLE_BYTES / TABLE_PAGE as u64;
        assert_eq!(places[1], (pages - 1, TABLE_PAGE - SLOT));
        assert_eq!(places[2], (SLOT_PAGES, 0));
        assert_ne!(latest_page(numbers[1]), latest_page(numbers[2]));
        assert!(
            slot_neighbours(numbers[0])
                .eq((0..PAGE_SLOTS).map(|at| TransactionId(u32::MAX - 127 + at)))
        );
    }

    #[test]
    fn a_file_of_somebody_else_is_no_table() {
        assert!(may_be_table(&head()) && may_be_table(&[0; TABLE_PAGE]));
        let mut other = head();
        other[11] = 2;
        assert!(!may_be_table(&other) && !may_be_table(b"root:x:0:0:"));
    }
}
