#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (damage::target("volume").run)(bytes));
