//! Measures the embedded store: `cargo run --release -p dogwatch-bench --example store-bench [DIR] [--json]`.

use std::process::ExitCode;

use bench::store::StoreBench;

#[tokio::main]
async fn main() -> ExitCode {
    let mut bench = StoreBench::default();
    let mut json = false;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--json" => json = true,
            dir => bench.dir = dir.into(),
        }
    }
    match bench.run().await {
        Ok(report) if json => println!("{}", serde_json::json!(report)),
        Ok(report) => print!("{report}"),
        Err(error) => {
            eprintln!("store-bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
