//! cargo-fuzz on `fuzzing::parsing::query`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::parsing::query(data));
