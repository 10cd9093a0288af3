//! Figures of the Manylogs paper.

mod figure_2a;

pub use figure_2a::figure as figure_2a;
