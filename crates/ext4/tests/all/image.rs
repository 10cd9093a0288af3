//! Volumes that mke2fs makes, opened in virtual time, and what e2fsprogs and the kernel say about
//! them afterwards.

use device::{Disk, World};
use disks::{Image, Latency, MemoryDisk};
use engine::EngineOptions;
use ext4::{OpenParts, Result, Volume, VolumeOptions};
use journal::DataMode;
use runtime::VirtualWorld;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;
use tempfile::TempDir;
use units::InodeNumber;

pub const ROOT: InodeNumber = InodeNumber(2);
pub const MODES: [DataMode; 5] = [
    DataMode::Writeback,
    DataMode::Ordered,
    DataMode::Journal,
    DataMode::Wasteless,
    DataMode::Selective,
];

/// A directory with a volume in it, and what else a test puts there.
pub struct TestImage {
    directory: TempDir,
}

impl TestImage {
    /// A place for a volume.
    pub fn empty() -> TestImage {
        TestImage { directory: tempfile::tempdir().unwrap() }
    }
    /// Makes a volume by mke2fs with these arguments; `size` in its syntax.
    pub fn make(arguments: &[&str], size: &str) -> TestImage {
        let image = TestImage::empty();
        image.format(arguments, size);
        image
    }
    /// Makes a volume with the content that `fill` puts into a directory.
    pub fn filled(arguments: &[&str], size: &str, fill: impl FnOnce(&Path)) -> TestImage {
        let image = TestImage::empty();
        let source = image.source();
        std::fs::create_dir(&source).unwrap();
        fill(&source);
        image.format(&[arguments, &["-d", source.to_str().unwrap()]].concat(), size);
        image
    }
    fn format(&self, arguments: &[&str], size: &str) {
        succeed(
            Command::new("mke2fs").args(["-q", "-F"]).args(arguments).arg(self.path()).arg(size),
        );
    }
    /// The directory from which the volume was filled.
    pub fn source(&self) -> PathBuf {
        self.path_of("source")
    }
    pub fn path(&self) -> PathBuf {
        self.path_of("image")
    }
    /// Returns the path of another file that lives as long as this volume.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }
    pub fn read(&self) -> Image {
        Image::read_file(&self.path()).unwrap()
    }
    pub fn disk(&self, world: &Rc<dyn World>) -> MemoryDisk {
        MemoryDisk::from_image(world.clone(), self.read())
    }
    /// A world of its own, and a disk there that has the volume.
    pub fn world(&self, seed: u64) -> (VirtualWorld, Rc<dyn World>, MemoryDisk) {
        world_with(seed, self.read())
    }

    /// Runs a script in a world of its own, with a disk that has the volume.
    pub fn in_world<T: 'static>(
        &self,
        seed: u64,
        script: impl AsyncFnOnce(Rc<dyn World>, MemoryDisk) -> T + 'static,
    ) -> T {
        let (virtual_world, world, disk) = self.world(seed);
        virtual_world.run(async move { script(world, disk).await })
    }
    /// Runs a script in virtual time with a disk that has the volume. The volume is then what the
    /// disk that it returns holds, and clean.
    pub fn on_disk(
        &self,
        script: impl AsyncFnOnce(Rc<dyn World>, MemoryDisk) -> MemoryDisk + 'static,
    ) {
        let left = self.in_world(1, script);
        left.write_image(&self.path()).unwrap();
        self.check();
    }

    /// Output of debugfs for a read-only request.
    pub fn debugfs(&self, request: &str) -> String {
        let output =
            Command::new("debugfs").args(["-R", request]).arg(self.path()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
    /// A request that changes the volume.
    pub fn debugfs_write(&self, request: &str) -> String {
        succeed(Command::new("debugfs").args(["-w", "-R", request]).arg(self.path()))
    }
    /// The word behind `label:` in the output of debugfs `stat`.
    pub fn stat_field(&self, name: &str, label: &str) -> String {
        let output = self.debugfs(&format!("stat /{name}"));
        let word = output.split_whitespace().skip_while(|word| *word != format!("{label}:")).nth(1);
        word.unwrap_or_else(|| panic!("no {label} in {output}")).to_string()
    }
    pub fn number(&self, name: &str) -> InodeNumber {
        InodeNumber(self.stat_field(name, "Inode").parse().unwrap())
    }
    pub fn dumpe2fs(&self) -> String {
        let output = Command::new("dumpe2fs").arg(self.path()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    }
    /// Panics with what e2fsck says unless the volume is clean.
    pub fn check(&self) {
        self.check_as("");
    }
    /// Checks the volume after `what` with e2fsck.
    pub fn check_as(&self, what: &str) {
        check_file(&self.path(), what);
    }
    /// Runs a script in the volume, mounted by the kernel in a private mount namespace.
    pub fn with_kernel(&self, script: &str) -> String {
        self.mounted("rw", script)
    }
    /// Runs a script as [`TestImage::with_kernel`] does, with these mount options.
    pub fn mounted(&self, options: &str, script: &str) -> String {
        let mount_point = self.path_of("mount");
        std::fs::create_dir_all(&mount_point).unwrap();
        let script = format!(
            "set -e; mount -t ext4 -o loop,{options} '{}' '{1}'; (cd '{1}'; {script}\n); umount '{1}'",
            self.path().display(),
            mount_point.display()
        );
        let mut command = Command::new("timeout");
        succeed(command.args([
            "120",
            "unshare",
            "-m",
            "--propagation",
            "private",
            "bash",
            "-c",
            &script,
        ]))
    }

    /// Opens the volume in virtual time, runs `work`, closes it, writes it back, and has it
    /// checked.
    pub fn play<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        seed: u64,
        options: VolumeOptions,
        work: impl FnOnce(Rc<Volume>) -> F + 'static,
    ) -> T {
        let (image, result) = play(self.read(), seed, options, work);
        image.write_file(&self.path()).unwrap();
        self.check_as(&format!("seed {seed}"));
        result
    }
}

/// A world of its own, and a disk there that has this image.
pub fn world_with(seed: u64, image: Image) -> (VirtualWorld, Rc<dyn World>, MemoryDisk) {
    let virtual_world = VirtualWorld::new(seed);
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    let disk = MemoryDisk::from_image(world.clone(), image);
    (virtual_world, world, disk)
}

/// Latency in microseconds.
pub fn micros(least: u64, spread: u64) -> Latency {
    let (least, spread) = (Duration::from_micros(least), Duration::from_micros(spread));
    Latency { least, spread }
}

pub fn check_file(path: &Path, what: &str) {
    let output = Command::new("timeout").args(["300", "e2fsck", "-fn"]).arg(path).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{what}: {}{}", text(&output.stdout), text(&output.stderr));
}

pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// Opens the volume in virtual time, runs `work`, closes it; what the disk holds then.
pub fn play<T: 'static, F: Future<Output = T> + 'static>(
    image: Image,
    seed: u64,
    options: VolumeOptions,
    work: impl FnOnce(Rc<Volume>) -> F + 'static,
) -> (Image, T) {
    play_on(image, seed, None, options, |volume, _| work(volume))
}

/// Plays as `play` does, on a disk that may take its time.
pub fn play_on<T: 'static, F: Future<Output = T> + 'static>(
    image: Image,
    seed: u64,
    latency: Option<Latency>,
    options: VolumeOptions,
    work: impl FnOnce(Rc<Volume>, VirtualWorld) -> F + 'static,
) -> (Image, T) {
    let (virtual_world, world, disk) = world_with(seed, image);
    latency.into_iter().for_each(|latency| disk.set_latency(latency));
    let (home, for_work) = (disk.clone(), virtual_world.clone());
    let result = virtual_world.run(async move {
        let volume = open(&world, &home, None, options).await.unwrap();
        let result = work(volume.clone(), for_work).await;
        volume.close().await.unwrap();
        result
    });
    (disk.image(), result)
}

pub async fn open(
    world: &Rc<dyn World>,
    disk: &MemoryDisk,
    journal: Option<Rc<dyn Disk>>,
    options: VolumeOptions,
) -> Result<Rc<Volume>> {
    Volume::open(OpenParts { world: world.clone(), home: Rc::new(disk.clone()), journal, options })
        .await
}

pub fn with_engine(engine: EngineOptions) -> VolumeOptions {
    VolumeOptions { engine, mount_point: "/test".into(), ..VolumeOptions::default() }
}

pub fn in_mode(data: DataMode) -> VolumeOptions {
    with_engine(EngineOptions { data, ..EngineOptions::default() })
}
