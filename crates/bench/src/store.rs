//! The embedded store: durable puts, reopening, pauses by compaction; a bare SQLite writer as the yardstick.
//!
//! Store and yardstick take turns on the same disk within one run, so that disturbances of the machine affect both.

mod yardstick;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::store::embedded::{EmbeddedOptions, EmbeddedStore};
use ::store::{Key, Revision, Store};
use bytes::Bytes;
use serde::Serialize;

use crate::sample::{Latency, processor_time};
use yardstick::BareWriter;

/// The parameters of the measurement.
#[derive(Clone, Debug)]
pub struct StoreBench {
    /// Parent of a temporary directory for the files.
    pub dir: PathBuf,
    pub value_bytes: usize,
    /// Puts of one case, for each number of callers.
    pub cases: Vec<Case>,
    /// Number of rounds of each case, store and yardstick in turn. The median round is reported.
    pub rounds: usize,
    /// Objects of the store that is reopened and compacted.
    pub objects: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub callers: usize,
    pub puts: usize,
}

impl Default for StoreBench {
    fn default() -> Self {
        let case = |callers, puts| Case { callers, puts };
        StoreBench {
            dir: std::env::temp_dir(),
            value_bytes: 1500,
            cases: vec![case(1, 1_000), case(8, 8_000), case(64, 40_000)],
            rounds: 3,
            objects: 150_000,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct StoreReport {
    pub value_bytes: usize,
    pub puts: Vec<PutReport>,
    pub reopen: ReopenReport,
    pub compaction: CompactionReport,
}

/// Durable puts with `callers` concurrent callers, each waiting for its own result.
#[derive(Clone, Debug, Serialize)]
pub struct PutReport {
    pub callers: usize,
    pub puts: usize,
    pub store: Throughput,
    pub bare: Throughput,
    /// Store over bare, of the median round.
    pub ratio: f64,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Throughput {
    pub puts_per_s: f64,
    pub cpu_us_each: f64,
    pub latency: Latency,
    pub disk_bytes: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReopenReport {
    pub objects: usize,
    pub ms: f64,
    /// Increase of the resident memory by opening the store.
    pub memory_bytes: u64,
    pub disk_bytes: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct CompactionReport {
    /// Number of superseded values that were removed during the writes.
    pub removed: u64,
    pub took_ms: f64,
    pub longest_step_ms: f64,
    pub longest_checkpoint_ms: f64,
    /// Latency of writes without other activity, and during compaction.
    pub quiet: Latency,
    pub compacting: Latency,
}

impl StoreBench {
    /// Runs everything. Takes some tens of seconds with the defaults.
    pub async fn run(&self) -> Result<StoreReport, String> {
        let mut puts = Vec::new();
        for case in &self.cases {
            puts.push(self.compare(*case).await?);
        }
        let (reopen, compaction) = self.reopen_and_compact().await?;
        Ok(StoreReport { value_bytes: self.value_bytes, puts, reopen, compaction })
    }

    async fn compare(&self, case: Case) -> Result<PutReport, String> {
        let mut rounds = Vec::new();
        for _ in 0..self.rounds.max(1) {
            let bare = self.bare_round(case).await?;
            let store = self.store_round(case).await?;
            rounds.push((store.puts_per_s / bare.puts_per_s, store, bare));
        }
        rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ratio, store, bare) = rounds[rounds.len() / 2];
        Ok(PutReport { callers: case.callers, puts: case.puts, store, bare, ratio })
    }

    async fn store_round(&self, case: Case) -> Result<Throughput, String> {
        let dir = self.directory()?;
        let store = Arc::new(open(dir.path())?);
        let throughput = measure(case, self.value_bytes, {
            let store = store.clone();
            move |key, value| {
                let store = store.clone();
                async move { store.create(key, value).await.map(drop).map_err(|error| error.to_string()) }
            }
        })
        .await?;
        store.close().await;
        Ok(Throughput { disk_bytes: size_of(dir.path()), ..throughput })
    }

    async fn bare_round(&self, case: Case) -> Result<Throughput, String> {
        let dir = self.directory()?;
        let writer = Arc::new(BareWriter::open(&dir.path().join("bare.db"))?);
        let throughput = measure(case, self.value_bytes, {
            let writer = writer.clone();
            move |key, value| {
                let writer = writer.clone();
                async move { writer.put(key, value).await }
            }
        })
        .await?;
        if let Some(writer) = Arc::into_inner(writer) {
            writer.close();
        }
        Ok(Throughput { disk_bytes: size_of(dir.path()), ..throughput })
    }

    async fn reopen_and_compact(&self) -> Result<(ReopenReport, CompactionReport), String> {
        let dir = self.directory()?;
        let store = Arc::new(open(dir.path())?);
        let case = Case { callers: 64, puts: self.objects };
        measure(case, self.value_bytes, {
            let store = store.clone();
            move |key, value| {
                let store = store.clone();
                async move { store.create(key, value).await.map(drop).map_err(|error| error.to_string()) }
            }
        })
        .await?;
        store.close().await;
        drop(store);

        let memory_before = resident_bytes();
        let started = Instant::now();
        let store = Arc::new(open(dir.path())?);
        let ms = started.elapsed().as_secs_f64() * 1e3;
        let reopen = ReopenReport {
            objects: self.objects,
            ms,
            memory_bytes: resident_bytes().saturating_sub(memory_before),
            disk_bytes: size_of(dir.path()),
        };
        let compaction = self.compaction(&store).await?;
        store.close().await;
        Ok((reopen, compaction))
    }

    /// Updates with eight callers, first quietly, then while the history they made is removed.
    async fn compaction(&self, store: &Arc<EmbeddedStore>) -> Result<CompactionReport, String> {
        let quiet = Updates::start(store, self.value_bytes, self.updated());
        quiet.until(self.objects / 4).await;
        let quiet = Latency::of(quiet.stop().await?);

        let before = store.stats().await.map_err(|error| error.to_string())?;
        store.reset_pauses();
        let busy = Updates::start(store, self.value_bytes, self.updated());
        let started = Instant::now();
        store.compact(before.revision).await.map_err(|error| error.to_string())?;
        let took_ms = started.elapsed().as_secs_f64() * 1e3;
        let compacting = Latency::of(busy.stop().await?);
        let pauses = store.pauses();
        Ok(CompactionReport {
            removed: before.history,
            took_ms,
            longest_step_ms: pauses.compaction_step.as_secs_f64() * 1e3,
            longest_checkpoint_ms: pauses.checkpoint.as_secs_f64() * 1e3,
            quiet,
            compacting,
        })
    }

    /// Objects of each caller that updates: few enough that all of them are updated more than once.
    fn updated(&self) -> usize {
        (self.objects / 128).clamp(1, 500)
    }

    fn directory(&self) -> Result<tempfile::TempDir, String> {
        tempfile::tempdir_in(&self.dir).map_err(|error| format!("{}: {error}", self.dir.display()))
    }
}

fn open(dir: &Path) -> Result<EmbeddedStore, String> {
    EmbeddedStore::open(EmbeddedOptions::new(dir)).map_err(|error| error.to_string())
}

/// Puts of `case.callers` callers, each with the next put as soon as its last is answered.
async fn measure<F, W>(case: Case, value_bytes: usize, put: F) -> Result<Throughput, String>
where
    F: Fn(Key, Bytes) -> W + Clone + Send + 'static,
    W: Future<Output = Result<(), String>> + Send,
{
    let values = Values::new(value_bytes);
    let mut tasks = tokio::task::JoinSet::new();
    let (started, cpu) = (Instant::now(), processor_time());
    for caller in 0..case.callers {
        let (put, values) = (put.clone(), values.clone());
        tasks.spawn(async move {
            let mut samples = Vec::with_capacity(case.puts / case.callers);
            for number in 0..case.puts / case.callers {
                // Names in no order, as objects are: an ordered load would flatter the key index.
                let number = (number * case.callers + caller).wrapping_mul(0x9e37_79b9) % 0xffff_fffb;
                let (key, value) = (key(number), values.get(number));
                let started = Instant::now();
                put(key, value).await?;
                samples.push(started.elapsed());
            }
            Ok::<_, String>(samples)
        });
    }
    let mut samples = Vec::new();
    for done in tasks.join_all().await {
        samples.extend(done?);
    }
    let (took, cpu) = (started.elapsed(), processor_time() - cpu);
    let puts = samples.len() as f64;
    Ok(Throughput {
        puts_per_s: puts / took.as_secs_f64(),
        cpu_us_each: cpu.as_secs_f64() * 1e6 / puts,
        latency: Latency::of(samples),
        disk_bytes: 0,
    })
}

fn key(number: usize) -> Key {
    Key::new(format!("core/pods/namespace-{}/pod-{number:08x}", number % 20)).expect("a well-formed key")
}

/// Values that differ and cost nothing to make: windows of one buffer.
#[derive(Clone)]
struct Values {
    buffer: Bytes,
    bytes: usize,
}

impl Values {
    const WINDOWS: usize = 4096;

    fn new(bytes: usize) -> Self {
        let buffer = (0..bytes + Self::WINDOWS).map(|position| b'a' + (position * position / 7 % 26) as u8).collect();
        Values { buffer, bytes }
    }

    fn get(&self, number: usize) -> Bytes {
        let start = number % Self::WINDOWS;
        self.buffer.slice(start..start + self.bytes)
    }
}

/// Eight callers that update objects of their own until they are stopped.
struct Updates {
    stop: Arc<AtomicBool>,
    done: Arc<std::sync::atomic::AtomicUsize>,
    tasks: tokio::task::JoinSet<Result<Vec<Duration>, String>>,
}

impl Updates {
    fn start(store: &Arc<EmbeddedStore>, value_bytes: usize, updated: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::default();
        let mut tasks = tokio::task::JoinSet::new();
        for caller in 0..8 {
            let (store, stop, done) = (store.clone(), stop.clone(), Arc::clone(&done));
            tasks.spawn(async move { Self::caller(&store, caller, value_bytes, updated, &stop, &done).await });
        }
        Updates { stop, done, tasks }
    }

    async fn caller(
        store: &EmbeddedStore,
        caller: usize,
        value_bytes: usize,
        updated: usize,
        stop: &AtomicBool,
        done: &std::sync::atomic::AtomicUsize,
    ) -> Result<Vec<Duration>, String> {
        let name = |number: usize| Key::new(format!("apps/deployments/default/{caller}-{number}"));
        let mut revisions: Vec<Option<Revision>> = vec![None; updated];
        for (number, revision) in revisions.iter_mut().enumerate() {
            let key = name(number).map_err(|error| error.to_string())?;
            let found = store.get(&key).await.map_err(|error| error.to_string())?;
            *revision = found.map(|entry| entry.revision);
        }
        let values = Values::new(value_bytes);
        let mut samples = Vec::new();
        let mut round = 0;
        while !stop.load(Ordering::Relaxed) {
            let number = round * 7 % revisions.len();
            let key = name(number).map_err(|error| error.to_string())?;
            let value = values.get(round);
            let started = Instant::now();
            let written = match revisions[number] {
                None => store.create(key, value).await,
                Some(expected) => store.update(key, value, expected).await,
            };
            samples.push(started.elapsed());
            revisions[number] = Some(written.map_err(|error| error.to_string())?);
            round += 1;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(samples)
    }

    async fn until(&self, count: usize) {
        while self.done.load(Ordering::Relaxed) < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn stop(self) -> Result<Vec<Duration>, String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut samples = Vec::new();
        for done in self.tasks.join_all().await {
            samples.extend(done?);
        }
        Ok(samples)
    }
}

fn size_of(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Zero if the system does not report it.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

impl fmt::Display for StoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "durable puts of {} bytes, each answered after its sync", self.value_bytes)?;
        writeln!(f, "callers  engine   puts/s  CPU µs each   p50 µs   p99 µs   max µs   bytes on disk  ratio")?;
        for put in &self.puts {
            for (engine, figures, ratio) in
                [("bare", put.bare, String::new()), ("store", put.store, format!("{:.2}", put.ratio))]
            {
                writeln!(
                    f,
                    "{:>7}  {engine:<6} {:>8.0}  {:>11.1} {:>8.0} {:>8.0} {:>8.0}  {:>14}  {ratio:>5}",
                    put.callers,
                    figures.puts_per_s,
                    figures.cpu_us_each,
                    figures.latency.p50_us,
                    figures.latency.p99_us,
                    figures.latency.max_us,
                    figures.disk_bytes
                )?;
            }
        }
        let ReopenReport { objects, ms, memory_bytes, disk_bytes } = self.reopen;
        let (memory, disk) = (memory_bytes as f64 / 1e6, disk_bytes as f64 / 1e6);
        writeln!(f, "reopen with {objects} objects: {ms:.0} ms, {memory:.1} MB of memory, {disk:.0} MB on disk")?;
        let compaction = &self.compaction;
        writeln!(
            f,
            "compaction of {} changes while 8 callers update: {:.0} ms in all, longest step {:.1} ms, \
             longest checkpoint by the writer {:.1} ms",
            compaction.removed, compaction.took_ms, compaction.longest_step_ms, compaction.longest_checkpoint_ms
        )?;
        for (when, latency) in [("quiet", compaction.quiet), ("compacting", compaction.compacting)] {
            let Latency { p50_us, p99_us, max_us } = latency;
            writeln!(f, "  updates while {when:<10}  p50 {p50_us:.0} µs  p99 {p99_us:.0} µs  max {max_us:.0} µs")?;
        }
        Ok(())
    }
}
