//! One helper process: frames sent, frames received, and its end.
//!
//! Invariants: each request is answered once, by its report or by the link's end. After the end
//! nothing is sent. The process ends with the link.

use crate::wire::{Frames, HelperReply, HelperRequest, Numbered, Report, frame};
use crate::{client::Options, helper::REQUESTS_MAX};
use device::World;
use runtime::sync::Event as Condition;
use runtime::{File, RealWorld, Sender, oneshot};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;
use store::{FileId, Token};

/// Smallest and largest receive buffer: an unused buffer is still cleared.
const RECEIVED_AT_ONCE: [usize; 2] = [4 << 10, 256 << 10];
const SENT_AT_ONCE: usize = 1 << 20;
/// A killed process may take a moment to exit.
const REAPING: Duration = Duration::from_millis(10);
const REAPINGS: u32 = 500;

/// The reason why the link has ended.
#[derive(Clone, Debug)]
pub struct Lost {
    pub fenced: bool,
    pub why: String,
}

/// Reports that the helper sends unasked.
pub enum Notice {
    Recall { file: FileId, token: Token },
    Changed { file: FileId },
    Lost(Lost),
}

pub struct Link {
    world: RealWorld,
    socket: File,
    outbound: RefCell<VecDeque<Vec<u8>>>,
    changed: Condition,
    waiting: RefCell<BTreeMap<u64, Sender<Result<HelperReply, i32>>>>,
    last_number: Cell<u64>,
    running: Cell<usize>,
    lost: RefCell<Option<Lost>>,
    child: RefCell<Option<Child>>,
    /// Receives notices; not called while anything here is borrowed.
    notify: Box<dyn Fn(Notice)>,
}

impl Link {
    pub fn start(
        world: &RealWorld,
        options: &Options,
        notify: Box<dyn Fn(Notice)>,
    ) -> io::Result<Rc<Link>> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(&options.program);
        command.arg0("okeanos").args(&options.arguments);
        // The socket is its standard input; std opens everything else for this process alone.
        let child = command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).spawn()?;
        let link = Rc::new(Link {
            world: world.clone(),
            socket: Rc::new(ours.into()),
            outbound: RefCell::default(),
            changed: Condition::default(),
            waiting: RefCell::default(),
            last_number: Cell::new(0),
            running: Cell::new(0),
            lost: RefCell::new(None),
            child: RefCell::new(Some(child)),
            notify,
        });
        world.spawn(Box::pin(link.clone().send()));
        world.spawn(Box::pin(link.clone().receive()));
        Ok(link)
    }

    pub fn lost(&self) -> Option<Lost> {
        self.lost.borrow().clone()
    }
    /// Process number of the helper, for tests that kill it.
    pub fn process(&self) -> Option<u32> {
        self.child.borrow().as_ref().map(|child| child.id())
    }

    /// Returns the helper's answer, or its errno.
    pub async fn ask(&self, request: HelperRequest) -> Result<Result<HelperReply, i32>, Lost> {
        if let Some(lost) = self.lost() {
            return Err(lost);
        }
        let number = self.last_number.get() + 1;
        self.last_number.set(number);
        let (sender, answer) = oneshot();
        self.waiting.borrow_mut().insert(number, sender);
        self.outbound.borrow_mut().push_back(frame(&Numbered { number, request }));
        self.changed.notify();
        match answer.await {
            Some(answer) => Ok(answer),
            None => Err(self.lost().expect("only a link's end drops those who wait")),
        }
    }

    async fn send(self: Rc<Self>) {
        loop {
            let ready = || {
                let may = !self.outbound.borrow().is_empty() && self.running.get() < REQUESTS_MAX;
                (may || self.lost.borrow().is_some()).then_some(())
            };
            self.changed.until(ready).await;
            if self.lost.borrow().is_some() {
                return;
            }
            let mut bytes = Vec::new();
            while self.running.get() < REQUESTS_MAX && bytes.len() < SENT_AT_ONCE {
                let Some(frame) = self.outbound.borrow_mut().pop_front() else { break };
                self.running.set(self.running.get() + 1);
                if bytes.is_empty() { bytes = frame } else { bytes.extend_from_slice(&frame) }
            }
            if self.world.ring().send_all(&self.socket, bytes).await.is_err() {
                // Earlier reports are still in the socket; the receiver finds them, and the end.
                return;
            }
        }
    }

    async fn receive(self: Rc<Self>) {
        let mut frames = Frames::default();
        let died = |why: String| Lost { fenced: false, why };
        let [length_min, length_max] = RECEIVED_AT_ONCE;
        let mut length = length_min;
        loop {
            let bytes = match self.world.ring().receive(&self.socket, length).await {
                Ok(bytes) if bytes.is_empty() => {
                    return self.end(died("its helper process ended".into()));
                }
                Ok(bytes) => bytes,
                Err(error) => {
                    return self.end(died(format!("the socket to its helper process: {error}")));
                }
            };
            if self.lost.borrow().is_some() {
                return;
            }
            length = if bytes.len() == length { length_max } else { length_min };
            frames.add(&bytes);
            loop {
                let report = match frames.next_message() {
                    Ok(Some(report)) => report,
                    Ok(None) => break,
                    Err(error) => {
                        return self
                            .end(died(format!("its helper process talks nonsense: {error}")));
                    }
                };
                if let Err(lost) = self.take(report) {
                    return self.end(lost);
                }
            }
        }
    }

    fn take(&self, report: Report) -> Result<(), Lost> {
        match report {
            Report::Success { request, reply } => self.answer(request, Ok(reply)),
            Report::Failure { request, code } => self.answer(request, Err(code)),
            Report::Recall { file, token } => {
                (self.notify)(Notice::Recall { file, token });
                Ok(())
            }
            Report::Changed { file } => {
                (self.notify)(Notice::Changed { file });
                Ok(())
            }
            Report::Lost { fenced, why } => {
                Err(Lost { fenced, why: String::from_utf8_lossy(&why).into() })
            }
        }
    }

    fn answer(&self, request: u64, answer: Result<HelperReply, i32>) -> Result<(), Lost> {
        let waiting = self.waiting.borrow_mut().remove(&request);
        let Some(sender) = waiting else {
            let why =
                format!("its helper process answered request {request}, which waits for no answer");
            return Err(Lost { fenced: false, why });
        };
        self.running.set(self.running.get().saturating_sub(1));
        sender.send(answer);
        self.changed.notify();
        Ok(())
    }

    /// Ends the link and the process; every waiting caller gets the reason. The first reason stays.
    pub fn end(&self, lost: Lost) {
        if self.lost.borrow().is_some() {
            return;
        }
        *self.lost.borrow_mut() = Some(lost.clone());
        self.outbound.borrow_mut().clear();
        let waiting = self.waiting.take();
        drop(waiting);
        self.changed.notify();
        if let Some(mut child) = self.child.borrow_mut().take() {
            // A process that ended by itself is reaped, too.
            let _ = child.kill();
            let world = self.world.clone();
            self.world.spawn(Box::pin(async move {
                for _ in 0..REAPINGS {
                    if !matches!(child.try_wait(), Ok(None)) {
                        return;
                    }
                    world.sleep_until(world.now().plus(REAPING)).await;
                }
            }));
        }
        (self.notify)(Notice::Lost(lost));
    }
}
