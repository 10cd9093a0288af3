//! An open volume.
pub struct Volume {}
