//! The fixed newstyle handshake.

use crate::connection::Connection;
use crate::export::Export;
use crate::options::{
    ACK, INFO, INVALID, OPTION_HEADER, OPTION_MAGIC, OPTION_MAX, OptionRequest, POLICY, SERVER,
    UNKNOWN, UNSUPPORTED, parse_option, reply,
};
use std::io;

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

/// Result of the negotiation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    pub structured: bool,
}

enum Next {
    Option,
    Transmission,
    Goodbye,
}

fn refuse(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Negotiates with a client; `None` if it ended the session.
pub async fn negotiate(connection: &Connection, export: &Export) -> io::Result<Option<Agreed>> {
    let hello =
        [&b"NBDMAGIC"[..], b"IHAVEOPT", &(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes()].concat();
    connection.send(&[&hello]).await?;
    let mut flags = [0; 4];
    connection.read_exact(&mut flags).await?;
    let flags = u32::from_be_bytes(flags);
    if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 || flags & u32::from(FIXED_NEWSTYLE) == 0
    {
        return Err(refuse("the client does not speak fixed newstyle"));
    }
    let zeroes = if flags & u32::from(NO_ZEROES) == 0 { 124 } else { 0 };
    let mut agreed = Agreed::default();
    loop {
        // A client that sends option after option delays no other.
        runtime::yield_now().await;
        let mut header = [0; OPTION_HEADER];
        connection.read_exact(&mut header).await?;
        let field =
            |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let (kind, length) = (field(8), field(12));
        if header[..8] != OPTION_MAGIC.to_be_bytes() || length > OPTION_MAX {
            return Err(refuse("the client's option is none"));
        }
        let mut data = vec![0; length as usize];
        connection.read_exact(&mut data).await?;
        match answer(connection, export, kind, parse_option(kind, &data), zeroes, &mut agreed)
            .await?
        {
            Next::Option => {}
            Next::Transmission => return Ok(Some(agreed)),
            Next::Goodbye => return Ok(None),
        }
    }
}

async fn answer(
    connection: &Connection,
    export: &Export,
    kind: u32,
    option: OptionRequest,
    zeroes: usize,
    agreed: &mut Agreed,
) -> io::Result<Next> {
    let say = |what: u32, data: &[u8]| reply(kind, what, data);
    let answer = match option {
        OptionRequest::ExportName(name) if name.is_empty() => {
            connection.send(&[&export.about(), &vec![0; zeroes]]).await?;
            return Ok(Next::Transmission);
        }
        // This option has no reply for errors.
        OptionRequest::ExportName(_) => {
            return Err(refuse("there is one export, and its name is empty"));
        }
        OptionRequest::Abort => {
            connection.send(&[&say(ACK, &[])]).await?;
            return Ok(Next::Goodbye);
        }
        OptionRequest::List => [say(SERVER, &[0; 4]), say(ACK, &[])].concat(),
        OptionRequest::StartTls => {
            say(POLICY, b"no TLS: this server listens on its own machine only")
        }
        OptionRequest::Info { name, .. } if !name.is_empty() => {
            say(UNKNOWN, b"there is one export, and its name is empty")
        }
        OptionRequest::Info { go, wanted, .. } => {
            let information =
                |what: u16, data: Vec<u8>| say(INFO, &[&what.to_be_bytes()[..], &data].concat());
            let mut answer = information(INFO_EXPORT, export.about());
            if wanted.contains(&INFO_BLOCK_SIZE) {
                answer.extend(information(INFO_BLOCK_SIZE, export.block_sizes()));
            }
            answer.extend(say(ACK, &[]));
            connection.send(&[&answer]).await?;
            return Ok(if go { Next::Transmission } else { Next::Option });
        }
        OptionRequest::StructuredReply => {
            agreed.structured = true;
            say(ACK, &[])
        }
        OptionRequest::MetaContext if agreed.structured => say(ACK, &[]),
        OptionRequest::MetaContext => say(INVALID, b"structured replies come first"),
        OptionRequest::Unknown => say(UNSUPPORTED, &[]),
        OptionRequest::Malformed => say(INVALID, b"the option's data contradicts itself"),
    };
    connection.send(&[&answer]).await?;
    Ok(Next::Option)
}
