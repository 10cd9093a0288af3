use serde::Deserialize;

/// Bound on times, rates and counts: greater ones are mistakes, and sums of them could overflow.
const LARGEST: f64 = 1e12;

macro_rules! bounded {
    ($(#[$doc:meta])* $name:ident, $holds:expr, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Deserialize)]
        #[serde(try_from = "f64")]
        pub struct $name(f64);
        impl $name {
            pub fn get(self) -> f64 {
                self.0
            }
        }
        impl TryFrom<f64> for $name {
            type Error = String;
            fn try_from(value: f64) -> Result<$name, String> {
                let holds: fn(f64) -> bool = $holds;
                if holds(value) { Ok($name(value)) } else { Err(format!(concat!("{} is not ", $what), value)) }
            }
        }
    };
}

bounded!(
    /// A number above zero.
    Positive, |value| (1e-6..=LARGEST).contains(&value), "a number above 0 (at least 0.000001, at most 1e12)"
);
bounded!(
    /// A number of zero or more.
    NotNegative, |value| (0.0..=LARGEST).contains(&value), "0 or more (at most 1e12)"
);
bounded!(
    /// A number from zero to one.
    Share, |value| (0.0..=1.0).contains(&value), "between 0 and 1"
);
