//! Options that every FUSE mount has, of a volume and of a host.

use super::MountOption;
use super::values::{choose, name_of, on_off, set, switch};
use fuse_session::Transport;

/// Settings of the session with the kernel, and of the mount in its table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionSettings {
    pub transport: Transport,
    /// Whether users other than the mounting one may access the mount.
    pub allow_other: bool,
    pub read_only: bool,
    /// `MS_NOSUID` and so on, but for `MS_RDONLY`.
    pub flags: libc::c_ulong,
}

impl SessionSettings {
    /// Sets or clears a flag, as a switch says.
    pub fn set_flag(&mut self, flag: libc::c_ulong, is_set: bool) {
        self.flags = if is_set { self.flags | flag } else { self.flags & !flag };
    }
}

const TRANSPORTS: [(&str, Transport); 3] =
    [("auto", Transport::Auto), ("uring", Transport::Uring), ("classic", Transport::Classic)];

/// `linux/mount.h`; the C library's headers lack it.
const MS_NOSYMFOLLOW: libc::c_ulong = 256;

/// A row that sets a flag of the VFS.
macro_rules! flag {
    ($flag:expr, $name:literal, $words:expr, $help:literal) => {
        MountOption {
            name: $name,
            words: $words,
            parse: |value, it| {
                AsMut::<SessionSettings>::as_mut(it).set_flag($flag, switch(value)?);
                Ok(())
            },
            text: |it| on_off(AsRef::<SessionSettings>::as_ref(it).flags & $flag != 0),
            help: $help,
            is_live: true,
            ..MountOption::BASE
        }
    };
}
pub(crate) use flag;

/// Rows that tables share.
impl<S: AsRef<SessionSettings> + AsMut<SessionSettings>> MountOption<S> {
    pub const TRANSPORT: MountOption<S> = MountOption {
        name: "transport",
        value: "auto|uring|classic",
        parse: |value, it| set(&mut it.as_mut().transport, choose(value, &TRANSPORTS)?),
        text: |it| name_of(&it.as_ref().transport, &TRANSPORTS),
        help: "how requests come from the kernel: auto and classic by reads of /dev/fuse, uring \
               over io_uring, which needs fuse.enable_uring=1",
        ..MountOption::BASE
    };
    pub const ALLOW_OTHER: MountOption<S> = MountOption {
        name: "allow_other",
        words: &[("allow_other", "on"), ("noallow_other", "off")],
        parse: |value, it| set(&mut it.as_mut().allow_other, switch(value)?),
        text: |it| on_off(it.as_ref().allow_other),
        help: "whether users other than the mounting one have access, as far as the files' modes \
               let them; without it not even root's mount lets them in",
        ..MountOption::BASE
    };
    pub const READ_ONLY: MountOption<S> = MountOption {
        name: "ro",
        words: &[("ro", "on"), ("rw", "off")],
        parse: |value, it| set(&mut it.as_mut().read_only, switch(value)?),
        text: |it| on_off(it.as_ref().read_only),
        help: "changes are refused",
        is_live: true,
        ..MountOption::BASE
    };
    pub const NOSUID: MountOption<S> = flag!(
        libc::MS_NOSUID,
        "nosuid",
        &[("nosuid", "on"), ("suid", "off")],
        "set-user-ID and set-group-ID bits and file capabilities have no effect"
    );
    pub const NODEV: MountOption<S> = flag!(
        libc::MS_NODEV,
        "nodev",
        &[("nodev", "on"), ("dev", "off")],
        "device files cannot be opened"
    );
    pub const NOEXEC: MountOption<S> = flag!(
        libc::MS_NOEXEC,
        "noexec",
        &[("noexec", "on"), ("exec", "off")],
        "programs cannot be run"
    );
    pub const NOSYMFOLLOW: MountOption<S> = flag!(
        MS_NOSYMFOLLOW,
        "nosymfollow",
        &[("nosymfollow", "on"), ("symfollow", "off")],
        "symbolic links are not followed"
    );
    pub const NODIRATIME: MountOption<S> = flag!(
        libc::MS_NODIRATIME,
        "nodiratime",
        &[("nodiratime", "on"), ("diratime", "off")],
        "reads of directories do not change access times"
    );
    pub const SYNC: MountOption<S> = MountOption {
        is_live: false,
        hidden: &[("async", "off")],
        ..flag!(libc::MS_SYNCHRONOUS, "sync", &[("sync", "on")], "every write is synchronous")
    };
}
