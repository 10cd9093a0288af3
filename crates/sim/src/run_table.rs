//! The table of runs (`mtl=`): the memory that it lies on, and its damage after a cut. Whatever the
//! damage, the logs hold all that it would have recorded.

use crate::case::Case;
use crate::setup::Disks;
use disks::Image;
use format::run_table::{TABLE_BYTES, TABLE_PAGE};
use runtime::SplitMix;

/// Returns the disks of a case, with empty memory where it has some and there is none yet.
pub fn with_memory(case: &Case, disks: &Disks) -> Disks {
    let table = case
        .has_run_table()
        .then(|| disks.table.clone().unwrap_or_else(|| Image::new(TABLE_BYTES)));
    Disks { table, ..disks.clone() }
}

/// Pages that scripts write to: the first ones, and the last, where numbers wrap.
const PAGES: u64 = 4;
const SECTOR: u64 = 512;

/// Damages the table: mostly it stays as the cut has left it; or it is empty, that of the mount
/// before, or without a sector.
pub fn spoiled(left: String, disks: Disks, older: Option<&Image>, number: u64) -> (String, Disks) {
    let Some(table) = &disks.table else { return (left, disks) };
    let (name, table) = match number % 8 {
        1 => ("its table is lost", Some(Image::new(TABLE_BYTES))),
        3 => ("its table is that of the mount before", older.cloned()),
        5 => ("a sector of its table is lost", Some(without_sector(table, number))),
        // As if the next mount did not name it.
        7 => ("its table is not named", None),
        _ => return (left, disks),
    };
    (format!("{left}; {name}"), Disks { table, ..disks })
}

fn without_sector(table: &Image, seed: u64) -> Image {
    let (rng, mut table) = (SplitMix::new(seed), table.clone());
    let last = TABLE_BYTES / TABLE_PAGE as u64 - 1;
    let page = match rng.below(PAGES + 1) {
        PAGES => last,
        page => page,
    };
    let sector = rng.below(TABLE_PAGE as u64 / SECTOR);
    let garbage = vec![if rng.below(2) == 0 { 0 } else { 0xa5 }; SECTOR as usize];
    table.write(page * TABLE_PAGE as u64 + sector * SECTOR, &garbage);
    table
}
