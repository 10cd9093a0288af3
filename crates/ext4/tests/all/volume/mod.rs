//! The volume itself: opening and closing, inodes, blocks, orphans; judged by e2fsprogs.

mod allocation;
mod damage;
mod disk_caches;
mod flush_zone;
mod geometry;
mod growth;
mod hostile;
mod image;
pub mod journal;
mod lifetime;
mod marks;
mod orphans;
mod periodic;
mod remount;
mod tree_check;
mod trim;
mod unreadable;
