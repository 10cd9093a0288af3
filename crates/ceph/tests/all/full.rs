//! A pool that becomes full while files are buffered: the library drops their content.

use crate::common::{Cluster, connect, make, open_alone, run};
use device::World;
use std::rc::Rc;
use std::time::Duration;
use store::{OpenMode, Store as _, StoreError, Token};

/// The library's own sync of such a file succeeds.
#[test]
fn a_sync_of_content_that_a_full_pool_made_the_library_drop_fails() {
    let cluster = Rc::new(Cluster::start(&["--manager"]));
    let options = cluster.options("here");
    run(move |world| async move {
        let store = Rc::new(connect(&world, options).await);
        let mut opens = Vec::new();
        for name in ["first", "second"] {
            let file = make(&store, name).await;
            let open = open_alone(&store, file).await;
            store.write(open, 0, b"synced").await.unwrap();
            opens.push((file, open));
        }
        // What the servers have got stays.
        store.make_durable(opens[0].1).await.unwrap();
        store.write(opens[0].1, 6, b"!").await.unwrap();
        cluster.administer(&["osd", "pool", "set-quota", "data", "max_objects", "1"]);
        let until = world.now().plus(Duration::from_secs(100));
        let refused = |result: Result<_, StoreError>| {
            result.err().is_some_and(|error| error.errno() == libc::ENOSPC)
        };
        // It learns of the full pool with the answer to a request.
        let tried = async || {
            store.write(opens[0].1, 7, b"?").await?;
            store.make_durable(opens[0].1).await
        };
        while !refused(tried().await) {
            assert!(world.now() < until, "the library does not learn that the pool is full");
            world.sleep_until(world.now().plus(Duration::from_millis(200))).await;
        }
        cluster.administer(&["osd", "pool", "set-quota", "data", "max_objects", "0"]);
        for (file, open) in &opens {
            let synced = store.make_durable(*open).await;
            assert!(refused(synced), "{file:?} is not at the servers");
        }
        for (file, open) in opens {
            let mut open = open;
            // As a host does: the failure ends with the open file.
            let again = loop {
                let _ = store.close(open).await;
                open = store.open(file, OpenMode::ReadWrite).await.unwrap();
                store.take_token(open, Token::ExclusiveWrite).await.unwrap();
                let written = async {
                    store.write(open, 0, b"again").await?;
                    store.make_durable(open).await
                };
                let written = written.await;
                if !refused(written.clone()) {
                    break written;
                }
                assert!(world.now() < until, "the library does not learn that there is space");
                world.sleep_until(world.now().plus(Duration::from_millis(500))).await;
            };
            again.unwrap();
            store.return_token(file).await.unwrap();
        }
        store.disconnect().await.unwrap();
    });
}
