//! Times of requests by their kind and by the request before.

use super::{NotNegative, Share};
use serde::Deserialize;

/// Times in milliseconds that replace the general ones of `[interface]`, for drives of which they
/// are known. Each has a default, with which nothing differs.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overheads {
    /// A read from the medium right after a write; default: `read_ms`.
    pub read_after_write_ms: Option<NotNegative>,
    /// Further time of a read from the medium for which the arm need not move; default: 0. Measured
    /// seek curves begin with the time that a drive needs to settle; without a seek it needs some
    /// of it, too.
    pub read_without_seek_ms: Option<NotNegative>,
    /// A read that the cache answers; default: `hit_ms`.
    pub read_hit_ms: Option<NotNegative>,
    /// Milliseconds of a read hit right after a write; default: `read_hit_ms`.
    pub read_hit_after_write_ms: Option<NotNegative>,
    /// A read that the cache answers, that continues the read before, and behind which the drive
    /// is reading ahead; default: `read_hit_ms`.
    pub streamed_hit_ms: Option<NotNegative>,
    /// A write that the cache takes; default: `hit_ms`.
    pub write_hit_ms: Option<NotNegative>,
    /// Milliseconds of a write hit right after a read; default: `write_hit_ms`.
    pub write_hit_after_read_ms: Option<NotNegative>,
    /// A write that the cache takes and that continues the write before; default: `write_hit_ms`.
    pub appended_write_ms: Option<NotNegative>,
    /// A write that the cache takes, more than [`NEAR_CYLINDERS`] from the arm; default: as nearer
    /// ones.
    pub distant_write_ms: Option<NotNegative>,
    /// Random choice of requests answered by the cache that wait because the drive is busy with
    /// itself; default: none.
    pub delay_by_chance: Option<DelayByChance>,
}

/// A delay for no reason visible to the host.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelayByChance {
    /// Share of the requests…
    pub share: Share,
    /// …that take so much longer.
    pub ms: NotNegative,
}

/// Cylinders from the arm up to which a cached write counts as near.
pub const NEAR_CYLINDERS: u32 = 16;

/// A read that the cache answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadHit {
    pub after_write: bool,
    pub is_streamed: bool,
}

/// A write that the cache takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteHit {
    pub after_read: bool,
    /// Whether it continues the write before.
    pub is_appended: bool,
    /// Distance from the arm in cylinders.
    pub cylinders: u32,
}

impl Overheads {
    /// Time of a read from the medium in milliseconds. `read_ms` is that of `[interface]`; `seeks`
    /// is asked only where it matters, since it costs time for each candidate of a choice.
    pub(crate) fn read_ms(
        &self,
        read_ms: f64,
        after_write: bool,
        seeks: impl FnOnce() -> bool,
    ) -> f64 {
        let by_order = self.read_after_write_ms.filter(|_| after_write);
        let without_seek = self.read_without_seek_ms.filter(|_| !seeks());
        by_order.map_or(read_ms, NotNegative::get) + without_seek.map_or(0.0, NotNegative::get)
    }
    /// Further time of a hit in milliseconds, by chance.
    pub(crate) fn delay_ms(&self, chance: impl Fn() -> u64) -> f64 {
        let takes = |delay: &DelayByChance| (chance() as f64) < delay.share.get() * 2f64.powi(64);
        self.delay_by_chance.filter(takes).map_or(0.0, |delay| delay.ms.get())
    }
    /// Time of a hit in milliseconds. `hit_ms` is that of `[interface]`.
    pub(crate) fn read_hit_ms(&self, hit_ms: f64, hit: ReadHit) -> f64 {
        let streamed = self.streamed_hit_ms.filter(|_| hit.is_streamed);
        let after_write = self.read_hit_after_write_ms.filter(|_| hit.after_write);
        streamed.or(after_write).or(self.read_hit_ms).map_or(hit_ms, NotNegative::get)
    }
    pub(crate) fn write_hit_ms(&self, hit_ms: f64, hit: WriteHit) -> f64 {
        let appended = self.appended_write_ms.filter(|_| hit.is_appended);
        let distant = self.distant_write_ms.filter(|_| hit.cylinders > NEAR_CYLINDERS);
        let after_read = self.write_hit_after_read_ms.filter(|_| hit.after_read);
        let own = appended.or(distant).or(after_read).or(self.write_hit_ms);
        own.map_or(hit_ms, NotNegative::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(ms: f64) -> Option<NotNegative> {
        Some(NotNegative::try_from(ms).expect("a time"))
    }

    #[test]
    fn without_own_times_the_general_ones_hold() {
        let none = Overheads::default();
        for flag in [false, true] {
            assert_eq!(none.read_ms(0.7, flag, || !flag), 0.7);
            let read = ReadHit { after_write: flag, is_streamed: flag };
            assert_eq!(none.read_hit_ms(0.1, read), 0.1);
            let write = WriteHit { after_read: flag, is_appended: flag, cylinders: 1000 };
            assert_eq!(none.write_hit_ms(0.1, write), 0.1);
        }
    }
    #[test]
    fn the_most_special_time_holds() {
        let times = Overheads {
            read_after_write_ms: some(2.0),
            read_without_seek_ms: some(0.5),
            read_hit_ms: some(3.0),
            read_hit_after_write_ms: some(4.0),
            streamed_hit_ms: some(5.0),
            write_hit_ms: some(6.0),
            write_hit_after_read_ms: some(7.0),
            appended_write_ms: some(8.0),
            distant_write_ms: some(9.0),
            delay_by_chance: None,
        };
        let reads = [(false, true), (true, true), (false, false), (true, false)];
        assert_eq!(
            reads.map(|(after, seeks)| times.read_ms(1.0, after, || seeks)),
            [1.0, 2.0, 1.5, 2.5]
        );
        let hits = [(false, false), (true, false), (false, true)];
        let hits = hits.map(|(after_write, is_streamed)| ReadHit { after_write, is_streamed });
        assert_eq!(hits.map(|hit| times.read_hit_ms(1.0, hit)), [3.0, 4.0, 5.0]);
        let near = WriteHit { cylinders: NEAR_CYLINDERS, ..WriteHit::default() };
        let writes = [
            near,
            WriteHit { after_read: true, ..near },
            WriteHit { is_appended: true, ..near },
            WriteHit { after_read: true, cylinders: NEAR_CYLINDERS + 1, ..near },
        ];
        assert_eq!(writes.map(|hit| times.write_hit_ms(1.0, hit)), [6.0, 7.0, 8.0, 9.0]);
    }
    #[test]
    fn a_share_of_the_hits_is_delayed() {
        let delay = |share| Overheads {
            delay_by_chance: Some(DelayByChance {
                share: Share::try_from(share).expect("a share"),
                ms: NotNegative::try_from(3.0).expect("a time"),
            }),
            ..Overheads::default()
        };
        let half = u64::MAX / 2;
        let chances = [0, half - 2000, half + 2000, u64::MAX];
        let delays = |share| chances.map(|chance| delay(share).delay_ms(|| chance));
        assert_eq!(delays(0.5), [3.0, 3.0, 0.0, 0.0]);
        assert_eq!(delays(0.0), [0.0; 4]);
        assert_eq!(Overheads::default().delay_ms(|| panic!("no chance is taken")), 0.0);
    }
}
