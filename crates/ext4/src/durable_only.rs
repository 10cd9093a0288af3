//! Files of which durability is enough: their data is logged, whatever its size, and may stay in
//! the log. An attribute selects them, of the file or of a directory for everything beneath it; so
//! do name patterns of the mount, and a program that has the file open.
//!
//! A file inherits the setting from the directory in which it is found or created. A file found by
//! its inode number alone follows its own attribute.

use crate::xattr::Name;
use crate::{Inode, Result, Volume};
use std::fmt;
use std::str::FromStr;
use units::Refusal;

/// The attribute, and its value.
pub(crate) const NAME: &[u8] = b"user.okeanos.durability";
const VALUE: &[u8] = b"only";

/// The `durable_only` option of a mount: enables the setting, and lists names that have it without
/// an attribute.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DurableOnly {
    files: Vec<String>,
    /// Names of directories; everything beneath them has the setting.
    directories: Vec<String>,
}

impl FromStr for DurableOnly {
    type Err = String;
    /// Parses `*.wal:*/journal/*`: names of files, and of directories.
    fn from_str(patterns: &str) -> std::result::Result<DurableOnly, String> {
        let mut found = DurableOnly::default();
        found.add(patterns)?;
        Ok(found)
    }
}

impl fmt::Display for DurableOnly {
    /// Formats the names in the form in which they are parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directories = self.directories.iter().map(|name| format!("*/{name}/*"));
        let names: Vec<String> = self.files.iter().cloned().chain(directories).collect();
        f.write_str(&names.join(":"))
    }
}

impl DurableOnly {
    /// Adds further names, in the same form.
    pub fn add(&mut self, patterns: &str) -> std::result::Result<(), String> {
        for pattern in patterns.split(':') {
            let name = pattern.strip_prefix("*/").unwrap_or(pattern);
            let (name, into) = match name.strip_suffix("/*") {
                Some(name) => (name, &mut self.directories),
                None => (name, &mut self.files),
            };
            if name.is_empty() || name.contains('/') {
                return Err(format!("{pattern}: names are needed, as in *.wal:*/journal/*"));
            }
            into.push(name.to_owned());
        }
        Ok(())
    }
}

/// Whether `name` matches `pattern`, in which `*` stands for any bytes and `?` for one.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where to resume if the bytes after the last star do not match: the star takes one byte more.
    let mut star: Option<(usize, usize)> = None;
    while from < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[from] => (at, from) = (at + 1, from + 1),
            _ => {
                let Some((star_at, taken)) = star else { return false };
                star = Some((star_at, taken + 1));
                (at, from) = (star_at + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

impl Volume {
    /// Sets the flag of `inode`, found in `parent`, which is locked, under `name`.
    pub(crate) async fn learn_durability(&self, parent: &Inode, name: &[u8], inode: &Inode) {
        let Some(option) = &self.options.durable_only else { return };
        let names = if inode.is_directory() { &option.directories } else { &option.files };
        let is_named = names.iter().any(|pattern| matches(pattern.as_bytes(), name));
        self.read_durability(parent).await;
        inode.durable_by_name.set(is_named || self.is_durable_only(parent));
    }

    /// Looks for the attribute of an inode that is locked, once. An attribute that cannot be read
    /// counts as absent.
    pub(crate) async fn read_durability(&self, inode: &Inode) {
        if self.options.durable_only.is_none() || inode.durable_by_attribute.get().is_some() {
            return;
        }
        let (Ok(stored), Ok(name)) = (Box::pin(self.stored_xattrs(inode)).await, Name::parse(NAME))
        else {
            return;
        };
        let is_set = stored.find(name).is_some_and(|attribute| attribute.value == VALUE);
        inode.durable_by_attribute.set(Some(is_set));
    }

    /// Whether durability is enough for the file, as far as is known.
    pub(crate) fn is_durable_only(&self, inode: &Inode) -> bool {
        self.options.durable_only.is_some()
            && (inode.durable_by_name.get()
                || inode.durable_by_attribute.get() == Some(true)
                || inode.durable_by_request.get())
    }

    /// Sets for a file, until its last descriptor is closed, that durability is enough; or, with
    /// `is_enough` false, that attribute and names alone decide again.
    pub async fn request_durability(&self, inode: &Inode, is_enough: bool) -> Result<()> {
        if self.options.durable_only.is_none() {
            return Err(Refusal::Unsupported.into());
        }
        if !inode.is_regular() {
            return Err(Refusal::Invalid.into());
        }
        let _lock = inode.lock.write().await;
        inode.durable_by_request.set(is_enough);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_bytes_and_question_marks_for_one() {
        for (pattern, name, fits) in [
            ("*.wal", "a.wal", true),
            ("*.wal", ".wal", true),
            ("*.wal", "a.wal2", false),
            ("00?", "001", true),
            ("00?", "00", false),
            ("a*b*c", "axxbyybzc", true),
            ("a*b*c", "axxbyybz", false),
            ("*", "", true),
            ("journal", "journal", true),
            ("journal", "journals", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn names_of_files_and_of_directories_differ() {
        let found: DurableOnly = "*.wal:*/journal/*:pg_wal/*:*/redo.log".parse().unwrap();
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(found.files, all(&["*.wal", "redo.log"]));
        assert_eq!(found.directories, all(&["journal", "pg_wal"]));
        assert_eq!(found.to_string().parse(), Ok(found));
        for wrong in ["", "a::b", "a/b", "*/a/b/*", "/*"] {
            assert!(wrong.parse::<DurableOnly>().is_err(), "{wrong}");
        }
    }
}
