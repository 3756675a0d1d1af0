//! cargo-fuzz on `fuzzing::access::token`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::access::token(data));
