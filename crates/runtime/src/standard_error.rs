//! Standard error for daemons: a line is written or is lost. Writing neither waits for the reader
//! nor fails with it, as `eprintln!` does.

use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::Duration;

/// A pipe that can be written to at all takes this much (PIPE_BUF).
const TEXT_MAX: usize = 4096;

/// Writes a line to standard error, if it is accepted within `patience`.
pub fn print_line(text: &str, patience: Duration) -> io::Result<()> {
    write_if_ready(libc::STDERR_FILENO, &line_of(text), patience)
}

/// Makes panic messages lines, too, for which nobody waits.
pub fn print_panics_without_waiting() {
    std::panic::set_hook(Box::new(|panic| {
        let _ = print_line(&panic.to_string(), Duration::ZERO);
    }));
}

/// Returns a line that can be written at once, however long the text is.
pub fn line_of(text: &str) -> String {
    let end = (0..TEXT_MAX.min(text.len() + 1)).rev().find(|&end| text.is_char_boundary(end));
    format!("{}\n", &text[..end.unwrap_or(0)])
}

fn write_if_ready(descriptor: libc::c_int, line: &str, patience: Duration) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 };
    let milliseconds = patience.as_millis().try_into().unwrap_or(libc::c_int::MAX);
    // SAFETY: one live structure.
    if unsafe { libc::poll(&raw mut poll, 1, milliseconds) } != 1 {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the bytes are live and as long as said.
    if unsafe { libc::send(descriptor, line.as_ptr().cast(), line.len(), flags) } >= 0 {
        return Ok(());
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOTSOCK) => {
            // SAFETY: the descriptor is open or the write fails; it is not closed here.
            let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
            debug_assert_eq!(file.as_raw_fd(), descriptor);
            (&*file).write(line.as_bytes()).map(drop)
        }
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    /// Returns the lines accepted before the first that is not. `take` drains as much as there is.
    fn taken(descriptor: libc::c_int, mut take: impl FnMut(&mut [u8]) -> usize) {
        let text = "x".repeat(TEXT_MAX);
        let lines = (0..10_000)
            .take_while(|_| write_if_ready(descriptor, &line_of(&text), Duration::ZERO).is_ok());
        let lines = lines.count();
        assert!((1..10_000).contains(&lines), "{lines}");
        let mut bytes = vec![0; 1 << 20];
        assert!(take(&mut bytes) > 0);
        write_if_ready(descriptor, "again\n", Duration::ZERO).unwrap();
    }

    #[test]
    fn a_line_that_nobody_takes_is_lost_and_nobody_waits() {
        let (mut reader, writer) = io::pipe().unwrap();
        taken(writer.as_raw_fd(), |bytes| reader.read(bytes).unwrap());
        drop(reader);
        assert!(write_if_ready(writer.as_raw_fd(), "gone\n", Duration::ZERO).is_err());
        let (mut reader, writer) = UnixStream::pair().unwrap();
        taken(writer.as_raw_fd(), |bytes| reader.read(bytes).unwrap());
        drop(reader);
        assert!(write_if_ready(writer.as_raw_fd(), "gone\n", Duration::ZERO).is_err());
        assert!(write_if_ready(-1, "closed\n", Duration::ZERO).is_err());
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(line_of(""), "\n");
        assert_eq!(line_of("text"), "text\n");
        let line = line_of(&"é".repeat(TEXT_MAX));
        assert!(line.len() <= TEXT_MAX && line.len() > TEXT_MAX - 4, "{}", line.len());
    }
}
