//! Systems on which scripts are played: a volume, the kernel's ext4, hosts in front of a directory,
//! and the directory itself.

use crate::common::{Volume, okeanos, said};
use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// A place for scripts.
pub trait World: Sync {
    /// Returns the directory as each actor sees it.
    fn roots(&self) -> Vec<PathBuf>;
    /// Unmounts, checks what can be checked, and mounts again.
    fn reopen(&mut self);
}

/// A volume that the daemon has mounted.
pub struct Mounted {
    pub volume: Volume,
    pub options: &'static str,
}

impl World for Mounted {
    fn roots(&self) -> Vec<PathBuf> {
        vec![self.volume.root()]
    }
    fn reopen(&mut self) {
        self.volume.umount_and_check();
        self.volume.mount(self.options);
    }
}

/// A volume that the kernel's own ext4 has mounted.
pub struct Kernel {
    volume: Volume,
}

impl Kernel {
    pub fn mount(arguments: &[&str]) -> Kernel {
        let volume = Volume::new(arguments);
        let mut command = Command::new("mount");
        let output = command.args(["-o", "loop"]).arg(volume.image()).arg(volume.root()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "the kernel's ext4: {}", said(&output));
        Kernel { volume }
    }
}

impl World for Kernel {
    fn roots(&self) -> Vec<PathBuf> {
        vec![self.volume.root()]
    }
    fn reopen(&mut self) {}
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.volume.root()).output();
    }
}

/// A directory, as some processes see it.
pub struct Plain {
    pub directory: tempfile::TempDir,
    pub actors: usize,
}

impl World for Plain {
    fn roots(&self) -> Vec<PathBuf> {
        vec![self.directory.path().to_owned(); self.actors]
    }
    fn reopen(&mut self) {}
}

/// A directory in which every file named `b` is longer after the next mount: a mistake that an
/// exploration has to find.
pub struct Misplayed(pub Plain);

impl World for Misplayed {
    fn roots(&self) -> Vec<PathBuf> {
        self.0.roots()
    }
    fn reopen(&mut self) {
        for script in self.0.directory.path().read_dir().unwrap() {
            let path = script.unwrap().path().join("b");
            if path.is_file() && !path.is_symlink() {
                std::fs::OpenOptions::new()
                    .append(true)
                    .open(path)
                    .unwrap()
                    .write_all(b"?")
                    .unwrap();
            }
        }
    }
}

/// Hosts in front of one directory.
pub struct Hosts {
    directory: tempfile::TempDir,
    hosts: usize,
}

impl Hosts {
    pub fn mount(hosts: usize) -> Hosts {
        crate::common::private_mounts();
        let hosts = Hosts { directory: tempfile::tempdir().unwrap(), hosts };
        std::fs::create_dir(hosts.directory.path().join("store")).unwrap();
        for (root, number) in hosts.roots().into_iter().zip(0..) {
            std::fs::create_dir(&root).unwrap();
            let journal = std::fs::File::create(hosts.journal(number)).unwrap();
            journal.set_len(64 << 20).unwrap();
            hosts.mount_one(number);
        }
        hosts
    }
    fn journal(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("journal-{number}"))
    }
    fn mount_one(&self, number: usize) {
        let store = format!("dir:{}", self.directory.path().join("store").display());
        let (journal, root) = (self.journal(number), self.roots().swap_remove(number));
        let words: [&OsStr; 7] = [
            "host".as_ref(),
            "mount".as_ref(),
            "--store".as_ref(),
            store.as_ref(),
            "--journal".as_ref(),
            journal.as_ref(),
            root.as_ref(),
        ];
        let output = okeanos(&words);
        assert!(output.status.success(), "host: {}", said(&output));
    }
    fn umount(&self) {
        for root in self.roots() {
            let output = okeanos(&["umount".as_ref(), root.as_os_str()]);
            assert!(output.status.success(), "umount: {}", said(&output));
        }
    }
}

impl World for Hosts {
    fn roots(&self) -> Vec<PathBuf> {
        (0..self.hosts).map(|number| self.directory.path().join(format!("{number}"))).collect()
    }
    fn reopen(&mut self) {
        self.umount();
        (0..self.hosts).for_each(|number| self.mount_one(number));
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for root in self.roots() {
            let _ = okeanos(&["umount".as_ref(), "--force".as_ref(), root.as_os_str()]);
        }
    }
}
