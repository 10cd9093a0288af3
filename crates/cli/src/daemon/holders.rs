//! Processes that hold files of a file system open, whether it is still mounted or not. The mount
//! of a daemon that died keeps its device until the last of them has ended.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum number listed; more would not help.
const LISTED_MAX: usize = 5;

/// Returns the processes that this process may inspect and that hold a file whose `st_dev` is
/// `device`, as `sleep (1234)`. No file system is asked, so one that does not answer delays nobody.
pub fn holders_of(device: (u32, u32)) -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter(|entry| entry.file_name().as_bytes()[0].is_ascii_digit());
    let ours = std::process::id().to_string();
    numbers
        .filter(|process| process.file_name().as_bytes() != ours.as_bytes())
        .filter(|process| holds(&process.path(), device))
        .take(LISTED_MAX)
        .map(|process| {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            format!("{} ({})", name.trim_end(), process.file_name().to_string_lossy())
        })
        .collect()
}

fn holds(process: &Path, device: (u32, u32)) -> bool {
    let is_there = |path: &Path| device_of(path).is_ok_and(|found| found == device);
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let mapped = fs::read_dir(process.join("map_files")).into_iter().flatten().flatten();
    is_there(&process.join("cwd"))
        || is_there(&process.join("root"))
        || open.chain(mapped).any(|entry| is_there(&entry.path()))
}

/// Returns `st_dev` of what a link of `/proc` leads to, as the kernel has it in memory.
fn device_of(path: &Path) -> io::Result<(u32, u32)> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut found = std::mem::MaybeUninit::<libc::statx>::uninit();
    // SAFETY: the path ends with a zero byte, and the kernel fills the structure where it returns
    // zero. Nothing is wanted that a file system would have to be asked for.
    unsafe {
        let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
        match libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, 0, found.as_mut_ptr()) {
            0 => {
                let found = found.assume_init();
                Ok((found.stx_dev_major, found.stx_dev_minor))
            }
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    #[test]
    fn a_process_with_an_open_file_is_named() {
        let file = tempfile::tempfile().unwrap();
        let number = file.metadata().unwrap().dev();
        let device = (libc::major(number), libc::minor(number));
        let mut sleeper = Command::new("sleep").arg("1000").stdin(file).spawn().unwrap();
        let process = format!("/proc/{}", sleeper.id());
        let found = holds(Path::new(&process), device);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(found);
        assert!(!holds(Path::new(&process), device));
    }
}
