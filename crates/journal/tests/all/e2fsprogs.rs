//! e2fsck replays journals that we write, and we read journals that debugfs writes. e2fsck refuses
//! a journal with multiwrite records before it touches anything.

use device::Buffer;
use format::jbd2::{ExternalJournal, JournalSuperblock};
use journal::*;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::rc::Rc;
use units::*;

fn tool(name: &str, arguments: &[&str]) -> Output {
    let output = Command::new("timeout").args(["60", name]).args(arguments).output().unwrap();
    assert_ne!(output.status.code(), Some(127), "{name} is needed: apt install e2fsprogs");
    output
}
fn run(name: &str, arguments: &[&str]) -> String {
    let output = tool(name, arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{name} {arguments:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// A volume in a file, with a file of `FILE_BLOCKS` blocks to overwrite through the journal.
struct Image {
    _directory: tempfile::TempDir,
    path: PathBuf,
    external: Option<PathBuf>,
    block_size: BlockSize,
    /// Home addresses of the file's blocks, and of the journal's (empty if external).
    file: Vec<HomeBlock>,
    journal: Vec<HomeBlock>,
}

const FILE_BLOCKS: usize = 150;

impl Image {
    fn new(block_size: u32, kind: &str, external: bool) -> Image {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        File::create(&path).unwrap().set_len(16 << 20).unwrap();
        let size = block_size.to_string();
        let image = path.to_str().unwrap();
        let journal = if external { vec!["-O", "^has_journal"] } else { vec!["-J", "size=4"] };
        run("mke2fs", &[&["-q", "-F", "-t", kind, "-b", &size], &journal[..], &[image]].concat());
        let content = directory.path().join("content");
        fs::write(&content, vec![0x11; FILE_BLOCKS * block_size as usize]).unwrap();
        run("debugfs", &["-w", "-R", &format!("write {} file", content.display()), image]);
        let external = external.then(|| external_journal(directory.path(), image, block_size));
        let mut made = Image {
            _directory: directory,
            path,
            external,
            block_size: BlockSize::new(block_size).unwrap(),
            file: Vec::new(),
            journal: Vec::new(),
        };
        made.file = made.addresses("file", FILE_BLOCKS);
        if made.external.is_none() {
            made.journal = made.addresses("<8>", (4 << 20) / block_size as usize);
        }
        made
    }

    fn addresses(&self, file: &str, count: usize) -> Vec<HomeBlock> {
        let commands = self.path.with_extension("commands");
        let lines: String = (0..count).map(|at| format!("bmap {file} {at}\n")).collect();
        fs::write(&commands, lines).unwrap();
        let text = run("debugfs", &["-f", commands.to_str().unwrap(), self.path.to_str().unwrap()]);
        let found: Vec<_> =
            text.lines().filter_map(|line| line.trim().parse().ok()).map(HomeBlock).collect();
        assert_eq!(found.len(), count, "{text}");
        found
    }

    fn debugfs(&self, command: &str) {
        run("debugfs", &["-w", "-R", command, self.path.to_str().unwrap()]);
    }

    /// Returns file and byte of a block.
    fn place(&self, at: Address) -> (&Path, u64) {
        let size = self.block_size.bytes() as u64;
        match (at, &self.external) {
            (Address::Log(log), Some(device)) => (device, u64::from(log.get()) * size),
            (Address::Log(log), None) => {
                (&self.path, self.journal[log.get() as usize].get() * size)
            }
            (Address::Home(home), _) => (&self.path, home.get() * size),
            (Address::Slot(slot), _) => panic!("{slot:?} was not bound"),
            (Address::Table(page), _) => panic!("page {page} of a table that is not there"),
        }
    }
    fn read(&self, at: Address) -> Vec<u8> {
        let (path, byte) = self.place(at);
        let mut block = vec![0; self.block_size.bytes()];
        File::open(path).unwrap().read_exact_at(&mut block, byte).unwrap();
        block
    }
    fn write(&self, at: Address, block: &[u8]) {
        let (path, byte) = self.place(at);
        File::options().write(true).open(path).unwrap().write_all_at(block, byte).unwrap();
    }
    fn perform(&self, plan: &Plan) {
        for step in &plan.steps {
            let Step::Write(write) = step else { continue };
            for (index, (_, block)) in write.blocks.iter().enumerate() {
                let at = match write.at {
                    Address::Log(log) => Address::Log(log.plus(index as u32)),
                    Address::Home(home) => Address::Home(home.plus(index as u64)),
                    slot => slot,
                };
                self.write(at, block);
            }
        }
    }

    fn superblock_at(&self) -> LogBlock {
        match &self.external {
            None => LogBlock(0),
            Some(device) => self.external_journal(device).superblock_at(),
        }
    }
    fn external_journal(&self, device: &Path) -> ExternalJournal {
        let mut start = vec![0; 2048];
        File::open(device).unwrap().read_exact_at(&mut start, 0).unwrap();
        ExternalJournal::parse(&start).unwrap().expect("mke2fs made a journal device")
    }
    fn superblock(&self) -> JournalSuperblock {
        let blocks = match &self.external {
            None => self.journal.len() as u64,
            Some(device) => self.external_journal(device).blocks,
        };
        let block = self.read(Address::Log(self.superblock_at()));
        JournalSuperblock::parse(&block, self.block_size, blocks).unwrap()
    }
    fn e2fsck(&self, how: &str) -> (i32, String) {
        let mut arguments = vec![how];
        if let Some(device) = &self.external {
            arguments.extend(["-j", device.to_str().unwrap()]);
        }
        arguments.push(self.path.to_str().unwrap());
        let output = tool("e2fsck", &arguments);
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8_lossy(&text).into_owned())
    }
}

/// Creates a journal device, and a volume that names it as its own (mke2fs itself insists on a
/// block device).
fn external_journal(directory: &Path, image: &str, block_size: u32) -> PathBuf {
    let device = directory.join("journal");
    File::create(&device).unwrap().set_len(4 << 20).unwrap();
    let uuid = "0123abcd-4567-89ab-cdef-0123456789ab";
    let size = block_size.to_string();
    let name = device.to_str().unwrap();
    run("mke2fs", &["-q", "-F", "-O", "journal_dev", "-b", &size, "-U", uuid, name]);
    for command in
        ["feature has_journal", &format!("ssv journal_uuid {uuid}"), "ssv journal_dev 0x700"]
    {
        run("debugfs", &["-w", "-R", command, image]);
    }
    device
}

/// Commits transactions straight into an image.
struct Writer<'a> {
    image: &'a Image,
    log: CircularLog,
    records: Rc<dyn Records>,
    next: TransactionId,
    contents: BTreeMap<HomeBlock, Rc<Buffer>>,
}

impl Writer<'_> {
    /// Begins the log `before_wrap` blocks before its end.
    fn new(image: &Image, checksums: bool, extended: bool, before_wrap: u32) -> Writer<'_> {
        let mut superblock = image.superblock();
        let next = superblock.next_transaction();
        superblock.set_log_format(checksums, true, extended);
        let head = LogBlock(superblock.log_end().get() - before_wrap);
        let log = CircularLog::beginning_at(LogRing::of(&superblock), head);
        superblock.set_tail(next, head);
        image.write(Address::Log(image.superblock_at()), &superblock.serialize());
        image.debugfs("feature needs_recovery");
        let records = journal::records::of(&superblock);
        Writer { image, log, records, next, contents: BTreeMap::new() }
    }
    fn running(&self) -> RunningTransaction {
        RunningTransaction::new(self.next, Instant(0), self.image.block_size)
    }
    fn fill(&mut self, running: &mut RunningTransaction, home: HomeBlock, byte: u8) {
        let block = vec![byte; self.image.block_size.bytes()];
        self.contents.insert(home, Rc::new(Buffer::copy_of(&block)));
        running.add_data_block(home, block.len() as u64);
    }
    fn plan(&mut self, running: RunningTransaction) -> Plan {
        self.next = self.next.next();
        let contents = &self.contents;
        let images = |home: HomeBlock| contents[&home].clone();
        let time = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
        let (locked, stamp) = (running.lock(), CommitStamp { time, durable: self.next.previous() });
        let mut plan =
            plan_commit(&locked, &images, &mut self.log, &*self.records, &stamp).unwrap();
        plan.issue(&mut self.log);
        plan.plan
    }
    fn commit(&mut self, running: RunningTransaction) {
        let plan = self.plan(running);
        self.image.perform(&plan);
    }
}

/// Writes whole blocks through several descriptors, an escaped block, a revoke, across the end of
/// the log, and a last transaction without its commit block. Returns what the file's blocks must
/// hold after replay.
fn write_journal(image: &Image, checksums: bool) -> Vec<Vec<u8>> {
    let size = image.block_size.bytes();
    let mut writer = Writer::new(image, checksums, false, 40);
    let mut expected = vec![vec![0x11; size]; FILE_BLOCKS];
    let mut first = writer.running();
    for (at, block) in expected.iter_mut().enumerate().take(100) {
        writer.fill(&mut first, image.file[at], at as u8);
        block.fill(at as u8);
    }
    writer.commit(first);

    let mut second = writer.running();
    writer.fill(&mut second, image.file[3], 0x33);
    expected[3].fill(0x33);
    let mut magic = Buffer::zeroed(size);
    magic[..4].copy_from_slice(&format::jbd2::MAGIC.to_be_bytes());
    expected[5] = magic.to_vec();
    writer.contents.insert(image.file[5], Rc::new(magic));
    second.add_metadata(image.file[5], &[BlockRange::new(0, 4)]);
    // Freed: the copy in the first transaction must not be replayed.
    second.free(image.file[7], true);
    expected[7].fill(0x11);
    writer.commit(second);

    let mut third = writer.running();
    writer.fill(&mut third, image.file[8], 0x88);
    let mut plan = writer.plan(third);
    let commit = plan.steps.iter().rposition(|step| matches!(step, Step::Write(_))).unwrap();
    plan.steps.truncate(commit);
    image.perform(&plan);
    expected
}

fn assert_file(image: &Image, expected: &[Vec<u8>], what: &str) {
    for (at, home) in image.file.iter().enumerate() {
        assert!(image.read(Address::Home(*home)) == expected[at], "{what}: block {at} of the file");
    }
}

/// Mounts `image` with the kernel in a mount namespace of its own, and makes and removes files.
/// Copies the image to `copy` while its journal is live. False without the right to mount.
fn use_with_kernel(image: &Path, mode: &str, copy: &Path) -> bool {
    let script = r#"
        set -e
        mkdir mount; mount -t ext4 -o loop,data="$2",commit=300 "$1" mount || exit 77
        trap 'umount mount' EXIT
        for n in $(seq 1 40); do head -c 5000 /dev/urandom > mount/f$n; done
        sync mount/f1
        printf '\300\073\071\230magic' > mount/magic
        for n in $(seq 5 20); do rm mount/f$n; done
        for n in 1 2 3; do dd if=/dev/urandom of=mount/g$n bs=1k count=50 conv=fsync status=none; done
        cp "$1" "$3"
    "#;
    let mut command = Command::new("timeout");
    command.args([
        "60",
        "unshare",
        "-m",
        "--propagation",
        "private",
        "bash",
        "-c",
        script,
        "kernel",
    ]);
    command.args([image.as_os_str(), mode.as_ref(), copy.as_os_str()]);
    let output = command.current_dir(image.parent().unwrap()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let forbidden = output.status.code() == Some(77) || text.contains("unshare");
    assert!(output.status.success() || forbidden, "{text}");
    output.status.success()
}

/// Runs our own three passes over an image's journal.
fn recover(image: &Image) -> Result<Scanned, RecoverError> {
    let read = |at| image.read(Address::Log(at));
    let mut scan = ScanPass::new(&image.superblock())?;
    while let Some(at) = scan.wants() {
        scan.give(&read(at))?;
    }
    let scanned = scan.finish();
    let mut revoke = RevokePass::new(&scanned);
    while let Some(at) = revoke.wants() {
        revoke.give(&read(at))?;
    }
    let blocks = fs::metadata(&image.path).unwrap().len() >> image.block_size.shift();
    let forbidden = image.journal.iter().map(|block| block.get()..block.get() + 1).collect();
    let mut replay = ReplayPass::new(&scanned, revoke.finish(), HomeBounds { blocks, forbidden });
    let mut images = ReplayImages::new(image.block_size);
    while let Some(at) = replay.wants() {
        replay.give(&read(at))?;
        replay.take_actions().for_each(|action| images.apply(action));
    }
    for mut block in images.take() {
        block.fill_from(&image.read(Address::Home(block.home)));
        image.write(Address::Home(block.home), &block.content);
    }
    Ok(scanned)
}

#[test]
fn e2fsck_replays_the_plain_journals_that_we_write() {
    for (block_size, kind) in
        [(1024, "ext4"), (2048, "ext4"), (4096, "ext4"), (1024, "ext3"), (4096, "ext3")]
    {
        for checksums in [true, false] {
            for external in [false, true] {
                let what =
                    format!("{kind}, {block_size}, checksums {checksums}, external {external}");
                let image = Image::new(block_size, kind, external);
                let expected = write_journal(&image, checksums);
                let (code, text) = image.e2fsck("-fy");
                assert!(code <= 1 && text.contains("recovering journal"), "{what}: {code} {text}");
                assert!(!text.contains("corrupt"), "{what}: {text}");
                assert_file(&image, &expected, &what);
                let (code, text) = image.e2fsck("-fn");
                assert_eq!(code, 0, "{what}: {text}");
            }
        }
    }
}

#[test]
fn we_replay_our_plain_journals_as_e2fsck_does() {
    for external in [false, true] {
        let image = Image::new(1024, "ext4", external);
        let expected = write_journal(&image, true);
        let first = image.superblock().sequence;
        let scanned = recover(&image).unwrap();
        assert_eq!((scanned.first, scanned.end), (first, first.next().next()));
        assert_file(&image, &expected, &format!("external {external}"));
    }
}

#[test]
fn e2fsck_refuses_a_journal_with_multiwrite_records_and_changes_nothing() {
    let image = Image::new(1024, "ext4", false);
    let mut writer = Writer::new(&image, true, true, 40);
    let mut running = writer.running();
    let home = image.file[0];
    writer.contents.insert(home, Rc::new(Buffer::copy_of(&[0x99; 1024])));
    running.add_data_bytes(home, BlockRange::new(10, 20), false);
    writer.commit(running);
    let before = fs::read(&image.path).unwrap();
    let (code, text) = image.e2fsck("-fy");
    assert_eq!(code & 8, 8, "{code} {text}");
    assert!(text.contains("unknown incompatible feature"), "{text}");
    assert!(fs::read(&image.path).unwrap() == before, "e2fsck changed the image: {text}");
    recover(&image).unwrap();
    let block = image.read(Address::Home(home));
    assert_eq!(
        block[8..22],
        [0x11, 0x11, 0x99, 0x99, 0x99, 0x99, 0x99, 0x99, 0x99, 0x99, 0x99, 0x99, 0x11, 0x11]
    );
}

#[test]
fn we_replay_the_journals_that_debugfs_writes_as_e2fsck_does() {
    for (block_size, kind) in [(1024, "ext4"), (4096, "ext4"), (2048, "ext3")] {
        for open in ["jo", "jo -c -v 2", "jo -c -v 3"] {
            let what = format!("{kind}, {block_size}, {open}");
            let image = Image::new(block_size, kind, false);
            // On ext3 it uses checksum v1, and sums revoke blocks, which neither e2fsck nor the
            // kernel does. To all readers the log ends before the transaction that revokes.
            let committed = if kind == "ext3" && open != "jo" { 1 } else { 3 };
            let size = image.block_size.bytes();
            let (content, commands) =
                (image.path.with_extension("new"), image.path.with_extension("commands"));
            let mut blocks = vec![0x42; 3 * size];
            blocks[size..size + 4].copy_from_slice(&format::jbd2::MAGIC.to_be_bytes());
            fs::write(&content, &blocks).unwrap();
            let name = content.display();
            let [a, b, c, d] = [0, 1, 2, 3].map(|at| image.file[at].get());
            let script = format!(
                "{open}\njw -b {a},{b},{c} {name}\njw -r {c} /dev/null\njw -b {d} {name}\njw -c -b {c} {name}\njc\n"
            );
            fs::write(&commands, script).unwrap();
            run("debugfs", &["-w", "-f", commands.to_str().unwrap(), image.path.to_str().unwrap()]);
            let theirs = image.path.with_extension("theirs");
            fs::copy(&image.path, &theirs).unwrap();
            let scanned = recover(&image).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(scanned.end.0.wrapping_sub(scanned.first.0), committed, "{what}");
            tool("e2fsck", &["-fy", theirs.to_str().unwrap()]);
            let theirs = fs::read(&theirs).unwrap();
            for (at, home) in image.file.iter().enumerate() {
                let their_block = &theirs[home.get() as usize * size..][..size];
                assert!(
                    image.read(Address::Home(*home)) == their_block,
                    "{what}: block {at} of the file"
                );
            }
            let new = [
                Some(0x42),
                Some(0xc0),
                (committed == 1).then_some(0x42),
                (committed == 3).then_some(0x42),
            ];
            for (at, byte) in new.into_iter().enumerate() {
                let first = image.read(Address::Home(image.file[at]))[0];
                assert_eq!(first, byte.unwrap_or(0x11), "{what}: block {at} of the file");
            }
        }
    }
}

#[test]
fn we_replay_the_journals_that_the_kernel_writes_as_e2fsck_does() {
    for (block_size, kind, mode) in
        [(1024, "ext4", "journal"), (4096, "ext4", "ordered"), (4096, "ext3", "journal")]
    {
        let what = format!("{kind}, {block_size}, {mode}");
        let mut image = Image::new(block_size, kind, false);
        let copy = image.path.with_extension("crashed");
        if !use_with_kernel(&image.path, mode, &copy) {
            eprintln!("skipped: mounting is not allowed here");
            return;
        }
        let theirs = image.path.with_extension("theirs");
        fs::copy(&copy, &theirs).unwrap();
        image.path = copy;
        let scanned = recover(&image).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(scanned.end.is_after(scanned.first), "{what}: the kernel's journal was not live");
        tool("e2fsck", &["-fy", "-E", "journal_only", theirs.to_str().unwrap()]);
        let size = image.block_size.bytes();
        let (ours, theirs) = (fs::read(&image.path).unwrap(), fs::read(&theirs).unwrap());
        let differ = |at: &usize| ours[at * size..][..size] != theirs[at * size..][..size];
        let differing: Vec<usize> = (0..ours.len() / size).filter(differ).collect();
        // Both superblocks: e2fsck also notes there that nothing is left to recover.
        assert_eq!(differing, [1024 / size, image.journal[0].get() as usize], "{what}");
    }
}
