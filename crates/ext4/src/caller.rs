/// The user on whose behalf an operation runs, as the front end knows it. The kernel has checked
/// permissions (`default_permissions`); this crate decides ownership and the clearing of set-id
/// bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// Permission bits that a new file does not get, unless its directory's default access control
    /// list decides (`Volume::inherit_acl`). Zero for callers that create no files.
    pub umask: u16,
}

impl Caller {
    pub const ROOT: Caller = Caller { uid: 0, gid: 0, umask: 0 };
}
