//! cargo-fuzz on `fuzzing::access::audit_policy`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::access::audit_policy(data));
