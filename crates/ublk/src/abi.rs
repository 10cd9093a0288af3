//! The ABI of the kernel's ublk driver (`linux/ublk_cmd.h`): structures as it sends and expects
//! them, in the byte order of the machine. Nothing here decides anything.

/// The device that takes control commands.
pub const CONTROL_PATH: &str = "/dev/ublk-control";
/// Bytes of the driver's sectors, whatever the logical sector is.
pub const SECTOR: u64 = 512;
/// `dev_id` that lets the driver choose the number.
pub const ANY_DEVICE: u32 = u32::MAX;
/// `queue_id` of commands that concern no queue.
pub const NO_QUEUE: u16 = u16::MAX;

/// Declares structures: no padding, any bit pattern valid, size as the driver has it.
macro_rules! layout {
    ($($(#[$doc:meta])* $name:ident = $size:literal { $($field:ident: $type:ty),* $(,)? })*) => { $(
        $(#[$doc])*
        #[repr(C)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
            zerocopy::KnownLayout)]
        #[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
        pub struct $name { $(pub $field: $type),* }
        const _: () = assert!(size_of::<$name>() == $size);
    )* }
}

layout! {
    /// `struct ublksrv_ctrl_cmd`, in the command area of a control command.
    ControlCommand = 32 { device: u32, queue: u16, length: u16, address: u64, data: u64,
        path_length: u16, padding: u16, reserved: u32 }
    /// `struct ublksrv_ctrl_dev_info`. The driver keeps `owner_mark` (`ublksrv_flags`) and does
    /// not read it.
    DeviceInfo = 64 { queues: u16, depth: u16, state: u16, padding: u16, request_bytes_max: u32,
        device: u32, process: i32, padding_2: u32, flags: u64, owner_mark: u64, user: u32,
        group: u32, reserved: [u64; 2] }
    /// `struct ublksrv_io_desc`: a request, in memory that the driver shares.
    Descriptor = 24 { operation_and_flags: u32, sectors: u32, first_sector: u64, address: u64 }
    /// `struct ublksrv_io_cmd`, in the command area of a command of a slot.
    SlotCommand = 16 { queue: u16, slot: u16, result: i32, address: u64 }
    /// `struct ublk_param_basic`.
    BasicParameters = 32 { attributes: u32, logical_shift: u8, physical_shift: u8,
        optimal_shift: u8, minimal_shift: u8, request_sectors_max: u32, chunk_sectors: u32,
        device_sectors: u64, boundary_mask: u64 }
    /// `struct ublk_param_discard`.
    DiscardParameters = 20 { alignment: u32, granularity: u32, sectors_max: u32,
        zeroes_sectors_max: u32, segments_max: u16, reserved: u16 }
    /// The first parts of `struct ublk_params`. `behind` belongs to the next part, which
    /// [`PARAMETERS_LENGTH`] leaves out.
    Parameters = 64 { length: u32, types: u32, basic: BasicParameters,
        discard: DiscardParameters, behind: u32 }
}

/// Bytes of [`Parameters`] that are passed to the driver and back.
pub const PARAMETERS_LENGTH: u32 = 60;

pub const PARAMETERS_BASIC: u32 = 1;
pub const PARAMETERS_DISCARD: u32 = 1 << 1;

pub const ATTRIBUTE_READ_ONLY: u32 = 1;
pub const ATTRIBUTE_ROTATIONAL: u32 = 1 << 1;
pub const ATTRIBUTE_VOLATILE_CACHE: u32 = 1 << 2;
pub const ATTRIBUTE_FUA: u32 = 1 << 3;

/// A daemon that died is followed by another, and requests wait for it.
pub const USER_RECOVERY: u64 = 1 << 3;
/// Requests that the dead daemon had not answered are sent again to the next.
pub const USER_RECOVERY_REISSUE: u64 = 1 << 4;
/// Operation codes as of [`CONTROL_ADD`] (Linux 6.4).
pub const COMMANDS_ENCODED: u64 = 1 << 6;
/// Data is copied by pread(2) and pwrite(2) on the device of the daemon (Linux 6.5).
pub const USER_COPY: u64 = 1 << 7;
/// [`CONTROL_UPDATE_SIZE`] (Linux 6.16).
pub const UPDATE_SIZE: u64 = 1 << 10;

pub const STATE_DEAD: u16 = 0;
pub const STATE_LIVE: u16 = 1;
pub const STATE_QUIESCED: u16 = 2;

pub const OPERATION_READ: u32 = 0;
pub const OPERATION_WRITE: u32 = 1;
pub const OPERATION_FLUSH: u32 = 2;
pub const OPERATION_DISCARD: u32 = 3;
pub const OPERATION_WRITE_ZEROES: u32 = 5;
/// Bits of `operation_and_flags` that are the operation.
pub const OPERATION_BITS: u32 = 0xff;
pub const REQUEST_FUA: u32 = 1 << 13;

/// Numbers of commands, encoded as by `_IOR` and `_IOWR` of asm-generic/ioctl.h.
const READ: u32 = 2 << 30;
const READ_WRITE: u32 = 3 << 30;
const fn control(direction: u32, number: u32) -> u32 {
    direction | (size_of::<ControlCommand>() as u32) << 16 | (b'u' as u32) << 8 | number
}
const fn slot(number: u32) -> u32 {
    READ_WRITE | (size_of::<SlotCommand>() as u32) << 16 | (b'u' as u32) << 8 | number
}

pub const CONTROL_INFO: u32 = control(READ, 0x02);
pub const CONTROL_ADD: u32 = control(READ_WRITE, 0x04);
pub const CONTROL_DELETE: u32 = control(READ_WRITE, 0x05);
pub const CONTROL_START: u32 = control(READ_WRITE, 0x06);
pub const CONTROL_STOP: u32 = control(READ_WRITE, 0x07);
pub const CONTROL_SET_PARAMETERS: u32 = control(READ_WRITE, 0x08);
pub const CONTROL_PARAMETERS: u32 = control(READ, 0x09);
pub const CONTROL_START_RECOVERY: u32 = control(READ_WRITE, 0x10);
pub const CONTROL_END_RECOVERY: u32 = control(READ_WRITE, 0x11);
pub const CONTROL_FEATURES: u32 = control(READ, 0x13);
pub const CONTROL_UPDATE_SIZE: u32 = control(READ_WRITE, 0x15);

/// Gives a slot to the driver for the first time.
pub const SLOT_FETCH: u32 = slot(0x20);
/// Answers the slot's request, and asks for the next.
pub const SLOT_COMMIT_AND_FETCH: u32 = slot(0x21);

/// Position of the first byte of a slot's data in the device of the daemon, for queue 0.
pub const fn data_position(slot: u16) -> u64 {
    const BEGIN: u64 = 0x8000_0000;
    const SLOT_SHIFT: u32 = 25;
    BEGIN + ((slot as u64) << SLOT_SHIFT)
}

/// Longest data of a slot that [`data_position`] has room for.
pub const DATA_MAX: u32 = 1 << 25;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn structures_and_numbers_are_those_of_the_driver() {
        assert_eq!(offset_of!(ControlCommand, data), 16);
        assert_eq!(offset_of!(DeviceInfo, flags), 24);
        assert_eq!(offset_of!(DeviceInfo, owner_mark), 32);
        assert_eq!(offset_of!(Descriptor, first_sector), 8);
        assert_eq!(offset_of!(Parameters, basic), 8);
        assert_eq!(offset_of!(Parameters, discard), 40);
        assert_eq!(offset_of!(Parameters, behind), PARAMETERS_LENGTH as usize);
        assert_eq!(offset_of!(BasicParameters, device_sectors), 16);
        // As a C compiler prints UBLK_U_CMD_ADD_DEV, _GET_FEATURES and UBLK_U_IO_FETCH_REQ.
        assert_eq!(CONTROL_ADD, 0xc020_7504);
        assert_eq!(CONTROL_FEATURES, 0x8020_7513);
        assert_eq!(SLOT_FETCH, 0xc010_7520);
        assert_eq!(data_position(1) - data_position(0), u64::from(DATA_MAX));
    }
}
