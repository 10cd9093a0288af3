//! The prefixes of attribute names, which the disk keeps as numbers.

use crate::{Error, Result};
use format::ext4::xattr::{Attribute, NAME_LENGTH_MAX};
use units::Refusal;

pub const USER: u8 = 1;
pub const ACL_ACCESS: u8 = 2;
pub const ACL_DEFAULT: u8 = 3;
pub const TRUSTED: u8 = 4;
pub const SECURITY: u8 = 6;

/// An attribute's name as the disk keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name<'a> {
    pub index: u8,
    pub rest: &'a [u8],
}

impl<'a> Name<'a> {
    /// Parses a full name. EOPNOTSUPP: ext4 does not store this prefix. ERANGE: too long. EINVAL:
    /// nothing after the prefix.
    pub fn parse(full: &'a [u8]) -> Result<Name<'a>> {
        match full {
            b"system.posix_acl_access" => return Ok(Name { index: ACL_ACCESS, rest: b"" }),
            b"system.posix_acl_default" => return Ok(Name { index: ACL_DEFAULT, rest: b"" }),
            _ => {}
        }
        let prefixes = [USER, TRUSTED, SECURITY].map(|index| (index, prefix(index)));
        let found = prefixes
            .into_iter()
            .find_map(|(index, prefix)| Some((index, full.strip_prefix(prefix)?)));
        let (index, rest) = found.ok_or(Error::Refused(Refusal::Unsupported))?;
        match rest.len() {
            0 => Err(Error::Refused(Refusal::Invalid)),
            1..=NAME_LENGTH_MAX => Ok(Name { index, rest }),
            _ => Err(Error::Refused(Refusal::OutOfRange)),
        }
    }
    pub fn is_of(&self, attribute: &Attribute) -> bool {
        attribute.index == self.index && attribute.name == self.rest
    }
}

/// The full name of an attribute, or `None` for one that system calls do not show.
pub fn full_name(attribute: &Attribute) -> Option<Vec<u8>> {
    match attribute.index {
        USER | TRUSTED | SECURITY if !attribute.name.is_empty() => {
            Some([prefix(attribute.index), &attribute.name].concat())
        }
        ACL_ACCESS | ACL_DEFAULT if attribute.name.is_empty() => {
            Some(prefix(attribute.index).to_vec())
        }
        _ => None,
    }
}

fn prefix(index: u8) -> &'static [u8] {
    match index {
        USER => b"user.",
        ACL_ACCESS => b"system.posix_acl_access",
        ACL_DEFAULT => b"system.posix_acl_default",
        TRUSTED => b"trusted.",
        SECURITY => b"security.",
        _ => unreachable!("only the constants above are asked for"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_and_put_together() {
        for full in ["user.a", "trusted.x.y", "security.capability", "system.posix_acl_access"] {
            let name = Name::parse(full.as_bytes()).unwrap();
            let attribute = Attribute::new(name.index, name.rest, b"");
            assert!(name.is_of(&attribute));
            assert_eq!(full_name(&attribute).unwrap(), full.as_bytes());
        }
    }

    #[test]
    fn names_that_ext4_does_not_keep_are_refused() {
        let refusal = |full: &[u8]| Name::parse(full).unwrap_err().refusal().unwrap();
        assert_eq!(refusal(b"lustre.a"), Refusal::Unsupported);
        assert_eq!(refusal(b"system.data"), Refusal::Unsupported);
        assert_eq!(refusal(b"user."), Refusal::Invalid);
        assert_eq!(refusal(&[b"user.", [b'x'; 256].as_slice()].concat()), Refusal::OutOfRange);
        assert!(Name::parse(&[b"user.", [b'x'; 255].as_slice()].concat()).is_ok());
        assert_eq!(full_name(&Attribute::new(7, b"data", b"")), None);
    }
}
