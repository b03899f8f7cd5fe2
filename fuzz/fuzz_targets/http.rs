#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lapsed_fuzz_targets::run("http", input));
