use std::ffi::OsString;
use std::path::PathBuf;
use store::Identity;

/// The location of the store, and the client's identity.
#[derive(Clone, Debug)]
pub struct Options {
    pub conf: PathBuf,
    /// `client.NAME` without `client.`.
    pub user: String,
    /// Empty: the cluster's only one.
    pub file_system: String,
    pub directory: String,
    /// File with the user's key. Empty: where the configuration says.
    pub keyring: PathBuf,
    /// Connecting under an identity ends another connection that has it.
    pub identity: Identity,
    /// The helper, and its arguments.
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
}

impl Options {
    /// Options for the root of the only file system of the cluster of `/etc/ceph/ceph.conf`; the
    /// helper is this program itself.
    pub fn of(identity: Identity) -> Options {
        Options {
            conf: "/etc/ceph/ceph.conf".into(),
            user: "admin".into(),
            file_system: String::new(),
            directory: "/".into(),
            keyring: PathBuf::new(),
            identity,
            // Its path may lead nowhere: below a root of its own (chroot) the daemon's namespace
            // has another one, and another version may have taken its place.
            program: "/proc/self/exe".into(),
            arguments: vec!["ceph-helper".into()],
        }
    }

    /// Returns the location of the store, which is the same for every client; recorded in journals.
    pub(super) fn name(&self) -> String {
        let file_system =
            if self.file_system.is_empty() { "" } else { &format!(":{}", self.file_system) };
        format!("ceph:{}:{}{file_system}", self.conf.display(), self.directory)
    }
}
