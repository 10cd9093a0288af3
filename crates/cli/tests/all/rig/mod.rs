//! Scripts over images in a directory of their own, run in a private mount namespace.

use crate::programs;
use std::path::PathBuf;
use std::process::Command;

/// Time limit of a script in seconds; one that takes longer hangs.
const PATIENCE: &str = "300";

/// Functions for scripts. `settle FILE...`: the kernel detaches a loop device some time after its
/// last user has ended. `serve OPTIONS IMAGE`: mounts in the foreground, so that $DAEMON can be
/// killed. `kill_daemon` kills it, and waits for the kernel: it releases a dead process's ring a
/// moment later. `as_nobody COMMAND...`: as an ordinary user. `refuses COMMAND...`: it must fail
/// (bash ignores the status of a `!`).
const WORDS: &str = r#"
settle() {
    for file; do
        for i in $(seq 600); do [ -z "$(losetup -j $file)" ] && break; sleep 0.1; done
    done
}
serve() {
    $O mount -f -o $1 $2 $M & DAEMON=$!
    for i in $(seq 600); do mountpoint -q $M && break; sleep 0.1; done
}
kill_daemon() {
    kill -9 $DAEMON; wait $DAEMON || true
    for i in $(seq 600); do stat -f $M >stat 2>&1 || break; sleep 0.1; done
}
as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"; }
copy() { cp --sparse=always $1 $2; }
# mountpoint(1) calls a dead mount none.
unmounted() { refuses grep -q " $(realpath -sm "$1") " /proc/self/mountinfo; }
refuses() { if "$@"; then echo "not refused: $*" >&2; exit 1; fi; }
quiet() { [ -z "$(grep -v 'the daemon may not ask the kernel to take memory' "$1")" ]; }
clean() { timeout 60 e2fsck -fn "$@" >fsck 2>&1 || { cat fsck; exit 1; }; }
"#;

/// A directory for images and scripts.
pub struct Rig {
    directory: tempfile::TempDir,
}

impl Rig {
    pub fn new() -> Rig {
        let rig = Rig { directory: tempfile::tempdir().unwrap() };
        std::fs::create_dir(rig.path("mount")).unwrap();
        rig
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
    /// Runs a script in a private mount namespace. `$O` is the program, `$LAB` is `okeanos-lab`,
    /// `$M` a mount point, and the images are in the current directory.
    pub fn run(&self, script: &str) -> String {
        let script = format!("{WORDS}{script}");
        let mut command = Command::new("timeout");
        if script.contains("$LAB") {
            command.env("LAB", programs::lab());
        }
        let output = command
            .args(["-k", "5", PATIENCE, "unshare", "--mount", "--propagation", "private"])
            .args(["bash", "-euo", "pipefail", "-c", &script])
            .current_dir(self.directory.path())
            .env("O", programs::okeanos())
            .env("M", self.path("mount"))
            .output()
            .unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}\n{}\n{out}{err}", output.status);
        out.into_owned()
    }
    pub fn check(&self, options: &str) {
        self.run(&format!("clean {options} image"));
    }
}

/// Waits: the kernel detaches a loop device some time after its last user has ended.
pub const DETACHED: &str = "settle image";

/// Makes every kind of object that a volume can hold, and changes it a few times.
pub const WORK: &str = r#"
    cd $M
    mkdir -p a/b/c many; mkfifo fifo; mknod null c 1 3; ln -s a/b link
    ln -s $(head -c 200 /dev/zero | tr '\0' x) long
    for i in $(seq 300); do echo "file $i" >many/name-of-file-$i; done
    rm many/name-of-file-*7; mv many/name-of-file-10 a/moved; ln a/moved a/b/hard
    head -c 3000000 /dev/zero | tr '\0' y >large; truncate -s 100000 large
    truncate -s 5000000 large
    dd if=/dev/zero of=sparse bs=4096 count=1 seek=3000 status=none
    # Preallocation needs extents.
    fallocate -l 1M room || [ "${EXTENTS:-yes}" = no ]
    fallocate -p -o 8192 -l 8192 large
    for i in $(seq 50); do
        printf 'record %05d\n' $i | dd of=log bs=13 oflag=sync,append conv=notrunc status=none
    done
    setfattr -n user.colour -v red log; setfattr -n trusted.secret -v x a
    setfattr -n user.big -v $(head -c 700 /dev/zero | tr '\0' v) log
    setfacl -m u:1234:rw log; setfacl -d -m g:77:rx a; touch a/inherits; mkdir a/too
    chmod 4750 a/moved; chown 12:34 many/name-of-file-1; touch -d 2040-01-02 late
    cd /
"#;

/// Prints everything visible of a tree, for comparison.
pub const LIST_TREE: &str = r#"
    (cd $M
     find . -not -path './lost+found*' -printf '%p %y %m %U %G %n %l %T@ ' \( -not -type d \
         -printf '%s' -o -true \) -printf '\n' |
         sort
     find . -type f -print0 | sort -z | xargs -0 sha256sum
     find . -not -type l -not -path './lost+found*' -print0 | sort -z |
         xargs -0 getfattr -d -m - --absolute-names -e hex
     find . -not -type l -not -path './lost+found*' -print0 | sort -z |
         xargs -0 getfacl -n --absolute-names)
"#;
