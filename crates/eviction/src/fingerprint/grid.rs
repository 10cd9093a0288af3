use crate::{EvictionWorkload, Pattern};

/// The workloads that are tried: every pattern with every number of writes and every amount of
/// data.
#[derive(Clone, PartialEq, Debug)]
pub struct Grid {
    pub patterns: Vec<Pattern>,
    /// Numbers of writes, ascending.
    pub writes: Vec<u32>,
    /// Bytes of all writes together, ascending.
    pub bytes: Vec<u64>,
}

/// 1 to 2560 writes, 1 to 128 MB, as the paper's Table II spans them, with all numbers of its Table
/// IV.
const WRITES: [u32; 14] = [1, 16, 64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 2304, 2560];
const HUNDREDTHS_OF_MB: [u64; 20] = [
    100, 150, 200, 238, 300, 400, 600, 800, 1100, 1400, 1700, 1900, 2400, 3100, 3700, 4900, 6400,
    8000, 10000, 12800,
];

impl Grid {
    pub fn of_paper() -> Grid {
        Grid {
            patterns: vec![Pattern::Sequential, Pattern::Random],
            writes: WRITES.to_vec(),
            bytes: HUNDREDTHS_OF_MB.map(|hundredths| hundredths * 10_000).to_vec(),
        }
    }

    /// Returns every cell, pattern by pattern, from few writes and little data on.
    pub fn workloads(&self) -> Vec<EvictionWorkload> {
        let mut workloads = Vec::new();
        for &pattern in &self.patterns {
            for &writes in &self.writes {
                workloads.extend(self.bytes.iter().map(|&bytes| EvictionWorkload {
                    pattern,
                    writes,
                    bytes,
                }));
            }
        }
        workloads
    }

    /// Positions in [`Grid::workloads`] beside `index`: one step in writes or in data.
    pub fn neighbours(&self, index: usize) -> Vec<usize> {
        let (rows, columns) = (self.writes.len(), self.bytes.len());
        let (row, column) = (index / columns % rows, index % columns);
        let mut beside = Vec::new();
        if row > 0 {
            beside.push(index - columns);
        }
        if row + 1 < rows {
            beside.push(index + columns);
        }
        if column > 0 {
            beside.push(index - 1);
        }
        if column + 1 < columns {
            beside.push(index + 1);
        }
        beside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_differ_in_one_step_of_one_number() {
        let grid = Grid::of_paper();
        let workloads = grid.workloads();
        let step =
            |all: &[u64], one: u64| all.iter().position(|value| *value == one).unwrap() as i64;
        let writes: Vec<u64> = grid.writes.iter().map(|writes| u64::from(*writes)).collect();
        for (index, workload) in workloads.iter().enumerate() {
            for beside in grid.neighbours(index) {
                let other = &workloads[beside];
                assert_eq!(other.pattern, workload.pattern);
                let apart = (step(&writes, other.writes.into())
                    - step(&writes, workload.writes.into()))
                .abs()
                    + (step(&grid.bytes, other.bytes) - step(&grid.bytes, workload.bytes)).abs();
                assert_eq!(apart, 1);
            }
        }
    }
}
