//! Handles: who is admitted to the running transaction, which commits may overlap, and how the
//! engine stops.

pub(crate) mod abort;
pub(crate) mod admit;
pub(crate) mod differing;
pub(crate) mod file_run;
pub(crate) mod handle;
pub(crate) mod overlap;
pub(crate) mod overwrite;
pub(crate) mod range_check;
