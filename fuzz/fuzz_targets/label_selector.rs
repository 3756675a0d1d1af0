//! cargo-fuzz on `fuzzing::parsing::label_selector`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::parsing::label_selector(data));
