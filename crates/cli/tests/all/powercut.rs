//! Tests of the power-cut tester with real processes: it passes a disk that keeps acknowledged
//! writes, and detects one that does not.

use crate::rig::Rig;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const OKEANOS: &str = env!("CARGO_BIN_EXE_okeanos");

#[test]
fn nothing_else_is_made_of_a_file_that_is_written() {
    Rig::new().run(
        r#"truncate -s 64M file; $O powercut listen --address 127.0.0.1:0 --log log >where & L=$!
           trap 'kill $L $W' EXIT; W=$L
           for i in $(seq 100); do grep -q listening where && break; sleep 0.1; done
           $O powercut write --destroy --length 256K --count 1000000 \
               --listener $(sed 's/.* //' where) file >written 2>&1 &
           W=$!
           for i in $(seq 100); do [ $(stat -c %s file) = 262144 ] && break; sleep 0.1; done
           refuses $O mkfs --force file -- -q 2>printed
           grep -q 'in use' printed || { cat printed written; exit 1; }"#,
    );
}

/// A process, ended with the test.
struct Process(Child);
impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

struct Listener {
    _process: Process,
    address: String,
}

impl Listener {
    fn new(log: &Path) -> Listener {
        let mut process = Command::new(OKEANOS)
            .args(["powercut", "listen", "--address", "127.0.0.1:0", "--log"])
            .arg(log)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.trim().strip_prefix("listening on ").expect("where it listens").to_owned();
        Listener { _process: Process(process), address }
    }
    fn command(&self, words: &[&str], path: &Path) -> Command {
        let mut command = Command::new(OKEANOS);
        command.arg("powercut").args(words).args(["--listener", &self.address]).arg(path);
        command
    }
    fn run(&self, words: &[&str], path: &Path) -> Output {
        self.command(words, path).output().unwrap()
    }
    fn write(&self, words: &[&str], path: &Path) {
        let output = self.run(&[&["write", "--length", "256K"], words].concat(), path);
        assert!(output.status.success(), "{output:?}");
    }
    /// Returns the exit status and the JSON of `verify`.
    fn verify(&self, path: &Path) -> (bool, serde_json::Value) {
        let output = self.run(&["verify", "--json"], path);
        (output.status.success(), serde_json::from_slice(&output.stdout).expect("JSON"))
    }
}

#[test]
fn a_file_that_keeps_everything_is_clean() {
    let rig = Rig::new();
    let listener = Listener::new(&rig.path("log"));
    for (name, words) in [
        ("one", &["--count", "40"][..]),
        ("round", &["--count", "150", "--o-dsync", "--size", "512", "--length", "32K"]),
    ] {
        let path = rig.path(name);
        let output = listener.run(&[&["write"], words].concat(), &path);
        assert!(output.status.success(), "{output:?}");
        let (clean, verdict) = listener.verify(&path);
        assert!(clean, "{verdict}");
        let total = &verdict["total"];
        assert_eq!(total["acknowledged"], if name == "one" { 40 } else { 64 }, "{verdict}");
        assert_eq!(total["present"], total["acknowledged"]);
    }
    let said = String::from_utf8(listener.run(&["verify"], &rig.path("round")).stdout).unwrap();
    assert!(said.contains("honest this time"), "{said}");
    // The file exists, and nobody has permitted overwriting it.
    let again = listener.run(&["write", "--count", "1"], &rig.path("one"));
    assert!(String::from_utf8_lossy(&again.stderr).contains("--destroy"), "{again:?}");
    listener.write(&["--count", "1", "--destroy"], &rig.path("one"));
}

#[test]
fn a_file_that_falls_back_to_old_content_is_found_out() {
    let rig = Rig::new();
    let listener = Listener::new(&rig.path("log"));
    let path = rig.path("file");
    listener.write(&["--count", "50"], &path);
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let number_at = |place: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, place * 4096 + 24).unwrap();
        u64::from_le_bytes(bytes)
    };
    let place_of = |number| (0..64).find(|place| number_at(*place) == number).unwrap();
    for number in [47, 48] {
        file.write_all_at(&[0; 4096], place_of(number) * 4096).unwrap();
    }
    file.write_all_at(&[0; 512], place_of(49) * 4096 + 2048).unwrap();
    let (clean, verdict) = listener.verify(&path);
    assert!(!clean);
    let total = &verdict["total"];
    let counts =
        ["acknowledged", "present", "lost", "torn"].map(|name| total[name].as_u64().unwrap());
    assert_eq!(counts, [50, 47, 2, 1], "{verdict}");
    assert!(verdict["verdict"].as_str().unwrap().starts_with("it lies"), "{verdict}");
    // An older run's content does not count either.
    listener.write(&["--count", "10", "--destroy"], &rig.path("other"));
    let output = listener.run(&["verify"], &path);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let run = verdict["run"].as_str().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stderr).contains(&format!("say --run {run}")),
        "{output:?}"
    );
    // All writes are lost.
    file.set_len(0).unwrap();
    assert!(!listener.verify(&path).0);
}

#[test]
fn a_dead_writer_is_judged_by_what_even_a_late_listener_heard() {
    let rig = Rig::new();
    let path = rig.path("file");
    {
        let listener = Listener::new(&rig.path("log"));
        let writer =
            listener.command(&["write", "--length", "256K"], &path).stderr(Stdio::null()).spawn();
        let _writer = Process(writer.unwrap());
        while std::fs::metadata(rig.path("log")).map_or(0, |log| log.len()) < 5000 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let (clean, verdict) = Listener::new(&rig.path("log")).verify(&path);
    assert!(clean, "{verdict}");
    assert!(verdict["acknowledged"].as_u64().unwrap() > 10, "{verdict}");
}

#[test]
fn garbage_is_answered_with_an_error_and_harms_nobody() {
    let rig = Rig::new();
    let listener = Listener::new(&rig.path("log"));
    let said = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(&listener.address).unwrap();
        // The listener may hang up before all of it is sent.
        _ = stream.write_all(bytes);
        _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    };
    assert!(said(b"GET / HTTP/1.1\n").starts_with("error not understood"));
    assert!(said(b"0123456789abcdef about 0\n").starts_with("error"));
    assert!(said(b"half").starts_with("error"));
    assert!(said(b"\xff\xfe\n").starts_with("error"));
    said(&vec![b'x'; 1 << 20]);
    assert_eq!(said(b"report\n"), "end\n");
    let open: Vec<_> = (0..16).map(|_| TcpStream::connect(&listener.address).unwrap()).collect();
    assert!(said(b"report\n").starts_with("error 16 connections"));
    drop(open);
    while !said(b"report\n").starts_with("end") {
        std::thread::sleep(Duration::from_millis(10));
    }
    listener.write(&["--count", "3"], &rig.path("file"));
    assert!(listener.verify(&rig.path("file")).0);
    let unknown = listener.run(&["verify", "--run", "0000000000000001"], &rig.path("file"));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no such run"), "{unknown:?}");
}

#[test]
fn a_file_on_okeanos_has_what_was_acknowledged_when_the_program_is_killed() {
    let rig = Rig::new();
    let listener = Listener::new(&rig.path("log"));
    rig.run(&format!(
        "$O mkfs --force image 64M -- -q
         serve data=wasteless image
         $O powercut write --listener {address} --length 256K --count 100 $M/file
         kill_daemon; umount -l $M; settle image
         $O mount image $M; $O powercut verify --listener {address} $M/file; $O umount $M",
        address = listener.address
    ));
    rig.check("");
}
