use super::environment::{EnvironmentArguments, Tables};
use crate::error::CliError;
use crate::text::output::print;
use crate::text::quantity::parse_size;
use crate::text::table::Table;
use testbeds::{Contender, ProgramsOptions, ProgramsRow, WORKS, programs};

const EXAMPLES: &str = "\
Examples (as root):
  okeanos-lab bench programs
  okeanos-lab bench programs --works sqlite,tree --contenders ext4:ordered,okeanos,okeanos:ordered
  okeanos-lab bench programs --scale 0.2 --runs 1       a look, not a table

Works: postgresql, wal (its write-ahead log), sqlite, redis, etcd, maildir, git, tree (tar, cp, grep, rm), large (a file of 1 GiB).
Each work runs on a fresh volume on a loop device, one contender after the other. Ratios are speeds within a run,
to the first contender: above 1 is faster. `make bench-peers` installs what the works need.";

/// Real programs on the kernel's file systems and Okeanos: databases, mail, sources, large files
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ProgramsArguments {
    /// File systems to compare; the first is the baseline
    #[arg(
        long,
        value_name = "NAME,NAME,…",
        value_delimiter = ',',
        default_value = "ext4:ordered,ext4:fast_commit,okeanos,okeanos:wasteless,okeanos:ordered"
    )]
    contenders: Vec<Contender>,
    /// Workloads to run; all but wal unless given
    #[arg(long, value_name = "NAME,NAME,…", value_delimiter = ',',
          value_parser = clap::builder::PossibleValuesParser::new(WORKS.map(|(name, _)| name)))]
    works: Vec<String>,
    /// Number of runs of everything
    #[arg(long, alias = "turns", default_value = "3",
          value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Scale of each workload; the tables of docs/PERFORMANCE.md say theirs
    #[arg(long, default_value = "1")]
    scale: f64,
    /// Size of the image, or of the emulated disk
    #[arg(long, default_value = "3G", value_parser = parse_size)]
    image_size: u64,
    /// Print the Debian packages that the works need, and end
    #[arg(long)]
    packages: bool,
    #[command(flatten)]
    environment: EnvironmentArguments,
}

pub fn run(arguments: ProgramsArguments) -> Result<(), CliError> {
    // Works that compare ways to use PostgreSQL, not file systems, run only on request.
    let all = || {
        WORKS.map(|(name, _)| name.to_owned()).into_iter().filter(|name| name != "wal").collect()
    };
    let works = if arguments.works.is_empty() { all() } else { arguments.works };
    let needed = packages_of(&works);
    if arguments.packages {
        return print(&format!("{needed}\n"));
    }
    let options = ProgramsOptions {
        contenders: arguments.contenders,
        works,
        runs: arguments.runs,
        scale: arguments.scale.clamp(0.001, 100.0),
        image_size: arguments.image_size,
        environment: arguments.environment.environment()?,
    };
    let with_packages = |error: CliError| match needed.is_empty() {
        true => error,
        false => error.with_remedy(format!("These works need: apt-get install {needed}")),
    };
    let result = arguments.environment.run(
        |progress| programs(&options, |text| progress(text)),
        |rows| Tables {
            markdown: markdown(rows, &options.contenders),
            table: table(rows).to_string(),
        },
    );
    result.map_err(with_packages)
}

fn packages_of(works: &[String]) -> String {
    let needed = WORKS.iter().filter(|(name, _)| works.iter().any(|work| work == name));
    let packages: Vec<_> =
        needed.map(|(_, packages)| *packages).filter(|all| !all.is_empty()).collect();
    packages.join(" ")
}

fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

fn table(rows: &[ProgramsRow]) -> Table {
    let mut table = Table::new(["work", "file system", "", "", "speed"]);
    for row in rows {
        let value = number(row.value);
        let speed = format!("{:.2}", row.ratio);
        table.row([row.work.clone(), row.contender.clone(), value, row.unit.into(), speed]);
    }
    table
}

/// Formats a line for each work, a column for each contender: the value, and the ratio of speed to
/// the first one.
fn markdown(rows: &[ProgramsRow], contenders: &[Contender]) -> String {
    let names: Vec<_> = contenders.iter().map(|contender| format!(" {contender} |")).collect();
    let mut text = format!("| work |{}\n|---|{}\n", names.concat(), "---:|".repeat(names.len()));
    for of_work in rows.chunk_by(|one, other| one.work == other.work) {
        text += &format!("| {} |", of_work[0].work);
        for (index, row) in of_work.iter().enumerate() {
            let unit = if row.unit == "s" { " s" } else { "/s" };
            let ratio = if index == 0 { String::new() } else { format!(" ({:.2})", row.ratio) };
            text += &format!(" {}{unit}{ratio} |", number(row.value));
        }
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_work_is_a_line_with_values_and_ratios() {
        let row = |contender: &str, value, ratio| ProgramsRow {
            work: "untar".into(),
            contender: contender.into(),
            unit: "s",
            value,
            ratio,
            runs: vec![value],
        };
        let contenders = ["ext4:ordered", "xfs"].map(|name| name.parse().unwrap());
        let text = markdown(&[row("ext4:ordered", 2.0, 1.0), row("xfs", 4.0, 0.5)], &contenders);
        assert_eq!(text.lines().last(), Some("| untar | 2.00 s | 4.00 s (0.50) |"));
    }
}
