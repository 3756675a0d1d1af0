//! cargo-fuzz on `fuzzing::access::authorization_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::access::authorization_file(data));
