//! cargo-fuzz on `fuzzing::definitions::definition`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::definitions::definition(data));
