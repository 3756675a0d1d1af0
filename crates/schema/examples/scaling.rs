//! Runs the steps of `tests/scaling/cases.rs` for `cargo xtask counts --scaling`, which counts the instructions in `measured`.
//!
//! `scaling` prints the names of the steps; `scaling SIZE…` runs each with these sizes, in this order.

#[path = "../tests/scaling/cases.rs"]
mod cases;

fn main() {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|size| size.parse().ok()).collect();
    for case in cases::all() {
        if sizes.is_empty() {
            println!("{}", case.name);
        }
        for size in &sizes {
            measured(&mut (case.prepare)(*size));
        }
    }
}

#[inline(never)]
fn measured(step: &mut cases::Step) {
    step();
}
