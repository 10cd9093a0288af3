//! System calls that scripts are made of. Each script begins in a directory with a file `a` of 5000
//! bytes and an empty directory `d`, and without descriptors.

use super::player::{Actor, Slot::X, Slot::Y, Value};
use libc::{O_APPEND, O_CREAT, O_DIRECT, O_EXCL, O_RDONLY, O_RDWR, O_SYNC, O_TRUNC, O_WRONLY};

/// One call: the text that reports print, what it does to hidden state, and how it is made.
pub struct Call {
    pub text: &'static str,
    pub kind: Kind,
    pub make: fn(&mut Actor) -> Value,
}

/// Effect of a successful call on state that no other call shows, such as dirty pages. States
/// that differ in it are not taken for the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Leaves something to be written back.
    Dirties,
    /// Writes it back.
    Syncs,
    /// Neither.
    Looks,
}
use Kind::{Dirties, Looks, Syncs};

const fn call(text: &'static str, kind: Kind, make: fn(&mut Actor) -> Value) -> Call {
    Call { text, kind, make }
}

const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
const COLLAPSE: i32 = libc::FALLOC_FL_COLLAPSE_RANGE;

/// Calls of names, attributes, and of single files.
pub const CALLS: &[Call] = &[
    call("x = open a, read only", Looks, |it| it.open(X, "a", O_RDONLY)),
    call("x = open a", Looks, |it| it.open(X, "a", O_RDWR)),
    call("x = open a, append only", Looks, |it| it.open(X, "a", O_WRONLY | O_APPEND)),
    call("x = open a, truncate", Dirties, |it| it.open(X, "a", O_RDWR | O_TRUNC)),
    call("x = open a, O_SYNC", Looks, |it| it.open(X, "a", O_RDWR | O_SYNC)),
    call("x = open a, O_DIRECT", Looks, |it| it.open(X, "a", O_RDWR | O_DIRECT)),
    call("x = open b, create", Dirties, |it| it.open(X, "b", O_RDWR | O_CREAT)),
    call("x = open b, create exclusively", Dirties, |it| {
        it.open(X, "b", O_RDWR | O_CREAT | O_EXCL)
    }),
    call("x = open d, without a name", Dirties, |it| it.open(X, "d", O_RDWR | libc::O_TMPFILE)),
    call("x = open d", Looks, |it| it.open(X, "d", O_RDONLY)),
    call("y = open a", Looks, |it| it.open(Y, "a", O_RDWR)),
    call("y = open b, create", Dirties, |it| it.open(Y, "b", O_RDWR | O_CREAT)),
    call("close x", Looks, |it| it.close(X)),
    call("write x, 100 bytes", Dirties, |it| it.write(X, b'w', 100)),
    call("write x, 0 bytes", Dirties, |it| it.write(X, b'w', 0)),
    call("write y, 300 bytes", Dirties, |it| it.write(Y, b'y', 300)),
    call("pwrite x, 37 bytes at 100", Dirties, |it| it.write_at(X, b's', 100, 37)),
    call("pwrite x, 4096 bytes at 4096", Dirties, |it| it.write_at(X, b'p', 4096, 4096)),
    call("pwrite x, 100 bytes at 13000", Dirties, |it| it.write_at(X, b'h', 13_000, 100)),
    call("pwrite y, 6000 bytes at 2000", Dirties, |it| it.write_at(Y, b'l', 2000, 6000)),
    call("pread x, 512 bytes at 4096", Looks, |it| it.read_at(X, 4096, 512)),
    call("pread x, 100 bytes at 4950", Looks, |it| it.read_at(X, 4950, 100)),
    call("lseek x, end", Looks, |it| it.seek_end(X)),
    call("lseek x, data from 0", Looks, |it| it.seek(X, 0, libc::SEEK_DATA)),
    call("lseek x, hole from 0", Looks, |it| it.seek(X, 0, libc::SEEK_HOLE)),
    call("lseek x, data from 8192", Looks, |it| it.seek(X, 8192, libc::SEEK_DATA)),
    call("copy x to y, 3000 bytes at 1000", Dirties, |it| it.copy(X, Y, 1000, 3000)),
    call("truncate a to 50", Dirties, |it| it.truncate("a", 50)),
    call("truncate a to 9000", Dirties, |it| it.truncate("a", 9000)),
    call("ftruncate x to 0", Dirties, |it| it.set_length(X, 0)),
    call("ftruncate x to 6000", Dirties, |it| it.set_length(X, 6000)),
    call("fallocate x, 8192 bytes at 4096", Dirties, |it| it.allocate(X, 0, 4096, 8192)),
    call("fallocate x, keeping the size", Dirties, |it| it.allocate(X, KEEP, 4096, 8192)),
    call("punch x, 3600 bytes at 1000", Dirties, |it| it.allocate(X, PUNCH, 1000, 3600)),
    call("zero x, 9000 bytes at 100", Dirties, |it| it.allocate(X, ZERO, 100, 9000)),
    call("collapse x, 4096 bytes at 0", Dirties, |it| it.allocate(X, COLLAPSE, 0, 4096)),
    call("rename a b", Dirties, |it| it.rename("a", "b", 0)),
    call("rename b a", Dirties, |it| it.rename("b", "a", 0)),
    call("rename a d/c", Dirties, |it| it.rename("a", "d/c", 0)),
    call("rename d/c a", Dirties, |it| it.rename("d/c", "a", 0)),
    call("rename d e", Dirties, |it| it.rename("d", "e", 0)),
    call("rename d a", Dirties, |it| it.rename("d", "a", 0)),
    call("rename d d/e", Dirties, |it| it.rename("d", "d/e", 0)),
    call("rename a b, without replacing", Dirties, |it| {
        it.rename("a", "b", libc::RENAME_NOREPLACE)
    }),
    call("exchange a d", Dirties, |it| it.rename("a", "d", libc::RENAME_EXCHANGE)),
    call("exchange a b", Dirties, |it| it.rename("a", "b", libc::RENAME_EXCHANGE)),
    call("link a b", Dirties, |it| it.link("a", "b")),
    call("link a d/c", Dirties, |it| it.link("a", "d/c")),
    call("link d b", Dirties, |it| it.link("d", "b")),
    call("link x t", Dirties, |it| it.link_open(X, "t")),
    call("unlink a", Dirties, |it| it.unlink("a")),
    call("unlink b", Dirties, |it| it.unlink("b")),
    call("unlink d", Dirties, |it| it.unlink("d")),
    call("mkdir d/e", Dirties, |it| it.make_directory("d/e")),
    call("mkdir a", Dirties, |it| it.make_directory("a")),
    call("rmdir d", Dirties, |it| it.remove_directory("d")),
    call("symlink a b", Dirties, |it| it.symlink("a", "b")),
    call("mkfifo b", Dirties, |it| it.make_fifo("b")),
    call("chmod a 400", Dirties, |it| it.change_mode("a", 0o400)),
    call("chmod a 6755", Dirties, |it| it.change_mode("a", 0o6755)),
    call("chmod d 3777", Dirties, |it| it.change_mode("d", 0o3777)),
    call("fchmod x 604", Dirties, |it| it.change_open_mode(X, 0o604)),
    call("chown a 12 34", Dirties, |it| it.change_owner("a", Some(12), Some(34))),
    call("chown a -1 -1", Dirties, |it| it.change_owner("a", None, None)),
    call("chown d -1 34", Dirties, |it| it.change_owner("d", None, Some(34))),
    call("fchown x 56 78", Dirties, |it| it.change_open_owner(X, 56, 78)),
    call("setxattr a user.k, 5 bytes", Dirties, |it| it.set_attribute("a", "user.k", 5, 0)),
    call("setxattr a user.k, 3000 bytes", Dirties, |it| it.set_attribute("a", "user.k", 3000, 0)),
    call("setxattr a user.k, 70000 bytes", Looks, |it| it.set_attribute("a", "user.k", 70_000, 0)),
    call("setxattr a user.k, create", Dirties, |it| {
        it.set_attribute("a", "user.k", 7, libc::XATTR_CREATE)
    }),
    call("setxattr d trusted.k", Dirties, |it| it.set_attribute("d", "trusted.k", 9, 0)),
    call("setxattr a other.k", Looks, |it| it.set_attribute("a", "other.k", 5, 0)),
    call("removexattr a user.k", Dirties, |it| it.remove_attribute("a", "user.k")),
    call("store x, 100 bytes at 4090, mapped", Dirties, |it| it.store(X, b'm', 4050, 100, false)),
    call("store x, 10 bytes at 0, msync", Dirties, |it| it.store(X, b'n', 0, 10, true)),
    call("lock x, exclusive", Looks, |it| it.lock(X, "exclusive")),
    call("lock y, shared", Looks, |it| it.lock(Y, "shared")),
    call("lock x, write range", Looks, |it| it.lock(X, "write range")),
    call("lock y, read range", Looks, |it| it.lock(Y, "read range")),
    call("lock x, no range", Looks, |it| it.lock(X, "no range")),
    call("fsync x", Syncs, |it| it.sync(X)),
    call("fdatasync x", Syncs, |it| it.sync_data(X)),
    call("fsync directory", Syncs, Actor::sync_directory),
];

/// Calls that two processes make at the same few names. Mappings are missing: those of two hosts
/// are not coherent.
pub const SHARED_CALLS: &[&str] = &[
    "x = open a, read only",
    "x = open a",
    "x = open a, append only",
    "x = open a, truncate",
    "x = open b, create exclusively",
    "close x",
    "write x, 100 bytes",
    "pwrite x, 37 bytes at 100",
    "pwrite x, 4096 bytes at 4096",
    "pread x, 512 bytes at 4096",
    "lseek x, end",
    "truncate a to 50",
    "ftruncate x to 6000",
    "punch x, 3600 bytes at 1000",
    "rename a b",
    "rename b a",
    "link a b",
    "unlink a",
    "unlink b",
    "rmdir d",
    "chmod a 400",
    "chown a 12 34",
    "setxattr a user.k, 5 bytes",
    "removexattr a user.k",
    "lock x, exclusive",
    "lock x, write range",
    "fsync x",
];
