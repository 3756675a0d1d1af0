//! cargo-fuzz on `fuzzing::parsing::continue_token`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::parsing::continue_token(data));
