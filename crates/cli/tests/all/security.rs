//! Tests of what others may not do: other users, the maker of the image, and earlier owners of the
//! blocks.

use crate::common::mapping::Map;
use crate::rig::Rig;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const NOBODY: u32 = 65534;

#[test]
fn a_mount_is_for_its_owner_and_allow_other_lets_everybody_in() {
    let rig = Rig::new();
    rig.run(
        r#"chmod 755 .; $O mkfs image 64M -- -q >made
           $O mount -o data=wasteless,allow_other image $M; cd $M
           nobody_fails() { refuses as_nobody "$@" 2>/dev/null; }
           echo public >public; echo private >private; chmod 600 private; mkdir open closed
           chmod 1777 open; chmod 700 closed
           [ "$(as_nobody cat public)" = public ]; as_nobody touch open/mine
           [ $(stat -c %u open/mine) = 65534 ]
           nobody_fails cat private; nobody_fails ls closed; nobody_fails sh -c 'echo >public'
           nobody_fails rm -f public
           nobody_fails chmod 777 private; nobody_fails chown 65534 private
           nobody_fails setfacl -m u:65534:rw private
           nobody_fails mknod open/device c 1 3
           touch open/of_root; nobody_fails rm -f open/of_root
           nobody_fails mv open/of_root open/moved
           setfacl -m u:65534:r private; [ "$(as_nobody cat private)" = private ]
           nobody_fails sh -c 'echo >>private'
           # Groups beyond the first count, too.
           chgrp 4242 private; setfacl -b private; chmod 640 private; nobody_fails cat private
           setpriv --reuid 65534 --regid 65534 --groups 4242 cat private >/dev/null
           setfacl -m g:777:r private
           setpriv --reuid 65534 --regid 65534 --groups 777 cat private >/dev/null
           setfattr -n trusted.a -v 1 open/mine; setfattr -n security.x -v 1 open/mine
           setfattr -n user.y -v 1 open/mine
           [ "$(as_nobody getfattr -d -m - open/mine | grep -v '^#' | cut -d= -f1 | sort | xargs)" \
               = 'security.x user.y' ]
           nobody_fails getfattr -n trusted.a open/mine
           nobody_fails setfattr -n trusted.b -v 1 open/mine
           nobody_fails setfattr -x trusted.a open/mine
           nobody_fails setfattr -n security.z -v 1 open/mine
           nobody_fails setfattr -n user.z -v 1 public
           cd - >/dev/null; $O umount $M; settle image; $O mount image $M; nobody_fails ls $M
           $O umount $M; settle image; $O mount -o allow_other image $M; as_nobody ls $M >printed
           $O umount $M"#,
    );
    rig.check("");
}

#[test]
fn only_the_user_who_mounted_reaches_the_daemon() {
    Rig::new().run(
        r#"chmod 755 .; cp $O okeanos; chmod 755 okeanos; $O mkfs image 64M -- -q >made
           $O mount image $M
           $O stats $M >printed; [ $(stat -c %a /run/okeanos) = 700 ]
           refuses as_nobody ./okeanos stats $M 2>printed
           refuses as_nobody ./okeanos umount $M 2>>printed
           mountpoint -q $M; $O umount $M; settle image
           # A user who may look into the volume may query, and cannot change anything.
           $O mount -o allow_other image $M; as_nobody ./okeanos stats $M >printed
           [ $(stat -c %a /run/okeanos-public) = 755 ]
           S=/run/okeanos-public/$(mountpoint -d $M | tr : -).sock
           for ask in '{"ask":"end"}' \
               '{"ask":"change","read_only":true,"atime":"never","stop_on_error":true,"commit":{"secs":1,"nanos":0},"barrier":true}'; do
               as_nobody /usr/bin/python3 -c \
                   'import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.send(sys.argv[2].encode() + b"\n"); print(s.recv(99))' \
                   $S "$ask" >printed
               grep -q "^b''$" printed
           done
           refuses as_nobody ./okeanos umount $M 2>>printed; touch $M/new; mountpoint -q $M
           $O umount $M"#,
    );
}

/// Ways to change a file; `{file}` is its path.
const CHANGES: [(&str, &str); 9] = [
    ("a write", "echo x 1<>{file}"),
    ("an append", "echo x >>{file}"),
    (
        "a synchronous write",
        "dd if=/dev/zero of={file} bs=10 count=1 conv=notrunc oflag=sync status=none",
    ),
    (
        "a direct write",
        "dd if=/dev/zero of={file} bs=4096 count=1 conv=notrunc oflag=direct status=none",
    ),
    ("a truncation", "truncate -s 5 {file}"),
    ("a truncation on opening", ": >{file}"),
    ("an allocation", "fallocate -l 100000 {file}"),
    ("a hole", "fallocate -p -o 0 -l 4096 {file}"),
    ("zeros", "fallocate -z -o 0 -l 4096 {file}"),
];

#[test]
fn a_changed_program_loses_its_privileges_for_good() {
    let rig = Rig::new();
    let mut script = String::from(
        "chmod 755 .; $O mkfs image 64M -- -q >made; $O mount -o data=wasteless,allow_other image $M
         chmod 777 $M
         program() {
             cp /bin/true $1; chown 65534:65534 $1; chmod 6755 $1; setcap cap_net_raw+ep $1
             [ $(stat -c %a $1) = 6755 ]
         }
         # stat asks for the mode alone, which the kernel would take from its memory.
         harmless() {
             [ \"$(stat -c %a $1) $(getcap $1)\" = '755 ' ] ||
                 { echo \"$2: $(stat -c %a $1) $(getcap $1)\" >&2; exit 1; }
         }\n",
    );
    for (number, (what, change)) in CHANGES.iter().enumerate() {
        let file = format!("$M/program{number}");
        let change = change.replace("{file}", &file);
        script +=
            &format!("program {file}; as_nobody sh -c \"{change}\"; harmless {file} '{what}'\n");
    }
    script += "program $M/given; chown 0:0 $M/given; harmless $M/given 'a new owner'
               $O umount $M; settle image; $O mount image $M; cd $M
               for f in program* given; do harmless $f remounted; done
               cd /; $O umount $M";
    rig.run(&script);
    rig.check("");
}

/// Root keeps set-id bits, since root may set them anyway; capabilities are removed for every
/// writer.
#[test]
fn what_root_changes_of_a_program_leaves_the_privileges_that_the_kernels_ext4_leaves() {
    let rig = Rig::new();
    rig.run("$O mkfs image 64M -- -q >made");
    let left_after = |mount: &str, umount: &str| -> String {
        let mut script = format!(
            "{mount}
             program() {{
                 cp /bin/true $1; chown 65534:65534 $1; chmod 6755 $1; setcap cap_net_raw+ep $1
             }}
             left() {{ echo \"$2: $(stat -c %a $1) $(getcap $1 | grep -o cap_.*)\"; rm $1; }}\n"
        );
        let synchronous =
            "dd if=/dev/zero of={file} bs=10 count=1 conv=notrunc oflag=dsync status=none";
        for (what, change) in CHANGES.into_iter().chain([("a write that is synced", synchronous)]) {
            let change = change.replace("{file}", "$M/program");
            script += &format!("program $M/program; {change}; left $M/program '{what}'\n");
        }
        rig.run(&format!("{script}\n{umount} $M; settle image"))
    };
    let ours = left_after("$O mount -o allow_other image $M", "$O umount");
    let theirs = left_after("mount -o loop image $M", "umount");
    assert!(!theirs.contains("cap_") && theirs.contains("6755"), "{theirs}");
    assert_eq!(ours, theirs);
    rig.check("");
}

/// Covers `chown(FILE, -1, -1)`, too, which requests nothing. The change time is updated.
#[test]
fn an_owner_that_stays_the_same_takes_the_privileges_that_the_kernels_ext4_takes() {
    let rig = Rig::new();
    rig.run("chmod 755 .; $O mkfs image 64M -- -q >made");
    let left_after = |mount: &str, umount: &str| -> String {
        rig.run(&format!(
            r#"{mount}; chmod 777 $M; cd $M
               as_owner() {{ as_nobody "$@"; }}; as_root() {{ "$@"; }}
               for who in as_owner as_root; do for mode in 6755 2745 1644; do
               for capabilities in no yes; do
                   cp /bin/true file; chown 65534:65534 file; chmod $mode file
                   [ $capabilities = no ] || setcap cap_net_raw+ep file
                   changed=$(stat -c %z file); sleep 0.05; $who chown : file
                   [ "$(stat -c %z file)" != "$changed" ]
                   echo $who $mode $(stat -c %a file) $(getcap file); rm file
               done; done; done
               mkdir directory; chmod 6755 directory; chown : directory; stat -c %a directory
               rmdir directory
               # By every call, and by the thread that has just taken capabilities away itself; then
               # by one that writes.
               for how in 'chown(f, -1, -1)' 'lchown(f, -1, -1)' 'chown(d, -1, -1)' \
                   'removexattr(f, c); os.chown(f, -1, -1)' \
                   'removexattr(f, c); os.write(d, b"x")' 'write(d, b"x")' 'truncate(f, 5)'; do
                   cp /bin/true file; chmod 6755 file; setcap cap_net_raw+ep file
                   python3 -c "import os; f = 'file'; c = 'security.capability'; d = os.open(f, os.O_RDWR); os.$how"
                   echo "$how" $(stat -c %a file) $(getcap file); rm file
               done
               cd /; {umount} $M; settle image"#
        ))
    };
    let ours = left_after("$O mount -o allow_other image $M", "$O umount");
    let theirs = left_after("mount -o loop image $M", "umount");
    assert!(theirs.contains("as_owner 6755 755"), "{theirs}");
    assert_eq!(ours, theirs);
}

/// An ordinary user maps the file and changes it. As in the kernel's ext4 the bits stay, since at
/// the time of the write-back the writer of a page is unknown.
#[test]
fn a_write_through_a_mapping_leaves_what_the_kernels_ext4_leaves() {
    let rig = Rig::new();
    let changer = rig.path("changer");
    rig.run("$O mkfs image 64M -- -q >made; chmod 755 .");
    let mode_after = |mount: &str| -> String {
        let script = format!(
            "{mount}; cp /bin/true $M/program; chown 65534:65534 $M/program; chmod 6755 $M/program
             {} a_helper_changes_a_mapped_file --exact --ignored >out 2>&1 || {{ cat out; exit 1; }}
             stat -c %a $M/program; rm $M/program; umount $M; settle image",
            changer.display()
        );
        rig.run(&format!("export MAPPED=$M/program\n{script}"))
    };
    std::fs::copy(std::env::current_exe().unwrap(), &changer).unwrap();
    assert_eq!(
        mode_after("$O mount -o allow_other image $M"),
        mode_after("mount -o loop image $M")
    );
}

/// Helper program of the test above; no test of its own.
#[test]
#[ignore = "run by a_write_through_a_mapping_leaves_what_the_kernels_ext4_leaves"]
fn a_helper_changes_a_mapped_file() {
    let path = std::env::var("MAPPED").expect("run by another test");
    let mut command = Command::new("/bin/true");
    command.uid(NOBODY).gid(NOBODY);
    // SAFETY: between fork and exec only system calls on memory of ours are made.
    unsafe { command.pre_exec(move || change_mapped(Path::new(&path))) };
    assert!(command.status().unwrap().success());
}

fn change_mapped(path: &Path) -> std::io::Result<()> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
    let mut map = Map::new(&file, 4096)?;
    map.bytes()[0] = b'x';
    map.sync()?;
    Ok(())
}

#[test]
fn a_mount_of_an_ordinary_user_has_no_devices_and_no_set_id_programs() {
    let rig = Rig::new();
    // A private node for /dev/fuse: the system's may be closed to ordinary users.
    let printed = rig.run(
        r#"chmod 755 .; cp $O okeanos; chmod 755 okeanos; truncate -s 64M image
           mke2fs -q -t ext4 image
           $O mount image $M; cp /bin/true $M/program; chmod 4755 $M/program; mknod $M/null c 1 3
           chmod 666 $M/null; chmod 755 $M; $O umount $M; settle image
           mknod -m 666 fuse c 10 229; mount --bind fuse /dev/fuse; chown 65534 image $M
           for options in rw suid,dev; do
             as_nobody ./okeanos mount -o $options image $M
             findmnt -n -o OPTIONS $M; as_nobody ls $M >/dev/null
             refuses as_nobody dd if=$M/null of=/dev/null status=none
             refuses setpriv --reuid 1000 --regid 1000 --clear-groups ls $M
             as_nobody ./okeanos umount $M
           done"#,
    );
    assert_eq!(printed.lines().count(), 2, "{printed}");
    assert!(
        printed.lines().all(|line| line.contains("nosuid") && line.contains("nodev")),
        "{printed}"
    );
    rig.check("");
}

#[test]
fn names_that_a_hostile_image_holds_lead_nowhere() {
    let rig = Rig::new();
    // Without checksums names can be changed in place. As long as the original, as the hash of a
    // name in a directory of one block is not stored.
    rig.run(
        r#"chmod 755 .; mke2fs -q -t ext4 -O ^metadata_csum image 64M; $O mount image $M
           mkdir $M/d $M/e $M/f $M/g; echo inside >$M/inside
           for d in d e f g; do echo $d >$M/$d/good; done
           echo 1 >$M/d/SLASH_name_x; echo 2 >$M/e/ZEROX_name_y; echo 3 >$M/f/Q1; echo 4 >$M/g/R
           ln -s ../../../../../../../etc/passwd $M/link; ln -s /proc/self/environ $M/absolute
           $O umount $M; settle image
           # / and zero within names; a second .. that is a file.
           sed -i -e 's,SLASH_name_x,../../../etc,' -e 's,ZEROX_name_y,ZERO\x00_name_y,' image
           at=$(LC_ALL=C grep -aboP '\x02\x01Q1' image | head -1 | cut -d: -f1)
           printf .. | dd of=image bs=1 seek=$((at + 2)) conv=notrunc status=none
           for options in data=wasteless ro; do
             $O mount -o $options image $M
             ls -la $M $M/d $M/e $M/f $M/g >list 2>&1 || true
             find $M -print0 >found 2>/dev/null || true
             grep -qz lost+found found; refuses grep -q -z -e etc -e SLASH -e ZEROX found
             # .. is what the kernel knows, never what the image says.
             [ "$(cd $M/f/..; pwd -P)" = "$(cd $M; pwd -P)" ]; [ "$(cat $M/f/../inside)" = inside ]
             [ "$(readlink $M/link)" = ../../../../../../../etc/passwd ]
             [ "$(readlink $M/absolute)" = /proc/self/environ ]
             [ "$(cat $M/g/good)" = g ]; [ -d $M/lost+found ]; $O stats $M >/dev/null; $O umount $M
             settle image
           done"#,
    );
}

#[test]
fn attributes_and_link_targets_of_a_hostile_image_show_nothing_that_is_not_theirs() {
    Rig::new().run(
        r#"mke2fs -q -t ext4 -b 4096 -O ^metadata_csum image 64M; $O mount image $M; cd $M
           touch zero slash twice behind good
           setfattr -n user.ZERO_Xtrusted.made -v 1 zero
           setfattr -n user.SLASH_attribute -v 1 slash
           setfattr -n user.twice_A -v 1 twice; setfattr -n user.twice_B -v 2 twice
           setfattr -n user.BEHIND -v 1234 behind
           setfattr -n user.fine -v yes good; ln -s CUTX/../../etc/passwd cut
           ln -s $(printf 'L%.0s' $(seq 200))/CUTX/etc long
           cd - >/dev/null; $O umount $M; settle image
           sed -i -e 's,ZERO_Xtrusted,ZERO_\x00trusted,' -e 's,SLASH_attribute,../../../../etc,' \
               -e 's,twice_B,twice_A,' -e 's,CUTX,CUT\x00,g' image
           # Where the value lies stands 14 bytes before the name: now beyond the end of the inode.
           for at in $(LC_ALL=C grep -abo BEHIND image | cut -d: -f1); do
             printf '\xf0\xff' | dd of=image bs=1 seek=$((at - 14)) conv=notrunc status=none
           done
           for options in data=wasteless ro; do
             $O mount -o $options image $M
             getfattr -d -m - --absolute-names $M/* >printed 2>&1 || true
             refuses grep -q -e trusted -e made printed; [ $(grep -c twice_A printed) -le 1 ]
             refuses getfattr -n user.BEHIND $M/behind 2>/dev/null
             grep -q 'user.fine="yes"' printed
             # A name is a name, whatever it looks like.
             [ "$(getfattr --only-values -n user.../../../../etc $M/slash)" = 1 ]
             for link in cut long; do
                 refuses grep -q etc <<<"$(readlink $M/$link)"; refuses cat $M/$link 2>/dev/null
             done
             $O stats $M >/dev/null; $O umount $M; settle image
           done"#,
    );
}

#[test]
fn nothing_of_the_former_owner_is_readable_in_new_blocks_also_after_a_crash() {
    for mode in ["ordered", "journal", "wasteless", "selective"] {
        let rig = Rig::new();
        let printed = rig.run(&format!(
            r#"yes 'STALE-PATTERN--' | head -c 1000000 >pattern || true
               truncate -s 40M image; mke2fs -q -t ext4 -b 4096 -J size=4 image
               $O mount -o data={mode} image $M
               for i in $(seq 60); do cat pattern >$M/p$i 2>/dev/null || break; done
               $O umount $M; settle image; [ $(grep -c STALE image) -gt 0 ]
               serve data={mode},commit=1 image; rm $M/p*; sync -f $M; mkdir $M/w
               work() {{ for i in $(seq 1000); do f=$M/w/$1-$i
                 printf x >$f && truncate -s 20000 $f &&
                 dd if=/dev/zero of=$f bs=100 seek=77 count=1 conv=notrunc status=none &&
                 fallocate -l 60000 $f && fallocate -n -l 90000 $f &&
                 printf yy | dd of=$f bs=1 seek=50001 conv=notrunc status=none &&
                 truncate -s 55555 $f && truncate -s 70000 $f && fallocate -z -o 1000 -l 9000 $f &&
                 fallocate -p -o 30000 -l 3000 $f && head -c 100000 /dev/zero >>$f &&
                 truncate -s 250000 $f &&
                 truncate -s 10 $f && truncate -s 30000 $f &&
                 printf z | dd of=$f bs=1 seek=29000 oflag=sync conv=notrunc status=none || return 0
               done; }}
               work 1 2>/dev/null & W1=$!; work 2 2>/dev/null & W2=$!
               for i in $(seq 300); do [ $(ls $M/w | wc -l) -gt 60 ] && break; sleep 0.1; done
               refuses grep -rqa STALE $M/w; kill_daemon; wait $W1 $W2; umount $M; settle image
               $O recover image >out; clean image
               mount -o loop,ro image $M; ls $M/w | wc -l; refuses grep -rqa STALE $M/w; umount $M
               settle image
               $O mount -o data={mode} image $M; refuses grep -rqa STALE $M/w; rm -r $M/w
               mkdir $M/w
               for i in $(seq 8); do
                   fallocate -l 3M $M/w/$i
                   printf q | dd of=$M/w/$i bs=1 seek=1000000 conv=notrunc status=none
               done
               refuses grep -rqa STALE $M/w; $O umount $M; settle image; clean image
               mount -o loop,ro image $M; refuses grep -rqa STALE $M/w; umount $M"#
        ));
        assert!(printed.trim().parse::<u32>().unwrap() > 20, "{mode}: {printed}");
    }
}

/// `own`: a mount of nobody's, whose socket is `$S` and has `$D` as its daemon. `theirs SCRIPT`: a
/// program of that user's.
const A_USERS_MOUNT: &str = r#"
    mknod -m 666 fuse c 10 229; mount --bind fuse /dev/fuse; cp $O program; chmod 755 . program
    O=$PWD/program
    unset XDG_RUNTIME_DIR; mkdir -p own/mounted; $O mkfs image 64M -- -q >made
    chown -R 65534 own image; chown 65534 .
    as_nobody mkdir -p /tmp/okeanos-65534; mount -t tmpfs none /tmp/okeanos-65534
    chown 65534 /tmp/okeanos-65534; chmod 700 /tmp/okeanos-65534
    AT=$PWD/own/mounted; as_nobody $O mount image $AT
    S=/tmp/okeanos-65534/$(as_nobody mountpoint -d $AT | tr : -).sock; [ -S $S ]
    D=$(as_nobody $O stats --json $AT | sed -n 's/.*"process": \([0-9]*\).*/\1/p')
    theirs() {
        setpriv --reuid 65534 --regid 65534 --clear-groups -- /usr/bin/python3 -c "$1" & THEIRS=$!
        for i in $(seq 100); do [ -e ready ] && break; sleep 0.1; done; [ -e ready ]
    }
"#;

#[test]
fn a_user_who_exchanges_directories_leads_root_to_no_other_mount() {
    Rig::new().run(&format!(
        r#"{A_USERS_MOUNT}
           mkdir -p other/mounted; mount -t tmpfs none other/mounted; export S D HERE=$PWD
           as_nobody rm $S
           theirs '
import json, os, socket
server = socket.socket(socket.AF_UNIX); server.bind(os.environ["S"]); server.listen(9)
here = os.environ["HERE"]; open(here + "/ready", "w")
asked = False
while not asked:
    client = server.accept()[0]; asked = b"end" in client.recv(99)
os.rename(here + "/own", here + "/moved"); os.symlink(here + "/other", here + "/own")
about = dict(process=os.getpid(), version="", source="", directory="", data="selective")
client.send(json.dumps(about).encode() + b"\n"); client.recv(99)'
           refuses timeout 30 $O umount --lazy $AT 2>said; mountpoint -q other/mounted
           kill $THEIRS 2>/dev/null || true
           grep -q 'another mount\|nothing\|unmount' said; umount other/mounted
           as_nobody fusermount3 -u $PWD/moved/mounted"#
    ));
}

#[test]
fn a_users_socket_that_is_a_link_reaches_no_other_daemon() {
    Rig::new().run(&format!(
        r#"{A_USERS_MOUNT}
           $O mkfs roots 64M -- -q >made; $O mount roots $M; as_nobody rm $S
           as_nobody ln -s /run/okeanos/$(mountpoint -d $M | tr : -).sock $S
           refuses timeout 30 $O mount -o remount,ro $AT 2>said; touch $M/writable
           $O umount $M; kill -9 $D; as_nobody fusermount3 -u $AT"#
    ));
}

#[test]
fn users_with_many_full_sockets_stall_no_command_of_roots() {
    Rig::new().run(&format!(
        r#"{A_USERS_MOUNT}
           export S HERE=$PWD PLACES=/tmp/okeanos-65534-full-$$; as_nobody rm $S
           theirs '
import os, socket, time
server = socket.socket(socket.AF_UNIX); server.bind(os.environ["S"]); server.listen(0)
clients = []
try:
    while True:
        clients.append(socket.socket(socket.AF_UNIX)); clients[-1].setblocking(False); clients[-1].connect(os.environ["S"])
except BlockingIOError: pass
for number in range(9):
    place = "%s-%d" % (os.environ["PLACES"], number); os.mkdir(place, 0o700)
    os.symlink(os.environ["S"], place + "/" + os.path.basename(os.environ["S"]))
open(os.environ["HERE"] + "/ready", "w"); time.sleep(200)'
           refuses timeout 15 $O stats $AT 2>said; [ -s said ]; timeout 15 $O list >printed
           kill $THEIRS; rm -rf $PLACES-*; kill -9 $D; as_nobody fusermount3 -u $AT"#
    ));
}

/// Without `allow_other` the kernel answers root with zeros, whether or not there is a daemon.
#[test]
fn root_takes_a_users_dead_mount_away() {
    Rig::new().run(&format!(
        r#"{A_USERS_MOUNT}
           $O list >printed; grep "^$AT" printed | grep -qw ok; kill -9 $D
           for i in $(seq 100); do $O list | grep "^$AT" | grep -q died && break; sleep 0.1; done
           $O umount $AT 2>said; grep -q 'had died' said; unmounted $AT"#
    ));
}

#[test]
fn a_new_image_is_for_its_maker_alone() {
    Rig::new().run(r#"umask 022; $O mkfs image 64M -- -q >made; [ $(stat -c %a image) = 600 ]"#);
}
