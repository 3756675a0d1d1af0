//! cargo-fuzz on `fuzzing::bodies::body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::bodies::body(data));
