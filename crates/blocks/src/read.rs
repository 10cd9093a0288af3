//! Reads, from memory, the log or home.

use crate::shared::Shared;
use device::Buffer;
use engine::EngineError;
use std::rc::Rc;

impl Shared {
    /// Reads whole sectors within the disk.
    pub async fn read(&self, at: u64, length: usize) -> Result<Buffer, EngineError> {
        if length == 0 {
            return Ok(Buffer::to_fill(0));
        }
        let mut content = None;
        let layout = self.layout();
        let (shift, end) = (layout.block_size().shift(), at + length as u64);
        let last = (end - 1) >> shift;
        for run in layout.runs(at >> shift..last + 1) {
            let mut buffers = self.engine.read_data_past_cache(run.home, run.count as u32).await?;
            let mut from = run.block << shift;
            // What the disk read is all that was asked for: a copy would take its memory once more.
            if from == at && buffers.len() == 1 && buffers[0].len() == length {
                match Rc::try_unwrap(buffers.remove(0)) {
                    Ok(whole) => return Ok(whole),
                    Err(cached) => buffers.push(cached),
                }
            }
            let content = content.get_or_insert_with(|| Buffer::to_fill(length));
            for buffer in buffers {
                let to = from + buffer.len() as u64;
                let (first, behind) = (from.max(at), to.min(end));
                if first < behind {
                    content[(first - at) as usize..(behind - at) as usize].copy_from_slice(
                        &buffer[(first - from) as usize..(behind - from) as usize],
                    );
                }
                from = to;
            }
        }
        Ok(content.expect("a range of some bytes has a run"))
    }
}
