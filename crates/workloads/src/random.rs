//! Random numbers by which an actor decides. They follow from the seed and the actor's own number,
//! not from how actors interleave.

use runtime::SplitMix;

pub struct ActorRandom(SplitMix);

impl ActorRandom {
    pub fn new(seed: u64, actor: u64) -> ActorRandom {
        let of_run = SplitMix::new(seed).next();
        ActorRandom(SplitMix::new(SplitMix::new(of_run ^ actor).next()))
    }
    /// Returns a number from 0 to `end` - 1; `end` is not 0.
    pub fn below(&self, end: u64) -> u64 {
        ((u128::from(self.0.next()) * u128::from(end)) >> 64) as u64
    }
    /// Returns a number from 0 up to, but not including, 1.
    pub fn fraction(&self) -> f64 {
        (self.0.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// Gamma distributed with shape 1.5, as Filebench draws the sizes of files. It is the sum of an
    /// exponential variable and half the square of a normal one.
    pub fn size_around(&self, mean: u64) -> u64 {
        let exponential = || -(1.0 - self.fraction()).ln();
        let cosine = (2.0 * std::f64::consts::PI * self.fraction()).cos();
        let gamma = exponential() + exponential() * cosine * cosine;
        (gamma / 1.5 * mean as f64).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_from_seed_and_actor() {
        let numbers = |seed, actor| {
            (0..8).map(|_| ActorRandom::new(seed, actor).below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(ActorRandom::new(1, 2).below(1 << 40), ActorRandom::new(1, 3).below(1 << 40));
        assert_ne!(ActorRandom::new(1, 2).below(1 << 40), ActorRandom::new(2, 2).below(1 << 40));
    }

    #[test]
    fn sizes_have_the_mean_and_the_spread_of_their_distribution() {
        let random = ActorRandom::new(1, 1);
        let sizes: Vec<f64> =
            (0..20_000).map(|_| random.size_around(16_384) as f64 / 16_384.0).collect();
        let mean = sizes.iter().sum::<f64>() / 20_000.0;
        let variance = sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / 20_000.0;
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
        // Shape 1.5: the variance is the square of the mean by 1.5.
        assert!((variance - 2.0 / 3.0).abs() < 0.05, "{variance}");
    }
}
