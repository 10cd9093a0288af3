//! Text tables: the first column to the left, the others to the right, two spaces between.

use super::output::printable;

pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: impl IntoIterator<Item = impl Into<String>>) -> Table {
        Table { head: head.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }
    /// Adds a row with as many cells as the head. A cell is one line, whatever it names.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> =
            cells.into_iter().map(|cell| printable(&cell).into_owned()).collect();
        assert_eq!(cells.len(), self.head.len(), "a row has the columns of the head");
        self.rows.push(cells);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = |column: usize| {
            let cells = std::iter::once(&self.head).chain(&self.rows);
            cells.map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        for row in std::iter::once(&self.head).chain(&self.rows) {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                match column {
                    0 => line += &format!("{cell:<0$}", widths[0]),
                    _ => line += &format!("  {cell:>0$}", widths[column]),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_are_aligned() {
        let mut table = super::Table::new(["mode", "syncs/s"]);
        table.row(["ordered".into(), "9".into()]);
        table.row(["waste\nless".into(), "12345".into()]);
        assert_eq!(
            table.to_string(),
            "mode        syncs/s\nordered           9\nwaste?less    12345\n"
        );
    }
}
