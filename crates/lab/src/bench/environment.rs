use super::rig_error;
use crate::disk;
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::progress::Progress;
use cli::doctor::measured_on;
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

/// Options for the place of images and the output of results.
#[derive(clap::Args)]
pub struct OutputArguments {
    /// Directory for the images; they are removed at the end, or by the next run if this one is
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
        self.output.run(self.model.as_deref(), compare, |rows| Ok(tables(rows)))
    }
}

impl OutputArguments {
    /// Runs `compare`, shows its progress, and prints its rows. `model`: the disk that is emulated.
    pub fn run<Row: serde::Serialize>(
        &self,
        model: Option<&str>,
        compare: impl FnOnce(&dyn Fn(&str)) -> Result<Vec<Row>, RigError>,
        tables: impl FnOnce(&[Row]) -> Result<Tables, CliError>,
    ) -> Result<(), CliError> {
        let machine = self.markdown.then(|| measured_on(&self.directory)).transpose()?;
        let progress = Progress::new();
        let rows = compare(&|text| progress.show(text)).map_err(rig_error)?;
        drop(progress);
        let Tables { markdown, table } = tables(&rows)?;
        if self.json {
            return print_json(&rows);
        }
        match machine {
            Some(machine) => print(&format_args!("{}\n\n{markdown}", caption(&machine, model))),
            None => print(&table),
        }
    }
}

/// Returns what a table needs to be compared with others: machine, disk, and how requests came.
fn caption(machine: &str, model: Option<&str>) -> String {
    let disk =
        model.map_or("loop devices on it".into(), |name| format!("above it {name}, emulated"));
    format!("{machine}; {disk}; requests by `/dev/fuse` unless a column says otherwise.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caption_names_machine_disk_and_transport() {
        let line = caption("Linux 1.2, a durable write of 4 KiB: 3 us", Some("cloud-volume"));
        assert_eq!(
            line,
            "Linux 1.2, a durable write of 4 KiB: 3 us; above it cloud-volume, emulated; \
             requests by `/dev/fuse` unless a column says otherwise."
        );
        assert!(caption("", None).contains("loop devices"));
    }
}
