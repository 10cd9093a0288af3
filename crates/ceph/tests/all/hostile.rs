//! Hostile bytes on the socket, in both directions, and a helper that dies or is silent. No cluster
//! is needed.

use ceph::{
    CephStore, FRAME_BYTES_MAX, Frames, Hello, HelloReply, HelperReply, HelperRequest,
    MalformedMessage, Numbered, Options, Report, WIRE_VERSION, frame,
};
use device::World;
use runtime::{Either, RealWorld, SplitMix, race};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use store::{
    Allocation, AttributeChange, Creator, Entry, FileAttributes, FileId, FileKind, Identity,
    Listing, LockMode, NewNode, Store as _, StoreError, TimeChange, Token, Version, XattrMode,
};
use units::Timestamp;

const PATIENCE: Duration = Duration::from_secs(60);

fn attributes() -> FileAttributes {
    let time = Timestamp { seconds: -1, nanoseconds: 999_999_999 };
    FileAttributes {
        file: FileId(1),
        kind: FileKind::Directory,
        version: Version { number: 7, ctime_ns: u64::MAX, size: 5 },
        mode: 0o7777,
        links: 2,
        uid: 3,
        gid: 4,
        rdev: 5,
        blocks: 6,
        accessed: time,
        modified: time,
        changed: time,
    }
}

fn requests() -> Vec<HelperRequest> {
    let (file, name) = (FileId(9), b"name".to_vec());
    let change = AttributeChange {
        size: Some(1),
        modified: Some(TimeChange::Now),
        accessed: Some(TimeChange::To(Timestamp::default())),
        ..AttributeChange::default()
    };
    let node = NewNode::Symlink { target: b"target".to_vec() };
    let hello = Hello {
        version: WIRE_VERSION,
        identity: b"host".to_vec(),
        user: b"mail".to_vec(),
        keyring: b"/keys".to_vec(),
        ..Hello::default()
    };
    vec![
        HelperRequest::Connect { hello },
        HelperRequest::Disconnect,
        HelperRequest::Make {
            parent: file,
            name: name.clone(),
            node,
            caller: Creator { uid: 1, gid: 2, umask: 0o22 },
        },
        HelperRequest::Create {
            parent: file,
            name: name.clone(),
            mode: 0o644,
            caller: Creator { uid: 1, gid: 2, umask: 0o22 },
        },
        HelperRequest::SetAttributes { file, change },
        HelperRequest::SetXattr { file, name, value: vec![1; 100], mode: XattrMode::Replace },
        HelperRequest::Append { file, bytes: vec![1, 2, 3] },
        HelperRequest::Write { file, at: 5, bytes: vec![2; 3000] },
        HelperRequest::Allocate { file, what: Allocation::PunchHole, start: 4096, end: 8192 },
        HelperRequest::SendContent { file },
        HelperRequest::SendAttributes,
        HelperRequest::AcknowledgeRecall { file },
        HelperRequest::Lock { file, owner: 7, mode: None, start: 1, end: 9 },
        HelperRequest::TestLock { file, owner: 7, mode: LockMode::Shared, start: 1, end: 9 },
        HelperRequest::TakeToken { file, token: Token::ExclusiveWrite, to_recover: false },
    ]
}
fn reports() -> Vec<Report> {
    let entry = Entry {
        name: b"x".to_vec(),
        file: FileId(3),
        kind: FileKind::Special(libc::S_IFIFO),
        cursor: 1,
    };
    let listing = Listing { entries: vec![entry; 3], is_end: true };
    vec![
        Report::Success { request: 1, reply: HelperReply::Attributes { attributes: attributes() } },
        Report::Success {
            request: 1,
            reply: HelperReply::Created { attributes: attributes(), is_held: true },
        },
        Report::Success { request: 1, reply: HelperReply::Listing { listing } },
        Report::Failure { request: 2, code: 5 },
        Report::Recall { file: FileId(3), token: Token::SharedRead },
        Report::Lost { fenced: true, why: b"because".to_vec() },
    ]
}

#[test]
fn every_message_comes_back_as_it_went_however_it_is_cut() {
    let mut bytes = Vec::new();
    let messages: Vec<Numbered> = requests()
        .into_iter()
        .zip(3..)
        .map(|(request, number)| Numbered { number, request })
        .collect();
    messages.iter().for_each(|message| bytes.extend(frame(message)));
    for step in [1, 2, 7, 100, bytes.len()] {
        let (mut frames, mut back) = (Frames::default(), Vec::new());
        for part in bytes.chunks(step) {
            frames.add(part);
            while let Some(message) = frames.next_message::<Numbered>().unwrap() {
                back.push(message);
            }
        }
        assert_eq!(back, messages);
    }
    for report in reports() {
        let mut frames = Frames::default();
        frames.add(&frame(&report));
        assert_eq!(frames.next_message::<Report>().unwrap(), Some(report));
    }
}

#[test]
fn hostile_bytes_are_an_error_and_take_no_more_memory_than_they_are_long() {
    let too_long = ((FRAME_BYTES_MAX + 1) as u32).to_le_bytes();
    let mut frames = Frames::default();
    frames.add(&too_long);
    assert_eq!(
        frames.next_message::<Report>().unwrap_err(),
        MalformedMessage::TooLong(FRAME_BYTES_MAX as u32 + 1)
    );

    // A journal with it would be refused as damaged.
    let accessed = Timestamp { seconds: 1, nanoseconds: 1_000_000_000 };
    let attributes = FileAttributes { accessed, ..attributes() };
    let mut frames = Frames::default();
    frames.add(&frame(&Report::Success {
        request: 1,
        reply: HelperReply::Attributes { attributes },
    }));
    let refused = frames.next_message::<Report>().unwrap_err();
    assert_eq!(refused, MalformedMessage::Nanoseconds(1_000_000_000));

    let seed = 20_261_122;
    let random = SplitMix::new(seed);
    let originals: Vec<Vec<u8>> = requests()
        .into_iter()
        .map(|request| frame(&Numbered { number: 1, request }))
        .chain(reports().iter().map(frame))
        .collect();
    for round in 0..200_000 {
        let mut bytes = originals[random.next() as usize % originals.len()].clone();
        for _ in 0..1 + random.next() % 4 {
            let at = random.next() as usize % bytes.len();
            match random.next() % 3 {
                0 => bytes[at] = random.next() as u8,
                1 => bytes.truncate(at.max(5)),
                _ => bytes[at] = 0xff,
            }
        }
        // A length that fits, so that the inside is parsed.
        let length = (bytes.len() - 4) as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        let mut frames = Frames::default();
        frames.add(&bytes);
        if let Ok(Some(message)) = frames.next_message::<Numbered>() {
            assert!(frame(&message).len() <= bytes.len(), "seed {seed} round {round}");
        }
        let mut frames = Frames::default();
        frames.add(&bytes);
        if let Ok(Some(message)) = frames.next_message::<Report>() {
            assert!(frame(&message).len() <= bytes.len(), "seed {seed} round {round}");
        }
    }
}

#[test]
fn the_helper_ends_on_bytes_that_are_no_request() {
    let conf = Hello {
        version: WIRE_VERSION,
        identity: b"x".to_vec(),
        conf: b"/nowhere/ceph.conf".to_vec(),
        user: b"admin".to_vec(),
        file_system: Vec::new(),
        directory: b"/".to_vec(),
        keyring: Vec::new(),
    };
    let early = frame(&Numbered { number: 1, request: HelperRequest::Space });
    let another = Hello { version: WIRE_VERSION + 1, ..conf.clone() };
    let [no_conf, another] = [conf, another]
        .map(|hello| frame(&Numbered { number: 1, request: HelperRequest::Connect { hello } }));
    let cut = no_conf[..20].to_vec();
    for bytes in [vec![0xff; 100], vec![0; 100], early, cut, no_conf, another, Vec::new()] {
        let (mut helper, mut ours) = start_helper();
        ours.write_all(&bytes).unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = Vec::new();
        ours.read_to_end(&mut answer).expect("the helper ends");
        helper.wait().unwrap();
    }
}

/// An upgrade may replace the program under a daemon, which starts the helper again from it.
#[test]
fn a_helper_of_another_release_says_so_and_reads_no_further_field() {
    let mut hello = frame(&Numbered {
        number: 1,
        request: HelperRequest::Connect {
            hello: Hello { version: WIRE_VERSION + 1, ..Hello::default() },
        },
    });
    // Fields that this release does not know.
    let length = hello.len() as u32 - 4 + 3;
    hello[..4].copy_from_slice(&length.to_le_bytes());
    hello.extend([0xff; 3]);
    let (mut helper, mut ours) = start_helper();
    ours.write_all(&hello).unwrap();
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    ours.read_to_end(&mut answer).expect("the helper ends");
    helper.wait().unwrap();
    let mut frames = Frames::default();
    frames.add(&answer);
    let Ok(Some(Report::Lost { fenced: false, why })) = frames.next_message() else {
        panic!("no reason")
    };
    let why = String::from_utf8(why).unwrap();
    assert!(why.contains("another release") && why.contains("mount again"), "{why}");
}

/// The helper ends whatever it waits for, here a monitor that does not answer.
#[test]
fn a_helper_that_is_still_connecting_ends_with_its_daemon() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("ceph.conf");
    let monitor = format!("mon host = [v2:{}/0]", silent.local_addr().unwrap());
    let own = "log file =\nadmin socket =\nauth client required = none";
    std::fs::write(&conf, format!("[global]\n{monitor}\n{own}\n")).unwrap();
    let hello = Hello {
        version: WIRE_VERSION,
        identity: b"x".to_vec(),
        conf: conf.into_os_string().into_encoded_bytes(),
        user: b"admin".to_vec(),
        file_system: Vec::new(),
        directory: b"/".to_vec(),
        keyring: Vec::new(),
    };
    let (mut helper, mut ours) = start_helper();
    ours.write_all(&frame(&Numbered { number: 1, request: HelperRequest::Connect { hello } }))
        .unwrap();
    let (_connection, _) = silent.accept().unwrap();
    drop(ours);
    // The library itself gives up after 30 s.
    let deadline = Instant::now() + Duration::from_secs(10);
    while helper.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            helper.kill().unwrap();
            helper.wait().unwrap();
            panic!("it goes on without its daemon");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns how a helper ends that gets nonsense, and complains there.
fn end_after_nonsense(complains_to: Stdio) -> Option<i32> {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut helper = Command::new(env!("CARGO_BIN_EXE_ceph-helper"))
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .stderr(complains_to)
        .spawn()
        .unwrap();
    ours.write_all(&[0xff; 100]).unwrap();
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    let ended = ours.read_to_end(&mut Vec::new());
    if ended.is_err() {
        helper.kill().unwrap();
    }
    helper.wait().unwrap().code()
}

/// The complaint need not be read, and the daemon waits for its end.
#[test]
fn a_helper_to_which_nobody_listens_ends_like_any_other() {
    const BADLY: Option<i32> = Some(1);
    assert_eq!(end_after_nonsense(Stdio::null()), BADLY);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(end_after_nonsense(writer.into()), BADLY, "the reader is gone");
    let (reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: the descriptor is open; the command takes an integer.
    let length = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    writer.write_all(&vec![b'.'; length as usize]).unwrap();
    assert_eq!(end_after_nonsense(writer.into()), BADLY, "the reader does not read");
    drop(reader);
}

/// Options with a shell script as helper.
fn options_for(script: &str) -> Options {
    Options {
        conf: "/nowhere".into(),
        user: "admin".into(),
        file_system: String::new(),
        directory: "/".into(),
        keyring: Default::default(),
        identity: Identity("me".into()),
        program: "/bin/bash".into(),
        arguments: vec!["-c".into(), script.into()],
    }
}

/// Connects to a shell script as helper.
fn against(script: &str) -> Result<(), StoreError> {
    let world = RealWorld::new().unwrap();
    let options = options_for(script);
    let (clock, patience) = (world.clone(), world.sleep_until(world.now().plus(PATIENCE)));
    let work = async move {
        let store = CephStore::connect(&clock, options).await?;
        let calls = (0..100).map(|number| store.attributes(FileId(number)));
        let calls: Vec<_> = calls.map(|call| runtime::spawn_with_result(&clock, call)).collect();
        for call in calls {
            call.await.expect("the world goes on")?;
        }
        Ok(())
    };
    let result = world.run(async move {
        match race(Box::pin(work), patience).await {
            Either::Left(result) => Some(result),
            Either::Right(()) => None,
        }
    });
    world.end();
    result.expect("it hangs")
}

/// Returns a script that writes `bytes` to its socket when it has read something.
fn says(bytes: &[u8]) -> String {
    let text: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("head -c 8 <&0 >/dev/null; printf '{text}' >&0; ")
}

/// Returns the frame with which a helper reports that it is connected.
fn hello_reply() -> Vec<u8> {
    let hello_reply = HelloReply {
        root: attributes(),
        recall_ms: 1000,
        hold_ms: 1000,
        cluster_high: 1,
        cluster_low: 2,
        file_system: 3,
    };
    frame(&Report::Success { request: 1, reply: HelperReply::HelloReply { hello_reply } })
}

#[test]
fn calls_that_do_not_return_end_with_a_given_up_connection() {
    let world = RealWorld::new().unwrap();
    let clock = world.clone();
    let error = world.run(async move {
        let options = options_for(&(says(&hello_reply()) + "sleep 600"));
        let store = CephStore::connect(&clock, options).await.unwrap();
        let process = store.helper().unwrap();
        let call = runtime::spawn_with_result(&clock, store.attributes(FileId(1)));
        runtime::yield_now().await;
        store.give_up_connection();
        let patience = clock.sleep_until(clock.now().plus(PATIENCE));
        let Either::Left(ended) = race(call, patience).await else { panic!("it hangs") };
        assert!(store.attributes(FileId(1)).await.is_err_and(|error| error.is_lost()));
        // Killed, and perhaps not reaped yet.
        let state = || std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        while !state().is_empty() && !state().contains(") Z ") {
            clock.sleep_until(clock.now().plus(Duration::from_millis(5))).await;
        }
        ended.unwrap().unwrap_err()
    });
    world.end();
    assert!(error.is_lost(), "{error:?}");
}

#[test]
fn a_helper_that_dies_or_talks_nonsense_gives_errors_and_no_hang() {
    let hello_reply = hello_reply();
    let with = |behind: Vec<u8>| says(&[hello_reply.clone(), behind].concat()) + "sleep 60";
    let unasked = frame(&Report::Success { request: 4711, reply: HelperReply::Done });
    let other = frame(&Report::Success { request: 2, reply: HelperReply::Done });
    for (script, expected) in [
        ("exit 1".to_string(), "Disconnected"),
        ("kill -9 $$".to_string(), "Disconnected"),
        (says(&[0xff; 64]) + "sleep 60", "Disconnected"),
        (
            says(&frame(&Report::Success { request: 1, reply: HelperReply::Done })) + "sleep 60",
            "Nonsense",
        ),
        (says(&frame(&Report::Lost { fenced: true, why: b"no".to_vec() })) + "sleep 60", "Fenced"),
        (says(&hello_reply) + "sleep 0.2", "Disconnected"),
        (with(vec![0xff; 64]), "Disconnected"),
        (with(unasked), "Disconnected"),
        // It may come before the first request, or after.
        (with(other), "Disconnected|Nonsense"),
        (with(frame(&Report::Lost { fenced: true, why: b"no".to_vec() })), "Fenced"),
    ] {
        let error = against(&script).unwrap_err();
        let is_expected = expected.split('|').any(|kind| format!("{error:?}").starts_with(kind));
        assert!(is_expected, "{error:?}, not {expected}, of {script}");
    }
    let world = RealWorld::new().unwrap();
    let mut options = Options::of(Identity("me".into()));
    options.program = "/nowhere/helper".into();
    let clock = world.clone();
    let error = world.run(async move { CephStore::connect(&clock, options).await.err() }).unwrap();
    assert!(error.to_string().contains("/nowhere/helper"), "{error}");
}

/// Starts a helper. Returns the daemon's end of its socket, too.
fn start_helper() -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let helper = Command::new(env!("CARGO_BIN_EXE_ceph-helper"))
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    (helper, ours)
}
