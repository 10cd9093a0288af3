//! Mapping and content of files, on volumes that mke2fs made, checked by e2fsck and debugfs.

mod attributes;
mod clock;
mod crash;
mod damage;
mod full;
mod image;
mod in_place;
mod kernel_pages;
mod large;
mod large_writes;
mod locality;
pub mod model;
mod pointers;
mod random;
mod tearing;
