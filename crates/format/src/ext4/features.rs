//! The feature bits of ext4 by name, and the support for each.

/// Word of the superblock that holds a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeatureWord {
    /// A program that does not know the feature may ignore it.
    Compatible,
    /// A program that does not know the feature must not touch the volume.
    Incompatible,
    /// A program that does not know the feature must not write.
    ReadOnlyCompatible,
}

/// A feature bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feature {
    pub word: FeatureWord,
    pub bit: u32,
}

/// Support for volumes with a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// Read, written and maintained.
    Full,
    /// Requires nothing, or nothing that is violated by ignoring it.
    Ignored,
    /// The volume can be read but not written.
    ReadOnly,
    /// The volume is refused.
    Refused,
}

/// A line in the table of all known features.
#[derive(Clone, Copy, Debug)]
pub struct FeatureRow {
    pub feature: Feature,
    /// Name in `mke2fs -O` and `dumpe2fs`.
    pub name: &'static str,
    pub support: Support,
    /// Meaning, in a few words.
    pub meaning: &'static str,
}

macro_rules! features {
    ($($constant:ident $word:ident $bit:literal $name:literal $support:ident $meaning:literal;)*) => {
        /// Every known feature.
        pub mod feature {
            use super::{Feature, FeatureWord};
            $(pub const $constant: Feature = Feature { word: FeatureWord::$word, bit: $bit };)*
        }
        pub const FEATURES: &[FeatureRow] = &[
            $(FeatureRow { feature: feature::$constant, name: $name, support: Support::$support,
                meaning: $meaning },)*
        ];
    };
}

features! {
    DIR_PREALLOC Compatible 0x1 "dir_prealloc" Ignored "directories may preallocate blocks; no implementation does";
    IMAGIC_INODES Compatible 0x2 "imagic_inodes" Ignored "AFS magic inodes";
    HAS_JOURNAL Compatible 0x4 "has_journal" Full "a journal: hidden inode or own device";
    EXT_ATTR Compatible 0x8 "ext_attr" Full "extended attributes";
    RESIZE_INODE Compatible 0x10 "resize_inode" Ignored "blocks kept for growing the descriptor table; left alone";
    DIR_INDEX Compatible 0x20 "dir_index" Full "directories with a hash tree";
    LAZY_BG Compatible 0x40 "lazy_bg" Ignored "never finished";
    EXCLUDE_INODE Compatible 0x80 "exclude_inode" Ignored "never finished";
    EXCLUDE_BITMAP Compatible 0x100 "exclude_bitmap" Ignored "never finished";
    SPARSE_SUPER2 Compatible 0x200 "sparse_super2" Full "two superblock copies, in the groups the superblock names";
    FAST_COMMIT Compatible 0x400 "fast_commit" Ignored "an area for fast commits in the journal; unused by us";
    STABLE_INODES Compatible 0x800 "stable_inodes" Ignored "inode numbers and uuid must not change; we change neither";
    ORPHAN_FILE Compatible 0x1000 "orphan_file" Full "orphans in a file besides the list";

    COMPRESSION Incompatible 0x1 "compression" Refused "compressed files";
    FILETYPE Incompatible 0x2 "filetype" Full "directory entries hold the file type";
    RECOVER Incompatible 0x4 "needs_recovery" Full "the journal must be replayed first";
    JOURNAL_DEV Incompatible 0x8 "journal_dev" Refused "an external journal, not a volume";
    META_BG Incompatible 0x10 "meta_bg" Full "descriptors spread over the groups they describe";
    EXTENTS Incompatible 0x40 "extent" Full "files mapped by extents";
    SIXTY_FOUR_BIT Incompatible 0x80 "64bit" Full "48-bit block numbers";
    MMP Incompatible 0x100 "mmp" Full "guard against mounting twice: a heartbeat on the disk";
    FLEX_BG Incompatible 0x200 "flex_bg" Full "bitmaps and inode tables anywhere";
    EA_INODE Incompatible 0x400 "ea_inode" Full "large attribute values in inodes of their own";
    DIRDATA Incompatible 0x1000 "dirdata" Refused "data in directory entries";
    CSUM_SEED Incompatible 0x2000 "metadata_csum_seed" Full "checksum seed kept in the superblock";
    LARGEDIR Incompatible 0x4000 "large_dir" Full "directories over 2 GiB and with trees of three levels";
    INLINE_DATA Incompatible 0x8000 "inline_data" Full "small files and directories within their inode";
    ENCRYPT Incompatible 0x1_0000 "encrypt" Refused "encrypted files";
    CASEFOLD Incompatible 0x2_0000 "casefold" Refused "directories that ignore case";

    SPARSE_SUPER ReadOnlyCompatible 0x1 "sparse_super" Full "superblock copies only in groups 0, 1 and powers of 3, 5 and 7";
    LARGE_FILE ReadOnlyCompatible 0x2 "large_file" Full "files of 2 GiB and more";
    BTREE_DIR ReadOnlyCompatible 0x4 "btree_dir" ReadOnly "never finished";
    HUGE_FILE ReadOnlyCompatible 0x8 "huge_file" Full "files of 2 TiB and more";
    GDT_CSUM ReadOnlyCompatible 0x10 "uninit_bg" Full "descriptors with CRC-16; groups not yet initialised";
    DIR_NLINK ReadOnlyCompatible 0x20 "dir_nlink" Full "more than 65,000 subdirectories";
    EXTRA_ISIZE ReadOnlyCompatible 0x40 "extra_isize" Full "inodes with fields beyond 128 bytes";
    HAS_SNAPSHOT ReadOnlyCompatible 0x80 "has_snapshot" ReadOnly "never finished";
    QUOTA ReadOnlyCompatible 0x100 "quota" ReadOnly "quota files that each change must update";
    BIGALLOC ReadOnlyCompatible 0x200 "bigalloc" Refused "allocation in clusters of blocks";
    METADATA_CSUM ReadOnlyCompatible 0x400 "metadata_csum" Full "CRC-32C in every metadata structure";
    REPLICA ReadOnlyCompatible 0x800 "replica" ReadOnly "never finished";
    READONLY ReadOnlyCompatible 0x1000 "read-only" ReadOnly "must not be written";
    PROJECT ReadOnlyCompatible 0x2000 "project" Full "files have the numbers of projects";
    SHARED_BLOCKS ReadOnlyCompatible 0x4000 "shared_blocks" ReadOnly "files share blocks";
    VERITY ReadOnlyCompatible 0x8000 "verity" ReadOnly "files under Merkle trees";
    ORPHAN_PRESENT ReadOnlyCompatible 0x1_0000 "orphan_present" Full "the orphan file may hold orphans";
}

/// The three feature words of a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    pub compatible: u32,
    pub incompatible: u32,
    pub read_only_compatible: u32,
}

impl Features {
    pub fn word(&self, word: FeatureWord) -> u32 {
        match word {
            FeatureWord::Compatible => self.compatible,
            FeatureWord::Incompatible => self.incompatible,
            FeatureWord::ReadOnlyCompatible => self.read_only_compatible,
        }
    }
    fn word_mut(&mut self, word: FeatureWord) -> &mut u32 {
        match word {
            FeatureWord::Compatible => &mut self.compatible,
            FeatureWord::Incompatible => &mut self.incompatible,
            FeatureWord::ReadOnlyCompatible => &mut self.read_only_compatible,
        }
    }
    pub fn has(&self, feature: Feature) -> bool {
        self.word(feature.word) & feature.bit != 0
    }
    pub fn set(&mut self, feature: Feature) {
        *self.word_mut(feature.word) |= feature.bit;
    }
    pub fn clear(&mut self, feature: Feature) {
        *self.word_mut(feature.word) &= !feature.bit;
    }

    /// The features for which the volume cannot be opened, by name or as `incompat 0x40000`.
    pub fn refused(&self) -> Vec<String> {
        self.named(|row| row.support == Support::Refused, &[FeatureWord::Incompatible])
    }
    /// The features for which the volume cannot be written, by name.
    pub fn read_only(&self) -> Vec<String> {
        self.named(|row| row.support == Support::ReadOnly, &[FeatureWord::ReadOnlyCompatible])
    }

    /// The features set that `wanted` selects, and the unknown bits of `words`.
    fn named(&self, wanted: impl Fn(&FeatureRow) -> bool, words: &[FeatureWord]) -> Vec<String> {
        let known = FEATURES.iter().filter(|row| self.has(row.feature) && wanted(row));
        let mut names: Vec<String> = known.map(|row| row.name.to_string()).collect();
        for &word in words {
            let known = FEATURES.iter().filter(|row| row.feature.word == word);
            let unknown = self.word(word) & !known.fold(0, |bits, row| bits | row.feature.bit);
            names.extend((0..32).map(|bit| 1 << bit).filter(|bit| unknown & bit != 0).map(
                |bit: u32| match word {
                    FeatureWord::Compatible => format!("FEATURE_C{}", bit.trailing_zeros()),
                    FeatureWord::Incompatible => format!("FEATURE_I{}", bit.trailing_zeros()),
                    FeatureWord::ReadOnlyCompatible => format!("FEATURE_R{}", bit.trailing_zeros()),
                },
            ));
        }
        names
    }
}
