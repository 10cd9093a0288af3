//! Options among the arguments for mke2fs, split as getopt(3) splits them: letters may stand in a
//! cluster (`-qn`), and a value behind its letter (`-b1024`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Letters of mke2fs(8) that take a value.
const WITH_VALUE: &[u8] = b"bdegilmorstzCEGIJLMNORTU";

/// Options in their order.
pub struct Mke2fsOptions(Vec<(u8, OsString)>);

impl Mke2fsOptions {
    pub fn of(arguments: &[OsString]) -> Mke2fsOptions {
        let mut options = Vec::new();
        let mut arguments = arguments.iter().map(|argument| argument.as_bytes());
        while let Some(argument) = arguments.next().filter(|argument| *argument != b"--") {
            let mut letters = argument.strip_prefix(b"-").unwrap_or_default();
            while let Some((&letter, rest)) = letters.split_first() {
                letters = rest;
                let mut value: &[u8] = b"";
                if WITH_VALUE.contains(&letter) {
                    letters = b"";
                    value = if rest.is_empty() { arguments.next().unwrap_or(b"") } else { rest };
                }
                options.push((letter, OsString::from_vec(value.to_vec())));
            }
        }
        Mke2fsOptions(options)
    }

    pub fn has(&self, letter: char) -> bool {
        self.value(letter).is_some()
    }

    /// Returns the value of the last such option, which is the one that counts.
    pub fn value(&self, letter: char) -> Option<&OsStr> {
        let mut last_first = self.0.iter().rev();
        let found = last_first.find(|(option, _)| char::from(*option) == letter);
        found.map(|(_, value)| value.as_os_str())
    }

    /// Whether mke2fs makes nothing: it prints what it would do, or its version.
    pub fn is_trial(&self) -> bool {
        self.has('n') || self.has('V')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Mke2fsOptions {
        Mke2fsOptions::of(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn clusters_and_attached_values_are_split() {
        let found = options(&["-qFb1024", "-text3", "-E", "nodiscard", "-Eroot_owner=1:2"]);
        assert!(found.has('q') && found.has('F') && !found.is_trial());
        assert_eq!(found.value('b').unwrap(), "1024");
        assert_eq!(found.value('t').unwrap(), "ext3");
        assert_eq!(found.value('E').unwrap(), "root_owner=1:2");
        for trial in [&["-qn"][..], &["-nq"], &["-n"], &["-V"], &["-Fb", "1024", "-vn"]] {
            assert!(options(trial).is_trial(), "{trial:?}");
        }
        for no_trial in [&["-L", "-n"][..], &["-Ln"], &["-qLn"], &["name"], &["--", "-n"], &["-b"]]
        {
            assert!(!options(no_trial).is_trial(), "{no_trial:?}");
        }
    }
}
