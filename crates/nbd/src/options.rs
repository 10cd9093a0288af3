//! Options of the handshake: bytes to structs, and replies to bytes.

pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Longest option; longer ones are unknown here.
pub const OPTION_MAX: u32 = 16 << 10;
/// Bytes before an option's data.
pub const OPTION_HEADER: usize = 16;

pub const ACK: u32 = 1;
pub const SERVER: u32 = 2;
pub const INFO: u32 = 3;
pub const UNSUPPORTED: u32 = 1 << 31 | 1;
pub const POLICY: u32 = 1 << 31 | 2;
pub const INVALID: u32 = 1 << 31 | 3;
pub const UNKNOWN: u32 = 1 << 31 | 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionRequest {
    ExportName(Vec<u8>),
    Abort,
    List,
    StartTls,
    /// INFO or GO; `go`: the transmission follows at once.
    Info {
        go: bool,
        name: Vec<u8>,
        wanted: Vec<u16>,
    },
    StructuredReply,
    /// LIST or SET of metadata contexts, of which there are none.
    MetaContext,
    Unknown,
    /// Data that contradicts itself.
    Malformed,
}

pub fn parse_option(kind: u32, data: &[u8]) -> OptionRequest {
    let empty = |option| if data.is_empty() { option } else { OptionRequest::Malformed };
    match kind {
        1 => OptionRequest::ExportName(data.to_vec()),
        2 => OptionRequest::Abort,
        3 => empty(OptionRequest::List),
        5 => empty(OptionRequest::StartTls),
        6 | 7 => parse_info(kind == 7, data).unwrap_or(OptionRequest::Malformed),
        8 => empty(OptionRequest::StructuredReply),
        9 | 10 => OptionRequest::MetaContext,
        _ => OptionRequest::Unknown,
    }
}

fn parse_info(go: bool, data: &[u8]) -> Option<OptionRequest> {
    let (length, rest) = data.split_first_chunk::<4>()?;
    let (name, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let (count, rest) = rest.split_first_chunk::<2>()?;
    let wanted: Vec<u16> =
        rest.chunks_exact(2).map(|field| u16::from_be_bytes([field[0], field[1]])).collect();
    let whole = rest.len() == 2 * usize::from(u16::from_be_bytes(*count));
    whole.then(|| OptionRequest::Info { go, name: name.to_vec(), wanted })
}

pub fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = REPLY_MAGIC.to_be_bytes().to_vec();
    for field in [option, kind, data.len() as u32] {
        bytes.extend_from_slice(&field.to_be_bytes());
    }
    bytes.extend_from_slice(data);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_contradict_themselves_are_malformed() {
        let option_go = |data: &[u8]| parse_option(7, data);
        let named = [&[0, 0, 0, 1, b'x', 0, 1, 0, 3][..]].concat();
        assert_eq!(
            option_go(&named),
            OptionRequest::Info { go: true, name: b"x".to_vec(), wanted: vec![3] }
        );
        for data in [
            &[][..],
            &[0, 0, 0, 9, b'x'],
            &[255; 8],
            &[0, 0, 0, 0, 0, 2, 0, 3],
            &[0, 0, 0, 0, 0, 0, 9],
        ] {
            assert_eq!(option_go(data), OptionRequest::Malformed, "{data:?}");
        }
        assert_eq!(parse_option(8, &[1]), OptionRequest::Malformed);
        assert_eq!(parse_option(4711, &[1]), OptionRequest::Unknown);
    }
}
