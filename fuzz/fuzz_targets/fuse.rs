#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (damage::target("fuse").run)(bytes));
