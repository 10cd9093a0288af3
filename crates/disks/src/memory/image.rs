use crate::file::next_data;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

const PAGE: usize = 4096;
type Page = [u8; PAGE];

/// The bytes of a disk: only pages that were written cost memory, and clones share them.
#[derive(Clone)]
pub struct Image {
    size: u64,
    pages: BTreeMap<u64, Rc<Page>>,
}

impl Image {
    /// `size` bytes of zeros.
    pub fn new(size: u64) -> Image {
        Image { size, pages: BTreeMap::new() }
    }
    pub fn of_bytes(bytes: &[u8]) -> Image {
        let mut image = Image::new(bytes.len() as u64);
        image.write(0, bytes);
        image
    }
    /// Holes of the file cost nothing, pages of zeros are not kept.
    pub fn read_file(path: &Path) -> io::Result<Image> {
        let file = File::open(path)?;
        let mut image = Image::new(file.metadata()?.len());
        let mut chunk = vec![0; 256 * PAGE];
        let mut at = 0;
        while let Some(data) = next_data(&file, at)?.filter(|data| data.start < image.size) {
            at = data.start - data.start % PAGE as u64;
            let end = image.size.min(data.end.next_multiple_of(PAGE as u64));
            let length = chunk.len().min((end - at) as usize);
            file.read_exact_at(&mut chunk[..length], at)?;
            for (index, page) in chunk[..length].chunks(PAGE).enumerate() {
                if page.iter().any(|byte| *byte != 0) {
                    image.write(at + (index * PAGE) as u64, page);
                }
            }
            at += length as u64;
        }
        Ok(image)
    }
    /// A sparse file with these bytes; an existing file is replaced.
    pub fn write_file(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.size)?;
        for (number, page) in self.non_zero() {
            let at = number * PAGE as u64;
            let length = PAGE.min((self.size - at) as usize);
            file.write_all_at(&page[..length], at)?;
        }
        Ok(())
    }

    pub fn size(&self) -> u64 {
        self.size
    }
    /// Zeros behind the end; `more` is a multiple of 4096, as the size is.
    pub fn grow(&mut self, more: u64) {
        assert!((self.size | more).is_multiple_of(PAGE as u64), "whole pages");
        self.size += more;
    }
    /// Fills `bytes` from byte `at` on. The range lies within the image.
    pub fn read(&self, at: u64, bytes: &mut [u8]) {
        self.check(at, bytes.len());
        for (number, within, part) in spans(at, bytes.len()) {
            match self.pages.get(&number) {
                Some(page) => bytes[part].copy_from_slice(&page[within]),
                None => bytes[part].fill(0),
            }
        }
    }
    /// Changes the bytes from byte `at` on. The range lies within the image. Pages of zeros cost nothing.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        self.check(at, bytes.len());
        for (number, within, part) in spans(at, bytes.len()) {
            if bytes[part.clone()].iter().all(|byte| *byte == 0) {
                if within.len() == PAGE {
                    self.pages.remove(&number);
                    continue;
                }
                if !self.pages.contains_key(&number) {
                    continue;
                }
            }
            let page = self.pages.entry(number).or_insert_with(|| Rc::new([0; PAGE]));
            Rc::make_mut(page)[within].copy_from_slice(&bytes[part]);
        }
    }
    /// Sets a range to one byte; whole pages share one page.
    pub fn fill(&mut self, at: u64, length: u64, byte: u8) {
        self.check(at, length as usize);
        let full = Rc::new([byte; PAGE]);
        for (number, within, _) in spans(at, length as usize) {
            if within.len() == PAGE {
                self.pages.insert(number, full.clone());
            } else {
                let page = self.pages.entry(number).or_insert_with(|| Rc::new([0; PAGE]));
                Rc::make_mut(page)[within].fill(byte);
            }
        }
    }

    /// What is not zero, perhaps with pages that were: (byte offset, 4096 bytes), in order. The last page may reach beyond the end.
    pub fn pages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pages.iter().map(|(number, page)| (number * PAGE as u64, &page[..]))
    }

    fn check(&self, at: u64, length: usize) {
        let end = at.checked_add(length as u64);
        assert!(end.is_some_and(|end| end <= self.size), "{length} bytes at {at} of {} bytes", self.size);
    }
    fn non_zero(&self) -> impl Iterator<Item = (&u64, &Rc<Page>)> {
        self.pages.iter().filter(|(_, page)| page.iter().any(|byte| *byte != 0))
    }
}

/// Equal bytes, whatever is kept how.
impl PartialEq for Image {
    fn eq(&self, other: &Image) -> bool {
        self.size == other.size && self.non_zero().eq(other.non_zero())
    }
}
impl Eq for Image {}
impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({} bytes, {} pages written)", self.size, self.pages.len())
    }
}

/// Cuts a range at page boundaries: (page, range within the page, range within the whole).
fn spans(
    at: u64,
    length: usize,
) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
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
        assert_eq!(Image::read_file(&path).expect("the file").pages.len(), 4);
        File::create(&path).and_then(|file| file.set_len(SIZE)).expect("a hole");
        assert!(Image::read_file(&path).expect("the file") == Image::new(SIZE));
    }

    #[test]
    fn zeros_cost_nothing() {
        let mut image = Image::new(1 << 20);
        image.write(100, &[0; 10_000]);
        assert!(image.pages.is_empty());
        image.write(0, &[7; 8192]);
        image.write(4000, &[0; 8192]);
        assert_eq!(image.pages.len(), 1);
        let mut bytes = [1; 8192];
        image.read(0, &mut bytes);
        assert!(bytes[..4000].iter().all(|byte| *byte == 7) && bytes[4000..].iter().all(|byte| *byte == 0));
    }
}
