//! Parses the kernel's bytes to one [`Operation`]. A request that contradicts itself is
//! `MalformedRequest`, never a panic.

use crate::abi::*;
use crate::message::Bytes;
use crate::ring_queue::{RingQueue, WaitPermit};
use device::Buffer;
use std::ops::{Deref, Range};
use std::rc::Rc;
use zerocopy::FromBytes;

/// A request as it arrived, with all its bytes. The file system drops it before its reply is sent,
/// as the transport's memory may be lent to it. So it cannot be cloned.
#[derive(Debug)]
pub struct Request {
    /// The header, which every request has: node, user, group and process of the caller.
    pub header: InHeader,
    bytes: Bytes,
    /// Range of `bytes` that has the fixed structure, names and data.
    body: Range<usize>,
    /// Range that has the extensions: of `bytes`, or of the payload if that is lent.
    extensions: Range<usize>,
    /// Names and data, if the transport keeps them apart from the fixed structure (io_uring).
    payload: Option<Payload>,
    /// The ring entries of which the request occupies one (io_uring).
    queue: Option<Rc<RingQueue>>,
    /// Whether SETXATTR has [`SetxattrShortIn`].
    has_short_setxattr: bool,
}

#[derive(Debug)]
enum Payload {
    /// Malformed after this many bytes of the body.
    At(usize),
    /// The first bytes of memory of the transport: nothing was copied.
    Lent(Rc<dyn Lent>, usize),
    /// Memory of its own: the data of a large WRITE.
    Own(Rc<Buffer>),
}

/// Memory of the transport, which stays unchanged for as long as this lives.
pub(crate) trait Lent: Deref<Target = [u8]> + std::fmt::Debug {}

/// A request that lacks what its operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedRequest;

/// The label that a security module gives to a new file: an extended attribute that comes into
/// being with it. The name with its prefix, such as `security.selinux`, and the value.
pub type SecurityLabel<'a> = (&'a [u8], &'a [u8]);

/// A parsed request. The node it is for is in the header of the [`Request`]; for operations on a
/// name that is the directory. Names have no zero byte and are not empty.
#[derive(Debug)]
#[allow(missing_docs, reason = "operations and fields are named as in linux/fuse.h")]
pub enum Operation<'a> {
    Init(InitIn),
    Lookup {
        name: &'a [u8],
    },
    Forget {
        lookups: u64,
    },
    BatchForget(Vec<ForgetOne>),
    Getattr,
    Statx(StatxIn),
    Setattr(SetattrIn),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
        labels: Vec<SecurityLabel<'a>>,
    },
    Mknod {
        arguments: MknodIn,
        name: &'a [u8],
        labels: Vec<SecurityLabel<'a>>,
    },
    Mkdir {
        arguments: MkdirIn,
        name: &'a [u8],
        labels: Vec<SecurityLabel<'a>>,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    /// The request's node is the directory that gets the name.
    Link {
        node: u64,
        name: &'a [u8],
    },
    Open(OpenIn),
    Read(ReadIn),
    Write {
        arguments: WriteIn,
        data: &'a [u8],
        /// Memory of the data alone, to be kept if they are needed longer.
        memory: Option<&'a Rc<Buffer>>,
    },
    Statfs,
    Release(ReleaseIn),
    Fsync(FsyncIn),
    Setxattr {
        arguments: SetxattrIn,
        name: &'a [u8],
        value: &'a [u8],
    },
    Getxattr {
        size: u32,
        name: &'a [u8],
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Flush(FlushIn),
    Getlk(LkIn),
    Setlk {
        arguments: LkIn,
        waits: bool,
    },
    Opendir,
    Readdir(ReadIn),
    Readdirplus(ReadIn),
    Releasedir(ReleaseIn),
    Fsyncdir(FsyncIn),
    Create {
        arguments: CreateIn,
        name: &'a [u8],
        labels: Vec<SecurityLabel<'a>>,
    },
    Tmpfile {
        arguments: CreateIn,
        labels: Vec<SecurityLabel<'a>>,
    },
    Interrupt {
        unique: u64,
    },
    Bmap(BmapIn),
    Destroy,
    Syncfs,
    Ioctl {
        arguments: IoctlIn,
        input: &'a [u8],
    },
    Fallocate(FallocateIn),
    Lseek(LseekIn),
    /// Sent by Linux 6.18 and later. Kernels that only know COPY_FILE_RANGE may not write the pages
    /// of a mapping back before it.
    CopyFileRange(CopyFileRangeIn),
    /// An operation that is not supported, or left to the kernel (ACCESS, COPY_FILE_RANGE).
    Other,
}

impl Request {
    /// Parses the header of `message`: the result of one read(2) of `/dev/fuse`.
    ///
    /// # Errors
    /// [`MalformedRequest`] if it has no header, or another length than the header states.
    pub fn from_message(message: &[u8]) -> Result<Request, MalformedRequest> {
        Request::from_bytes(message.to_vec().into())
    }
    pub(crate) fn from_bytes(bytes: Bytes) -> Result<Request, MalformedRequest> {
        let (header, body) = InHeader::read_from_prefix(&bytes).map_err(|_| MalformedRequest)?;
        if header.len as usize != bytes.len() {
            return Err(MalformedRequest);
        }
        let extensions = usize::from(header.total_extlen) * RECORD_ALIGNMENT;
        let length = body.len().checked_sub(extensions).ok_or(MalformedRequest)?;
        let begin = size_of::<InHeader>();
        let whole = begin..begin + length;
        let extensions = whole.end..bytes.len();
        let request = |bytes, body, payload| Request {
            header,
            bytes,
            body,
            extensions,
            payload,
            queue: None,
            has_short_setxattr: false,
        };
        if header.opcode != opcode::WRITE || whole.end < bytes.len() {
            return Ok(request(bytes, whole, None));
        }
        Ok(match bytes.into_data() {
            Ok((bytes, data)) => {
                let body = begin..bytes.len();
                request(bytes.into(), body, Some(Payload::Own(data)))
            }
            Err(bytes) => request(bytes, whole, None),
        })
    }

    /// Makes a request of the parts that a ring entry keeps: the fixed structure and the payload.
    ///
    /// # Errors
    /// [`MalformedRequest`] if the payload is shorter than its extensions.
    pub fn from_parts(
        header: InHeader,
        fixed: &[u8],
        payload: &[u8],
    ) -> Result<Request, MalformedRequest> {
        let end = fixed.len() + without_extensions(&header, payload.len())?;
        let mut bytes = Vec::with_capacity(fixed.len() + payload.len());
        bytes.extend_from_slice(fixed);
        bytes.extend_from_slice(payload);
        Ok(Request {
            header,
            extensions: end..bytes.len(),
            bytes: bytes.into(),
            body: 0..end,
            payload: Some(Payload::At(fixed.len())),
            queue: None,
            has_short_setxattr: false,
        })
    }

    /// Parses such parts, and leaves the payload where it is.
    pub(crate) fn from_lent(
        header: InHeader,
        fixed: &[u8],
        payload: Rc<dyn Lent>,
    ) -> Result<Request, MalformedRequest> {
        let length = without_extensions(&header, payload.len())?;
        let extensions = length..payload.len();
        let (bytes, payload) = (fixed.to_vec().into(), Some(Payload::Lent(payload, length)));
        let (body, queue, has_short_setxattr) = (0..fixed.len(), None, false);
        Ok(Request { header, bytes, body, extensions, payload, queue, has_short_setxattr })
    }

    /// Returns the request as it is where `SETXATTR_EXT` was not negotiated (Linux before 5.13).
    #[must_use]
    pub fn with_short_setxattr(self) -> Request {
        Request { has_short_setxattr: true, ..self }
    }

    pub(crate) fn in_queue(self, queue: Rc<RingQueue>) -> Request {
        Request { queue: Some(queue), ..self }
    }

    /// Begins a wait for another request, such as one that gives a lock up. `None`: too many
    /// requests of the caller's processor wait already, and the other one could not be read. The
    /// reply is an error then.
    pub fn begin_wait(&self) -> Option<WaitPermit> {
        self.queue.as_ref().map_or_else(|| Some(WaitPermit::unlimited()), RingQueue::begin_wait)
    }

    /// Returns the memory that the request owns, in bytes.
    pub(crate) fn held(&self) -> usize {
        let own = self.own_data().map_or(0, |data| data.held());
        self.bytes.held() + own
    }

    fn own_data(&self) -> Option<&Rc<Buffer>> {
        match &self.payload {
            Some(Payload::Own(data)) => Some(data),
            _ => None,
        }
    }

    /// Returns whether the kernel waits for a reply.
    pub fn wants_reply(&self) -> bool {
        !matches!(self.header.opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT)
    }

    /// Parses the operation. Names and data are not copied.
    ///
    /// # Errors
    /// [`MalformedRequest`] if a structure, name or data is missing or shorter than stated. The
    /// usual reply is EINVAL.
    pub fn operation(&self) -> Result<Operation<'_>, MalformedRequest> {
        let mut body = Body::of(self);
        Ok(match self.header.opcode {
            opcode::INIT => Operation::Init(body.fixed_padded()?),
            opcode::LOOKUP => Operation::Lookup { name: body.payload().name()? },
            opcode::FORGET => Operation::Forget { lookups: body.fixed::<ForgetIn>()?.nlookup },
            opcode::BATCH_FORGET => Operation::BatchForget(body.forgets()?),
            opcode::GETATTR => Operation::Getattr,
            opcode::STATX => Operation::Statx(body.fixed()?),
            opcode::SETATTR => Operation::Setattr(body.fixed()?),
            opcode::READLINK => Operation::Readlink,
            opcode::SYMLINK => {
                let names = body.payload();
                let (name, target) = (names.name()?, names.name()?);
                Operation::Symlink { name, target, labels: self.labels()? }
            }
            opcode::MKNOD => {
                let (arguments, name) = (body.fixed()?, body.name()?);
                Operation::Mknod { arguments, name, labels: self.labels()? }
            }
            opcode::MKDIR => {
                let (arguments, name) = (body.fixed()?, body.name()?);
                Operation::Mkdir { arguments, name, labels: self.labels()? }
            }
            opcode::UNLINK => Operation::Unlink { name: body.payload().name()? },
            opcode::RMDIR => Operation::Rmdir { name: body.payload().name()? },
            opcode::RENAME => {
                let new_parent = body.fixed::<RenameIn>()?.newdir;
                Operation::Rename {
                    name: body.name()?,
                    new_parent,
                    new_name: body.name()?,
                    flags: 0,
                }
            }
            opcode::RENAME2 => {
                let Rename2In { newdir, flags, .. } = body.fixed()?;
                Operation::Rename {
                    name: body.name()?,
                    new_parent: newdir,
                    new_name: body.name()?,
                    flags,
                }
            }
            opcode::LINK => {
                Operation::Link { node: body.fixed::<LinkIn>()?.oldnodeid, name: body.name()? }
            }
            opcode::OPEN => Operation::Open(body.fixed()?),
            opcode::READ => Operation::Read(body.fixed()?),
            opcode::WRITE => {
                let arguments: WriteIn = body.fixed()?;
                let data = body.bytes(arguments.size)?;
                let memory = self.own_data().filter(|memory| memory.len() == data.len());
                Operation::Write { arguments, data, memory }
            }
            opcode::STATFS => Operation::Statfs,
            opcode::RELEASE => Operation::Release(body.fixed()?),
            opcode::FSYNC => Operation::Fsync(body.fixed()?),
            opcode::SETXATTR => {
                let arguments = match self.has_short_setxattr {
                    true => {
                        let SetxattrShortIn { size, flags } = body.fixed()?;
                        SetxattrIn { size, flags, ..SetxattrIn::default() }
                    }
                    false => body.fixed()?,
                };
                Operation::Setxattr {
                    arguments,
                    name: body.name()?,
                    value: body.bytes(arguments.size)?,
                }
            }
            opcode::GETXATTR => {
                Operation::Getxattr { size: body.fixed::<GetxattrIn>()?.size, name: body.name()? }
            }
            opcode::LISTXATTR => Operation::Listxattr { size: body.fixed::<GetxattrIn>()?.size },
            opcode::REMOVEXATTR => Operation::Removexattr { name: body.payload().name()? },
            opcode::FLUSH => Operation::Flush(body.fixed()?),
            opcode::GETLK => Operation::Getlk(body.fixed()?),
            opcode::SETLK => Operation::Setlk { arguments: body.fixed()?, waits: false },
            opcode::SETLKW => Operation::Setlk { arguments: body.fixed()?, waits: true },
            opcode::OPENDIR => Operation::Opendir,
            opcode::READDIR => Operation::Readdir(body.fixed()?),
            opcode::READDIRPLUS => Operation::Readdirplus(body.fixed()?),
            opcode::RELEASEDIR => Operation::Releasedir(body.fixed()?),
            opcode::FSYNCDIR => Operation::Fsyncdir(body.fixed()?),
            opcode::CREATE => {
                let (arguments, name) = (body.fixed()?, body.name()?);
                Operation::Create { arguments, name, labels: self.labels()? }
            }
            // A name follows, but it means nothing: the file has none.
            opcode::TMPFILE => {
                Operation::Tmpfile { arguments: body.fixed()?, labels: self.labels()? }
            }
            opcode::INTERRUPT => {
                Operation::Interrupt { unique: body.fixed::<InterruptIn>()?.unique }
            }
            opcode::BMAP => Operation::Bmap(body.fixed()?),
            opcode::DESTROY => Operation::Destroy,
            opcode::SYNCFS => Operation::Syncfs,
            opcode::IOCTL => {
                let arguments: IoctlIn = body.fixed()?;
                Operation::Ioctl { arguments, input: body.bytes(arguments.in_size)? }
            }
            opcode::FALLOCATE => Operation::Fallocate(body.fixed()?),
            opcode::LSEEK => Operation::Lseek(body.fixed()?),
            opcode::COPY_FILE_RANGE_64 => Operation::CopyFileRange(body.fixed()?),
            _ => Operation::Other,
        })
    }

    /// Parses the labels of a file that is made. Extensions of other kinds are skipped.
    fn labels(&self) -> Result<Vec<SecurityLabel<'_>>, MalformedRequest> {
        let place: &[u8] = match &self.payload {
            Some(Payload::Lent(payload, _)) => payload,
            _ => &self.bytes,
        };
        let mut rest = &place[self.extensions.clone()];
        let mut labels = Vec::new();
        while !rest.is_empty() {
            let (header, _) =
                ExtensionHeader::read_from_prefix(rest).map_err(|_| MalformedRequest)?;
            let size = header.size as usize;
            let (extension, behind) = rest.split_at_checked(size).ok_or(MalformedRequest)?;
            let mut body = Body {
                bytes: extension.get(size_of::<ExtensionHeader>()..).ok_or(MalformedRequest)?,
                payload: None,
            };
            let count = if header.kind <= MAX_LABELS { header.kind } else { 0 };
            for _ in 0..count {
                labels.push(body.label()?);
            }
            // Padded only where another one follows.
            rest = behind.get(size.next_multiple_of(RECORD_ALIGNMENT) - size..).unwrap_or_default();
        }
        Ok(labels)
    }
}

/// Returns the length of a payload without what the kernel appends.
fn without_extensions(header: &InHeader, length: usize) -> Result<usize, MalformedRequest> {
    length.checked_sub(usize::from(header.total_extlen) * RECORD_ALIGNMENT).ok_or(MalformedRequest)
}

/// The unparsed rest of a request's body.
struct Body<'a> {
    bytes: &'a [u8],
    /// Present if `bytes` has the fixed structure and nothing else.
    payload: Option<&'a [u8]>,
}

impl<'a> Body<'a> {
    fn of(request: &'a Request) -> Body<'a> {
        let body = &request.bytes[request.body.clone()];
        match &request.payload {
            None => Body { bytes: body, payload: None },
            Some(Payload::At(at)) => Body { bytes: &body[..*at], payload: Some(&body[*at..]) },
            Some(Payload::Lent(payload, length)) => {
                Body { bytes: body, payload: Some(&payload[..*length]) }
            }
            Some(Payload::Own(data)) => Body { bytes: body, payload: Some(data) },
        }
    }
    /// Moves on to names and data, for operations without a fixed structure.
    fn payload(&mut self) -> &mut Body<'a> {
        if let Some(payload) = self.payload.take() {
            self.bytes = payload;
        }
        self
    }
    fn fixed<T: FromBytes>(&mut self) -> Result<T, MalformedRequest> {
        let (value, rest) = T::read_from_prefix(self.bytes).map_err(|_| MalformedRequest)?;
        self.bytes = self.payload.take().unwrap_or(rest);
        Ok(value)
    }
    /// Parses like `fixed`, but older kernels send a shorter structure: missing bytes are zero.
    fn fixed_padded(&mut self) -> Result<InitIn, MalformedRequest> {
        let mut whole = [0; size_of::<InitIn>()];
        let given = self.bytes.len().min(whole.len());
        whole[..given].copy_from_slice(&self.bytes[..given]);
        if given < 16 {
            Err(MalformedRequest)
        } else {
            InitIn::read_from_bytes(&whole).map_err(|_| MalformedRequest)
        }
    }
    /// Parses a name that ends with a zero byte.
    fn name(&mut self) -> Result<&'a [u8], MalformedRequest> {
        let end = self.bytes.iter().position(|&byte| byte == 0).ok_or(MalformedRequest)?;
        let (name, rest) = self.bytes.split_at(end);
        self.bytes = &rest[1..];
        if name.is_empty() { Err(MalformedRequest) } else { Ok(name) }
    }
    fn bytes(&mut self, count: u32) -> Result<&'a [u8], MalformedRequest> {
        let (bytes, rest) = self.bytes.split_at_checked(count as usize).ok_or(MalformedRequest)?;
        self.bytes = rest;
        Ok(bytes)
    }
    fn label(&mut self) -> Result<SecurityLabel<'a>, MalformedRequest> {
        let begin = self.bytes.len();
        let size = self.fixed::<LabelHeader>()?.size;
        let label = (self.name()?, self.bytes(size)?);
        let length = begin - self.bytes.len();
        let padding = length.next_multiple_of(RECORD_ALIGNMENT) - length;
        self.bytes = self.bytes.get(padding..).unwrap_or_default();
        Ok(label)
    }
    fn forgets(&mut self) -> Result<Vec<ForgetOne>, MalformedRequest> {
        let count = self.fixed::<BatchForgetIn>()?.count as usize;
        if count > self.bytes.len() / size_of::<ForgetOne>() {
            return Err(MalformedRequest);
        }
        (0..count).map(|_| self.fixed()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let header =
            InHeader { len: (40 + body.len()) as u32, opcode, nodeid: 1, ..Default::default() };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn every_cut_of_every_request_is_malformed_or_understood_but_never_a_panic() {
        let body: Vec<u8> = (0..200u8).map(|byte| byte.wrapping_mul(37)).collect();
        for opcode in 0..70 {
            for length in 0..body.len() {
                let request = Request::from_message(&message(opcode, &body[..length])).unwrap();
                let _ = request.operation();
                let parts =
                    Request::from_parts(request.header, &body[..length.min(128)], &body[..length])
                        .unwrap();
                let _ = parts.operation();
            }
        }
    }

    #[test]
    fn a_write_shorter_than_it_says_is_malformed() {
        let arguments = WriteIn { size: 4, ..Default::default() };
        let whole = [arguments.as_bytes(), b"abcd"].concat();
        let request = Request::from_message(&message(opcode::WRITE, &whole)).unwrap();
        assert!(matches!(request.operation(), Ok(Operation::Write { data: b"abcd", .. })));
        let request = Request::from_message(&message(opcode::WRITE, &whole[..43])).unwrap();
        assert_eq!(request.operation().unwrap_err(), MalformedRequest);
    }

    #[test]
    fn an_attribute_keeps_its_whole_name_where_the_extension_was_not_negotiated() {
        let arguments = SetxattrShortIn { size: 5, flags: 1 };
        let whole = [arguments.as_bytes(), b"user.123security.capability\0value"].concat();
        let request = Request::from_message(&message(opcode::SETXATTR, &whole)).unwrap();
        let request = request.with_short_setxattr();
        let Ok(Operation::Setxattr { arguments, name, value }) = request.operation() else {
            panic!("{request:?}")
        };
        assert_eq!((name, value), (&b"user.123security.capability"[..], &b"value"[..]));
        assert_eq!((arguments.size, arguments.flags, arguments.setxattr_flags), (5, 1, 0));
    }

    #[test]
    fn both_transports_give_the_same_operation() {
        let rename = Rename2In { newdir: 9, flags: 1, padding: 0 };
        let classic = [rename.as_bytes(), b"old\0new\0"].concat();
        let classic = Request::from_message(&message(opcode::RENAME2, &classic)).unwrap();
        let mut fixed = [0; 128];
        fixed[..16].copy_from_slice(rename.as_bytes());
        let ring = Request::from_parts(classic.header, &fixed, b"old\0new\0").unwrap();
        for request in [classic, ring] {
            let Ok(Operation::Rename { name, new_parent, new_name, flags }) = request.operation()
            else {
                panic!("{request:?}")
            };
            assert_eq!((name, new_parent, new_name, flags), (&b"old"[..], 9, &b"new"[..], 1));
        }
        let header = InHeader { opcode: opcode::LOOKUP, ..Default::default() };
        let lookup = Request::from_parts(header, &[0; 128], b"name\0").unwrap();
        assert!(matches!(lookup.operation(), Ok(Operation::Lookup { name: b"name" })));
    }

    /// CREATE of `file` with the extensions, over both transports.
    fn creates(extensions: &[u8]) -> [Request; 2] {
        let units = extensions.len().div_ceil(RECORD_ALIGNMENT);
        let padded = [extensions, &[0; 7]].concat();
        let names = [b"file\0", &padded[..units * RECORD_ALIGNMENT]].concat();
        let mut classic =
            message(opcode::CREATE, &[CreateIn::default().as_bytes(), &names].concat());
        classic[36..38].copy_from_slice(&(units as u16).to_ne_bytes());
        let classic = Request::from_message(&classic).unwrap();
        let mut fixed = [0; 128];
        fixed[..16].copy_from_slice(CreateIn::default().as_bytes());
        let ring = Request::from_parts(classic.header, &fixed, &names).unwrap();
        [classic, ring]
    }

    fn extension(kind: u32, labels: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, value) in labels {
            let header = LabelHeader { size: value.len() as u32, padding: 0 };
            bytes.extend([header.as_bytes(), name, b"\0", value].concat());
            bytes.resize(bytes.len().next_multiple_of(RECORD_ALIGNMENT), 0);
        }
        let size = (size_of::<ExtensionHeader>() + bytes.len()) as u32;
        [ExtensionHeader { size, kind }.as_bytes(), &bytes].concat()
    }

    #[test]
    fn a_new_file_comes_with_its_labels() {
        let two = [(&b"security.selinux"[..], &b"system_u:object_r:t\0"[..]), (b"security.b", b"")];
        let groups = extension(MAX_LABELS + 1, &[(b"groups", b"12")]);
        for (extensions, expected) in [
            (vec![], &two[..0]),
            (extension(0, &[]), &two[..0]),
            (extension(1, &two[..1]), &two[..1]),
            ([groups.clone(), extension(2, &two)].concat(), &two[..]),
            ([extension(2, &two), groups].concat(), &two[..]),
        ] {
            for request in creates(&extensions) {
                let Ok(Operation::Create { name: b"file", labels, .. }) = request.operation()
                else {
                    panic!("{request:?}")
                };
                assert_eq!(labels, expected);
            }
        }
    }

    #[test]
    fn labels_that_are_cut_or_lie_about_their_length_are_malformed() {
        let whole = extension(1, &[(b"security.selinux", b"label\0")]);
        for (at, lie) in [(0, 0u8), (0, 7), (0, 8), (0, 20), (0, 255), (4, 2), (4, 31), (8, 200)] {
            let mut bytes = whole.clone();
            bytes[at] = lie;
            for request in creates(&bytes) {
                assert_eq!(request.operation().unwrap_err(), MalformedRequest, "{at}: {lie}");
            }
        }
        for length in (8..whole.len() - 8).step_by(8) {
            for request in creates(&whole[..length]) {
                assert_eq!(request.operation().unwrap_err(), MalformedRequest, "{length}");
            }
        }
    }

    #[test]
    fn extensions_at_the_end_are_not_taken_for_names_or_data() {
        let mut bytes = message(opcode::UNLINK, b"name\0\0\0\0extended");
        bytes[36] = 1; // total_extlen
        let request = Request::from_message(&bytes).unwrap();
        assert!(matches!(request.operation(), Ok(Operation::Unlink { name: b"name" })));
        bytes[36] = 100;
        assert_eq!(Request::from_message(&bytes).unwrap_err(), MalformedRequest);
    }
}
