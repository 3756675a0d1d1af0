//! cargo-fuzz on `fuzzing::streams::spdy`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::streams::spdy(data));
