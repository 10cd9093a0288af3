//! INIT: negotiates the kernel's offer.

use crate::abi::{self, InitIn, InitOut, init};

/// The channel that requests take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// The faster one where that was measured: reads of `/dev/fuse` (docs/KERNELS.md).
    #[default]
    Auto,
    /// io_uring when kernel and module parameter allow it; a caller that insists checks
    /// [`Negotiated::uring`].
    Uring,
    /// Reads of `/dev/fuse` alone.
    Classic,
}

/// Result of the negotiation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Negotiated {
    /// The session's reply to INIT, with the accepted flags.
    pub reply: InitOut,
    /// Whether the kernel takes ring entries.
    pub uring: bool,
    /// Whether mounts may map users and groups.
    pub idmapped: bool,
    /// The protocol's minor version: the lower of the kernel's and [`abi::MINOR`].
    pub minor: u32,
}

impl Negotiated {
    /// Returns whether sync(2) and syncfs(2) reach the daemon that serves a block device.
    pub fn forwards_syncs(&self) -> bool {
        self.minor >= FORWARDS_SYNCS
    }
}

/// Reason for a failed negotiation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InitError {
    /// The kernel is older than [`abi::MINOR_LOWEST`], or of another major version.
    #[error(
        "the kernel speaks FUSE {major}.{minor}; {}.{} (Linux 5.4) or later is needed",
        abi::MAJOR,
        abi::MINOR_LOWEST
    )]
    TooOld {
        /// The kernel's major version.
        major: u32,
        /// The kernel's minor version.
        minor: u32,
    },
}

/// The most bytes that one WRITE or READ carries, and the most that a listing may have.
pub const MAX_WRITE: u32 = 1 << 20;
/// Introduced with Linux 6.3: labels are an extension whose length the header has.
const EXTENDS_REQUESTS: u32 = 38;
/// Introduced with Linux 6.18.
const FORWARDS_SYNCS: u32 = 45;

/// Taken when offered. Locks stay in the kernel where all users are on this host (no POSIX_LOCKS,
/// FLOCK_LOCKS). No WRITEBACK_CACHE: the kernel would hide from `stat` when a synchronous write
/// changed a file. No ATOMIC_O_TRUNC: the file would be empty before the kernel finds that it must
/// not be written (ETXTBSY). No AUTO_INVAL_DATA: each write through the cache would empty it, since
/// it changes the modification time.
const WANTED: u64 = init::ASYNC_READ
    | init::EXPORT_SUPPORT
    | init::BIG_WRITES
    | init::DONT_MASK
    | init::HAS_IOCTL_DIR
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::POSIX_ACL
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    // Without it every cached write asks for security.capability first.
    | init::HANDLE_KILLPRIV_V2
    | init::EXPLICIT_INVAL_DATA
    | init::SETXATTR_EXT
    | init::INIT_EXT
    | init::DIRECT_IO_ALLOW_MMAP;

/// Optional features that a file system takes when offered.
#[derive(Clone, Copy, Debug, Default)]
pub struct OptionalFeatures {
    /// Others share the files: locks come as requests.
    pub remote_locks: bool,
    /// New files come with their labels.
    pub security_labels: bool,
    /// Mounts may map users and groups.
    pub idmapped_mounts: bool,
}

impl OptionalFeatures {
    fn flags(self, minor: u32) -> u64 {
        let of = |is_wanted, flags| if is_wanted { flags } else { 0 };
        of(self.remote_locks, init::POSIX_LOCKS | init::FLOCK_LOCKS)
            | of(self.security_labels && minor >= EXTENDS_REQUESTS, init::SECURITY_CTX)
            | of(self.idmapped_mounts, init::ALLOW_IDMAP)
    }
}

/// Negotiates with a kernel whose pages have `page` bytes.
pub fn negotiate(
    offer: &InitIn,
    transport: Transport,
    optional: OptionalFeatures,
    page: u32,
) -> Result<Negotiated, InitError> {
    if offer.major != abi::MAJOR || offer.minor < abi::MINOR_LOWEST {
        return Err(InitError::TooOld { major: offer.major, minor: offer.minor });
    }
    let offered = u64::from(offer.flags) | u64::from(offer.flags2) << 32;
    let wanted = match transport {
        Transport::Auto | Transport::Classic => WANTED,
        Transport::Uring => WANTED | init::OVER_IO_URING,
    };
    let flags = offered & (wanted | optional.flags(offer.minor));
    let minor = offer.minor.min(abi::MINOR);
    let reply = InitOut {
        major: abi::MAJOR,
        minor,
        // Only lowers the mount's own value (`read_ahead_kb`), so that decides.
        max_readahead: u32::MAX,
        flags: flags as u32,
        flags2: (flags >> 32) as u32,
        // Requests for which no caller waits (readahead, write-back, asynchronous direct I/O).
        max_background: 128,
        congestion_threshold: 96,
        max_write: MAX_WRITE,
        time_gran: 1,
        // A READ of more than MAX_WRITE would get fewer bytes than it asks for, which the kernel
        // takes for the end of the file.
        max_pages: (MAX_WRITE / page) as u16,
        ..InitOut::default()
    };
    let taken = |flag| flags & flag != 0;
    let (uring, idmapped) = (taken(init::OVER_IO_URING), taken(init::ALLOW_IDMAP));
    Ok(Negotiated { reply, uring, idmapped, minor })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u32 = 4096;
    const OFFER: InitIn = InitIn {
        major: 7,
        minor: 45,
        max_readahead: 131072,
        flags: !0,
        flags2: !0,
        unused: [0; 11],
    };

    #[test]
    fn the_kernel_may_read_ahead_as_far_as_the_mount_wants() {
        assert_eq!(
            negotiate(&OFFER, Transport::Auto, OptionalFeatures::default(), PAGE)
                .unwrap()
                .reply
                .max_readahead,
            u32::MAX
        );
    }

    #[test]
    fn no_read_is_longer_than_its_reply_may_be() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            let reply = negotiate(&OFFER, Transport::Auto, OptionalFeatures::default(), page)
                .unwrap()
                .reply;
            assert_eq!(u32::from(reply.max_pages) * page, MAX_WRITE, "{page}");
        }
    }

    #[test]
    fn only_offered_features_are_taken() {
        let poor = InitIn { flags: init::BIG_WRITES as u32, flags2: 0, ..OFFER };
        let negotiated =
            negotiate(&poor, Transport::Uring, OptionalFeatures::default(), PAGE).unwrap();
        assert_eq!((negotiated.reply.flags, negotiated.reply.flags2), (init::BIG_WRITES as u32, 0));
        assert!(!negotiated.uring);
    }

    #[test]
    fn only_wishes_are_taken_beside_it() {
        let flags = |optional, minor| {
            let offer = InitIn { minor, ..OFFER };
            let reply = negotiate(&offer, Transport::Auto, optional, PAGE).unwrap().reply;
            u64::from(reply.flags) | u64::from(reply.flags2) << 32
        };
        let none = OptionalFeatures::default();
        for (optional, minor, wished) in [
            (none, 45, 0),
            (
                OptionalFeatures { remote_locks: true, ..none },
                45,
                init::POSIX_LOCKS | init::FLOCK_LOCKS,
            ),
            (OptionalFeatures { security_labels: true, ..none }, 38, init::SECURITY_CTX),
            (OptionalFeatures { security_labels: true, ..none }, 37, 0),
            (OptionalFeatures { idmapped_mounts: true, ..none }, 45, init::ALLOW_IDMAP),
        ] {
            assert_eq!(flags(optional, minor), WANTED | wished, "{optional:?}");
        }
    }

    #[test]
    fn the_write_back_cache_and_remote_locks_are_never_taken() {
        let flags = negotiate(&OFFER, Transport::Auto, OptionalFeatures::default(), PAGE)
            .unwrap()
            .reply
            .flags;
        for (bit, name) in
            [(1, "POSIX_LOCKS"), (10, "FLOCK_LOCKS"), (16, "WRITEBACK_CACHE"), (17, "NO_OPEN")]
        {
            assert_eq!(flags & 1 << bit, 0, "{name}");
        }
    }

    #[test]
    fn only_uring_requests_the_ring() {
        for (transport, uring) in
            [(Transport::Auto, false), (Transport::Classic, false), (Transport::Uring, true)]
        {
            let negotiated =
                negotiate(&OFFER, transport, OptionalFeatures::default(), PAGE).unwrap();
            assert_eq!(negotiated.uring, uring, "{transport:?}");
        }
    }

    #[test]
    fn no_kernel_empties_its_cache_when_a_file_changes() {
        for minor in [31, 44, 45] {
            let offer = InitIn { minor, ..OFFER };
            let flags = negotiate(&offer, Transport::Auto, OptionalFeatures::default(), PAGE)
                .unwrap()
                .reply
                .flags;
            let both = (init::AUTO_INVAL_DATA | init::EXPLICIT_INVAL_DATA) as u32;
            assert_eq!(flags & both, init::EXPLICIT_INVAL_DATA as u32, "{minor}");
        }
    }

    #[test]
    fn older_kernels_keep_syncs_to_themselves() {
        for (minor, passes) in [(45, true), (99, true), (44, false), (31, false)] {
            let negotiated = negotiate(
                &InitIn { minor, ..OFFER },
                Transport::Auto,
                OptionalFeatures::default(),
                PAGE,
            )
            .unwrap();
            assert_eq!(negotiated.forwards_syncs(), passes, "{minor}");
        }
    }

    #[test]
    fn a_kernel_too_old_is_refused_by_number() {
        let old = InitIn { minor: 23, ..OFFER };
        assert_eq!(
            negotiate(&old, Transport::Auto, OptionalFeatures::default(), PAGE),
            Err(InitError::TooOld { major: 7, minor: 23 })
        );
    }
}
