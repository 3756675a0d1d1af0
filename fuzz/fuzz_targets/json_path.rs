//! cargo-fuzz on `fuzzing::definitions::json_path`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::definitions::json_path(data));
