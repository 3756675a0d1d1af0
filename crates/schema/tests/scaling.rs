//! Nothing that a client sends costs more than time proportional to its size.
//!
//! Each step runs with an input and with one eight times as large. Proportional work takes eight times as long, quadratic work
//! sixty-four times; the bound is between the two, and the fastest of several runs counts, so that a busy machine does not
//! matter. `cargo xtask counts --scaling` holds each doubling to a closer bound, in instructions.

#[path = "scaling/cases.rs"]
mod cases;

use std::time::Duration;

use cases::Case;

const SMALL: usize = 400;
const FACTOR: usize = 8;
const RATIO_MAX: u32 = 24;
const RUNS: usize = 5;

/// The CPU time that the thread has used.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Returns the CPU time of the fastest of several runs.
fn fastest(case: &Case, size: usize) -> Duration {
    let mut step = (case.prepare)(size);
    let mut run = || {
        let before = cpu_time();
        step();
        cpu_time() - before
    };
    (0..RUNS).map(|_| run()).min().unwrap_or_default()
}

fn hold(cases: impl Iterator<Item = &'static Case>) {
    let mut exceeded = Vec::new();
    for case in cases {
        let (small, large) = (fastest(case, SMALL), fastest(case, SMALL * FACTOR));
        if large > small * RATIO_MAX {
            exceeded.push(format!("{}: {small:?} for {SMALL}, {large:?} for {}", case.name, SMALL * FACTOR));
        }
    }
    assert!(exceeded.is_empty(), "{}", exceeded.join("\n"));
}

#[test]
fn every_step_takes_time_proportional_to_its_input() {
    hold(cases::all());
}
