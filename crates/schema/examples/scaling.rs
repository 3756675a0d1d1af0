//! Runs the steps of `tests/scaling/cases.rs` for `cargo xtask counts --scaling`, which counts the instructions in `measured`.
//!
//! `scaling` prints the names of the steps; `scaling NAME SIZE…` runs one with these sizes, in this order.

#[path = "../tests/scaling/cases.rs"]
mod cases;

fn main() {
    let mut args = std::env::args().skip(1);
    let Some(name) = args.next() else {
        return cases::all().for_each(|case| println!("{}", case.name));
    };
    let sizes: Vec<usize> = args.filter_map(|size| size.parse().ok()).collect();
    for case in cases::all().filter(|case| case.name == name) {
        for size in &sizes {
            measured(&mut (case.prepare)(*size));
        }
    }
}

#[inline(never)]
fn measured(step: &mut cases::Step) {
    step();
}
