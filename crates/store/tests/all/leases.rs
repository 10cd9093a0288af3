//! Files of a directory of which another program has a lease.

use crate::contract::make;
use crate::sharing::{TAKEN, lock, on_two_of_a_directory};
use device::World;
use runtime::{Either, race};
use std::time::Duration;
use store::{LOCK_END, LockMode, OpenMode, Token, XattrMode};

/// A program that has a lease of a file, prints when another opens the file, and gives way when the
/// test asks.
struct Leaseholder {
    program: std::process::Child,
    /// The next line that it prints.
    printed: std::sync::mpsc::Receiver<String>,
}

impl Leaseholder {
    /// `None`: there are no leases here.
    fn of(path: &std::path::Path) -> Option<Leaseholder> {
        Leaseholder::with(path, "RDWR", "WRLCK")
    }
    /// Takes a lease of this kind through a descriptor with this access.
    fn with(path: &std::path::Path, access: &str, kind: &str) -> Option<Leaseholder> {
        use std::io::BufRead;
        const PROGRAM: &str = "import fcntl, os, signal, sys\n\
            signal.signal(signal.SIGIO, lambda *_: print('wanted', flush=True))\n\
            file = os.open(sys.argv[1], getattr(os, 'O_' + sys.argv[2]))\n\
            try: fcntl.fcntl(file, fcntl.F_SETLEASE, getattr(fcntl, 'F_' + sys.argv[3]))\n\
            except OSError: sys.exit()\n\
            print('leased', flush=True)\n\
            sys.stdin.readline()\n";
        let mut holder = std::process::Command::new("python3");
        holder.args(["-c", PROGRAM]).arg(path).args([access, kind]);
        let (stdin, stdout) = (std::process::Stdio::piped(), std::process::Stdio::piped());
        let mut program = holder.stdin(stdin).stdout(stdout).spawn().unwrap();
        let lines = std::io::BufReader::new(program.stdout.take().unwrap()).lines();
        let (sender, printed) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        if printed.recv().is_err() {
            println!("not tested: this file system has no leases");
            program.wait().unwrap();
            return None;
        }
        Some(Leaseholder { program, printed })
    }
    /// Returns when another has opened the file and waits.
    async fn until_wanted(&self, world: &dyn World) {
        while self.printed.try_recv().is_err() {
            world.sleep_until(world.now().plus(Duration::from_millis(1))).await;
        }
    }
    /// Gives way after some time, whatever the test waits for.
    fn give_way_after(mut self, time: Duration) {
        let stdin = self.program.stdin.take();
        std::thread::spawn(move || {
            std::thread::sleep(time);
            drop(stdin);
            self.program.wait()
        });
    }
    fn give_way(mut self) {
        drop(self.program.stdin.take());
        self.program.wait().unwrap();
    }
}

/// Others would wait with it: for the holder of the lease, or for ever.
#[test]
fn a_lease_keeps_nobody_from_other_files() {
    on_two_of_a_directory(|(first, _, world), root| async move {
        let (file, other) = (make(&*first, "file").await, make(&*first, "other").await);
        let Some(holder) = Leaseholder::of(&root.join("file")) else { return };
        let mut setting = first.set_xattr(file, b"user.a", b"b", XattrMode::Set);
        let raced = race(&mut setting, holder.until_wanted(&*world)).await;
        assert!(matches!(raced, Either::Right(())), "it opens the file");
        first.attributes(other).await.unwrap();
        // Had all waited with it, the kernel would have taken the lease by now.
        let pause = world.sleep_until(world.now().plus(Duration::from_secs(1)));
        assert!(matches!(race(&mut setting, pause).await, Either::Right(())), "all have waited");
        holder.give_way();
        setting.await.unwrap();
        assert_eq!(first.xattr(file, b"user.a").await.unwrap(), b"b");
    });
}

#[test]
fn a_leased_file_is_opened_when_the_lease_ends() {
    on_two_of_a_directory(|(first, _, world), root| async move {
        let file = make(&*first, "file").await;
        let Some(holder) = Leaseholder::of(&root.join("file")) else { return };
        let pause = || world.sleep_until(world.now().plus(Duration::from_millis(100)));
        let mut opening = first.open(file, OpenMode::ReadWrite);
        assert!(matches!(race(&mut opening, pause()).await, Either::Right(())));
        holder.give_way();
        let open = opening.await.unwrap();
        first.take_token(open, Token::ExclusiveWrite).await.unwrap();
        first.write(open, 0, b"mine").await.unwrap();
        first.make_durable(open).await.unwrap();
        assert_eq!(std::fs::read(root.join("file")).unwrap(), b"mine");
    });
}

/// The lock needs another descriptor, for which the kernel would have the only thread wait.
#[test]
fn a_leased_file_counts_as_locked() {
    on_two_of_a_directory(|(first, _, world), root| async move {
        let file = make(&*first, "file").await;
        let open = first.open(file, OpenMode::Read).await.unwrap();
        let Some(holder) = Leaseholder::with(&root.join("file"), "RDONLY", "RDLCK") else { return };
        let shared = lock(1, Some(LockMode::Shared), 0..LOCK_END);
        // A call that waits for the lease gets the lock then.
        holder.give_way_after(Duration::from_secs(1));
        assert_eq!(first.lock(open, shared.clone()).await, Err(TAKEN));
        while first.lock(open, shared.clone()).await == Err(TAKEN) {
            world.sleep_until(world.now().plus(Duration::from_millis(10))).await;
        }
        first.lock(open, lock(1, Some(LockMode::Exclusive), 0..1)).await.unwrap();
    });
}
