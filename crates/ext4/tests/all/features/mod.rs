//! Features that mke2fs does not switch on by itself: volumes with them are read, changed, and
//! judged by e2fsprogs and by the kernel's ext4.

mod ea_inode;
mod inline_data;
mod large_dir;
mod mmp;
mod project;
mod support;
