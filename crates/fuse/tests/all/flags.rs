//! Permission to change flags and projects: requests as the kernel makes them, and as a caller can,
//! over a volume in virtual time.

use crate::common::{front_end_over_a_volume, request};
use fuse::ioctl::Fsxattr;
use fuse_session::abi::{InHeader, IoctlIn, opcode};
use fuse_session::{FileSystem, Request};
use units::InodeNumber;
use zerocopy::IntoBytes;

const SETFLAGS: u32 = 0x4008_6602;
const FSSETXATTR: u32 = 0x401c_5820;
const EXTENTS: u32 = 0x8_0000;
const NO_DUMP: u32 = 0x40;
const OWNER: u32 = 1000;
const STRANGER: u32 = 1001;
/// A caller in another user namespace, or in a process namespace that the daemon does not see.
const UNSEEN: u32 = 0;

fn ioctl(node: InodeNumber, user: u32, pid: u32, cmd: u32, arg: u64, input: &[u8]) -> Request {
    let arguments = IoctlIn { cmd, arg, in_size: input.len() as u32, ..Default::default() };
    let header = InHeader {
        opcode: opcode::IOCTL,
        nodeid: node.get().into(),
        uid: user,
        pid,
        ..Default::default()
    };
    request(header, &[arguments.as_bytes(), input].concat())
}

fn project(projid: u32) -> Vec<u8> {
    Fsxattr { projid, ..Default::default() }.as_bytes().to_vec()
}

#[test]
fn flags_and_projects_change_only_after_a_permission_check() {
    // A caller passes as many bytes as the number of the call says; the kernel passes its 32 bits.
    let (long, word) =
        (u64::from(EXTENTS | NO_DUMP).to_le_bytes(), (EXTENTS | NO_DUMP).to_le_bytes());
    let own = std::process::id();
    for kernel_checks in [true, false] {
        front_end_over_a_volume(kernel_checks, move |front_end, volume, file| async move {
            let ask = async |user: u32, pid: u32, (cmd, arg): (u32, u64), input: &[u8]| {
                front_end.clone().serve(ioctl(file, user, pid, cmd, arg, input)).await.errno()
            };
            let (seven, eight, none) = (project(7), project(8), project(u32::MAX));
            let before = volume.flags(&volume.inode(file).await.unwrap());
            for arg in [0, 0x7000_0000] {
                assert_eq!(
                    ask(STRANGER, UNSEEN, (SETFLAGS, arg), &long).await,
                    libc::EPERM,
                    "{arg}"
                );
            }
            for (arg, checked) in [(0, kernel_checks), (0x7000_0000, false)] {
                let expected = |refusal| if checked { 0 } else { refusal };
                let asked = ask(STRANGER, UNSEEN, (FSSETXATTR, arg), &seven).await;
                assert_eq!(asked, expected(libc::EPERM), "{arg}");
                // An owner to whom the machine's accounting does not apply.
                let asked = ask(OWNER, UNSEEN, (FSSETXATTR, arg), &eight).await;
                assert_eq!(asked, expected(libc::EINVAL), "{arg}");
                assert_eq!(ask(OWNER, own, (FSSETXATTR, arg), &seven).await, 0, "{arg}");
                assert_eq!(
                    ask(OWNER, UNSEEN, (FSSETXATTR, arg), &seven).await,
                    0,
                    "nothing changes"
                );
                assert_eq!(ask(OWNER, own, (FSSETXATTR, arg), &none).await, libc::EINVAL, "{arg}");
                assert_eq!(ask(OWNER, own, (FSSETXATTR, arg), &project(0)).await, 0, "{arg}");
            }
            assert_eq!(volume.flags(&volume.inode(file).await.unwrap()), before);
            let asked = ask(STRANGER, UNSEEN, (SETFLAGS, 0), &word).await;
            assert_eq!(asked, if kernel_checks { 0 } else { libc::EPERM });
        });
    }
}
