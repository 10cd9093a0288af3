//! Rights that an owner, this process, lends itself to open a file that its mode keeps from it: the
//! mode is another one for a moment. A note in `.okeanos/modes` that is durable before says which
//! it was, and the next mount of this host gives it back if the daemon was killed in that moment.

use super::held::{open_held, path_of};
use super::notes::{Born, Notes};
use super::own_directory::OwnDirectory;
use crate::attributes::FileId;
use crate::event::Identity;
use crate::open_file::OpenMode;
use rustix::fs::{OFlags, fcntl_getfl};
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};

/// The first word of a note.
const FORMAT: &str = "1";
/// Length of the one line; anything longer is not a note.
const NOTE_BYTES_MAX: u64 = 128;

/// The right to write of a file's owner.
pub(super) const TO_WRITE: u32 = 0o200;

/// The notes of one host, each in a file with the number of its file and the host's name.
#[derive(Clone)]
pub(super) struct LentRights {
    notes: OwnDirectory,
    identity: Identity,
}

/// A file whose mode is, or was, another one for a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LentMode {
    pub file: FileId,
    /// The mode that it has otherwise.
    pub mode: u32,
    lent: u32,
    born: Born,
}

impl LentMode {
    /// Returns whether the file has that other mode still.
    pub fn is_lent(&self, found: &Metadata) -> bool {
        let is_it = found.ino() == self.file.0 && self.born.is_of(found);
        is_it && found.mode() & 0o7777 == self.lent
    }
    fn to_line(self) -> String {
        format!("{FORMAT} {} {} {}\n", self.mode, self.lent, self.born.to_number())
    }
    fn of_line(file: FileId, line: &str) -> Option<LentMode> {
        let mut words = line.strip_suffix('\n')?.split(' ');
        (words.next()? == FORMAT).then_some(())?;
        let (mode, lent) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let born = Born::of_number(words.next()?.parse().ok()?);
        let is_one = words.next().is_none() && mode <= 0o7777;
        is_one.then_some(LentMode { file, mode, lent, born })
    }
}

impl LentRights {
    pub fn new(notes: OwnDirectory, identity: Identity) -> LentRights {
        LentRights { notes, identity }
    }
    fn name(&self, file: FileId) -> String {
        format!("{}.{}", file.0, self.identity.0)
    }
    fn read(&self, file: FileId) -> Option<LentMode> {
        LentMode::of_line(file, &self.notes.read(&self.name(file), NOTE_BYTES_MAX)?)
    }

    /// Notes, durably, that the owner of a file that is open or held is about to have these rights
    /// besides those of its mode.
    pub fn begin(&self, file: &File, rights: u32) -> io::Result<Loan<'_>> {
        let found = file.metadata()?;
        let number = FileId(found.ino());
        // What a killed daemon has left may not be given back yet.
        let known = self.read(number).filter(|known| known.is_lent(&found));
        let mode = known.map_or(found.mode() & 0o7777, |known| known.mode);
        let lent = LentMode { file: number, mode, lent: mode | rights, born: Born::of(&found) };
        if !units::fault!("store-lent-rights-stay") {
            self.notes.put(&self.name(number), &lent.to_line())?;
        }
        Ok(Loan { rights: self, path: path_of(file), lent })
    }
    pub fn forget(&self, file: FileId) {
        let _ = self.notes.remove(&self.name(file));
    }
    /// Returns the files whose mode a killed daemon of this host may have left changed.
    pub fn left(&self) -> io::Result<Vec<LentMode>> {
        let end = format!(".{}", self.identity.0);
        let names = self.notes.names()?;
        let files = names.iter().filter_map(|name| name.strip_suffix(&end)?.parse().ok());
        Ok(files.filter_map(|file| self.read(FileId(file))).collect())
    }
}

/// The rights of a file that are about to be lent. The note stays if they are not given back.
pub(super) struct Loan<'a> {
    rights: &'a LentRights,
    path: String,
    lent: LentMode,
}

impl Loan<'_> {
    /// Opens the file for reading and writing.
    pub fn open(self, flags: i32) -> io::Result<File> {
        self.with(|path| File::options().read(true).write(true).custom_flags(flags).open(path))
    }
    fn with(self, open: impl FnOnce(&str) -> io::Result<File>) -> io::Result<File> {
        let LentMode { file, mode, lent, .. } = self.lent;
        let set = |mode| fs::set_permissions(&self.path, Permissions::from_mode(mode));
        let opened = set(lent).and_then(|()| open(&self.path));
        set(mode)?;
        self.rights.forget(file);
        opened
    }
}

/// Opens a regular file that is held, also if its owner, this process, may not read it: a program
/// that made it so may write to it, and what it has synced must get there. The file's state stays
/// the one that journals build on. The caller keeps other clients from it, as its time of change
/// does not stay. WouldBlock: a program has a lease of it, and has been asked to end it.
pub(super) fn open_as_owner(
    held: &File,
    access: OpenMode,
    notes: &Notes,
    rights: &LentRights,
) -> io::Result<File> {
    match open_held(held, access, libc::O_NONBLOCK) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        opened => return opened,
    }
    let loan = rights.begin(held, 0o600)?;
    notes.keep(std::slice::from_ref(&held.metadata()?))?;
    loan.open(libc::O_NONBLOCK)
}

/// Returns a handle to write through. That of a file whose mode forbids it to its owner, this
/// process, is for reading ([`Local::open`]): a program that made it may write to it all the same.
pub(super) fn for_writing(handle: &File, rights: &LentRights) -> io::Result<File> {
    match is_for_writing(handle)? {
        true => handle.try_clone(),
        false => rights.begin(handle, TO_WRITE)?.open(0),
    }
}
pub(super) fn is_for_writing(handle: &File) -> io::Result<bool> {
    let is_it = fcntl_getfl(handle)?.intersects(OFlags::WRONLY | OFlags::RDWR);
    Ok(is_it || units::fault!("store-read-only-unwritten"))
}

#[cfg(test)]
mod tests {
    use super::super::held::hold;
    use super::*;
    use crate::event::HostPhase;
    use crate::local::LocalStore;
    use crate::store::Store;
    use device::World;
    use runtime::RealWorld;
    use std::os::unix::fs::FileExt;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;

    /// A journal goes on building on the file's state.
    #[test]
    fn a_mode_that_a_killed_daemon_left_is_given_back() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_owned();
        let world = RealWorld::new().unwrap();
        let shared: Rc<dyn World> = Rc::new(world.clone());
        let identity = Identity("host".into());
        world.run(async move {
            let mode = |name: &str| fs::metadata(root.join(name)).unwrap().mode() & 0o7777;
            let set = |name: &str, mode| {
                fs::set_permissions(root.join(name), Permissions::from_mode(mode)).unwrap();
            };
            let open = || LocalStore::open(shared.clone(), &root, identity.clone()).unwrap();
            let killed = open();
            let own = OwnDirectory::in_root(File::open(&root).unwrap(), ".okeanos").unwrap();
            let notes = Notes(own.inner("notes").unwrap());
            let rights = LentRights::new(own.inner("modes").unwrap(), identity.clone());
            for name in ["file", "changed", "gone"] {
                fs::write(root.join(name), b"content").unwrap();
                set(name, 0o200);
                let held = hold(&root.join(name)).unwrap();
                let loan = rights.begin(&held, 0o600).unwrap();
                notes.keep(&[held.metadata().unwrap()]).unwrap();
                let dies = catch_unwind(AssertUnwindSafe(|| loan.with(|_| panic!("killed"))));
                assert!(dies.is_err() && mode(name) == 0o600);
            }
            let file = killed.lookup(killed.root(), b"file").await.unwrap();
            drop(killed);
            set("changed", 0o640);
            fs::remove_file(root.join("gone")).unwrap();
            let next = open();
            next.register_host(HostPhase::Recovering).await.unwrap();
            assert_eq!((mode("file"), mode("changed")), (0o200, 0o640));
            let found = next.attributes(file.file).await.unwrap();
            assert_eq!(found.version, file.attributes.version);
            assert_eq!(rights.left().unwrap(), []);
        });
        world.end();
    }

    #[test]
    fn notes_come_back_and_damaged_ones_are_none() {
        let file = FileId(9);
        for born in [Born::Unknown, Born::At(7)] {
            let lent = LentMode { file, mode: 0o200, lent: 0o600, born };
            assert_eq!(LentMode::of_line(file, &lent.to_line()), Some(lent));
        }
        for damaged in ["", "1 128 384 0", "2 128 384 0\n", "1 128 384\n", "1 4096 384 0\n"] {
            assert_eq!(LentMode::of_line(file, damaged), None, "{damaged:?}");
        }
    }

    /// Runs again without the right to pass over modes where this process has it: root may write to
    /// any file.
    #[test]
    fn a_file_made_read_only_is_written_by_its_owner() {
        const AS_OWNER: &str = "OKEANOS_TEST_AS_OWNER";
        if rustix::process::geteuid().is_root() && std::env::var_os(AS_OWNER).is_none() {
            let mut again = std::process::Command::new("setpriv");
            again.args(["--bounding-set=-dac_override", "--inh-caps=-dac_override"]);
            again.arg(std::env::current_exe().expect("this program")).env(AS_OWNER, "1");
            let test = "local::lent_rights::tests::a_file_made_read_only_is_written_by_its_owner";
            let ended = again.args(["--exact", test]).output().expect("started");
            let reported = String::from_utf8_lossy(&ended.stdout);
            assert!(ended.status.success() && reported.contains("1 passed"), "{ended:?}");
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("object");
        fs::write(&path, b"old").expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o444)).expect("a mode");
        let handle = File::open(&path).expect("a handle for reading");
        let root = File::open(directory.path()).expect("its directory");
        let notes = OwnDirectory::in_root(root, "modes").expect("a place for notes");
        let rights = LentRights::new(notes, Identity("host".into()));
        for_writing(&handle, &rights).and_then(|to| to.write_all_at(b"new", 0)).expect("written");
        assert_eq!(fs::read(&path).expect("content"), b"new");
        assert_eq!(handle.metadata().expect("metadata").mode() & 0o7777, 0o444);
    }
}
