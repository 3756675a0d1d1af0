//! cargo-fuzz on `fuzzing::access::authentication_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::access::authentication_file(data));
