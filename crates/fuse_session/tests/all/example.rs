//! The example file system, mounted and read through the kernel.

#[expect(dead_code, reason = "the test mounts and serves itself, without the example's main")]
#[path = "../../examples/hello.rs"]
mod hello;

use crate::common::{private_mounts, unmount};
use fuse_session::Transport;
use std::fs;

#[test]
fn the_example_mounts_and_is_read() {
    private_mounts();
    let directory = tempfile::tempdir().unwrap();
    let connection = hello::mount_hello(directory.path()).unwrap();
    let daemon = std::thread::spawn(move || {
        hello::serve(connection, Transport::Auto).map_err(|error| error.to_string())
    });
    let file = directory.path().join("hello");
    assert_eq!(fs::read(&file).unwrap(), hello::TEXT);
    assert_eq!(fs::metadata(&file).unwrap().len(), hello::TEXT.len() as u64);
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["hello"]);
    let missing = fs::read(directory.path().join("other")).unwrap_err();
    assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
    let refused = fs::write(&file, "changed").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    unmount(directory.path()).unwrap();
    assert_eq!(daemon.join().unwrap(), Ok(()));
}
