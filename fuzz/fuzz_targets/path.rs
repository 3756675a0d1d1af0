//! cargo-fuzz on `fuzzing::parsing::path`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::parsing::path(data));
