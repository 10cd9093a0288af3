//! Words of commands that messages propose: a reader pastes them into a shell.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns the path as one word of a shell's command line, whatever bytes it has. A path of
/// ordinary characters stays as it is.
pub fn word(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    // A word that begins with a dash would be an option.
    let before = if bytes.first() == Some(&b'-') { "./" } else { "" };
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && text.bytes().all(is_plain) => format!("{before}{text}"),
        Ok(text) if !text.chars().any(char::is_control) => {
            format!("'{before}{}'", text.replace('\'', r"'\''"))
        }
        _ => escaped(before, bytes),
    }
}

/// Whether a byte means itself wherever it stands in a word.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte)
}

/// Quotes as `$'…'`, in which every byte can be written. A terminal never sees control characters.
fn escaped(before: &str, bytes: &[u8]) -> String {
    let mut quoted = format!("$'{before}");
    let escape = |quoted: &mut String, bytes: &[u8]| {
        // Octal: a hexadecimal escape might go on into the character behind it.
        bytes.iter().for_each(|byte| write!(quoted, "\\{byte:03o}").expect("memory takes it"));
    };
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\'' | '\\' => quoted.extend(['\\', character]),
                '\n' => quoted.push_str("\\n"),
                _ if character.is_control() => {
                    escape(&mut quoted, character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => quoted.push(character),
            }
        }
        escape(&mut quoted, chunk.invalid());
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::process::Command;

    #[test]
    fn a_shell_reads_every_path_as_one_word() {
        let paths: [&[u8]; 9] = [
            b"/mnt/a",
            b"/mnt/my disk",
            b"$(touch x)`y`",
            b"it's \\ \"so\"",
            b"two\nlines",
            b"\xff\x01 7\xc2\x9b'\\",
            b"",
            "größe*".as_bytes(),
            b"~",
        ];
        for path in paths {
            let word = word(Path::new(OsStr::from_bytes(path)));
            let script = format!("printf %s {word}");
            let output = Command::new("bash").args(["-c", &script]).output().unwrap();
            assert_eq!(output.stdout, path, "{word}");
            assert!(!word.chars().any(char::is_control), "{word}");
        }
        assert_eq!(word(Path::new("/dev/sdb1")), "/dev/sdb1");
        assert_eq!(word(Path::new("-n")), "./-n");
        assert_eq!(word(Path::new("-n x")), "'./-n x'");
    }
}
