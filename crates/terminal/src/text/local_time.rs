//! Moments for people: local time, with its distance from UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time: `2026-11-22 23:17:48 +0100`.
pub fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    local(seconds.try_into().unwrap_or(i64::MAX))
}

/// Formats seconds since 1970 in the time zone of TZ or the system. Times outside the calendar stay
/// a number.
pub fn local(seconds: i64) -> String {
    let mut fields = std::mem::MaybeUninit::<libc::tm>::uninit();
    let mut text = [0_u8; 64];
    // SAFETY: the time is a live number; the structure is used only where the call has filled it.
    // The format ends with a zero byte, and no more is written than the buffer holds.
    let length = unsafe {
        if libc::localtime_r(&raw const seconds, fields.as_mut_ptr()).is_null() {
            return format!("{seconds} s");
        }
        libc::strftime(
            text.as_mut_ptr().cast(),
            text.len(),
            c"%Y-%m-%d %H:%M:%S %z".as_ptr(),
            fields.as_ptr(),
        )
    };
    String::from_utf8_lossy(&text[..length]).into_owned()
}

/// Formats a time with its fraction of a second: `2026-11-22 23:17:48.000000017 +0100`.
pub fn exact(seconds: i64, nanoseconds: u32) -> String {
    let text = local(seconds);
    match text.rsplit_once(' ') {
        Some((moment, zone)) if zone.starts_with(['+', '-']) => {
            format!("{moment}.{nanoseconds:09} {zone}")
        }
        _ => format!("{seconds}.{nanoseconds:09} s"),
    }
}

/// Returns by how many seconds local time is ahead of UTC now; 0 if unknown.
pub fn seconds_east() -> i64 {
    let now =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let mut fields = std::mem::MaybeUninit::<libc::tm>::uninit();
    // SAFETY: the time is a live number; the structure is used only where the call has filled it.
    unsafe {
        match libc::localtime_r(&raw const now, fields.as_mut_ptr()).is_null() {
            true => 0,
            false => fields.assume_init().tm_gmtoff,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_moment_has_its_zone() {
        let text = super::local(1_000_000_000);
        assert!(
            text.starts_with("2001-09-0") && (text.contains(" +") || text.contains(" -")),
            "{text}"
        );
        let exact = super::exact(1_000_000_000, 17);
        let (moment, zone) = text.rsplit_once(' ').unwrap();
        assert_eq!(exact, format!("{moment}.000000017 {zone}"));
        assert_eq!(super::local(i64::MAX), format!("{} s", i64::MAX));
    }
}
