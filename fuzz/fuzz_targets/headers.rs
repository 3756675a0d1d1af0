//! cargo-fuzz on `fuzzing::access::headers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::access::headers(data));
