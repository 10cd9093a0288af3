use super::rig_error;
use crate::disk;
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::progress::Progress;
use crate::text::table::Table;
use rigs::{Ground, RigError};
use std::path::PathBuf;

/// Where file systems are compared, and how the result is told.
#[derive(clap::Args)]
pub struct GroundArguments {
    #[arg(help = disk::models_help("Lay the volumes on this disk, emulated in real time, instead of on images"), long)]
    model: Option<String>,
    /// Where the images are made; they are removed at the end
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// Print a table in Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The two tables of a comparison.
pub struct Told {
    pub markdown: String,
    pub table: Table,
}

impl GroundArguments {
    pub fn ground(&self) -> Result<Ground, CliError> {
        if let Some(model) = &self.model {
            disk::find(model)?;
        }
        let program =
            std::env::current_exe().map_err(|error| CliError::system("the program's own path", error))?;
        Ok(Ground { directory: self.directory.clone(), model: self.model.clone(), program })
    }

    /// Runs `compare`, shows how far it is, and prints its rows.
    pub fn run<Row: serde::Serialize>(
        &self,
        compare: impl FnOnce(&dyn Fn(&str)) -> Result<Vec<Row>, RigError>,
        tell: impl FnOnce(&[Row]) -> Told,
    ) -> Result<(), CliError> {
        let progress = Progress::new();
        let rows = compare(&|text| progress.show(text)).map_err(rig_error)?;
        drop(progress);
        if self.json {
            return print_json(&rows);
        }
        let Told { markdown, table } = tell(&rows);
        if self.markdown { print(&markdown) } else { print(&table) }
    }
}
