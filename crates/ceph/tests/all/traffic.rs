//! Requests that the servers get.

use crate::common::*;
use device::World;
use std::rc::Rc;
use std::time::{Duration, Instant};
use store::{FileId, OpenFile, OpenMode, Store};

const FILES: u64 = 20;

/// Creates new files, open and held, with buffered content if there is any.
async fn files(store: &dyn Store, prefix: &str, content: &[u8]) -> Vec<(FileId, OpenFile)> {
    let mut files = Vec::new();
    for number in 0..FILES {
        let name = format!("{prefix} {number}");
        let created = store.create(store.root(), name.as_bytes(), 0o644, ROOT).await.unwrap();
        assert!(created.is_held);
        let open = created.open.unwrap();
        if !content.is_empty() {
            store.write(open, 0, content).await.unwrap();
        }
        files.push((created.found.file, open));
    }
    files
}

#[test]
fn a_created_file_and_its_first_write_cost_the_metadata_server_one_request() {
    let cluster = Rc::new(Cluster::small());
    let (here, counter) = (cluster.options("here"), cluster.clone());
    run(|world| async move {
        let store = connect(&world, here).await;
        let before = counter.metadata_requests();
        files(&store, "file", b"first").await;
        let requests = counter.metadata_requests() - before;
        assert!((FILES..FILES + 3).contains(&requests), "{requests} for {FILES} files");
    });
}

/// One for the server of the file, which may refuse this client, and one for the session's lock.
#[test]
fn a_sync_asks_the_metadata_servers_two_questions_and_a_return_asks_none() {
    let cluster = Rc::new(Cluster::small());
    let (here, counter) = (cluster.options("here"), cluster.clone());
    run(|world| async move {
        let store = connect(&world, here).await;
        for (content, questions) in [(&b"content"[..], 2 * FILES), (&b""[..], 0)] {
            let made = files(&store, &format!("{questions} questions"), content).await;
            let before = counter.metadata_requests();
            for (file, open) in made {
                if !content.is_empty() {
                    store.make_durable(open).await.unwrap();
                }
                store.return_token(file).await.unwrap();
                store.close(open).await.unwrap();
            }
            let requests = counter.metadata_requests() - before;
            assert!((questions..questions + 3).contains(&requests), "{requests}, not {questions}");
        }
    });
}

#[test]
fn many_files_are_made_durable_with_few_writes_of_the_metadata_servers_journal() {
    let cluster = Rc::new(Cluster::small());
    let (here, there, counter) =
        (cluster.options("here"), cluster.options("there"), cluster.clone());
    run(|world| async move {
        let store = connect(&world, here).await;
        let made = files(&store, "file", b"content").await;
        let before = counter.counter("osd", "osd", "op_w");
        for (_, open) in &made {
            store.send_content(*open).await.unwrap();
        }
        store.send_attributes().await.unwrap();
        for (_, open) in &made {
            store.make_durable(*open).await.unwrap();
        }
        // One of each file is its content.
        let writes = counter.counter("osd", "osd", "op_w") - before;
        assert!((FILES..FILES * 3 / 2).contains(&writes), "{writes} for {FILES} files");
        // This client still holds them: another that fences it finds what is durable.
        let other = connect(&world, there).await;
        other.fence(&store.identity()).await.unwrap();
        for (file, _) in made {
            let open = other.open(file, OpenMode::Read).await.unwrap();
            assert_eq!(other.read(open, 0, 100).await.unwrap(), b"content");
        }
    });
}

#[test]
fn a_file_removed_before_it_was_durable_is_not_sent_and_leaves_nothing() {
    const CONTENT_BYTES: usize = 64 << 10;
    let cluster = Rc::new(Cluster::small());
    let (here, counter) = (cluster.options("here"), cluster.clone());
    run(|world| async move {
        let store = connect(&world, here).await;
        let before = counter.counter("osd", "osd", "op_w_in_bytes");
        for (number, (file, open)) in
            files(&store, "mail", &[7; CONTENT_BYTES]).await.into_iter().enumerate()
        {
            store.unlink(store.root(), format!("mail {number}").as_bytes()).await.unwrap();
            assert_eq!(store.attributes(file).await.unwrap().links, 0);
            store.close(open).await.unwrap();
            store.forget(file);
        }
        assert!(counter.counter("mds", "mds_cache", "strays_created") >= FILES);
        let begin = Instant::now();
        // One is the connection's own, by which it notices what the library drops.
        while counter.counter("mds", "mds_cache", "num_strays") > 1 {
            assert!(begin.elapsed() < PATIENCE, "the servers keep files without a name");
            world.sleep_until(world.now().plus(Duration::from_millis(200))).await;
        }
        let bytes = counter.counter("osd", "osd", "op_w_in_bytes") - before;
        assert!(bytes < FILES * CONTENT_BYTES as u64 / 4, "{bytes} bytes went to the data servers");
    });
}

#[test]
fn a_removed_file_that_another_client_has_open_is_read_there_as_written() {
    on_cluster(async move |world, [here, there]| {
        let (store, other) = (Rc::new(connect(&world, here).await), connect(&world, there).await);
        world.spawn(Box::pin(return_recalled(store.clone())));
        // One file, as the metadata server may take seconds until it lets another client read.
        let (file, open) = files(&*store, "mail", b"letter").await[0];
        let peer = other.open(file, OpenMode::Read).await.unwrap();
        store.unlink(store.root(), b"mail 0").await.unwrap();
        assert_eq!(store.attributes(file).await.unwrap().links, 0);
        store.close(open).await.unwrap();
        assert_eq!(other.read(peer, 0, 100).await.unwrap(), b"letter");
    });
}
