//! Errors of requests: refusals, which only the caller learns of, and failures of what lies below,
//! which are reported as well.

use fuse_session::Reply;
use fuse_session::abi::InHeader;
use std::cell::Cell;
use std::fmt::Display;
use store::Refusal;

/// Further reports would say nothing new.
const REPORTS_MAX: u32 = 100;

/// Errors of what a front end serves.
pub(crate) trait Failure: Display {
    /// The reason if the caller is refused and nothing failed.
    fn refusal(&self) -> Option<Refusal>;
    /// The error number of the reply.
    fn errno(&self) -> i32;
}

/// An error number for the caller, or a failure that is reported as well.
#[derive(Debug)]
pub(crate) enum RequestError<E> {
    Refused(i32),
    Failed(E),
}

impl<E: Failure> From<E> for RequestError<E> {
    fn from(error: E) -> RequestError<E> {
        match error.refusal() {
            Some(refusal) => RequestError::Refused(refusal.errno()),
            None => RequestError::Failed(error),
        }
    }
}

/// Reports failures that are not the caller's fault.
pub(crate) struct Reporter {
    report: Box<dyn Fn(&str)>,
    reports: Cell<u32>,
}

impl Reporter {
    pub(crate) fn new(report: Box<dyn Fn(&str)>) -> Reporter {
        Reporter { report, reports: Cell::new(0) }
    }
    pub(crate) fn report(&self, what: &str) {
        let reports = self.reports.get();
        if reports < REPORTS_MAX {
            self.reports.set(reports + 1);
            (self.report)(what);
        }
    }
    /// Returns the reply for a result, and reports a failure.
    pub(crate) fn reply<E: Failure>(
        &self,
        header: &InHeader,
        result: Result<Reply, RequestError<E>>,
    ) -> Reply {
        // An error number of 0 would be success.
        match result {
            Ok(reply) => reply,
            Err(RequestError::Refused(code)) => Reply::error(code.max(1)),
            Err(RequestError::Failed(error)) => {
                let (operation, node) = (header.opcode, header.nodeid);
                self.report(&format!("operation {operation} on inode {node}: {error}"));
                Reply::error(error.errno().max(1))
            }
        }
    }
}
