//! cargo-fuzz on `fuzzing::rules::cel`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::rules::cel(data));
