//! Every golden image still matches its `expect`: how it opens or why it is refused, the report of
//! recovery, the findings of e2fsck and of the kernel, and each file with the checksum of its
//! content.
//!
//! `GOLDEN_WRITE_EXPECT=1` writes the `expect` of images that have none yet; one that exists is
//! never changed.

use crate::listing;

use device::{Disk, World};
use disks::{Image, MemoryDisk};
use engine::{DataMode, EngineOptions, LogKind, RecordFormat};
use ext4::{OpenParts, Volume, VolumeOptions};
use format::ext4::checksum::crc32c;
use format::jbd2::JournalSuperblock;
use hostile::{golden, journal_runs};
use runtime::VirtualWorld;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output};
use std::rc::Rc;

/// Whether the kernel reads it, too: everything healthy, and a plain journal after a crash.
fn kernel_may_mount(name: &str) -> bool {
    let never = ["damaged-", "refused-"].iter().any(|prefix| name.starts_with(prefix));
    // Its journal would have to be a block device.
    !never && name != "external-journal"
}

#[test]
fn every_golden_image_is_still_what_it_was_when_it_was_made() {
    listing::private_mounts();
    let mut wrong = Vec::new();
    let names = golden::names();
    assert!(names.len() >= 40, "golden images are missing: {names:?}");
    for name in names {
        let report = report_on(&name);
        let path = golden::directory().join(&name).join("expect");
        if !path.exists() && std::env::var_os("GOLDEN_WRITE_EXPECT").is_some() {
            std::fs::write(&path, &report).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        if report != expected {
            let differs =
                report.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
            wrong.push(format!("{name}: (now, expected) {differs:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn report_on(name: &str) -> String {
    let (home, journal) = golden::load(name);
    let directory = tempfile::tempdir().unwrap();
    let mut text = String::new();

    let opened = open_and_list(&home, journal.as_ref(), EngineOptions::default(), &mut text);
    let verdict = |home: &Image, journal: Option<&Image>, how: &str| {
        check(directory.path(), home, journal, how)
    };
    writeln!(text, "e2fsck -fy: {}", verdict(&home, journal.as_ref(), "-fy")).unwrap();
    let Some((listed, home_after, journal_after)) = opened else { return text };
    writeln!(
        text,
        "e2fsck -fn, afterwards: {}",
        verdict(&home_after, journal_after.as_ref(), "-fn")
    )
    .unwrap();
    if kernel_may_mount(name) {
        let path = directory.path().join("for-the-kernel");
        home.write_file(&path).unwrap();
        let said = match listing::by_kernel(&path) {
            Err(refusal) => format!("refused: {refusal}"),
            Ok(lines) if lines == listed => "finds the same files".into(),
            Ok(lines) => {
                let pair = lines.iter().zip(&listed).find(|(theirs, ours)| theirs != ours);
                format!("finds other files: (kernel, okeanos) {pair:?}")
            }
        };
        writeln!(text, "kernel: {said}").unwrap();
    }
    if let Some(engine) = scattered_restart(name, &home) {
        let mut listing = String::new();
        let again = open_and_list(&home, journal.as_ref(), engine, &mut listing);
        let same = again.is_some_and(|(again, ..)| again == listed);
        writeln!(text, "log=scattered: {}", if same { "the same files" } else { "other files" })
            .unwrap();
        listing.lines().for_each(|line| writeln!(text, "log=scattered, {line}").unwrap());
    }
    let all = listed.join("\n");
    writeln!(
        text,
        "files: {} lines, checksum {:08x}\n\n{all}",
        listed.len(),
        crc32c(!0, all.as_bytes())
    )
    .unwrap();
    text
}

/// Options with which a mount continues the logs that a crash left, if they are scattered: in their
/// format.
fn scattered_restart(name: &str, home: &Image) -> Option<EngineOptions> {
    if !name.starts_with("dirty-") {
        return None;
    }
    let (size, blocks) = journal_runs(home);
    let mut bytes = vec![0; size.bytes()];
    home.read(blocks[0].start, &mut bytes);
    let superblock = JournalSuperblock::parse(&bytes, size, blocks.len() as u64).unwrap();
    superblock.scattered.as_ref()?;
    let records =
        if superblock.packed.is_some() { RecordFormat::Packed } else { RecordFormat::Blocks };
    Some(EngineOptions {
        log: LogKind::Scattered,
        data: DataMode::Journal,
        records: Some(records),
        log_unit: superblock.packed.map(|packed| packed.unit),
        ..EngineOptions::default()
    })
}

/// The report of opening a volume, and its content; the images after it was closed.
fn open_and_list(
    home: &Image,
    journal: Option<&Image>,
    engine: EngineOptions,
    text: &mut String,
) -> Option<(Vec<String>, Image, Option<Image>)> {
    let virtual_world = VirtualWorld::new(1);
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    let disk = |image: &Image| MemoryDisk::from_image(world.clone(), image.clone());
    let (home_disk, journal_disk) = (disk(home), journal.map(disk));
    let parts = OpenParts {
        world: world.clone(),
        home: Rc::new(home_disk.clone()),
        journal: journal_disk.clone().map(|disk| Rc::new(disk) as Rc<dyn Disk>),
        options: VolumeOptions { engine, ..VolumeOptions::default() },
    };
    let outcome = virtual_world.run(async move {
        let volume = Volume::open(parts).await?;
        let report = volume.open_report();
        let listed = listing::by_okeanos(&volume).await;
        volume.close().await?;
        Ok::<_, ext4::Error>((report, listed))
    });
    virtual_world.end();
    match outcome {
        Err(error) => {
            writeln!(text, "mount: refused: {error}").unwrap();
            assert!(home_disk.image() == *home, "a refused volume was written to");
            assert!(
                journal_disk.map(|disk| disk.image()) == journal.cloned(),
                "its journal was written to"
            );
            None
        }
        Ok((report, listed)) => {
            let recovery = &report.recovery;
            writeln!(text, "mount: opened").unwrap();
            report
                .warnings
                .iter()
                .for_each(|warning| writeln!(text, "warning: {warning}").unwrap());
            let replay = &recovery.replay.counts;
            match recovery.clean {
                true => writeln!(text, "recovery: nothing to do"),
                false => writeln!(
                    text,
                    "recovery: {} transactions from {}, {} records of blocks, {} of bytes, {} revokes, {} blocks home",
                    recovery.transactions,
                    recovery.first_transaction,
                    replay.whole_records,
                    replay.fragment_records,
                    recovery.revoke.counts.revokes,
                    recovery.home_blocks_written
                ),
            }
            .unwrap();
            if recovery.blocks_kept > 0 {
                writeln!(
                    text,
                    "restart: {} blocks stay in {} logs; a snapshot of {} log blocks covers {} transactions",
                    recovery.blocks_kept,
                    recovery.logs_read,
                    recovery.snapshot_blocks_read,
                    recovery.snapshot_transactions
                )
                .unwrap();
            }
            if let Some(why) = &recovery.snapshot_refused {
                writeln!(text, "snapshot: refused: {why}").unwrap();
            }
            let orphans = report.orphans;
            writeln!(text, "orphans: {} freed, {} cut to size", orphans.freed, orphans.truncated)
                .unwrap();
            Some((listed, home_disk.image(), journal_disk.map(|disk| disk.image())))
        }
    }
}

fn check(directory: &Path, home: &Image, journal: Option<&Image>, how: &str) -> &'static str {
    let path = directory.join("for-e2fsck");
    home.write_file(&path).unwrap();
    let mut command = Command::new("timeout");
    command.args(["60", "e2fsck", how]);
    if let Some(journal) = journal {
        let path = directory.join("journal-for-e2fsck");
        journal.write_file(&path).unwrap();
        command.arg("-j").arg(path);
    }
    let Output { status, .. } = command.arg(&path).output().unwrap();
    match status.code() {
        Some(0) => "nothing wrong",
        Some(1) => "repairs the volume",
        Some(4..8) => "finds errors",
        Some(8..) => "refuses",
        code => panic!("e2fsck ended with {code:?}"),
    }
}
