//! cargo-fuzz on `fuzzing::parsing::field_selector`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::parsing::field_selector(data));
