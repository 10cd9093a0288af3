use super::rig_error;
use crate::disk;
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::progress::Progress;
use std::path::PathBuf;
use testbeds::{Ground, Programs, RigError};

/// Where file systems are compared, and how the result is told.
#[derive(clap::Args)]
pub struct GroundArguments {
    #[arg(help = disk::models_help("Lay the volumes on this disk, emulated in real time, instead of on images"), long)]
    model: Option<String>,
    #[command(flatten)]
    told: ToldArguments,
}

/// Where images are made, and how the result is told.
#[derive(clap::Args)]
pub struct ToldArguments {
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
pub struct Told {
    pub markdown: String,
    pub table: String,
}

impl GroundArguments {
    pub fn ground(&self) -> Result<Ground, CliError> {
        if let Some(model) = &self.model {
            disk::find(model)?;
        }
        let (directory, model) = (self.told.directory.clone(), self.model.clone());
        Ok(Ground { directory, model, programs: Programs::find().map_err(rig_error)? })
    }

    /// Runs as [`ToldArguments::run`].
    pub fn run<Row: serde::Serialize>(
        &self,
        compare: impl FnOnce(&dyn Fn(&str)) -> Result<Vec<Row>, RigError>,
        tell: impl FnOnce(&[Row]) -> Told,
    ) -> Result<(), CliError> {
        self.told.run(compare, |rows| Ok(tell(rows)))
    }
}

impl ToldArguments {
    /// Runs `compare`, shows its progress, and prints its rows.
    pub fn run<Row: serde::Serialize>(
        &self,
        compare: impl FnOnce(&dyn Fn(&str)) -> Result<Vec<Row>, RigError>,
        tell: impl FnOnce(&[Row]) -> Result<Told, CliError>,
    ) -> Result<(), CliError> {
        let progress = Progress::new();
        let rows = compare(&|text| progress.show(text)).map_err(rig_error)?;
        drop(progress);
        let Told { markdown, table } = tell(&rows)?;
        if self.json {
            return print_json(&rows);
        }
        if self.markdown { print(&markdown) } else { print(&table) }
    }
}
