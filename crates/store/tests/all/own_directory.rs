//! The store's own files in a directory to which others may write.

use device::World;
use runtime::RealWorld;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::Path;
use std::rc::Rc;
use store::{Identity, LocalStore, OpenMode, Store, StoreError, Token};

const OTHER_USER: u32 = 4711;

fn open(world: &RealWorld, root: &Path) -> Result<Rc<dyn Store>, StoreError> {
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let store = LocalStore::open(shared, root, Identity("host".into()))?;
    Ok(Rc::new(store))
}

/// Every user who may write to the store's root may put something else there.
#[test]
fn links_in_place_of_the_own_directory_are_not_followed() {
    let place = tempfile::tempdir().unwrap();
    let (root, victim) = (place.path().join("store"), place.path().join("victim"));
    fs::create_dir(&root).unwrap();
    fs::write(&victim, b"root's").unwrap();
    let world = RealWorld::new().unwrap();
    let store = open(&world, &root).unwrap();
    let at = root.clone();
    world.run(async move {
        let file = crate::contract::make(&*store, "file").await;
        fs::rename(at.join(".okeanos"), at.join("away")).unwrap();
        for part in ["notes", "tokens", "wishes", "lives"] {
            fs::create_dir_all(at.join(".okeanos").join(part)).unwrap();
        }
        for name in [format!("notes/{}.new", file.0), format!("tokens/{}", file.0)] {
            symlink(&victim, at.join(".okeanos").join(&name)).unwrap();
            let _ = fs::remove_file(at.join("away").join(&name));
            symlink(&victim, at.join("away").join(&name)).unwrap();
        }
        let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
        // In the directory itself a link is neither a token nor a note.
        assert!(store.take_token(open, Token::ExclusiveWrite).await.is_err());
        fs::remove_file(at.join(format!("away/tokens/{}", file.0))).unwrap();
        store.take_token(open, Token::ExclusiveWrite).await.unwrap();
        store.write(open, 0, b"content").await.unwrap();
        store.make_durable(open).await.unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"root's");
        assert_eq!(fs::read(at.join("file")).unwrap(), b"content");
    });
    world.end();
}

#[test]
fn an_own_directory_that_is_a_link_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (root, elsewhere) = (place.path().join("store"), place.path().join("elsewhere"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, root.join(".okeanos")).unwrap();
    let world = RealWorld::new().unwrap();
    assert!(open(&world, &root).is_err());
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    world.end();
}

#[test]
fn an_own_directory_of_another_user_is_refused() {
    if crate::contract::own().uid != 0 {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join(".okeanos")).unwrap();
    lchown(root.path().join(".okeanos"), Some(OTHER_USER), None).unwrap();
    let world = RealWorld::new().unwrap();
    assert_eq!(open(&world, root.path()).err().map(|error| error.errno()), Some(libc::EPERM));
    lchown(root.path().join(".okeanos"), Some(0), None).unwrap();
    drop(open(&world, root.path()).unwrap());
    world.end();
}

/// A lock for readers on a file that others may open would keep a host from its own journal.
#[test]
fn others_may_not_open_what_hosts_lock() {
    let root = tempfile::tempdir().unwrap();
    let own = root.path().join(".okeanos");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
    let world = RealWorld::new().unwrap();
    let store = open(&world, root.path()).unwrap();
    assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(own.join("lives/host")).unwrap().mode() & 0o777, 0o600);
    drop(store);
    world.end();
}
