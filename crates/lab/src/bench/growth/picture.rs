//! Picture of growth: each quantity as a multiple of its value at the first point, beside the work
//! itself.

use crate::error::CliError;
use reproduce::{Axis, Form, Picture, Scale, Series, sheet};
use std::path::{Path, PathBuf};
use testbeds::{GrowthSeries, GrowthWork};

/// Writes the picture for screens into `path`, and for phones into a file beside it.
pub fn write(all: &[GrowthSeries], path: &Path) -> Result<(), CliError> {
    let pictures: Vec<Picture> = all.iter().map(picture).collect();
    for (path, form) in [(path.to_owned(), Form::Screen), (for_phones(path), Form::Phone)] {
        std::fs::write(&path, sheet(&pictures, form))
            .map_err(|error| CliError::system(path.display(), error))?;
    }
    Ok(())
}

/// Returns `growth-phone.svg` for `growth.svg`.
fn for_phones(path: &Path) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push("-phone.");
    name.push(path.extension().unwrap_or("svg".as_ref()));
    path.with_file_name(name)
}

fn picture(series: &GrowthSeries) -> Picture {
    let (title, label, unit) = match series.work {
        GrowthWork::Writers => ("Against the number of writers", "writers", 1),
        GrowthWork::VolumeBytes => ("Against the size of the volume", "volume (GiB)", 1 << 30),
        GrowthWork::Files => ("Against the number of files", "files", 1),
        GrowthWork::JournalBytes => ("Against the size of the journal", "journal (MiB)", 1 << 20),
    };
    let points: Vec<f64> =
        series.points.iter().map(|&point| point as f64 / f64::from(unit)).collect();
    let line = |name: &str, values: &[f64]| {
        let ratios = values.iter().map(|value| value / values[0]);
        let points = points.iter().copied().zip(ratios).collect();
        Series { name: name.into(), of_paper: false, points, spread: Vec::new() }
    };
    let rows = series.rows.iter().map(|row| line(row.quantity.name(), &row.values));
    Picture {
        title: title.into(),
        x: Axis { label: label.into(), scale: Scale::Logarithmic },
        y: Axis { label: "times what it was at the first point".into(), scale: Scale::Logarithmic },
        series: std::iter::once(line("the work", &points)).chain(rows).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_for_phones_lies_beside_the_other() {
        assert_eq!(for_phones(Path::new("docs/growth.svg")), Path::new("docs/growth-phone.svg"));
    }

    #[test]
    fn every_line_begins_at_one() {
        let row = testbeds::GrowthRow {
            quantity: testbeds::GrowthQuantity::Mount,
            unit: testbeds::GrowthUnit::Seconds,
            values: vec![0.5, 1.0],
            factor: 2.0,
            power: None,
            power_of_last_step: None,
        };
        let points = vec![1 << 30, 16 << 30];
        let picture =
            picture(&GrowthSeries { work: GrowthWork::VolumeBytes, points, rows: vec![row] });
        let lines: Vec<_> = picture.series.iter().map(|series| &series.points[..]).collect();
        assert_eq!(lines, [[(1.0, 1.0), (16.0, 16.0)], [(1.0, 1.0), (16.0, 2.0)]]);
    }
}
