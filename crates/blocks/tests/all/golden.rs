//! Volumes that version 1 of the format left after a kill: later versions must always open them.
//!
//! Each was made of 16 MiB with a journal of 1 MiB, in `wasteless`; block `37 * n`, for `n` up to
//! 40, was written with one byte over and over and flushed, and once more with one byte changed.
//! Then the daemon was killed. The journal of `apart` is on a disk of 4 MiB, `apart-journal`.

use crate::common::{Life, open, options};
use blocks::Persistence;
use device::Disk;
use disks::Image;
use engine::{DataMode, EngineOptions, LogKind};
use std::io::Read;

fn load(name: &str) -> Image {
    let path = format!("{}/tests/golden/{name}.zst", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut bytes = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(file).expect("a packed image");
    decoder.read_to_end(&mut bytes).expect("a packed image");
    Image::of_bytes(&bytes)
}

#[test]
fn volumes_of_the_first_version_are_recovered() {
    let volumes: [(&[&str], LogKind); 3] = [
        (&["circular"], LogKind::Circular),
        (&["apart", "apart-journal"], LogKind::Circular),
        (&["scattered"], LogKind::Scattered),
    ];
    for (disks, log) in volumes {
        let (name, data) = (disks[0], DataMode::Wasteless);
        let disks: Vec<Image> = disks.iter().map(|disk| load(disk)).collect();
        let life = Life::new(1, &disks);
        let (_, images) =
            life.on_volume(&EngineOptions { data, log, ..options() }, async move |volume| {
                assert!(volume.report().recovery.transactions > 0, "{name}: the log is live");
                for number in 0..40u64 {
                    let found = volume.read(number * 37 * 4096, 4096).await.expect("a read");
                    let mut expected = vec![(number * 7 + 1) as u8; 4096];
                    expected[100 + number as usize] = 0xee;
                    assert!(found[..] == expected, "{name}: block {}", number * 37);
                }
                volume.close().await.expect("a close");
            });
        let life = Life::new(1, &images);
        let parts = life.parts(&options(), Persistence::WriteBack);
        life.play(async move { assert!(open(parts).await.report().recovery.clean, "{name}") });
    }
}
