//! cargo-fuzz on `fuzzing::streams::stream_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::streams::stream_message(data));
