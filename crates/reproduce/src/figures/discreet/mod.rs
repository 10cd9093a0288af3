//! The Discreet paper (Rajimwale et al., DSN 2011): drives whose flush is not to be trusted.

mod figure_1;
mod figure_5;
mod figure_6;
mod figure_7;
mod fingerprints;
mod own;
mod table_1;
mod table_2;
mod table_4;
mod table_5;
mod variants;

use crate::{Context, Figure};
use emulated::Model;

/// Figures in the order of the paper.
pub fn all() -> Vec<Figure> {
    vec![
        figure_1::figure(),
        table_1::figure(),
        table_2::table_2(),
        table_2::table_3(),
        table_4::figure(),
        table_5::TABLE_5,
        figure_5::FIGURE_5,
        figure_6::FIGURE_6,
        figure_7::FIGURE_7,
        figure_7::FIGURE_8,
        own::STREAMS,
    ]
}

/// Returns the built-in model of a drive.
fn model(context: &Context, name: &str) -> Model {
    let (_, text) =
        emulated::shipped().find(|(shipped, _)| *shipped == name).expect("it is shipped");
    Model::parse_changed(text, &context.overrides.drive(name))
        .expect("a shipped model is valid, within the ranges of its numbers, too")
}
