use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use store::Identity;

/// Where the store is, and who asks.
#[derive(Clone, Debug)]
pub struct Options {
    pub conf: PathBuf,
    /// `client.NAME` without `client.`.
    pub user: String,
    /// Empty: the cluster's only one.
    pub file_system: String,
    pub directory: String,
    /// Whoever connects under the same one ends the other.
    pub identity: Identity,
    /// The helper, and its arguments.
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
}

impl Options {
    /// The whole of the only file system of the cluster of `/etc/ceph/ceph.conf`; the helper is
    /// this program itself.
    pub fn of(identity: Identity) -> io::Result<Options> {
        Ok(Options {
            conf: "/etc/ceph/ceph.conf".into(),
            user: "admin".into(),
            file_system: String::new(),
            directory: "/".into(),
            identity,
            program: std::env::current_exe()?,
            arguments: vec!["ceph-helper".into()],
        })
    }

    /// Stands in journals: where the store is, whoever asks.
    pub(super) fn name(&self) -> String {
        let file_system =
            if self.file_system.is_empty() { "" } else { &format!(":{}", self.file_system) };
        format!("ceph:{}:{}{file_system}", self.conf.display(), self.directory)
    }
}
