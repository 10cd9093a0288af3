//! One request of the driver: a descriptor, checked.

use crate::abi::{
    Descriptor, OPERATION_BITS, OPERATION_DISCARD, OPERATION_FLUSH, OPERATION_READ,
    OPERATION_WRITE, OPERATION_WRITE_ZEROES, REQUEST_FUA, SECTOR,
};
use device::Geometry;

/// Bytes of data of one request, at most, which the driver is given as its limit.
pub const REQUEST_BYTES_MAX: u32 = 512 << 10;
/// Bytes of one discard, at most.
pub const DISCARD_BYTES_MAX: u32 = 1 << 30;
/// Bytes of one request for zeros, at most: they are written while other requests go on.
pub const ZEROES_BYTES_MAX: u32 = 32 << 20;

/// A request that the disk can carry out. Positions and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UblkRequest {
    Read { at: u64, length: usize },
    Write { at: u64, length: usize, durable: bool },
    Flush,
    Discard { at: u64, length: u64 },
    WriteZeroes { at: u64, length: u64, durable: bool },
}

/// Reason why a request is refused before the disk is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefusal {
    #[error("operation {0} is not known")]
    UnknownOperation(u32),
    #[error("{length} bytes at sector {first_sector} reach beyond the end")]
    BeyondEnd { first_sector: u64, length: u64 },
    #[error("{0} bytes are none, too many, or no whole logical sectors")]
    BadLength(u64),
    #[error("sector {0} begins no logical sector")]
    Unaligned(u64),
    #[error("the disk is read-only")]
    ReadOnly,
}

impl RequestRefusal {
    /// The errno that the block layer sees.
    pub fn code(self) -> i32 {
        match self {
            RequestRefusal::UnknownOperation(_) => libc::EOPNOTSUPP,
            RequestRefusal::ReadOnly => libc::EROFS,
            _ => libc::EIO,
        }
    }
}

impl UblkRequest {
    /// # Errors
    /// A request that the disk cannot carry out. The block layer makes none within the parameters
    /// that the device was given, but it is not relied upon.
    pub fn parse(
        descriptor: &Descriptor,
        geometry: &Geometry,
        read_only: bool,
    ) -> Result<UblkRequest, RequestRefusal> {
        let first_sector = descriptor.first_sector;
        let length = u64::from(descriptor.sectors) * SECTOR;
        let durable = descriptor.operation_and_flags & REQUEST_FUA != 0;
        let operation = descriptor.operation_and_flags & OPERATION_BITS;
        let length_max = match operation {
            OPERATION_FLUSH => return Ok(UblkRequest::Flush),
            OPERATION_READ | OPERATION_WRITE => REQUEST_BYTES_MAX,
            OPERATION_DISCARD => DISCARD_BYTES_MAX,
            OPERATION_WRITE_ZEROES => ZEROES_BYTES_MAX,
            other => return Err(RequestRefusal::UnknownOperation(other)),
        };
        if read_only && operation != OPERATION_READ {
            return Err(RequestRefusal::ReadOnly);
        }
        let sector = u64::from(geometry.logical_sector);
        if length == 0 || length > length_max.into() || length % sector != 0 {
            return Err(RequestRefusal::BadLength(length));
        }
        let beyond = RequestRefusal::BeyondEnd { first_sector, length };
        let at = first_sector.checked_mul(SECTOR).ok_or(beyond)?;
        let end = at.checked_add(length).ok_or(beyond)?;
        if end > geometry.size && !units::fault!("ublk-range-unchecked") {
            return Err(beyond);
        }
        if at % sector != 0 {
            return Err(RequestRefusal::Unaligned(first_sector));
        }
        Ok(match operation {
            OPERATION_READ => UblkRequest::Read { at, length: length as usize },
            OPERATION_WRITE => UblkRequest::Write { at, length: length as usize, durable },
            OPERATION_DISCARD => UblkRequest::Discard { at, length },
            _ => UblkRequest::WriteZeroes { at, length, durable },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    fn geometry(size: u64, logical_sector: u32) -> Geometry {
        Geometry { size, logical_sector, discard: true, forced_unit_access: true }
    }
    fn parse(
        operation_and_flags: u32,
        first_sector: u64,
        sectors: u32,
    ) -> Result<UblkRequest, RequestRefusal> {
        let descriptor = Descriptor { operation_and_flags, sectors, first_sector, address: 0 };
        UblkRequest::parse(&descriptor, &geometry(8192, 512), false)
    }

    #[test]
    fn descriptors_become_requests_in_bytes() {
        assert_eq!(parse(0, 8, 8), Ok(UblkRequest::Read { at: 4096, length: 4096 }));
        let write = |durable| Ok(UblkRequest::Write { at: 512, length: 512, durable });
        assert_eq!(parse(1, 1, 1), write(false));
        assert_eq!(parse(1 | REQUEST_FUA, 1, 1), write(true));
        // Flags of the block layer that change nothing here: failfast, meta, swap.
        assert_eq!(parse(1 | 1 << 8 | 1 << 11 | 1 << 16, 1, 1), write(false));
        assert_eq!(parse(2, 0, 0), Ok(UblkRequest::Flush));
        assert_eq!(parse(3, 0, 16), Ok(UblkRequest::Discard { at: 0, length: 8192 }));
        let zeroes = UblkRequest::WriteZeroes { at: 0, length: 8192, durable: true };
        assert_eq!(parse(5 | REQUEST_FUA, 0, 16), Ok(zeroes));
    }

    #[test]
    fn requests_that_no_disk_can_carry_out_are_refused() {
        for (operation, first_sector, sectors, code) in [
            (0, 16, 1, libc::EIO),
            (1, 15, 2, libc::EIO),
            (1, u64::MAX, 1, libc::EIO),
            (1, u64::MAX / SECTOR, u32::MAX, libc::EIO),
            (0, 0, 0, libc::EIO),
            (4, 0, 1, libc::EOPNOTSUPP),
            (18, 0, 1, libc::EOPNOTSUPP),
        ] {
            let refused = parse(operation, first_sector, sectors).unwrap_err();
            assert_eq!(refused.code(), code, "{operation} {first_sector} {sectors}: {refused}");
        }
        let write = Descriptor { operation_and_flags: 1, sectors: 1, ..Default::default() };
        let disk = geometry(8192, 512);
        assert_eq!(UblkRequest::parse(&write, &disk, true), Err(RequestRefusal::ReadOnly));
        let large = geometry(8192, 4096);
        assert_eq!(UblkRequest::parse(&write, &large, false), Err(RequestRefusal::BadLength(512)));
        let sectors = REQUEST_BYTES_MAX / 512 + 1;
        let long = Descriptor { sectors, ..write };
        let refused = UblkRequest::parse(&long, &geometry(1 << 40, 512), false);
        assert!(matches!(refused, Err(RequestRefusal::BadLength(_))), "{refused:?}");
    }

    /// Random bytes, and bytes near valid ones.
    #[test]
    fn no_descriptor_leads_beyond_the_disk_or_the_bounds() {
        let random = units::SplitMix::new(7);
        let mut accepted = 0u32;
        for round in 0..200_000u32 {
            let logical_sector = 512 << random.below(4);
            let size = random.below(1 << 12) * u64::from(logical_sector);
            let mut bytes = [0; size_of::<Descriptor>()];
            bytes
                .chunks_mut(8)
                .for_each(|chunk| chunk.copy_from_slice(&random.next().to_ne_bytes()));
            let mut descriptor = Descriptor::read_from_bytes(&bytes).unwrap();
            if round % 2 == 0 {
                let unit = logical_sector / SECTOR as u32;
                descriptor.operation_and_flags &= !OPERATION_BITS | 7;
                descriptor.sectors = descriptor.sectors % 1024 * unit;
                descriptor.first_sector = descriptor.first_sector % 4096 * u64::from(unit);
            }
            let disk = geometry(size, logical_sector);
            let (at, length) = match UblkRequest::parse(&descriptor, &disk, false) {
                Ok(UblkRequest::Flush) | Err(_) => continue,
                Ok(UblkRequest::Read { at, length } | UblkRequest::Write { at, length, .. }) => {
                    assert!(length <= REQUEST_BYTES_MAX as usize);
                    (at, length as u64)
                }
                Ok(
                    UblkRequest::Discard { at, length }
                    | UblkRequest::WriteZeroes { at, length, .. },
                ) => (at, length),
            };
            accepted += 1;
            assert!(length > 0 && at.checked_add(length).is_some_and(|end| end <= size));
            assert!(at % u64::from(logical_sector) == 0 && length % u64::from(logical_sector) == 0);
            let is_read = descriptor.operation_and_flags & OPERATION_BITS == OPERATION_READ;
            assert_eq!(UblkRequest::parse(&descriptor, &disk, true).is_ok(), is_read);
        }
        assert!(accepted > 1000, "{accepted} requests were valid");
    }
}
