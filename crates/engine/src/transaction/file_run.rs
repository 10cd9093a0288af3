//! Runs of whole blocks of file data that a handle writes past the cache.

use crate::interface::error::EngineError;
use crate::interface::update::FileRun;
use crate::transaction::handle::Handle;
use device::Buffer;
use journal::Decision;
use std::rc::Rc;

fn copy(bytes: &[u8]) -> Buffer {
    let mut copy = Buffer::to_fill(bytes.len());
    copy.copy_from_slice(bytes);
    copy
}

impl FileRun<'_> {
    /// The memory that came with it. What is much longer than the run is not kept: the cache counts
    /// the run's blocks.
    fn kept_memory(&self) -> Option<Rc<Buffer>> {
        let memory = self.memory?;
        debug_assert_eq!(memory.len(), self.bytes.len());
        (memory.held() <= memory.len() + memory.len() / 4).then(|| memory.clone())
    }
}

impl Handle {
    /// Sends a run of blocks home past the cache, if it would bypass the log. False, and nothing is
    /// done, if the cache is to take it ([`Handle::try_write_file_data`]).
    pub fn file_run_past_cache(&mut self, run: &FileRun<'_>) -> Result<bool, EngineError> {
        let engine = self.engine().clone();
        let count = run.bytes.len() >> engine.block_size.shift();
        let blocks = run.home..run.home.plus(count as u64);
        engine.reader().check_range(run.home, count as u64)?;
        let Some(decision) = engine.direct_writer().decide_past_cache(&blocks, run) else {
            return Ok(false);
        };
        if !engine.direct_writes.may_issue(run.owner, run.bytes.len() as u64) {
            return Ok(false);
        }
        let before = (decision == Decision::HomeBeforeCommit).then_some(self.transaction());
        self.note_run(count as u32);
        engine.counters.borrow_mut().updated(run.request, run.bytes.len() as u64, true);
        if before.is_some() {
            engine.pipeline.transaction().add_home_run(run.bytes.len() as u64);
        }
        engine.cache.borrow_mut().note_bypass(&blocks);
        // Now: a task that brings these blocks into the cache from here on writes them home later.
        let claim = engine.claims.enqueue(run.home, count as u64);
        let write = engine.direct_writes.begin(run.owner, blocks, before);
        let memory = run.kept_memory().unwrap_or_else(|| Rc::new(copy(run.bytes)));
        engine.world.clone().spawn(Box::pin(async move {
            engine.direct_writer().send_past_cache(write, claim, memory).await;
        }));
        Ok(true)
    }
}
