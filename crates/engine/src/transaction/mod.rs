//! Handles and the commit pipeline: who joins the running transaction, when it is committed, and
//! how the engine stops.

pub(crate) mod abort;
pub(crate) mod admit;
pub(crate) mod completion;
pub(crate) mod differing;
pub(crate) mod file_run;
pub(crate) mod gate;
pub(crate) mod handle;
pub(crate) mod overlap;
pub(crate) mod overwrite;
pub(crate) mod pipeline;
pub(crate) mod range_check;
pub(crate) mod running;
pub(crate) mod shutdown;
