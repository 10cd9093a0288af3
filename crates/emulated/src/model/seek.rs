use super::NotNegative;
use serde::Deserialize;

/// Time of the arm to cross a number of cylinders: linear interpolation between given points.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Vec<(u32, NotNegative)>")]
pub struct SeekCurve(Vec<(u32, f64)>);

impl TryFrom<Vec<(u32, NotNegative)>> for SeekCurve {
    type Error = String;
    fn try_from(points: Vec<(u32, NotNegative)>) -> Result<SeekCurve, String> {
        if points.is_empty() {
            return Err("a seek curve has at least one point".to_owned());
        }
        if points[0].0 == 0 {
            return Err("a seek of 0 cylinders takes no time: begin with 1".to_owned());
        }
        if let Some(pair) = points.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return Err(format!("distances must grow: {} follows {}", pair[1].0, pair[0].0));
        }
        Ok(SeekCurve(points.into_iter().map(|(distance, time)| (distance, time.get())).collect()))
    }
}

impl SeekCurve {
    /// Time in milliseconds. Below the first and beyond the last point as at that point; 0 for no
    /// distance.
    pub fn time_ms(&self, cylinders: u32) -> f64 {
        if cylinders == 0 {
            return 0.0;
        }
        let next = self.0.partition_point(|(distance, _)| *distance < cylinders);
        let Some(&(to, time)) = self.0.get(next) else { return self.0[self.0.len() - 1].1 };
        if to == cylinders || next == 0 {
            return time;
        }
        let (from, before) = self.0[next - 1];
        before + (time - before) * f64::from(cylinders - from) / f64::from(to - from)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Model, shipped};

    #[test]
    fn mean_seek_of_the_cheetah_over_uniform_pairs_is_the_measured_one() {
        let (_, text) = shipped().next().expect("a model");
        let mechanics =
            Model::parse(text).expect("a valid model").mechanics.expect("a turning disk");
        let cylinders: u32 = mechanics.zones.iter().map(|zone| zone.cylinders.get()).sum();
        // Distance d lies between cylinders - d of the pairs, each way.
        let pairs = f64::from(cylinders) * f64::from(cylinders);
        let sum: f64 = (1..cylinders)
            .map(|distance| {
                2.0 * f64::from(cylinders - distance) * mechanics.seek_ms.time_ms(distance)
            })
            .sum();
        let mean = sum / pairs;
        assert!((mean - 3.795).abs() < 0.005, "{mean} ms, 3.795 expected");
        for (distance, time) in
            [(1, 0.553), (10, 0.788), (100, 1.140), (1000, 1.636), (72000, 6.914)]
        {
            assert!(
                (mechanics.seek_ms.time_ms(distance) - time).abs() < 0.005,
                "{distance} cylinders"
            );
        }
    }
}
