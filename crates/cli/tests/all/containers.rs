//! Tests of what containers and security modules ask for: mounts that map users and groups
//! (`idmap`, mount_setattr(2)), labels of new files. `make test-kernels` runs them on older
//! kernels, too, with SELinux.

use crate::rig::Rig;

/// `mapped FROM TO`: a copy of the mount, in which user and group 0 of the volume are 100000, and
/// so on. System calls by number: open_tree, mount_setattr, move_mount.
const MAPPED: &str = r#"
mapped() { /usr/bin/python3 - "$1" "$2" <<'END'
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    result = libc.syscall(*arguments)
    if result < 0: sys.exit(f"call {arguments[0]}: {os.strerror(ctypes.get_errno())}")
    return result
ready, go = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.close(go[1]); call(272, 0x10000000)
    os.write(ready[1], b"x"); os.read(go[0], 1); os._exit(0)
os.read(ready[0], 1)
for kind in "uid_map", "gid_map":
    open(f"/proc/{child}/{kind}", "w").write("0 100000 65536")
space = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
tree = call(428, -100, sys.argv[1].encode(), 1 | os.O_CLOEXEC)
attributes = struct.pack("QQQQ", 0x100000, 0, 0, space)
call(442, tree, b"", 0x1000, attributes, len(attributes))
call(429, tree, b"", -100, sys.argv[2].encode(), 4)
os.write(go[1], b"x"); os.waitpid(child, 0)
END
}
as_user() { setpriv --reuid $1 --regid $1 --clear-groups -- "${@:2}"; }
owner() { stat -c %u:%g "$1"; }
"#;

fn is_kernel_from(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

#[test]
fn a_mount_maps_users_and_groups_for_containers() {
    let rig = Rig::new();
    if !is_kernel_from(6, 12) {
        rig.run(
            r#"$O mkfs image 64M -- -q >made; refuses $O mount -o idmap image $M 2>printed
               grep -q 'Linux 6.12' printed; settle image; clean image"#,
        );
        return;
    }
    rig.run(&format!(
        r#"{MAPPED} chmod 755 .; $O mkfs image 64M -- -q >made
           $O mount -o idmap,allow_other image $M
           mkdir -p pod $M/home; pod=$PWD/pod; chown 1000:1000 $M/home; echo root >$M/of_root
           chmod 600 $M/of_root; mapped $M pod
           [ $(owner pod/home) = 101000:101000 ]; [ $(owner pod/of_root) = 100000:100000 ]
           # What is made there belongs to whom the mapping says, of every kind.
           as_user 101000 /bin/sh -c \
               "cd $pod/home; echo text >file; mkdir directory; ln -s file link; mkfifo fifo"
           for made in file directory link fifo; do [ $(owner $M/home/$made) = 1000:1000 ]; done
           [ $(owner pod/home/file) = 101000:101000 ]
           # Owners change their files, others do not; a number outside the map makes none.
           as_user 101000 chmod 640 pod/home/file; as_user 101000 chattr +A pod/home/file
           as_user 101000 setfacl -m u:101001:r pod/home/file
           as_user 101001 cat pod/home/file >printed
           getfacl -n $M/home/file 2>/dev/null | grep -q user:1001:r--
           for foreign in 1000 101002; do
               refuses as_user $foreign cat pod/home/file 2>>printed
               refuses as_user $foreign chmod 666 pod/home/file 2>>printed
               refuses as_user $foreign chattr +A pod/of_root 2>>printed
           done
           refuses as_user 5 touch pod/home/of_5 2>>printed
           refuses as_user 101000 cat pod/of_root 2>>printed
           as_user 100000 cat pod/of_root >printed
           chown 102000:102000 pod/of_root; [ $(owner $M/of_root) = 2000:2000 ]
           # Set-id bits go with a write by a caller who may not keep them, and not by a change that
           # nobody made.
           as_user 101000 cp /bin/true pod/home/tool; chmod 4777 pod/home/tool
           [ $(stat -c %a $M/home/tool) = 4777 ]
           refuses as_user 101000 chown : pod/home/tool 2>>printed
           [ $(stat -c %a $M/home/tool) = 4777 ]
           as_user 101000 /bin/sh -c "echo more >>$pod/home/tool"
           [ $(stat -c %a $M/home/tool) = 777 ]
           # The volume's own mount is as without a mapping.
           as_user 1000 /bin/sh -c "echo own >$M/home/own; chmod 600 $M/home/own"
           [ $(owner pod/home/own) = 101000:101000 ]
           refuses as_user 1001 cat $M/home/own 2>>printed
           umount pod; $O umount $M; settle image
           # Without the option the kernel refuses to map.
           $O mount -o allow_other image $M; [ $(owner $M/home/file) = 1000:1000 ]; mkdir -p pod
           refuses mapped $M pod 2>printed; grep -q 'call 442: Invalid argument' printed
           $O umount $M; settle image; clean image"#
    ));
}

/// Without a policy SELinux gives a new file the label of its directory, which has none: the word
/// for that. FUSE has it since Linux 6.3, and in stable releases of 6.1.
#[test]
fn a_new_file_has_its_label_after_a_crash() {
    let modules = std::fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    let labels = modules.split(',').any(|module| module == "selinux") && is_kernel_from(6, 1);
    let rig = Rig::new();
    rig.run(
        r#"$O mkfs image 64M -- -q >made; serve data=wasteless image; mkdir $M/directory
           ln -s far $M/link; mkfifo $M/fifo
           echo text | dd of=$M/file oflag=sync status=none; sync $M/directory; kill_daemon
           umount -l $M; settle image
           $O recover image >recovered
           for made in directory link fifo file; do
               debugfs -R "ea_list /$made" image 2>/dev/null
           done >labels
           clean image"#,
    );
    let found = std::fs::read_to_string(rig.path("labels")).unwrap();
    let expected = if labels { 4 } else { 0 };
    assert_eq!(found.matches("security.selinux").count(), expected, "{modules}: {found}");
    assert_eq!(found.matches("unlabeled").count(), expected, "{found}");
}
