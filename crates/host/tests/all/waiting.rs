//! Writers that wait for a file do not keep those of other files waiting.

use crate::common::*;
use host::{Durable, HostOptions};
use runtime::race;
use std::time::Duration;
use store::{AttributeChange, NewNode, OpenMode, TimeChange, Token};

#[test]
fn writers_of_a_kept_file_hold_no_space_of_the_journal() {
    let (stage, disk) = Stage::formatted_disk(1);
    stage.play(&disk, HostOptions::default(), async move |host, inner| {
        let (peer, world) = (inner.peer(), inner.world());
        let node = NewNode::Regular { mode: 0o644 };
        let kept = host.make(host.root(), b"kept", node, ROOT).await.unwrap().file;
        let open = peer.open(kept, OpenMode::ReadWrite).await.unwrap();
        // It answers no recall.
        peer.take_token(open, Token::ExclusiveWrite).await.unwrap();
        let other = make(&host, "other").await;
        for number in 0..200u64 {
            let host = host.clone();
            world.spawn(Box::pin(async move {
                let time = AttributeChange {
                    modified: Some(TimeChange::Now),
                    ..AttributeChange::default()
                };
                let _ = host.write(kept, number, &[1], Durable::Now).await;
                let _ = host.set_attributes(kept, time).await;
            }));
        }
        sleep(&*world, Duration::from_secs(1)).await;
        let write = host.write(other, 0, b"other", Durable::Now);
        match race(write, sleep(&*world, Duration::from_secs(1))).await {
            runtime::Either::Left(written) => drop(written.unwrap()),
            runtime::Either::Right(()) => panic!("it waits for the writers of another file"),
        }
        // All of them end when the lease of the silent client has.
        sleep(&*world, Duration::from_secs(60)).await;
        assert_eq!(inner.cluster.content(kept).map(|_| ()), Some(()));
        host.close().await.unwrap();
    });
}
