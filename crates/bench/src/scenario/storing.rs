//! The embedded store alone; the floor is a bare SQLite writer.

use crate::report::{Case, ServerFigures};
use crate::sample::Latency;
use crate::stage::Stage;
use crate::store::{Case as PutCase, StoreBench};
use crate::trouble::Trouble;

pub(super) async fn run(stage: &mut Stage) -> Result<(), Trouble> {
    let sizes = stage.sizes().store;
    let case = |callers, puts: usize| PutCase { callers, puts: puts.max(callers) };
    let bench = StoreBench {
        dir: stage.options.dir.clone(),
        cases: vec![case(1, sizes.puts / 40), case(8, sizes.puts / 5), case(64, sizes.puts)],
        rounds: sizes.rounds,
        objects: sizes.objects,
        ..StoreBench::default()
    };
    let report = bench.run().await.map_err(Trouble::Impossible)?;
    let memory = report.reopen.memory_bytes as f64 / 1e6;
    for put in &report.puts {
        let mut case = Case::new("store", format!("{} at once", put.callers), "put").with("bytes", report.value_bytes);
        fill(&mut case, put.puts, put.store.puts_per_s, put.store.latency);
        case.server =
            Some(ServerFigures { cpu_us_each: put.store.cpu_us_each, memory_mb: memory, memory_peak_mb: None });
        case.over_floor(put.bare.cpu_us_each);
        case.figure("bare_puts_per_s", put.bare.puts_per_s);
        case.figure("throughput_over_bare", put.ratio);
        stage.record(case);
    }
    let mut reopen = Case::new("store", "reopen", "object");
    fill(
        &mut reopen,
        report.reopen.objects,
        report.reopen.objects as f64 / (report.reopen.ms / 1e3),
        Latency::default(),
    );
    reopen.latency = None;
    reopen.figure("ms", report.reopen.ms);
    reopen.figure("memory_mb", memory);
    reopen.figure("disk_mb", report.reopen.disk_bytes as f64 / 1e6);
    stage.record(reopen);
    let compaction = &report.compaction;
    let mut case = Case::new("store", "updates, compacting", "change");
    let removed = usize::try_from(compaction.removed).unwrap_or(usize::MAX);
    fill(&mut case, removed, removed as f64 / (compaction.took_ms / 1e3), compaction.compacting);
    case.figure("quiet_p99_ms", compaction.quiet.p99_us / 1e3);
    case.figure("longest_step_ms", compaction.longest_step_ms);
    stage.record(case);
    Ok(())
}

fn fill(case: &mut Case, operations: usize, per_second: f64, latency: Latency) {
    case.operations = operations as u64;
    case.per_second = per_second;
    case.seconds = operations as f64 / per_second;
    case.latency = Some(latency);
}
