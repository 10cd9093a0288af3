use crate::file::next_data;
use device::Buffer;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

const PAGE: usize = 4096;
/// Exactly a page, so that an allocator of pages has one for it. The counts of a shared pointer are
/// elsewhere.
type Page = Box<[u8; PAGE]>;
static ZEROS: [u8; PAGE] = [0; PAGE];
/// Pages of a chunk.
const CHUNK: u64 = 64;
const CHUNK_BYTES: u64 = CHUNK * PAGE as u64;
type Chunk = [Option<Rc<Page>>; CHUNK as usize];
/// Bytes of one write to a file.
const RUN: usize = 256 * PAGE;

/// The bytes of a disk: only pages that were written cost memory, and clones share them. Pages are
/// grouped in chunks that are shared, too, so that a clone costs little.
#[derive(Clone)]
pub struct Image {
    size: u64,
    chunks: BTreeMap<u64, Rc<Chunk>>,
}

impl Image {
    /// An image of `size` bytes of zeros.
    pub fn new(size: u64) -> Image {
        Image { size, chunks: BTreeMap::new() }
    }
    pub fn of_bytes(bytes: &[u8]) -> Image {
        let mut image = Image::new(bytes.len() as u64);
        image.write(0, bytes);
        image
    }
    /// Reads a file. Its holes cost nothing, pages of zeros are not kept.
    pub fn read_file(path: &Path) -> io::Result<Image> {
        let file = File::open(path)?;
        let mut image = Image::new(file.metadata()?.len());
        let mut chunk = vec![0; RUN];
        let mut at = 0;
        while let Some(data) = next_data(&file, at)?.filter(|data| data.start < image.size) {
            at = data.start - data.start % PAGE as u64;
            let end = image.size.min(data.end.next_multiple_of(PAGE as u64));
            let length = chunk.len().min((end - at) as usize);
            file.read_exact_at(&mut chunk[..length], at)?;
            for (index, page) in chunk[..length].chunks(PAGE).enumerate() {
                if !is_zero(page) {
                    image.write(at + (index * PAGE) as u64, page);
                }
            }
            at += length as u64;
        }
        Ok(image)
    }
    /// Writes a sparse file with these bytes; an existing file is replaced.
    pub fn write_file(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.size)?;
        let (mut run, mut begin) = (Vec::with_capacity(RUN), 0);
        for (number, page) in self.non_zero() {
            let at = number * PAGE as u64;
            if at != begin + run.len() as u64 || run.len() == RUN {
                file.write_all_at(&run, begin)?;
                run.clear();
                begin = at;
            }
            run.extend_from_slice(&page[..PAGE.min((self.size - at) as usize)]);
        }
        file.write_all_at(&run, begin)
    }

    pub fn size(&self) -> u64 {
        self.size
    }
    /// Appends zeros; `more` is a multiple of 512, as the size is.
    pub fn grow(&mut self, more: u64) {
        assert!((self.size | more) % 512 == 0, "whole sectors");
        self.size += more;
    }
    /// Fills `bytes` from byte `at` on. The range must be within the image.
    pub fn read(&self, at: u64, bytes: &mut [u8]) {
        self.check(at, bytes.len());
        for (number, within, part) in spans(at, bytes.len()) {
            match self.page(number) {
                Some(page) => bytes[part].copy_from_slice(&page[within]),
                None => bytes[part].fill(0),
            }
        }
    }
    /// Reads into a new buffer. Bytes that were never written cost no second pass over it.
    pub fn copy(&self, at: u64, length: usize) -> Buffer {
        self.check(at, length);
        let mut buffer = Buffer::zeroed(length);
        for (number, within, part) in spans(at, length) {
            if let Some(page) = self.page(number) {
                buffer[part].copy_from_slice(&page[within]);
            }
        }
        buffer
    }
    /// Changes the bytes from byte `at` on. The range must be within the image. Pages of zeros cost
    /// nothing.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        self.check(at, bytes.len());
        for (number, within, part) in spans(at, bytes.len()) {
            if is_zero(&bytes[part.clone()]) {
                if self.page(number).is_none() {
                    continue;
                }
                if within.len() == PAGE {
                    *self.page_mut(number) = None;
                    continue;
                }
            }
            let page = self.page_mut(number).get_or_insert_with(|| Rc::new(Box::new([0; PAGE])));
            Rc::make_mut(page)[within].copy_from_slice(&bytes[part]);
        }
    }
    /// Sets a range to one byte; whole pages share one page.
    pub fn fill(&mut self, at: u64, length: u64, byte: u8) {
        self.check(at, length as usize);
        let full = Rc::new(Box::new([byte; PAGE]));
        for (number, within, _) in spans(at, length as usize) {
            if within.len() == PAGE {
                *self.page_mut(number) = Some(full.clone());
            } else {
                let page =
                    self.page_mut(number).get_or_insert_with(|| Rc::new(Box::new([0; PAGE])));
                Rc::make_mut(page)[within].fill(byte);
            }
        }
    }

    /// Pages that are not zero, and possibly some that are: (byte offset, 4096 bytes), in order.
    /// The last page may reach beyond the end.
    pub fn pages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.kept().map(|(number, page)| (number * PAGE as u64, &page[..]))
    }

    fn check(&self, at: u64, length: usize) {
        let end = at.checked_add(length as u64);
        assert!(
            end.is_some_and(|end| end <= self.size),
            "{length} bytes at {at} of {} bytes",
            self.size
        );
    }
    fn page(&self, number: u64) -> Option<&Rc<Page>> {
        self.chunks.get(&(number / CHUNK))?[(number % CHUNK) as usize].as_ref()
    }
    fn page_mut(&mut self, number: u64) -> &mut Option<Rc<Page>> {
        let chunk = self
            .chunks
            .entry(number / CHUNK)
            .or_insert_with(|| Rc::new([const { None }; CHUNK as usize]));
        &mut Rc::make_mut(chunk)[(number % CHUNK) as usize]
    }
    fn kept(&self) -> impl Iterator<Item = (u64, &Rc<Page>)> {
        self.chunks.iter().flat_map(|(number, chunk)| {
            (number * CHUNK..)
                .zip(chunk.iter())
                .filter_map(|(number, page)| Some((number, page.as_ref()?)))
        })
    }
    fn non_zero(&self) -> impl Iterator<Item = (u64, &Rc<Page>)> {
        self.kept().filter(|(_, page)| !is_zero(&page[..]))
    }
    /// Whether the other has the same bytes in the range. Shared pages are not compared.
    pub fn is_equal_in(&self, other: &Image, range: Range<u64>) -> bool {
        let mut chunks = range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES);
        chunks.all(|number| {
            let begin = range.start.max(number * CHUNK_BYTES);
            let end = range.end.min((number + 1) * CHUNK_BYTES);
            let shared = |(mine, others)| Rc::ptr_eq(mine, others);
            self.chunks.get(&number).zip(other.chunks.get(&number)).is_some_and(shared)
                || spans(begin, (end - begin) as usize).all(|(number, within, _)| {
                    let [mine, others] =
                        [self, other].map(|image| image.page(number).map_or(&ZEROS, |page| page));
                    std::ptr::eq(mine, others) || mine[within.clone()] == others[within]
                })
        })
    }
}

/// Whether at most a page is zero. Comparing two slices is vectorized, a loop over bytes is not.
fn is_zero(bytes: &[u8]) -> bool {
    *bytes == ZEROS[..bytes.len()]
}

/// Compares bytes, regardless of how they are stored.
impl PartialEq for Image {
    fn eq(&self, other: &Image) -> bool {
        let mut chunks =
            self.chunks.keys().chain(other.chunks.keys()).map(|number| number * CHUNK_BYTES);
        let end = |begin: u64| self.size.min(begin + CHUNK_BYTES);
        self.size == other.size && chunks.all(|begin| self.is_equal_in(other, begin..end(begin)))
    }
}
impl Eq for Image {}
impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({} bytes, {} pages written)", self.size, self.kept().count())
    }
}

/// Splits a range at page boundaries: (page, range within the page, range within the whole).
fn spans(at: u64, length: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < length).then(|| {
            let position = at + done as u64;
            let start = (position % PAGE as u64) as usize;
            let count = (PAGE - start).min(length - done);
            done += count;
            (position / PAGE as u64, start..start + count, done - count..done)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_mostly_hole_is_read_at_the_cost_of_its_data() {
        const SIZE: u64 = 146_815_737_344;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("disk");
        let mut image = Image::new(SIZE);
        for (at, byte) in [(0, 1), (5000, 2), (SIZE / 2 + 512, 3), (SIZE - 512, 4)] {
            image.write(at, &[byte; 512]);
        }
        image.write_file(&path).expect("a sparse file");
        // Without regard to holes this would read 146 GB.
        assert!(Image::read_file(&path).expect("the file") == image);
        assert_eq!(Image::read_file(&path).expect("the file").kept().count(), 4);
        File::create(&path).and_then(|file| file.set_len(SIZE)).expect("a hole");
        assert!(Image::read_file(&path).expect("the file") == Image::new(SIZE));
    }

    #[test]
    fn images_are_equal_in_what_does_not_differ() {
        let mut one = Image::new(3 * CHUNK_BYTES);
        one.write(100, &[7; 9000]);
        let mut other = one.clone();
        let at = CHUNK_BYTES + 5000;
        // Stored zeros; the other image never stored anything there.
        one.write(at, &[1; 8192]);
        one.write(at, &[0; 8192]);
        assert!(one == other && one.is_equal_in(&other, 0..3 * CHUNK_BYTES));
        other.write(at, &[1]);
        assert!(one != other);
        for (range, is_equal) in [
            (0..at, true),
            (at + 1..3 * CHUNK_BYTES, true),
            (at..at + 1, false),
            (0..at + 1, false),
            (at..3 * CHUNK_BYTES, false),
            (at..at, true),
        ] {
            assert_eq!(one.is_equal_in(&other, range.clone()), is_equal, "{range:?}");
            assert_eq!(other.is_equal_in(&one, range.clone()), is_equal, "{range:?}");
        }
    }

    #[test]
    fn zeros_cost_nothing() {
        let mut image = Image::new(1 << 20);
        image.write(100, &[0; 10_000]);
        assert_eq!(image.kept().count(), 0);
        image.write(0, &[7; 8192]);
        image.write(4000, &[0; 8192]);
        assert_eq!(image.kept().count(), 1);
        let mut bytes = [1; 8192];
        image.read(0, &mut bytes);
        assert_eq!(image.copy(0, 8192)[..], bytes);
        assert!(
            bytes[..4000].iter().all(|byte| *byte == 7)
                && bytes[4000..].iter().all(|byte| *byte == 0)
        );
    }
}
