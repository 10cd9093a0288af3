//! Cases on fresh volumes, and tests in each mode.

use sim::setup::{self, Disks, Setup};
use sim::{Case, CaseReport};

/// Makes a volume of this name.
pub fn made(name: &str) -> (Setup, Disks) {
    let setup = setup::find(name).unwrap();
    (setup, setup::make(setup).unwrap())
}

/// Plays a case. A failure is shown with what replays it.
pub fn run(case: &Case, fresh: &Disks) -> CaseReport {
    sim::run(case, fresh, None).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Makes a test of each name that plays the function in its mode, in the order of `DataMode::ALL`.
macro_rules! in_each_mode {
    ($play:ident: $($name:ident),*) => {
        crate::common::in_each_mode!(@ $play: $($name)*; Writeback Ordered Journal Wasteless Selective Adaptive);
    };
    (@ $play:ident: $($name:ident)*; $($mode:ident)*) => {
        $(
            #[test]
            fn $name() {
                $play(DataMode::$mode);
            }
        )*
    };
}
pub(crate) use in_each_mode;
