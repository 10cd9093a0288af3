//! The messages.

use super::bytes::{MalformedMessage, Reader, Wire, wire_enum, wire_struct};
use store::{
    Allocation, AttributeChange, Creator, FileAttributes, FileId, Listing, LockMode, NewNode,
    Space, Token, XattrMode,
};

/// Version of all messages. A daemon starts its helper again when the connection is lost: from the
/// program's file, which an upgrade may have replaced since.
pub const WIRE_VERSION: u32 = 2;

/// The first request: connection parameters of the helper.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hello {
    /// [`WIRE_VERSION`] of the sender. If it is another than the reader's, no other field is read.
    pub version: u32,
    pub identity: Vec<u8>,
    pub conf: Vec<u8>,
    /// `client.NAME` without `client.`.
    pub user: Vec<u8>,
    /// Empty: the cluster's only one.
    pub file_system: Vec<u8>,
    /// The directory that is the store's root.
    pub directory: Vec<u8>,
    /// File with the user's key. Empty: where the configuration says.
    pub keyring: Vec<u8>,
}

impl Wire for Hello {
    fn put(&self, out: &mut Vec<u8>) {
        self.version.put(out);
        if self.version != WIRE_VERSION {
            return;
        }
        let fields = [
            &self.identity,
            &self.conf,
            &self.user,
            &self.file_system,
            &self.directory,
            &self.keyring,
        ];
        fields.into_iter().for_each(|field| field.put(out));
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
        let version = u32::take(from)?;
        if version != WIRE_VERSION {
            from.0 = &[];
            return Ok(Hello { version, ..Hello::default() });
        }
        Ok(Hello {
            version,
            identity: Wire::take(from)?,
            conf: Wire::take(from)?,
            user: Wire::take(from)?,
            file_system: Wire::take(from)?,
            directory: Wire::take(from)?,
            keyring: Wire::take(from)?,
        })
    }
}

/// The answer to the first request, once the helper is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HelloReply {
    pub root: FileAttributes,
    /// Time between a recall and being cut off.
    pub recall_ms: u64,
    /// Milliseconds for which the helper holds buffered writes.
    pub hold_ms: u64,
    /// The UUID of the cluster, in halves; zeros if it is unknown.
    pub cluster_high: u64,
    pub cluster_low: u64,
    /// The number of its file system.
    pub file_system: u64,
}
wire_struct!(HelloReply { root, recall_ms, hold_ms, cluster_high, cluster_low, file_system });

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HelperRequest {
    Connect {
        hello: Hello,
    },
    Fence {
        former: Vec<u8>,
    },
    Disconnect,
    Lookup {
        parent: FileId,
        name: Vec<u8>,
    },
    Find {
        file: FileId,
    },
    Forget {
        file: FileId,
    },
    Make {
        parent: FileId,
        name: Vec<u8>,
        node: NewNode,
        caller: Creator,
    },
    /// Creates a regular file, and opens it.
    Create {
        parent: FileId,
        name: Vec<u8>,
        mode: u32,
        caller: Creator,
    },
    Link {
        file: FileId,
        parent: FileId,
        name: Vec<u8>,
    },
    Unlink {
        parent: FileId,
        name: Vec<u8>,
    },
    RemoveDirectory {
        parent: FileId,
        name: Vec<u8>,
    },
    Rename {
        parent: FileId,
        name: Vec<u8>,
        new_parent: FileId,
        new_name: Vec<u8>,
    },
    ReadLink {
        file: FileId,
    },
    List {
        directory: FileId,
        cursor: u64,
    },
    SyncDirectory {
        directory: FileId,
    },
    Space,
    Attributes {
        file: FileId,
    },
    SetAttributes {
        file: FileId,
        change: AttributeChange,
    },
    Xattr {
        file: FileId,
        name: Vec<u8>,
    },
    XattrNames {
        file: FileId,
    },
    SetXattr {
        file: FileId,
        name: Vec<u8>,
        value: Vec<u8>,
        mode: XattrMode,
    },
    RemoveXattr {
        file: FileId,
        name: Vec<u8>,
    },
    /// Opens a file. The handle is the file and whether it may write: the client keeps count.
    Open {
        file: FileId,
        write: bool,
    },
    Close {
        file: FileId,
    },
    Read {
        file: FileId,
        at: u64,
        length: u32,
    },
    Write {
        file: FileId,
        at: u64,
        bytes: Vec<u8>,
    },
    /// Writes at the end.
    Append {
        file: FileId,
        bytes: Vec<u8>,
    },
    Allocate {
        file: FileId,
        what: Allocation,
        start: u64,
        end: u64,
    },
    MakeDurable {
        file: FileId,
    },
    SendContent {
        file: FileId,
    },
    SendAttributes,
    /// `to_recover`: as [`store::Store::take_token_to_recover`] says.
    TakeToken {
        file: FileId,
        token: Token,
        to_recover: bool,
    },
    ReturnToken {
        file: FileId,
    },
    AcknowledgeRecall {
        file: FileId,
    },
    StillKnown,
    /// Sets a lock of a program, in bytes; without a mode, removes it.
    Lock {
        file: FileId,
        owner: u64,
        mode: Option<LockMode>,
        start: u64,
        end: u64,
    },
    /// Asks for a conflicting lock.
    TestLock {
        file: FileId,
        owner: u64,
        mode: LockMode,
        start: u64,
        end: u64,
    },
}
wire_enum!(HelperRequest {
    1 => Connect { hello }, 2 => Fence { former }, 3 => Disconnect,
    10 => Lookup { parent, name }, 11 => Find { file }, 12 => Forget { file },
    13 => Make { parent, name, node, caller }, 14 => Link { file, parent, name },
    15 => Unlink { parent, name },
    16 => RemoveDirectory { parent, name }, 17 => Rename { parent, name, new_parent, new_name },
    22 => Create { parent, name, mode, caller }, 18 => ReadLink { file }, 19 => List { directory,
    cursor }, 20 => SyncDirectory { directory }, 21 => Space,
    30 => Attributes { file }, 31 => SetAttributes { file, change }, 32 => Xattr { file, name },
    33 => XattrNames { file }, 34 => SetXattr { file, name, value, mode },
    35 => RemoveXattr { file, name },
    40 => Open { file, write }, 41 => Close { file }, 42 => Read { file, at, length },
    43 => Write { file, at, bytes }, 44 => MakeDurable { file },
    45 => TakeToken { file, token, to_recover },
    46 => ReturnToken { file }, 47 => Allocate { file, what, start, end },
    48 => SendContent { file }, 49 => SendAttributes, 50 => AcknowledgeRecall { file },
    51 => Lock { file, owner, mode, start, end }, 52 => TestLock { file, owner, mode, start, end },
    53 => StillKnown, 54 => Append { file, bytes },
});

/// A success.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HelperReply {
    Done,
    HelloReply {
        hello_reply: HelloReply,
    },
    Attributes {
        attributes: FileAttributes,
    },
    /// `true`: the exclusive token came with it.
    Created {
        attributes: FileAttributes,
        is_held: bool,
    },
    Bytes {
        bytes: Vec<u8>,
    },
    Listing {
        listing: Listing,
    },
    Space {
        space: Space,
    },
    /// Reply to a lock query; `None` if nothing is locked.
    Lock {
        mode: Option<LockMode>,
        start: u64,
        end: u64,
    },
}
wire_enum!(HelperReply {
    0 => Done, 1 => HelloReply { hello_reply }, 2 => Attributes { attributes },
    3 => Bytes { bytes }, 4 => Listing { listing }, 5 => Space { space },
    6 => Created { attributes, is_held }, 7 => Lock { mode, start, end },
});

/// A message from the helper. `request` is the number of its request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    Success {
        request: u64,
        reply: HelperReply,
    },
    /// An errno.
    Failure {
        request: u64,
        code: i32,
    },
    Recall {
        file: FileId,
        token: Token,
    },
    Changed {
        file: FileId,
    },
    /// The connection is lost; the helper's last report.
    Lost {
        fenced: bool,
        why: Vec<u8>,
    },
}
wire_enum!(Report {
    0 => Success { request, reply }, 1 => Failure { request, code }, 2 => Recall { file, token },
    3 => Changed { file }, 4 => Lost { fenced, why },
});

/// A request with its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbered {
    pub number: u64,
    pub request: HelperRequest,
}
wire_struct!(Numbered { number, request });
