//! The images in `golden/`.

use disks::Image;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The repository's `golden` directory.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden")
}

/// The names of all images, sorted.
pub fn names() -> Vec<String> {
    let entries = std::fs::read_dir(directory()).expect("the golden images");
    let name = |entry: io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<String> =
        entries.map(|entry| name(entry).into_string().expect("a plain name")).collect();
    names.sort();
    names
}

/// The volume, and the external journal where it has one.
pub fn load(name: &str) -> (Image, Option<Image>) {
    let directory = directory().join(name);
    let journal = directory.join("journal.zst");
    let journal = journal.exists().then(|| unpack(&journal));
    (unpack(&directory.join("image.zst")), journal)
}

fn unpack(path: &Path) -> Image {
    let read = || -> io::Result<Vec<u8>> {
        let file = std::fs::File::open(path)?;
        let mut decoder =
            ruzstd::decoding::StreamingDecoder::new(file).map_err(io::Error::other)?;
        let mut bytes = Vec::new();
        decoder.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut image = Image::new(bytes.len() as u64);
    for (number, page) in bytes.chunks(4096).enumerate() {
        if page.iter().any(|byte| *byte != 0) {
            image.write(number as u64 * 4096, page);
        }
    }
    image
}
