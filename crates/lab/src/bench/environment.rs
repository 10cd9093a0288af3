use super::rig_error;
use crate::disk;
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::progress::Progress;
use std::path::PathBuf;
use testbeds::{Environment, Programs, RigError};

/// Disk under the volumes that are compared, beside [`OutputArguments`].
#[derive(clap::Args)]
pub struct EnvironmentArguments {
    #[arg(help = disk::models_help("Lay the volumes on this disk, emulated in real time, instead of on images"), long)]
    model: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Where images are made, and how the result is printed.
#[derive(clap::Args)]
pub struct OutputArguments {
    /// Where the images are made; they are removed at the end, or by the next run if this one is
    /// killed
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    pub directory: PathBuf,
    /// Print a table in Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The two tables of a comparison.
pub struct Tables {
    pub markdown: String,
    pub table: String,
}

impl EnvironmentArguments {
    pub fn environment(&self) -> Result<Environment, CliError> {
        if let Some(model) = &self.model {
            disk::find(model)?;
        }
        let (directory, model) = (self.output.directory.clone(), self.model.clone());
        Ok(Environment { directory, model, programs: Programs::find().map_err(rig_error)? })
    }

    /// Runs as [`OutputArguments::run`].
    pub fn run<Row: serde::Serialize>(
        &self,
        compare: impl FnOnce(&dyn Fn(&str)) -> Result<Vec<Row>, RigError>,
        tables: impl FnOnce(&[Row]) -> Tables,
    ) -> Result<(), CliError> {
        self.output.run(compare, |rows| Ok(tables(rows)))
    }
}

impl OutputArguments {
    /// Runs `compare`, shows its progress, and prints its rows.
    pub fn run<Row: serde::Serialize>(
        &self,
        compare: impl FnOnce(&dyn Fn(&str)) -> Result<Vec<Row>, RigError>,
        tables: impl FnOnce(&[Row]) -> Result<Tables, CliError>,
    ) -> Result<(), CliError> {
        let progress = Progress::new();
        let rows = compare(&|text| progress.show(text)).map_err(rig_error)?;
        drop(progress);
        let Tables { markdown, table } = tables(&rows)?;
        if self.json {
            return print_json(&rows);
        }
        if self.markdown { print(&markdown) } else { print(&table) }
    }
}
