//! Outcome of a write-back; and reads, one of which may fail.

use crate::interface::error::EngineError;

/// Outcome of writing blocks home.
#[derive(Default)]
pub(crate) struct WritebackOutcome {
    pub written: usize,
    /// Error for which a block was not written home: its base, or its copy in the log, cannot be
    /// read.
    pub unreadable: Option<EngineError>,
}

impl WritebackOutcome {
    /// Adds another outcome.
    pub fn and(self, other: WritebackOutcome) -> WritebackOutcome {
        WritebackOutcome {
            written: self.written + other.written,
            unreadable: self.unreadable.or(other.unreadable),
        }
    }
    /// Fails if any block could not be written home.
    pub fn whole(self) -> Result<(), EngineError> {
        self.unreadable.map_or(Ok(()), Err)
    }
}

/// Reads `items` together; or, where that fails, one by one, so that one that cannot be read holds
/// up no other. Those that could be read, with what was read, and the error of one that could not.
pub(crate) async fn read_all_readable<T: Clone, R>(
    items: Vec<T>,
    read: impl AsyncFn(&[T]) -> Result<Vec<R>, EngineError>,
) -> (Vec<(T, R)>, Option<EngineError>) {
    if let Ok(all) = read(&items).await {
        return (items.into_iter().zip(all).collect(), None);
    }
    let (mut found, mut unreadable) = (Vec::with_capacity(items.len()), None);
    for item in items {
        match read(std::slice::from_ref(&item)).await {
            Ok(one) => found.extend(one.into_iter().map(|one| (item.clone(), one))),
            Err(error) => unreadable = Some(error),
        }
    }
    (found, unreadable)
}
