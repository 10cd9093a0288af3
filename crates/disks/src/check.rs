use device::{DeviceError, Geometry, Operation};

/// Checks that a request is within the disk and aligned to its sectors.
pub fn check(
    disk: &str,
    geometry: Geometry,
    operation: Operation,
    at: u64,
    length: u64,
) -> Result<(), DeviceError> {
    let Geometry { size, logical_sector: sector, .. } = geometry;
    let disk = || disk.to_owned();
    if at.checked_add(length).is_none_or(|end| end > size) {
        return Err(DeviceError::OutOfRange { disk: disk(), operation, at, length, size });
    }
    if at % u64::from(sector) != 0 || length % u64::from(sector) != 0 {
        return Err(DeviceError::Unaligned { disk: disk(), operation, at, length, sector });
    }
    Ok(())
}
