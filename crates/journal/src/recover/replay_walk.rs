use super::scan::check_size;
use super::{PassCounts, RecoverError, Scanned};
use crate::log_space::LogWalk;
use crate::records::{Decoder, LogPiece, LogSpan, Records, Sink};
use std::collections::VecDeque;
use std::rc::Rc;
use units::{LogBlock, TransactionId};

/// Walks spans of committed transactions once more, in log order.
pub(super) struct ReplayWalk {
    log: Rc<dyn LogWalk>,
    records: Rc<dyn Records>,
    decoder: Box<dyn Decoder>,
    spans: VecDeque<(TransactionId, LogSpan)>,
    /// The transaction of the span that has been begun, the block to read next, and how many are
    /// left with it.
    open: Option<(TransactionId, LogSpan)>,
    blocks_read: u64,
}

impl ReplayWalk {
    pub fn new(scanned: &Scanned, spans: Vec<(TransactionId, LogSpan)>) -> ReplayWalk {
        ReplayWalk {
            log: scanned.log.clone(),
            records: scanned.records.clone(),
            decoder: scanned.records.decoder(),
            spans: spans.into_iter().filter(|(_, span)| span.blocks > 0).collect(),
            open: None,
            blocks_read: 0,
        }
    }

    pub fn wants(&self) -> Option<LogBlock> {
        self.open.as_ref().or(self.spans.front()).map(|(_, span)| span.at)
    }

    /// The transaction of the wanted block, and where that lies.
    pub fn current(&self) -> (TransactionId, LogBlock) {
        let (transaction, span) =
            self.open.as_ref().or(self.spans.front()).expect("no block was wanted");
        (*transaction, span.at)
    }

    pub fn give(&mut self, block: &[u8], sink: Sink) -> Result<(), RecoverError> {
        let (transaction, at) = self.current();
        check_size(block, &*self.records, at)?;
        self.blocks_read += 1;
        let (_, span) = match self.open.take() {
            Some(open) => open,
            None => {
                self.decoder.begin(transaction);
                self.spans.pop_front().expect("no block was wanted")
            }
        };
        self.decoder.give(LogPiece { at, bytes: block }, sink)?;
        if span.blocks > 1 {
            let at = self.log.next(at).expect("the scan came this way");
            self.open = Some((transaction, LogSpan { at, blocks: span.blocks - 1 }));
        }
        Ok(())
    }

    pub fn counts(&self) -> PassCounts {
        PassCounts { log_blocks_read: self.blocks_read, ..self.decoder.counts() }
    }
}
