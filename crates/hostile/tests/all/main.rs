//! The tests of `hostile` from outside: one program, because linking each costs more than running
//! it.

mod bounds;
mod golden;
mod hostile_bitmaps;
mod listing;
