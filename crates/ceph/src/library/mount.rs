//! The connection: settings, fencing of the former connection, the library's callbacks.

use super::Errno;
use super::abi::{self, Callbacks, Functions, MountInfo, UserPerm};
use super::listener::{LISTENER, Listener, inode_changed};
use std::ffi::{CStr, CString};
use std::ptr;

/// Seconds for which buffered writes stay with the client unless made durable: thirty days.
const HOLD_S: u32 = 30 * 86_400;
const HOLD_PROMISED_MS: u64 = HOLD_S as u64 * 1000;
const CONNECT_S: u32 = 30;

#[derive(Clone)]
pub struct Settings {
    pub conf: CString,
    pub user: CString,
    pub file_system: CString,
    pub directory: CString,
    /// File with the user's key. Empty: where the configuration says.
    pub keyring: CString,
    /// The client's name at the servers.
    pub identity: CString,
}

/// The connection. The helper has one, from [`Mount::connect`] to its end.
pub struct Mount {
    pub(super) call: Functions,
    pub(super) raw: *mut MountInfo,
    pub(super) permissions: *const UserPerm,
    recall_ms: u64,
}
// SAFETY: the library takes a connection from any thread at any time: it locks by itself. The other
// pointer is to credentials that belong to the connection and do not change.
unsafe impl Send for Mount {}
// SAFETY: as above.
unsafe impl Sync for Mount {}

impl Mount {
    /// Ends the former connection of this identity, and connects. The error has the failed call and
    /// the errno.
    pub fn connect(
        settings: &Settings,
        recalled: Box<dyn Fn(u64) + Send + Sync>,
        changed: Box<dyn Fn(u64) + Send + Sync>,
    ) -> Result<&'static Mount, String> {
        let call = Functions::load()?;
        if LISTENER.set(Listener { recalled, changed }).is_err() {
            return Err("a process connects only once".into());
        }
        let mut mount =
            prepare(call, settings).map_err(|(what, Errno(code))| failed(what, code))?;
        // T5: other clients wait for a dead one, also with creates in directories that it had
        // looked up, for as long as its session lasts. A reset ends that at once. It comes before
        // the name is taken: no client can reset itself.
        mount
            .reset(&settings.identity)
            .map_err(|Errno(code)| failed("the reset of the former client", code))?;
        // SAFETY: the connection is made and initialised, the strings end with zero, and the
        // callbacks' table is only read during the call.
        unsafe {
            (mount.call.ceph_set_uuid)(mount.raw, settings.identity.as_ptr());
            let mut callbacks = Callbacks {
                handle: ptr::null_mut(),
                inode_changed: Some(inode_changed),
                others: [ptr::null_mut(); 5],
            };
            (mount.call.ceph_ll_register_callbacks)(mount.raw, &raw mut callbacks);
            let answer = (mount.call.ceph_mount)(mount.raw, settings.directory.as_ptr());
            Errno::check(answer).map_err(|Errno(code)| failed("the mount", code))?;
            mount.permissions = (mount.call.ceph_mount_perms)(mount.raw);
            // Before the servers' patience ends: the library is to cut itself off, not they.
            let patience_s = (mount.call.ceph_get_cap_return_timeout)(mount.raw) / 4 * 3;
            let answer = (mount.call.ceph_set_deleg_timeout)(mount.raw, patience_s);
            Errno::check(answer)
                .map_err(|Errno(code)| failed("the setting of the time for recalls", code))?;
            mount.recall_ms = u64::from(patience_s) * 1000;
        }
        Ok(Box::leak(Box::new(mount)))
    }

    /// Ends any connection with the name `identity`: when this returns, nothing of it reaches the
    /// servers.
    fn reset(&self, identity: &CStr) -> Result<(), Errno> {
        // SAFETY: the connection is initialised, the string ends with zero.
        let answer = unsafe {
            let answer =
                (self.call.ceph_start_reclaim)(self.raw, identity.as_ptr(), abi::RECLAIM_RESET);
            (self.call.ceph_finish_reclaim)(self.raw);
            answer
        };
        match Errno::check(answer) {
            Err(Errno(libc::ENOENT)) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Ends another identity's connection, over one that exists only for that.
    pub fn fence(settings: &Settings) -> Result<(), Errno> {
        let call = Functions::load().map_err(|_| Errno(libc::ELIBACC))?;
        let side = prepare(call, settings).map_err(|(_, errno)| errno)?;
        let reset = side.reset(&settings.identity);
        // SAFETY: nothing else knows of this connection, which is not used any more.
        unsafe {
            (side.call.ceph_unmount)(side.raw);
            (side.call.ceph_release)(side.raw);
        }
        reset
    }

    /// Makes everything durable and ends the session properly. The connection cannot be used
    /// afterwards.
    pub fn unmount(&self) -> Result<(), Errno> {
        // SAFETY: the connection is initialised; the caller lets nothing else run, and ends the
        // process.
        Errno::check(unsafe { (self.call.ceph_unmount)(self.raw) }).map(drop)
    }

    /// Sends the attributes of all files. T9: content that is still buffered is sent as well, and
    /// its errors are reported nowhere, nor by the file's next sync.
    pub fn send_attributes(&self) -> Result<(), Errno> {
        // SAFETY: the connection is mounted.
        Errno::check(unsafe { (self.call.ceph_sync_fs)(self.raw) }).map(drop)
    }

    /// Returns the number of the file system, which no later one of the cluster has.
    pub fn file_system(&self) -> u64 {
        // SAFETY: the connection is mounted.
        unsafe { (self.call.ceph_get_fs_cid)(self.raw) as u64 }
    }
    pub fn recall_ms(&self) -> u64 {
        self.recall_ms
    }
    pub fn hold_ms(&self) -> u64 {
        HOLD_PROMISED_MS
    }
}

fn failed(what: &str, code: i32) -> String {
    format!("{what} failed: {}", std::io::Error::from_raw_os_error(code))
}

/// The library's logs of calls, shown after a crash of its process, and their default levels. Each
/// entry wakes a thread: a quarter of the time that 16 writers have of two processors.
const DIARIES: [(&CStr, &CStr); 2] = [(c"debug_client", c"0/5"), (c"debug_objectcacher", c"0/5")];

type Failed = (&'static str, Errno);

fn answer(what: &'static str, answer: i32) -> Result<(), Failed> {
    Errno::check(answer).map(drop).map_err(|errno| (what, errno))
}

/// Makes a connection with its settings, initialised and not mounted.
fn prepare(call: Functions, settings: &Settings) -> Result<Mount, Failed> {
    let mount = configure(call, settings)?;
    // SAFETY: the connection is the one just made, and has its settings.
    answer("ceph_init", unsafe { (mount.call.ceph_init)(mount.raw) })?;
    Ok(mount)
}

fn configure(call: Functions, settings: &Settings) -> Result<Mount, Failed> {
    let mut raw = ptr::null_mut();
    // SAFETY: all strings end with zero; the connection is the one just made.
    unsafe {
        answer("ceph_create", (call.ceph_create)(&raw mut raw, settings.user.as_ptr()))?;
        answer(
            "reading the configuration",
            (call.ceph_conf_read_file)(raw, settings.conf.as_ptr()),
        )?;
        answer("CEPH_ARGS", (call.ceph_conf_parse_env)(raw, ptr::null()))?;
        if !settings.keyring.is_empty() {
            let set = (call.ceph_conf_set)(raw, c"keyring".as_ptr(), settings.keyring.as_ptr());
            answer("the keyring", set)?;
        }
        let hold = HOLD_S.to_string();
        let connect = CONNECT_S.to_string();
        let options: [(&CStr, &str); 9] = [
            // T3: each of the two alone would let data or attributes be sent first. The library's
            // clock tick is not changed: it also renews the session.
            (c"client_oc_max_dirty_age", &hold),
            (c"client_caps_release_delay", &hold),
            // A sync under a token does not end without the library's buffer.
            (c"client_oc", "true"),
            // Dirty bytes beyond this are sent to the servers at once.
            (c"client_oc_target_dirty", "67108864"),
            (c"client_oc_max_dirty", "100663296"),
            // The check of the pool writes an object, and waits as long as the pool is full: no
            // recovery could report that.
            (c"client_check_pool_perm", "false"),
            // The caller of the store has checked permissions.
            (c"client_permissions", "false"),
            (c"fuse_default_permissions", "true"),
            (c"client_mount_timeout", &connect),
        ];
        for (name, value) in options {
            let value = CString::new(value).expect("no zero byte");
            answer("a setting", (call.ceph_conf_set)(raw, name.as_ptr(), value.as_ptr()))?;
        }
        for (name, default) in DIARIES {
            let mut found = [0; 16];
            let reported =
                (call.ceph_conf_get)(raw, name.as_ptr(), found.as_mut_ptr().cast(), found.len());
            // An administrator who set it wants to read it.
            if reported >= 0 && CStr::from_bytes_until_nul(&found) == Ok(default) {
                answer("a setting", (call.ceph_conf_set)(raw, name.as_ptr(), c"0/0".as_ptr()))?;
            }
        }
        if !settings.file_system.is_empty() {
            let name = settings.file_system.as_ptr();
            answer("choosing the file system", (call.ceph_select_filesystem)(raw, name))?;
        }
    }
    Ok(Mount { call, raw, permissions: ptr::null(), recall_ms: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the level of each log after our settings.
    fn diaries(configuration: &str) -> Vec<String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ceph.conf");
        std::fs::write(&path, configuration).expect("a file");
        let text = |text: &str| CString::new(text).expect("no zero byte");
        let settings = Settings {
            conf: text(path.to_str().expect("UTF-8")),
            user: text("admin"),
            file_system: text(""),
            directory: text("/"),
            keyring: text(""),
            identity: text("a test"),
        };
        let call = Functions::load().expect("libcephfs2");
        let mount = configure(call, &settings)
            .map_err(|(what, Errno(code))| failed(what, code))
            .expect("settings");
        let setting = |(name, _): (&CStr, &CStr)| {
            let mut found = [0; 16];
            // SAFETY: the connection is configured, and the place as long as said.
            let reported = unsafe {
                (mount.call.ceph_conf_get)(
                    mount.raw,
                    name.as_ptr(),
                    found.as_mut_ptr().cast(),
                    found.len(),
                )
            };
            assert!(reported >= 0, "{name:?}");
            CStr::from_bytes_until_nul(&found).expect("a text").to_str().expect("UTF-8").to_owned()
        };
        let found = DIARIES.map(setting).to_vec();
        // SAFETY: nothing else knows of this connection, which is not used any more.
        unsafe { (mount.call.ceph_release)(mount.raw) };
        found
    }

    #[test]
    fn the_library_keeps_no_diary_of_calls_unless_someone_wants_it() {
        assert_eq!(diaries("[global]\n"), ["0/0", "0/0"]);
        assert_eq!(diaries("[client]\ndebug client = 1/5\n"), ["1/5", "0/0"]);
    }
}
