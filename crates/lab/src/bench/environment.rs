use super::rig_error;
use crate::disk;
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::progress::Progress;
use cli::doctor::measured_on;
use emulated::Model;
use std::path::PathBuf;
use testbeds::{Environment, Programs, RigError};

/// Disk under the volumes that are compared, beside [`OutputArguments`].
#[derive(clap::Args)]
pub struct EnvironmentArguments {
    #[arg(
        help = disk::models_help(
            "Lay the volumes on this disk, emulated in real time, instead of on images"
        ),
        long
    )]
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
        let emulated = model.map(|name| Ok((name, disk::find(name)?))).transpose()?;
        let machine = self.markdown.then(|| measured_on(&self.directory)).transpose()?;
        let progress = Progress::new();
        let rows = compare(&|text| progress.show(text)).map_err(rig_error)?;
        drop(progress);
        let Tables { markdown, table } = tables(&rows)?;
        if self.json {
            return print_json(&rows);
        }
        match machine {
            Some(machine) => {
                let emulated = emulated.as_ref().map(|(name, model)| (*name, model));
                print(&format_args!("{}\n\n{markdown}", caption(&machine, emulated)))
            }
            None => print(&table),
        }
    }
}

/// Returns what a table needs to be compared with others: machine, disk, and how requests came. The
/// machine's durable write is that of the disk below; an emulated one above it has its own time.
fn caption(machine: &str, emulated: Option<(&str, &Model)>) -> String {
    let disk = emulated.map_or("loop devices on it".into(), |(name, model)| {
        format!("above it {name}, emulated: {}", latency(model))
    });
    format!("{machine}; {disk}; requests by `/dev/fuse` unless a column says otherwise.")
}

/// Formats what a request takes at least in an emulated disk that is idle.
fn latency(model: &Model) -> String {
    if let Some(volume) = &model.volume {
        return format!("{} ms for a request", volume.latency_ms.get());
    }
    if let Some(flash) = &model.flash {
        return format!(
            "{} us for a write, {} for a flush",
            flash.write_us.get(),
            flash.flush_us.get()
        );
    }
    let revolution = model.mechanics.as_ref().map(|mechanics| 60_000.0 / mechanics.rpm.get());
    revolution.map_or("of unknown times".into(), |ms| format!("{ms:.1} ms for a revolution"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caption_names_machine_disk_and_transport() {
        let volume = disk::find("cloud-volume").unwrap();
        let machine = "Linux 1.2, a durable write of 4 KiB: 3 us";
        let line = caption(machine, Some(("cloud-volume", &volume)));
        assert_eq!(
            line,
            "Linux 1.2, a durable write of 4 KiB: 3 us; above it cloud-volume, emulated: 0.6 ms \
             for a request; requests by `/dev/fuse` unless a column says otherwise."
        );
        assert!(caption("", None).contains("loop devices"));
    }

    #[test]
    fn each_kind_of_emulated_disk_has_its_latency() {
        let of = |name: &str| latency(&disk::find(name).unwrap());
        assert_eq!(of("cheetah-15k5"), "4.0 ms for a revolution");
        assert_eq!(of("sata-ssd"), "200 us for a write, 400 for a flush");
        for (name, _) in emulated::shipped() {
            assert!(of(name) != "of unknown times", "{name}");
        }
    }
}
