//! cargo-fuzz on `fuzzing::parsing::accept`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::parsing::accept(data));
