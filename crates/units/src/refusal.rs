use std::fmt;

/// Reason why a file system refuses an operation that it could perform on other arguments. The
/// front end answers with its error number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    NotFound,
    /// The inode is free, or another file has its number now.
    Stale,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    NameTooLong,
    NoSpace,
    Quota,
    Unsupported,
    /// No such extended attribute.
    NoAttribute,
    /// An argument is invalid, or beyond a limit of the interface.
    Invalid,
    /// Reserved for the owner or a privileged caller, or forbidden by a flag of the file.
    NotPermitted,
    /// The permission bits or the access control list forbid it.
    AccessDenied,
    /// The file would be larger than the format can hold.
    FileTooLarge,
    TooManyLinks,
    /// Names on different file systems, or in different projects.
    OtherDevice,
    /// The offset is at or behind the end of the file.
    BeyondEnd,
    /// A value is longer than any that can be stored.
    TooLong,
    /// A name or a buffer has a length that the interface does not allow.
    OutOfRange,
    ReadOnly,
    /// Any other error number.
    Other(i32),
}

use Refusal::*;

/// Refusals with their Linux error numbers (x86 and ARM agree on these) and what it says.
const NAMED: [(Refusal, i32, &str); 21] = [
    (NotFound, 2, "no such file"),
    (Stale, 116, "the file is gone, or its number names another"),
    (Exists, 17, "the name exists"),
    (NotDirectory, 20, "not a directory"),
    (IsDirectory, 21, "is a directory"),
    (NotEmpty, 39, "the directory is not empty"),
    (NameTooLong, 36, "the name is too long"),
    (NoSpace, 28, "no space left"),
    (Quota, 122, "the quota is exhausted"),
    (Unsupported, 95, "the operation is not supported there"),
    (NoAttribute, 61, "no such attribute"),
    (Invalid, 22, "the argument is invalid, or beyond a limit of the interface"),
    (NotPermitted, 1, "the operation is not permitted"),
    (AccessDenied, 13, "permission denied"),
    (FileTooLarge, 27, "the file would be too large"),
    (TooManyLinks, 31, "the file has too many links"),
    (OtherDevice, 18, "the names are on two file systems, or in two projects"),
    (BeyondEnd, 6, "the offset is behind the end of the file"),
    (TooLong, 7, "the value is too long"),
    (OutOfRange, 34, "the length is out of range"),
    (ReadOnly, 30, "the file system is read-only"),
];

impl Refusal {
    /// The Linux error number.
    pub fn errno(self) -> i32 {
        self.row().map_or_else(|code| code, |row| row.1)
    }
    pub fn of_errno(code: i32) -> Refusal {
        NAMED.iter().find(|row| row.1 == code).map_or(Other(code), |row| row.0)
    }

    /// The refusal's row, or the number of one that has no name.
    fn row(self) -> Result<&'static (Refusal, i32, &'static str), i32> {
        match self {
            Other(code) => Err(code),
            named => Ok(NAMED.iter().find(|row| row.0 == named).expect("each has a row")),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.row() {
            Ok(row) => f.write_str(row.2),
            Err(code) => std::io::Error::from_raw_os_error(code).fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_translate_both_ways() {
        for code in 1..134 {
            assert_eq!(Refusal::of_errno(code).errno(), code);
        }
        for (refusal, code, text) in NAMED {
            assert_eq!((refusal.errno(), refusal.to_string().as_str()), (code, text));
        }
    }
}
