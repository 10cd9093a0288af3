//! Set-group-id of new files, where the kernel leaves it to the file system.

use crate::common::{front_end_over_a_disk, plain_options, request};
use ext4::Caller;
use fuse::FrontEndOptions;
use fuse_session::FileSystem;
use fuse_session::abi::{CreateIn, InHeader, opcode};
use units::InodeNumber;
use zerocopy::IntoBytes;

const GROUP: u32 = 7000;
const USER: u32 = 1000;
/// A process that does not exist has no capability and is in no group.
const NOBODY: u32 = i32::MAX as u32;

#[test]
fn a_new_file_is_no_executable_of_a_group_that_its_maker_is_not_in() {
    for (kernel_strips_set_group, gid, asked, made) in [
        (false, USER, 0o2775, 0o775),
        (false, USER, 0o2765, 0o2765),
        (false, GROUP, 0o2775, 0o2775),
        (true, USER, 0o2775, 0o2775),
    ] {
        let options = FrontEndOptions { kernel_strips_set_group, ..plain_options() };
        front_end_over_a_disk(options, move |opened| async move {
            let root = opened.volume.inode(InodeNumber(2)).await.unwrap();
            let owner = Caller { gid: GROUP, ..Caller::ROOT };
            let directory = opened.volume.mkdir(&root, b"shared", &owner, 0o2777).await.unwrap();
            let nodeid = directory.value.number.get().into();
            let (opcode, uid, pid) = (opcode::CREATE, USER, NOBODY);
            let header = InHeader { opcode, nodeid, uid, gid, pid, ..Default::default() };
            let arguments = CreateIn { mode: libc::S_IFREG | asked, ..Default::default() };
            let create = request(header, &[arguments.as_bytes(), b"new\0"].concat());
            assert_eq!(opened.front_end.clone().serve(create).await.errno(), 0);
            let found = opened.volume.lookup(&directory.value, b"new").await.unwrap();
            let attributes = opened.volume.getattr(&found);
            let expected = (made, GROUP);
            assert_eq!((u32::from(attributes.mode) & 0o7777, attributes.gid), expected);
        });
    }
}
