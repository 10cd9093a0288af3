//! All tests of `stages` that use it from outside: one program, because linking each costs more than running it.

mod auto_threshold;
mod beside;
mod blocks;
mod file_replay;
mod stage;
