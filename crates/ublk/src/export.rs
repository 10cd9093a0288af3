//! An exported disk, and its description for the driver.

use crate::abi::{
    ATTRIBUTE_FUA, ATTRIBUTE_READ_ONLY, ATTRIBUTE_ROTATIONAL, ATTRIBUTE_VOLATILE_CACHE,
    BasicParameters, DiscardParameters, PARAMETERS_BASIC, PARAMETERS_DISCARD, PARAMETERS_LENGTH,
    Parameters, SECTOR,
};
use crate::request::{DISCARD_BYTES_MAX, REQUEST_BYTES_MAX, ZEROES_BYTES_MAX};
use device::Disk;
use std::rc::Rc;

#[derive(Clone)]
pub struct ExportedDisk {
    pub disk: Rc<dyn Disk>,
    pub read_only: bool,
    /// Whether a write may be lost until a flush, or the write's FUA. The block layer sends
    /// neither to a device without such a cache.
    pub volatile_cache: bool,
    /// Whether platters rotate: schedulers may sort requests.
    pub rotational: bool,
}

impl ExportedDisk {
    /// Returns the parameters of a device over the disk.
    pub fn parameters(&self) -> Parameters {
        let geometry = self.disk.geometry();
        let sectors = |bytes: u32| bytes / SECTOR as u32;
        let physical = self.disk.physical_sector().max(geometry.logical_sector);
        let physical_shift = physical.ilog2() as u8;
        let attributes = [
            (self.read_only, ATTRIBUTE_READ_ONLY),
            (self.rotational, ATTRIBUTE_ROTATIONAL),
            (self.volatile_cache, ATTRIBUTE_VOLATILE_CACHE | ATTRIBUTE_FUA),
        ];
        let may_discard = geometry.discard && !self.read_only;
        Parameters {
            length: PARAMETERS_LENGTH,
            types: PARAMETERS_BASIC | PARAMETERS_DISCARD,
            basic: BasicParameters {
                attributes: attributes.iter().filter(|(has, _)| *has).map(|(_, bits)| bits).sum(),
                logical_shift: geometry.logical_sector.ilog2() as u8,
                physical_shift,
                optimal_shift: physical_shift,
                minimal_shift: physical_shift,
                request_sectors_max: sectors(REQUEST_BYTES_MAX),
                chunk_sectors: 0,
                device_sectors: geometry.size / SECTOR,
                boundary_mask: 0,
            },
            discard: DiscardParameters {
                alignment: 0,
                granularity: physical,
                sectors_max: if may_discard { sectors(DISCARD_BYTES_MAX) } else { 0 },
                zeroes_sectors_max: if self.read_only { 0 } else { sectors(ZEROES_BYTES_MAX) },
                segments_max: 1,
                reserved: 0,
            },
            behind: 0,
        }
    }
}
