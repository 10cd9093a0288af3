//! `large_dir`: indexes of three levels.

use crate::features::support::*;
use ext4::Caller;

const NAMES: u32 = 62_000;

/// Long, so that few fit into a block.
fn name(number: u32) -> String {
    format!("{number:0240}")
}

#[test]
fn an_index_of_three_levels_is_read_changed_and_grown() {
    let image =
        TestImage::scripted("-O large_dir -b 1024 -N 2000", "96M", "touch file; mkdir large");
    image.with_volume(MODES[1], |volume| async move {
        let (file, large) = (at(&volume, "file").await, at(&volume, "large").await);
        for number in 0..NAMES {
            let linked = volume.link(&file, &large, name(number).as_bytes(), &Caller::ROOT).await;
            linked.unwrap_or_else(|error| panic!("name {number}: {error}"));
        }
    });
    assert!(image.debugfs("htree_dump /large").contains("Indirect levels: 2"));
    let count =
        |image: &TestImage| image.with_kernel("ls large | wc -l").trim().parse::<u32>().unwrap();
    assert_eq!(count(&image), NAMES);
    let (first, last) = (name(0), name(NAMES - 1));
    image.with_kernel(&format!(
        "cd large; test -e {first}; rm {first} {last}; seq -f '%0230.0f' 1 300 | xargs -n1 ln ../file"
    ));
    image.with_volume(MODES[3], |volume| async move {
        let large = at(&volume, "large").await;
        assert_eq!(names(&volume, &large, 1000).await.len(), NAMES as usize - 2 + 300);
        assert!(volume.lookup(&large, name(0).as_bytes()).await.is_err());
        for number in (1..NAMES).step_by(97) {
            volume.lookup(&large, name(number).as_bytes()).await.unwrap();
            volume.unlink(&large, name(number).as_bytes()).await.unwrap();
        }
    });
}
