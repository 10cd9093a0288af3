//! Tests of `scattered` that use it from outside: one program, because linking each costs more than
//! running it.

mod explorer;
mod gaps;
mod hostile;
mod inspect;
mod near_home;
mod raid;
