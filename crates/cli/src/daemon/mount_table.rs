//! What is mounted where: `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Nobody else has it as long as the mount stands.
    pub id: u64,
    /// `st_dev` of everything in it.
    pub device: (u32, u32),
    pub directory: PathBuf,
    pub kind: String,
    pub source: PathBuf,
    /// Of this mount, with commas: `rw,nosuid,relatime`.
    pub options: String,
}

impl Mount {
    pub fn is_okeanos(&self) -> bool {
        self.kind == "fuse.okeanos" || self.kind == "fuseblk.okeanos"
    }

    /// Whether nobody serves it any more. Asks the kernel, and a live file system answers at once.
    pub fn is_dead(&self) -> bool {
        let Ok(path) = CString::new(self.directory.as_os_str().as_bytes()) else { return false };
        let mut answer = std::mem::MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: the path ends with a zero byte, and the answer has room for what the kernel writes.
        let failed = unsafe { libc::statfs(path.as_ptr(), answer.as_mut_ptr()) } != 0;
        failed && io::Error::last_os_error().raw_os_error() == Some(libc::ENOTCONN)
    }
}

/// All mounts that this process sees, later ones on top of earlier ones.
pub fn mounts() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// The mounts that the bytes of a `mountinfo` tell of.
pub fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// The uppermost mount on exactly `directory`, which need not answer.
pub fn mount_on(directory: &Path) -> io::Result<Option<Mount>> {
    let directory = resolve(directory)?;
    Ok(mounts()?.into_iter().rfind(|mount| mount.directory == directory))
}

/// An absolute path without links. Looks at the last component only if it must: a dead mount does not answer.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let whole = absolute.canonicalize();
    match (whole, absolute.parent(), absolute.file_name()) {
        (Ok(path), ..) => Ok(path),
        (Err(error), Some(parent), Some(name)) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            Ok(parent.canonicalize()?.join(name))
        }
        (Err(error), ..) => Err(error),
    }
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = std::str::from_utf8(fields.nth(1)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let directory = unescape(fields.nth(1)?);
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    Some(Mount {
        id,
        device: (major.parse().ok()?, minor.parse().ok()?),
        directory: directory.into(),
        kind: String::from_utf8_lossy(fields.next()?).into_owned(),
        source: unescape(fields.next()?).into(),
        options,
    })
}

/// Space, tab, newline and backslash stand there as `\040` and so on.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, behind)) = rest.split_first() {
        let octal = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) if byte == b'\\' => {
                bytes.push(value);
                rest = &behind[3..];
            }
            _ => {
                bytes.push(byte);
                rest = behind;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_a_space_is_read() {
        let line =
            br"36 35 7:3 / /mnt/my\040disk rw,noatime shared:1 master:2 - fuseblk.okeanos /dev/loop3 rw,x=1";
        let mount = parse_line(line).unwrap();
        assert_eq!(mount.directory, Path::new("/mnt/my disk"));
        assert_eq!(mount.id, 36);
        assert_eq!((mount.device, mount.source.as_path()), ((7, 3), Path::new("/dev/loop3")));
        assert!(mount.is_okeanos() && mount.options == "rw,noatime");
    }

    #[test]
    fn nonsense_is_passed_over() {
        for line in [
            &b""[..],
            b"36",
            b"x 35 7:3 / /mnt rw - ext4 a b",
            b"36 35 7:x / /mnt rw - ext4 a b",
            b"36 35 7:3 / /mnt rw",
        ] {
            assert_eq!(parse_line(line), None);
        }
        assert_eq!(unescape(br"a\04\0401"), OsString::from("a\\04 1"));
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(mounts().unwrap().iter().any(|mount| mount.directory == Path::new("/")));
    }
}
