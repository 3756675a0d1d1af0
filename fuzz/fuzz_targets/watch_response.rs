//! cargo-fuzz on `fuzzing::responses::watch_response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::responses::watch_response(data));
