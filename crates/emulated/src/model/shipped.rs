/// The models that come with the program: name and file.
pub fn shipped() -> impl Iterator<Item = (&'static str, &'static str)> {
    SHIPPED.into_iter()
}

macro_rules! models {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../models/", $name, ".toml")))),*]
    };
}

const SHIPPED: [(&str, &str); 23] = models![
    "cheetah-15k5",
    "cheetah-15k5-300",
    "cheetah-15k7",
    "hitachi-7k80",
    "hitachi-32",
    "samsung-8",
    "samsung-16",
    "western-digital-16",
    "western-digital-64",
    "seagate-8",
    "barracuda-7200.11",
    "seagate-32",
    "constellation-es3",
    "atlas-10k",
    "atlas-iii",
    "barracuda-2gb",
    "cheetah-4lp",
    "cheetah-9lp",
    "ibm-18es",
    "sata-ssd",
    "nvme-ssd",
    "sd-card",
    "cloud-volume",
];
