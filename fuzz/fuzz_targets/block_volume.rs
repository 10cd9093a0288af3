#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (hostile::target("block_volume").run)(bytes));
