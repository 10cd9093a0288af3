//! Reads, from memory, the log or home.

use crate::shared::Shared;
use device::Buffer;
use engine::EngineError;

impl Shared {
    /// Reads whole sectors within the disk.
    pub async fn read(&self, at: u64, length: usize) -> Result<Buffer, EngineError> {
        let mut content = Buffer::to_fill(length);
        if length == 0 {
            return Ok(content);
        }
        let layout = self.layout();
        let (shift, end) = (layout.block_size().shift(), at + length as u64);
        let last = (end - 1) >> shift;
        for run in layout.runs(at >> shift..last + 1) {
            let buffers = self.engine.read_data_past_cache(run.home, run.count as u32).await?;
            let mut from = run.block << shift;
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
        Ok(content)
    }
}
