//! cargo-fuzz on `fuzzing::bodies::delete_options`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::bodies::delete_options(data));
