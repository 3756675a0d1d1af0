//! cargo-fuzz on `fuzzing::bodies::certificate_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::bodies::certificate_request(data));
