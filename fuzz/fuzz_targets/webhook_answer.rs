//! cargo-fuzz on `fuzzing::webhooks::answer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::webhooks::answer(data));
