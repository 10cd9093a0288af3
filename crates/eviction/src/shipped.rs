use crate::Profile;

macro_rules! profiles {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../profiles/", $name, ".toml")))),*]
    };
}

/// Profiles of the emulated drives of these names, as `okeanos-lab fingerprint --model NAME
/// --ignore-flush` made them.
const SHIPPED: [(&str, &str); 8] = profiles![
    "hitachi-7k80",
    "hitachi-32",
    "samsung-8",
    "western-digital-16",
    "western-digital-64",
    "seagate-8",
    "barracuda-7200.11",
    "seagate-32",
];

/// Drives for which no workload of the fingerprint's grid evicted in every trial at once.
const WITHOUT: [&str; 1] = ["samsung-16"];

impl Profile {
    /// Whether a fingerprint found no profile for the emulated drive of this name.
    pub fn is_known_to_lack(name: &str) -> bool {
        WITHOUT.contains(&name)
    }
    /// The profiles that come with the program, by the name of the emulated drive.
    pub fn shipped() -> impl Iterator<Item = (&'static str, Profile)> {
        SHIPPED
            .into_iter()
            .map(|(name, text)| (name, Profile::parse(text).expect("tests parse them all")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_profiles_are_as_the_tool_wrote_them_of_their_drives() {
        for (name, text) in SHIPPED {
            let profile = Profile::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!((profile.model.as_str(), profile.trials), (name, 50));
            assert_eq!(profile.format(), text, "{name}");
        }
    }
}
