//! `dogwatch admission`: what admission does with an object.

mod offline;
mod test;
mod trace;

use crate::args::Admission;
use crate::failure::Failure;

pub(super) async fn admission(what: Admission) -> Result<(), Failure> {
    match what {
        Admission::Test(args) => test::test(args).await,
        Admission::Trace(args) => trace::trace(args).await,
    }
}
