//! Deliveries into Maildirs: written below `tmp`, synced, moved to `new`, and the directory synced,
//! as in qmail's specification of Maildir and the mail servers after it.

use super::{Measured, Scale, Sources, Volume};
use crate::real_time::rig::RigError;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

const DELIVERERS: u64 = 8;
const MESSAGE: [u8; 6000] = [b'm'; 6000];

pub(super) fn deliver(
    volume: &mut Volume<'_>,
    _: &Sources,
    scale: Scale,
) -> Result<Vec<Measured>, RigError> {
    let time = Duration::from_secs_f64(scale.seconds(4.0));
    let boxes: Vec<_> =
        (0..DELIVERERS).map(|number| volume.path(&format!("box{number}"))).collect();
    for one in &boxes {
        for part in ["tmp", "new"] {
            std::fs::create_dir_all(one.join(part)).map_err(RigError::at(one.display()))?;
        }
    }
    let begun = Instant::now();
    let delivered = std::thread::scope(|scope| {
        let threads: Vec<_> =
            boxes.iter().map(|one| scope.spawn(move || deliver_until(one, begun + time))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a deliverer does not panic"))
            .sum::<std::io::Result<u64>>()
    });
    let delivered = delivered.map_err(RigError::at("a delivery"))?;
    let rate = delivered as f64 / begun.elapsed().as_secs_f64();
    Ok(vec![Measured::rate(format!("Maildir deliveries, {DELIVERERS}"), rate)])
}

fn deliver_until(mailbox: &Path, end: Instant) -> std::io::Result<u64> {
    let new = File::open(mailbox.join("new"))?;
    let mut delivered = 0;
    while Instant::now() < end {
        let (from, to) = (mailbox.join("tmp/message"), mailbox.join(format!("new/{delivered}")));
        let mut file = File::create(&from)?;
        file.write_all(&MESSAGE)?;
        file.sync_all()?;
        std::fs::rename(&from, &to)?;
        new.sync_all()?;
        delivered += 1;
    }
    Ok(delivered)
}
