/// The user on whose behalf an operation runs, as the front end knows it. The kernel has checked
/// permissions (`default_permissions`); this crate decides ownership and the clearing of set-id
/// bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller<'a> {
    /// User number; 2^32-1, which no user has, for one that the front end does not know.
    pub uid: u32,
    pub gid: u32,
    /// Permission bits that a new file does not get, unless its directory's default access control
    /// list decides (`Volume::inherit_attributes`). Zero for callers that create no files.
    pub umask: u16,
    /// Labels that a security module gives to a file that is made.
    pub labels: &'a [SecurityLabel<'a>],
}

/// An extended attribute that a file has from the start: its name with the prefix, such as
/// `security.selinux`, and its value.
pub type SecurityLabel<'a> = (&'a [u8], &'a [u8]);

impl Caller<'static> {
    pub const ROOT: Caller<'static> = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };
}
