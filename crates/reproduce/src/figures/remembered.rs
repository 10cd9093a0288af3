//! Cells that were played, for figures of one command that look at the same ones.

use crate::{Context, FigureError, Varied};
use std::sync::Mutex;

/// What cells gave, by seed and by what was varied. Quick ones are not kept: they cost little, and tests play them twice.
pub(super) struct Remembered<C, R>(Mutex<Vec<Kept<C, R>>>);

struct Kept<C, R> {
    seed: u64,
    varied: Option<Varied>,
    cell: C,
    result: R,
}

impl<C: Clone + PartialEq, R: Clone> Remembered<C, R> {
    pub const fn new() -> Remembered<C, R> {
        Remembered(Mutex::new(Vec::new()))
    }
    /// Plays the cells that were not, side by side.
    pub fn all(
        &self,
        context: &Context,
        cells: &[C],
        play: impl Fn(&Context, &C) -> Result<R, FigureError> + Sync,
    ) -> Result<Vec<R>, FigureError>
    where
        C: Sync + Send,
        R: Send,
    {
        context.play(cells, |cell| self.once(context, cell, || play(context, cell)))
    }
    /// Plays the cell, unless it was.
    pub fn once(
        &self,
        context: &Context,
        cell: &C,
        play: impl FnOnce() -> Result<R, FigureError>,
    ) -> Result<R, FigureError> {
        let Context { seed, varied, quick, .. } = *context;
        let all = || self.0.lock().expect("nobody panics while holding it");
        let is_it =
            |kept: &&Kept<C, R>| !quick && (kept.seed, kept.varied) == (seed, varied) && kept.cell == *cell;
        let found = all().iter().find(is_it).map(|kept| kept.result.clone());
        if let Some(found) = found {
            return Ok(found);
        }
        let result = play()?;
        all().push(Kept { seed, varied, cell: cell.clone(), result: result.clone() });
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up;

    #[test]
    fn a_cell_is_played_once_for_each_seed() {
        let (played, count) = (Remembered::new(), std::cell::Cell::new(0));
        let ask = |context: &Context, cell: u32| {
            let play = || {
                count.set(count.get() + 1);
                Ok(cell + context.seed as u32)
            };
            played.once(context, &cell, play).unwrap()
        };
        let (first, second) = (made_up::context(5), made_up::context(6));
        assert_eq!([ask(&first, 1), ask(&first, 1), ask(&first, 2), ask(&second, 1)], [6, 6, 7, 7]);
        assert_eq!(count.get(), 3);
        let quick = Context { quick: true, ..made_up::context(5) };
        assert_eq!(ask(&quick, 1), 6);
        assert_eq!(count.get(), 4);
    }
}
