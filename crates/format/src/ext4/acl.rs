//! POSIX access control lists: ext4's compact form on disk, and version 2 as in system calls.

const DISK_VERSION: u32 = 1;
const CALL_VERSION: u32 = 2;
/// Id that version 2 writes in an entry without a user or group.
const NO_ID: u32 = u32::MAX;
const READ_WRITE_EXECUTE: u16 = 7;

/// User, group or class to which an entry applies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AclTag {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    Mask,
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AclEntry {
    pub tag: AclTag,
    /// The bits 4 read, 2 write, 1 execute.
    pub permissions: u16,
}

/// A list that obeys the rules: owner, named users, owning group, named groups, mask (required with
/// named users or groups), others; in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl(Vec<AclEntry>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AclError {
    #[error("its version is unknown")]
    Version,
    #[error("its length is impossible")]
    Length,
    #[error("its entries break the rules of access control lists")]
    Rules,
}

impl Acl {
    pub fn new(entries: Vec<AclEntry>) -> Result<Acl, AclError> {
        let mut state = 0;
        let mut named = false;
        for entry in &entries {
            // Order of entries: 0 owner; 1 users, owning group; 2 groups, mask, others; 3 others; 4
            // nothing.
            state = match (state, entry.tag) {
                (0, AclTag::Owner) => 1,
                (1, AclTag::User(_)) => 1,
                (1, AclTag::OwningGroup) => 2,
                (2, AclTag::Group(_)) => 2,
                (2, AclTag::Mask) => 3,
                (2, AclTag::Other) if !named => 4,
                (3, AclTag::Other) => 4,
                _ => return Err(AclError::Rules),
            };
            named |= matches!(entry.tag, AclTag::User(_) | AclTag::Group(_));
            if entry.permissions & !READ_WRITE_EXECUTE != 0 {
                return Err(AclError::Rules);
            }
        }
        if state == 4 { Ok(Acl(entries)) } else { Err(AclError::Rules) }
    }

    pub fn entries(&self) -> &[AclEntry] {
        &self.0
    }

    /// Parses the value of an attribute on disk.
    pub fn from_disk(bytes: &[u8]) -> Result<Acl, AclError> {
        let mut rest = after_version(bytes, DISK_VERSION)?;
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let (tag, permissions) = tag_and_permissions(rest)?;
            let has_name = tag == 2 || tag == 8;
            let length = if has_name { 8 } else { 4 };
            let entry = rest.get(..length).ok_or(AclError::Length)?;
            let name = if has_name { u32_at(entry, 4) } else { NO_ID };
            entries.push(AclEntry { tag: tag_of(tag, name)?, permissions });
            rest = &rest[length..];
        }
        Acl::new(entries)
    }

    pub fn to_disk(&self) -> Vec<u8> {
        let mut bytes = DISK_VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            let (tag, name) = number_of(entry.tag);
            bytes.extend(tag.to_le_bytes());
            bytes.extend(entry.permissions.to_le_bytes());
            if let Some(name) = name {
                bytes.extend(name.to_le_bytes());
            }
        }
        bytes
    }

    /// Parses an argument of setxattr(2); `None` when the list is empty, which means "remove".
    pub fn from_call(bytes: &[u8]) -> Result<Option<Acl>, AclError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let rest = after_version(bytes, CALL_VERSION)?;
        if rest.len() % 8 != 0 {
            return Err(AclError::Length);
        }
        let entry = |bytes: &[u8]| {
            let (tag, permissions) = tag_and_permissions(bytes)?;
            Ok(AclEntry { tag: tag_of(tag, u32_at(bytes, 4))?, permissions })
        };
        let entries = rest.chunks(8).map(entry).collect::<Result<Vec<_>, _>>()?;
        if entries.is_empty() { Ok(None) } else { Acl::new(entries).map(Some) }
    }

    /// Serializes for getxattr(2).
    pub fn to_call(&self) -> Vec<u8> {
        let mut bytes = CALL_VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            let (tag, name) = number_of(entry.tag);
            bytes.extend(tag.to_le_bytes());
            bytes.extend(entry.permissions.to_le_bytes());
            bytes.extend(name.unwrap_or(NO_ID).to_le_bytes());
        }
        bytes
    }

    /// The nine permission bits that represent the list, and whether they express all of it.
    pub fn mode(&self) -> (u16, bool) {
        let mut mode = 0;
        let mut says_all = true;
        for entry in &self.0 {
            match entry.tag {
                AclTag::Owner => mode |= entry.permissions << 6,
                AclTag::OwningGroup => mode |= entry.permissions << 3,
                AclTag::Other => mode |= entry.permissions,
                AclTag::Mask => {
                    mode = mode & !0o070 | entry.permissions << 3;
                    says_all = false;
                }
                AclTag::User(_) | AclTag::Group(_) => says_all = false,
            }
        }
        (mode, says_all)
    }

    /// Applies chmod to the list: the group bits go to the mask where there is one.
    pub fn set_mode(&mut self, mode: u16) {
        self.for_mode_classes(mode, |_, bits| bits);
    }

    /// Turns a directory's default list into that of a new file: no entry gets more than `mode`
    /// allows.
    pub fn restrict_to_mode(&mut self, mode: u16) {
        self.for_mode_classes(mode, |permissions, bits| permissions & bits);
    }

    /// Applies `change(permissions, bits of the mode)` to owner, mask or else owning group, and
    /// others.
    fn for_mode_classes(&mut self, mode: u16, change: impl Fn(u16, u16) -> u16) {
        let has_mask = self.0.iter().any(|entry| entry.tag == AclTag::Mask);
        for entry in &mut self.0 {
            let shift = match entry.tag {
                AclTag::Owner => 6,
                AclTag::Mask => 3,
                AclTag::OwningGroup if !has_mask => 3,
                AclTag::Other => 0,
                _ => continue,
            };
            entry.permissions = change(entry.permissions, mode >> shift & READ_WRITE_EXECUTE);
        }
    }
}

fn after_version(bytes: &[u8], version: u32) -> Result<&[u8], AclError> {
    if bytes.len() < 4 {
        return Err(AclError::Length);
    }
    if u32_at(bytes, 0) == version { Ok(&bytes[4..]) } else { Err(AclError::Version) }
}

fn tag_and_permissions(entry: &[u8]) -> Result<(u16, u16), AclError> {
    let half =
        |at: usize| entry.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    Ok((half(0).ok_or(AclError::Length)?, half(2).ok_or(AclError::Length)?))
}

fn tag_of(number: u16, name: u32) -> Result<AclTag, AclError> {
    match number {
        0x01 => Ok(AclTag::Owner),
        0x02 if name != NO_ID => Ok(AclTag::User(name)),
        0x04 => Ok(AclTag::OwningGroup),
        0x08 if name != NO_ID => Ok(AclTag::Group(name)),
        0x10 => Ok(AclTag::Mask),
        0x20 => Ok(AclTag::Other),
        _ => Err(AclError::Rules),
    }
}

fn number_of(tag: AclTag) -> (u16, Option<u32>) {
    match tag {
        AclTag::Owner => (0x01, None),
        AclTag::User(user) => (0x02, Some(user)),
        AclTag::OwningGroup => (0x04, None),
        AclTag::Group(group) => (0x08, Some(group)),
        AclTag::Mask => (0x10, None),
        AclTag::Other => (0x20, None),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(AclTag, u16)]) -> Result<Acl, AclError> {
        Acl::new(entries.iter().map(|&(tag, permissions)| AclEntry { tag, permissions }).collect())
    }
    fn example() -> Acl {
        use AclTag::*;
        list(&[(Owner, 6), (User(1000), 7), (OwningGroup, 5), (Group(7), 4), (Mask, 5), (Other, 0)])
            .unwrap()
    }

    #[test]
    fn both_forms_hold_the_same_list() {
        let acl = example();
        // Version, four short entries, two long ones.
        assert_eq!(acl.to_disk().len(), 4 + 4 * 4 + 2 * 8);
        assert_eq!(acl.to_call().len(), 4 + 6 * 8);
        assert_eq!(Acl::from_disk(&acl.to_disk()), Ok(acl.clone()));
        assert_eq!(Acl::from_call(&acl.to_call()), Ok(Some(acl)));
        assert_eq!(Acl::from_call(&[]), Ok(None));
        assert_eq!(Acl::from_call(&[2, 0, 0, 0]), Ok(None));
    }

    #[test]
    fn lists_that_break_the_rules_are_refused() {
        use AclTag::*;
        for wrong in [
            &[(Owner, 7), (OwningGroup, 7)][..],
            &[(OwningGroup, 7), (Owner, 7), (Other, 7)],
            &[(Owner, 7), (User(1), 7), (OwningGroup, 7), (Other, 7)],
            &[(Owner, 8), (OwningGroup, 7), (Other, 7)],
            &[(Owner, 7), (OwningGroup, 7), (Other, 7), (Other, 7)],
        ] {
            assert_eq!(list(wrong), Err(AclError::Rules), "{wrong:?}");
        }
    }

    #[test]
    fn no_bytes_panic() {
        let (disk, call) = (example().to_disk(), example().to_call());
        for length in 0..call.len() {
            let _ = Acl::from_call(&call[..length]);
            let _ = Acl::from_disk(&disk[..length.min(disk.len())]);
        }
        assert_eq!(Acl::from_disk(&call), Err(AclError::Version));
    }

    #[test]
    fn the_mask_stands_for_the_group_bits() {
        let mut acl = example();
        assert_eq!(acl.mode(), (0o650, false));
        acl.set_mode(0o741);
        assert_eq!(acl.mode(), (0o741, false));
        assert_eq!(acl.entries()[2].permissions, 5, "the owning group's own entry is left alone");
        let mut minimal =
            list(&[(AclTag::Owner, 7), (AclTag::OwningGroup, 5), (AclTag::Other, 4)]).unwrap();
        minimal.restrict_to_mode(0o640);
        assert_eq!(minimal.mode(), (0o640, true));
    }
}
