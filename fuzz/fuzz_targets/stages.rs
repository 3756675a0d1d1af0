//! cargo-fuzz on `fuzzing::nodes::stages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::nodes::stages(data));
