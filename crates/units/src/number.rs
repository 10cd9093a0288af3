use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $word:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl $name {
            /// The plain integer, for on-disk structures and arithmetic inside one address space.
            pub const fn get(self) -> $inner { self.0 }
            /// The number `count` further on. The result must be in the address space.
            pub const fn plus(self, count: $inner) -> Self { Self(self.0 + count) }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{} {}", $word, self.0) }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{} {}", $word, self.0) }
        }
    };
}

number!(
    /// A block of the volume, counted in file-system blocks from its start: the final address of
    /// data.
    HomeBlock(u64), "block");
number!(
    /// A block of the log, counted in file-system blocks from the journal's start (block 0 is its
    /// superblock).
    LogBlock(u32), "log block");
number!(
    /// A block of a file, counted in file-system blocks from the file's start (ext4: "logical
    /// block").
    FileBlock(u32), "file block");
number!(
    /// An inode, counted from 1.
    InodeNumber(u32), "inode");
number!(
    /// The owner of a block of data, such as a file of a volume, for code that need not know its
    /// kind.
    Owner(u64), "owner");
number!(
    /// A block group, counted from 0.
    GroupNumber(u32), "group");

impl From<InodeNumber> for Owner {
    fn from(inode: InodeNumber) -> Owner {
        Owner(inode.0.into())
    }
}
