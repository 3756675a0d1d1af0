//! cargo-fuzz on `fuzzing::nodes::script`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::nodes::script(data));
