//! Tests of set-id bits, capabilities and attributes beside the kernel's ext4: which call removes
//! which.

use crate::rig::Rig;

/// Functions for the scripts: `stranger`, `member` (of group 7000), `other` (owner of nothing) run
/// a command without capabilities; `fresh MODE` makes a program `file` of root's in group 7000;
/// `touched COMMAND...` runs it and prints its exit code, and whether the file's change time moved.
const WORDS: &str = r#"
stranger() { setpriv --reuid 1000 --regid 1000 --clear-groups -- "$@"; }
member() { setpriv --reuid 1000 --regid 1000 --groups 5,7000 -- "$@"; }
fresh() { rm -f file; cp /bin/true file; chown ${2-0}:7000 file; chmod $1 file; }
touched() {
    local code=0 before=$(stat -c %z file); sleep 0.01; "$@" 2>/dev/null || code=$?
    [ "$before" = "$(stat -c %z file)" ] && before= || before=touched
    echo "$code $(stat -c %a file) $(getcap file | cut -d' ' -f2-) $before"
}
"#;

/// Runs the script on a volume of Okeanos and on one of the kernel's, which must print the same.
fn same_as_kernel(make: &str, script: &str) -> String {
    let rig = Rig::new();
    rig.run(&format!("chmod 755 .; truncate -s 64M image; mke2fs -q -F {make} image >made 2>&1"));
    let run = |mount: &str, umount: &str| {
        rig.run(&format!(
            "{WORDS}{mount}; chmod 777 $M; cd $M\n{script}\ncd /; {umount} $M; settle $M/../image"
        ))
    };
    let ours = run("$O mount -o allow_other image $M", "$O umount");
    rig.run("settle image");
    let theirs = run("mount -t ext4 -o loop image $M", "umount");
    rig.run("settle image");
    assert_eq!(ours, theirs, "ours, and the kernel's ext4");
    rig.check("");
    ours
}

/// Runs the script on a host in front of a directory of the kernel's ext4, and on that file system
/// itself. They must print the same.
fn host_same_as_kernel(script: &str) -> String {
    let rig = Rig::new();
    rig.run("chmod 755 .; truncate -s 64M image; mke2fs -q -F -t ext4 image >made 2>&1");
    let run = |mount: &str, umount: &str| {
        rig.run(&format!(
            "{WORDS}mkdir -p store; mount -t ext4 -o loop image store; {mount}\n\
             {script}\ncd ..; {umount}; umount store; settle image"
        ))
    };
    let ours = run(
        "truncate -s 64M journal; D=$PWD
         $O host mount -o allow_other --store dir:$D/store --journal $D/journal $M
         chmod 777 $M; cd $M",
        "$O umount $M",
    );
    let theirs = run("chmod 777 store; cd store", "true");
    assert_eq!(ours, theirs, "a host, and the kernel's ext4");
    ours
}

#[test]
fn nobody_strips_set_id_bits_of_others_files() {
    let printed = same_as_kernel(
        "-t ext4",
        r#"for mode in 6755 4711 2755 2745 755; do for capabilities in no yes; do
               for who in stranger member env 'setpriv --bounding-set -fowner --'; do
                   fresh $mode; [ $capabilities = no ] || setcap cap_net_raw+ep file
                   echo "$mode $capabilities $who: $(touched $who chown : file)"
                   fresh $mode 1000; [ $capabilities = no ] || setcap cap_net_raw+ep file
                   echo "$mode $capabilities $who, owner 1000: $(touched $who chown : file)"
               done
           done; done; mkdir directory; chmod 6755 directory; stranger chown : directory
           stat -c %a directory; rm -r directory file"#,
    );
    assert!(printed.contains("4711 no stranger: 1 4711"), "{printed}");
}

#[test]
fn append_only_files_take_an_empty_chown() {
    same_as_kernel(
        "-t ext4",
        r#"for mode in 755 4755 2755 2745; do for who in stranger member env; do for flag in a i; do
               fresh $mode 1000; chattr +$flag file
               echo "$mode $who +$flag: $(touched $who chown : file)"; chattr -$flag file
           done; done; done
           rm file"#,
    );
}

const CHANGE: &str = r#"
cat >/tmp/change.$$ <<'END'
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
path, call, *numbers = sys.argv[1:]
numbers = [int(number, 0) for number in numbers]
file = os.open(path, os.O_RDWR)
try:
    if call == "write": os.pwrite(file, b"y", 0)
    elif call == "direct": os.pwrite(os.open(path, os.O_RDWR | os.O_SYNC), b"y", 0)
    elif call == "append": os.write(os.open(path, os.O_WRONLY | os.O_APPEND), b"y")
    elif call == "ftruncate": os.ftruncate(file, 1000)
    elif call == "truncate": os.truncate(path, 1000)
    elif call == "open": os.open(path, os.O_RDWR | os.O_TRUNC)
    elif call == "copy": os.copy_file_range(os.open("/bin/true", os.O_RDONLY), file, 100)
    elif call == "fallocate":
        mode, offset, length = numbers
        if libc.fallocate(file, mode, ctypes.c_long(offset), ctypes.c_long(length)):
            raise OSError(ctypes.get_errno(), "")
    print("done", end=" ")
except OSError as error:
    print(errno.errorcode[error.errno], end=" ")
END
change() { /usr/bin/python3 /tmp/change.$$ file "$@"; stat -c %a file; }
"#;

/// Prints what each call of each caller leaves of each mode.
fn modes_left_by(more_calls: &str) -> String {
    format!(
        r#"{CHANGE}
           for call in write direct append ftruncate truncate open 'fallocate 0 65536 65536' \
                       'fallocate 3 0 4096' {more_calls}; do
               for mode in 2666 6666 2766 2777 4777 2676; do for who in stranger member env; do
                   fresh $mode
                   echo "$call $mode $who: $($who /usr/bin/python3 /tmp/change.$$ file $call) $(stat -c %a file)"
               done; done
           done; rm file /tmp/change.$$"#
    )
}
fn assert_strangers_lose_it(printed: &str) {
    assert!(printed.contains("write 2666 stranger: done  666"), "{printed}");
    assert!(printed.contains("write 2666 member: done  2666"), "{printed}");
}

#[test]
fn set_group_id_goes_for_those_outside_the_group() {
    let printed = same_as_kernel("-t ext4", &modes_left_by("'fallocate 16 0 4096'"));
    assert_strangers_lose_it(&printed);
}

#[test]
fn set_id_bits_go_on_a_host_as_on_ext4() {
    assert_strangers_lose_it(&host_same_as_kernel(&modes_left_by("")));
    let owners = r#"for mode in 2666 6666 2777 2745; do
        for who in 'setpriv --reuid 1000 --regid 1000 --clear-groups --inh-caps +chown,+fowner --ambient-caps +chown,+fowner --' \
                   'setpriv --reuid 1000 --regid 1000 --groups 7000 --inh-caps +chown,+fowner --ambient-caps +chown,+fowner --' env; do
            fresh $mode; echo "$mode $who: $(touched $who chown 1001 file)"
        done; done; rm file"#;
    host_same_as_kernel(owners);
}

/// Copies within one file system only; the kernel copies between two by reads and writes.
#[test]
fn a_copy_takes_the_bits_that_a_write_takes() {
    same_as_kernel(
        "-t ext4",
        &format!(
            r#"{CHANGE}
               sed -i 's,"/bin/true",path + "s",' /tmp/change.$$; cp /bin/true files
               chmod 644 files
               for mode in 2666 6777; do
                   for who in stranger member env 'setpriv --bounding-set -fsetid --'; do
                       fresh $mode
                       echo "$mode $who: $($who /usr/bin/python3 /tmp/change.$$ file copy) $(stat -c %a file)"
                   done
               done; rm file files /tmp/change.$$"#
        ),
    );
}

#[test]
fn fallocate_that_fails_keeps_what_ext4_keeps() {
    let ranges = |ranges: &str| {
        format!(
            r#"{CHANGE}
               for range in {ranges}; do
                   fresh 6777
                   echo "$range: $(stranger /usr/bin/python3 /tmp/change.$$ file fallocate $range) $(stat -c %a file)"
               done; rm file /tmp/change.$$"#
        )
    };
    let printed = same_as_kernel(
        "-t ext4",
        &ranges(
            "'0 0 -1' '0 -1 5' '0 0 0' '0 0 0x7fffffffffff' '0 0x7ffffffffff000 4096' \
             '0 0 0x40000000' '1 0 0x40000000' '3 0 4096' '2 0 4096' '3 0x7fffffffffff000 4096' \
             '16 0 0x40000000' '3 0 0x7fffffffffff000' '3 0x100000000 4096' '3 0 0x100000000'",
        ),
    );
    assert!(printed.contains("0 0 0x7fffffffffff: EFBIG  6777"), "{printed}");
    let printed = host_same_as_kernel(&ranges(
        "'0 0 -1' '0 -1 5' '0 0 0' '0 0 0x7fffffffffff' '0 0x7ffffffffff000 4096' '3 0 4096' \
         '0 0 0x40000000' '1 0 0x40000000'",
    ));
    assert!(printed.contains("0 0 0x7fffffffffff: EFBIG  6777"), "{printed}");
    // Without extents: only holes, and also beyond what indirect blocks can map.
    let printed = same_as_kernel(
        "-t ext4 -b 1024 -O ^extents,^64bit,huge_file",
        &ranges(
            "'0 0 4096' '1 0 4096' '3 0 4096' '3 0x500000000 4096' '3 0 0x500000000' \
             '3 0x2000000000 0x1000' '0 0x500000000 4096' '16 0 4096' '3 0x7fffffffffff000 4096'",
        ),
    );
    assert!(printed.contains("3 0x500000000 4096: done  777"), "{printed}");
}

#[test]
fn attributes_of_the_administrator_need_the_capability() {
    let script = r#"cat >/tmp/attributes.$$ <<'END'
import errno, os
def show(name, call):
    try: print(name, call(), end=" ")
    except OSError as error: print(name, errno.errorcode[error.errno], end=" ")
show("list", lambda: sorted(os.listxattr("file")))
show("get", lambda: os.getxattr("file", "trusted.a"))
show("set", lambda: os.setxattr("file", "trusted.b", b"1"))
show("remove", lambda: os.removexattr("file", "trusted.a"))
for name in "user.a", "user.none":
    for flags in 0, 1, 2, 3, 4:
        show(flags, lambda: os.setxattr("file", name, b"2", flags))
        if name == "user.none":
            try: os.removexattr("file", name)
            except OSError: pass
END
           for who in stranger env 'setpriv --bounding-set -sys_admin --' \
               'setpriv --reuid 1000 --regid 1000 --clear-groups --inh-caps +sys_admin --ambient-caps +sys_admin --' \
               'unshare --user --map-root-user'; do
               fresh 666; setfattr -n trusted.a -v 1 file; setfattr -n user.a -v 1 file
               echo "$who: $($who /usr/bin/python3 /tmp/attributes.$$)"
           done; rm file /tmp/attributes.$$"#;
    for printed in [same_as_kernel("-t ext4", script), host_same_as_kernel(script)] {
        assert!(
            printed.contains("--ambient-caps +sys_admin --: list ['trusted.a', 'user.a']"),
            "{printed}"
        );
        assert!(printed.contains("3 EEXIST") && printed.contains("3 ENODATA"), "{printed}");
    }
}

#[test]
fn default_access_lists_and_cuts_to_the_same_size_go_as_on_ext4() {
    let printed = host_same_as_kernel(
        r#"mkdir a; setfacl -m u:1000:rwx,d:u:1000:rwx,d:g::r-x,d:o::---,d:m::rwx a
           (umask 077; echo x >a/x; mkdir a/s); getfacl -cn a/x a/s; stat -c %a a/x a/s
           for by in 'truncate -s 7' \
               'python3 -c "import os; os.ftruncate(os.open(\"f\", os.O_WRONLY), 7)" #'; do
               echo abcdef >f; touch -d @1000 f; before=$(stat -c %Z f); sleep 1.1; eval "$by f"
               [ $(stat -c %Y f) = 1000 ] && echo kept || echo set
               [ $(stat -c %Z f) = $before ] && echo kept || echo set
               cat f
           done; rm -r a f"#,
    );
    assert!(printed.contains("default:user:1000:rwx") && printed.contains("mask::rw"), "{printed}");
}

/// Mail readers compare both times of a mailbox.
#[test]
fn the_first_read_after_a_change_sets_the_access_time_of_a_hosts_file() {
    let printed = host_same_as_kernel(
        r#"for change in 'echo more >>box' 'touch -m -d @2000 box'; do
               echo mail >box; touch -d @1000 box; eval "$change"; sleep 0.05; cat box >/dev/null
               [ $(stat -c %X box) -ge $(stat -c %Y box) ] && echo 'read since'
               first=$(stat -c %x box); cat box >/dev/null
               [ "$(stat -c %x box)" = "$first" ] && echo 'only the first'
           done; rm box"#,
    );
    assert_eq!(printed.matches("read since").count(), 2, "{printed}");
}

#[test]
fn a_hosts_open_file_without_a_name_keeps_its_attributes() {
    let printed = host_same_as_kernel(
        r#"python3 -c '
import os
file = os.open("file", os.O_RDWR | os.O_CREAT, 0o644)
os.setxattr(file, "user.b", b"1")
os.unlink("file")
os.write(file, b"x")
os.setxattr(file, "user.a", b"v")
print(os.getxattr(file, "user.b"), sorted(os.listxattr(file)))
os.removexattr(file, "user.b")
print(os.listxattr(file), os.fstat(file).st_nlink)
os.mkdir("directory")
directory = os.open("directory", os.O_RDONLY)
os.rmdir("directory")
os.setxattr(directory, "user.c", b"w")
print(os.getxattr(directory, "user.c"), os.listxattr(directory))'"#,
    );
    assert!(printed.contains("b'1' ['user.a', 'user.b']"), "{printed}");
}

#[test]
fn what_is_made_in_a_hosts_set_group_directory_is_the_groups() {
    let printed = host_same_as_kernel(
        r#"mkdir shared; chgrp 7000 shared; chmod 2777 shared
           for who in stranger member env; do
               $who sh -c 'cd shared; touch file; mkdir directory; mkfifo pipe; ln -s file link; \
                   chmod 2755 file'
               stat -c '%n %a %u %g' shared/*; rm -r shared/*
           done; rmdir shared"#,
    );
    assert!(printed.contains("shared/directory 2755 1000 7000"), "{printed}");
}
