//! Measurements of dogwatch, each beside the floor of the same run: ratios count, machines are noisy.
//!
//! - [`sample`]: latencies and processor time
//! - [`store`]: the embedded store against a bare SQLite writer

pub mod sample;
pub mod store;
