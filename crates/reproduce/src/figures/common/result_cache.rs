//! Cache of played cells, for figures of one command that share cells.

use crate::overrides::{Key, Overrides};
use crate::{Context, FigureError, Varied};
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Results of cells, by seed and by what was varied. Quick ones are not kept: they cost little, and
/// tests play them twice.
pub struct ResultCache<C, R> {
    begun: Mutex<Vec<Kept<C, R>>>,
    played: Condvar,
}

struct Kept<C, R> {
    seed: u64,
    varied: Option<Varied>,
    overrides: Arc<Overrides>,
    cell: C,
    /// The result. `None`: another figure is playing the cell.
    result: Option<R>,
    /// The changed parameters that its figure had asked for when it was played.
    asked: BTreeSet<Key>,
}

impl<C: Clone + PartialEq, R: Clone> ResultCache<C, R> {
    pub const fn new() -> ResultCache<C, R> {
        ResultCache { begun: Mutex::new(Vec::new()), played: Condvar::new() }
    }
    /// Plays the missing cells, side by side.
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
    /// Plays the cell in the caller's slot, unless it was. Waits without a slot for a thread that
    /// plays it.
    pub fn once(
        &self,
        context: &Context,
        cell: &C,
        play: impl FnOnce() -> Result<R, FigureError>,
    ) -> Result<R, FigureError> {
        if context.quick {
            return play();
        }
        let is_it = |kept: &&mut Kept<C, R>| {
            (kept.seed, kept.varied) == (context.seed, context.varied)
                && kept.overrides == context.overrides
                && kept.cell == *cell
        };
        let is_played = |all: &mut Vec<Kept<C, R>>| {
            all.iter_mut().find(is_it).is_some_and(|kept| kept.result.is_none())
        };
        let mut all = self.begun();
        if is_played(&mut all) {
            drop(all);
            // The slot is released during the wait: the thread that plays the cell may need it.
            context.jobs.lend(|| drop(self.played.wait_while(self.begun(), is_played)));
            all = self.begun();
        }
        let found = all.iter_mut().find(is_it);
        if let Some((kept, result)) =
            found.and_then(|kept| Some((&kept.asked, kept.result.clone()?)))
        {
            context.overrides.note(kept);
            return Ok(result);
        }
        all.push(Kept {
            seed: context.seed,
            varied: context.varied,
            overrides: context.overrides.clone(),
            cell: cell.clone(),
            result: None,
            asked: BTreeSet::new(),
        });
        drop(all);
        let result = play();
        let mut all = self.begun();
        match &result {
            Ok(result) => {
                let kept = all.iter_mut().find(is_it).expect("it was begun above");
                kept.result = Some(result.clone());
                kept.asked = context.overrides.reached();
            }
            Err(_) => all.retain_mut(|kept| !is_it(&kept)),
        }
        self.played.notify_all();
        result
    }
    fn begun(&self) -> MutexGuard<'_, Vec<Kept<C, R>>> {
        self.begun.lock().expect(NO_PANIC)
    }
}

const NO_PANIC: &str = "nobody panics while holding it";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::{Jobs, side_by_side};
    use crate::test_figure;
    use emulated::Change;

    #[test]
    fn a_cell_is_played_once_for_each_seed() {
        let (played, count) = (ResultCache::new(), std::cell::Cell::new(0));
        let ask = |context: &Context, cell: u32| {
            let play = || {
                count.set(count.get() + 1);
                Ok(cell + context.seed as u32)
            };
            played.once(context, &cell, play).unwrap()
        };
        let (first, second) = (test_figure::context(5), test_figure::context(6));
        assert_eq!([ask(&first, 1), ask(&first, 1), ask(&first, 2), ask(&second, 1)], [6, 6, 7, 7]);
        assert_eq!(count.get(), 3);
        let quick = Context { quick: true, ..test_figure::context(5) };
        assert_eq!(ask(&quick, 1), 6);
        assert_eq!(count.get(), 4);
    }

    #[test]
    fn another_point_has_cells_of_its_own() {
        let played = ResultCache::new();
        let ask = |changes: &[(Key, Change)]| {
            let overrides = Overrides::new(changes.iter().copied().collect());
            let overrides = Arc::new(overrides);
            let context = Context { overrides: overrides.clone(), ..test_figure::context(5) };
            let play = || Ok(context.overrides.number("okeanos", "tick", 4.0));
            let value: f64 = played.once(&context, &1, play).unwrap();
            (value, overrides.reached().len())
        };
        let doubled = [(("okeanos", "tick"), Change::Times(2.0))];
        assert_eq!([ask(&[]), ask(&doubled)], [(4.0, 0), (8.0, 1)]);
        // The parameter reaches the caller that takes the result.
        assert_eq!([ask(&[]), ask(&doubled)], [(4.0, 0), (8.0, 1)]);
    }

    #[test]
    fn figures_side_by_side_play_each_cell_once_and_wait_for_each_other() {
        for (jobs, figures) in [(1, 2), (2, 3), (3, 2)] {
            let (played, count) = (ResultCache::new(), std::sync::atomic::AtomicU32::new(0));
            let context = Context { jobs: Jobs::new(jobs).into(), ..test_figure::context(5) };
            let play = |_: &Context, cell: &u32| {
                count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_micros(u64::from(cell % 7) * 10));
                Ok(cell * 2)
            };
            let cells: Vec<u32> = (0..200).collect();
            let all =
                side_by_side(figures, figures, |_| played.all(&context, &cells, play).unwrap());
            assert!(all.iter().all(|of_figure| {
                of_figure.iter().eq(cells.iter().map(|cell| cell * 2).collect::<Vec<_>>().iter())
            }));
            assert_eq!(count.into_inner(), 200);
        }
    }

    #[test]
    fn a_cell_that_failed_is_played_again() {
        let played = ResultCache::new();
        let fails =
            played.once(&test_figure::context(5), &1, || Err::<u32, _>(FigureError::Interrupted));
        assert!(fails.is_err());
        assert_eq!(played.once(&test_figure::context(5), &1, || Ok(7)).unwrap(), 7);
    }
}
