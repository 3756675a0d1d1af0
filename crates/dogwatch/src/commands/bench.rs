//! `dogwatch bench`: measurements, each beside the floor of the same run.

use bench::store::StoreBench;

use crate::args::BenchStore;
use crate::failure::Failure;

pub async fn bench_store(args: BenchStore) -> Result<(), Failure> {
    let mut bench = StoreBench::default();
    if let Some(dir) = args.dir {
        bench.dir = dir;
    }
    let report = bench.run().await.map_err(Failure::new)?;
    if args.json {
        println!("{}", machinery::json::json!(report));
    } else {
        print!("{report}");
    }
    Ok(())
}
