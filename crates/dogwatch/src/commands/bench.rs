//! `dogwatch bench`: measurements, each compared with the baseline of the same run.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use bench::report::{Report, heading, row};
use bench::scenario::Scenario;
use bench::sizes::{Fanout, Sizes};
use bench::{Options, Protocol, compare, floor, plot};

use crate::args::{Bench, BenchCompare, BenchRun};
use crate::failure::Failure;

pub(super) async fn bench(what: Bench) -> Result<(), Failure> {
    match what {
        Bench::All(args) => measure(&Scenario::ALL, args).await,
        Bench::Start(args) => measure(&[Scenario::Start], args).await,
        Bench::Create(args) => measure(&[Scenario::Create], args).await,
        Bench::Get(args) => measure(&[Scenario::Get], args).await,
        Bench::Patch(args) => measure(&[Scenario::Patch], args).await,
        Bench::List(args) => measure(&[Scenario::List], args).await,
        Bench::Fanout(args) => measure(&[Scenario::Fanout], args).await,
        Bench::FanoutSelective(args) => measure(&[Scenario::FanoutSelective], args).await,
        Bench::SlowWatchers(args) => measure(&[Scenario::SlowWatchers], args).await,
        Bench::IdleWatchers(args) => measure(&[Scenario::IdleWatchers], args).await,
        Bench::RelistStorm(args) => measure(&[Scenario::RelistStorm], args).await,
        Bench::Restart(args) => measure(&[Scenario::Restart], args).await,
        Bench::Watchlist(args) => measure(&[Scenario::WatchList], args).await,
        Bench::Store(args) => measure(&[Scenario::Store], args).await,
        Bench::Scale(args) => measure(&[Scenario::Scale], args).await,
        Bench::Crds(args) => measure(&[Scenario::Crds], args).await,
        Bench::Access(args) => measure(&[Scenario::Access], args).await,
        Bench::Admission(args) => measure(&[Scenario::Admission], args).await,
        Bench::Fairness(args) => measure(&[Scenario::Fairness], args).await,
        Bench::Worlds(args) => measure(&[Scenario::Worlds], args).await,
        Bench::Compare(args) => compare_files(&args),
        Bench::Floor => floor::serve().map_err(Failure::new),
    }
}

async fn measure(scenarios: &[Scenario], args: BenchRun) -> Result<(), Failure> {
    let json = args.json;
    let options = options(args)?;
    if !json {
        print!("{}", heading());
    }
    let sink = Arc::new(move |case: &bench::report::Case| {
        if !json {
            print!("{}", row(case));
            let _ = std::io::stdout().flush();
        }
    });
    let interrupted = Box::pin(async {
        let _ = tokio::signal::ctrl_c().await;
    });
    let report = bench::run::run(options, scenarios, sink, interrupted).await;
    if json {
        println!("{}", serde_json::json!(report));
    }
    for skipped in &report.skipped {
        eprintln!("left out: {skipped}");
    }
    match report.error {
        None => Ok(()),
        Some(sentence) => Err(Failure::new(sentence)),
    }
}

fn options(args: BenchRun) -> Result<Options, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(format!("the path of this program is unknown: {error}")))?;
    let protocol = if args.http2 { Protocol::Http2 } else { Protocol::Http1 };
    Ok(Options {
        program,
        protocol,
        sizes: sizes(&args, protocol),
        kubeconfig: args.kubeconfig,
        pids: args.pid,
        dir: args.dir.unwrap_or_else(std::env::temp_dir),
    })
}

fn sizes(args: &BenchRun, protocol: Protocol) -> Sizes {
    fn set<T: Copy>(size: &mut T, given: Option<T>) {
        *size = given.unwrap_or(*size);
    }
    let load = &args.load;
    let mut sizes = if args.quick { Sizes::quick() } else { Sizes::default() };
    set(&mut sizes.objects, load.objects.map(|objects| objects.max(1)));
    set(&mut sizes.requests, load.requests.map(|requests| requests.max(1)));
    set(&mut sizes.callers, load.callers);
    set(&mut sizes.lists, load.lists.map(|lists| lists.max(1)));
    set(&mut sizes.size, load.size);
    set(&mut sizes.specs, load.specs.map(|specs| specs.max(1)));
    set(&mut sizes.watchers, load.watchers.map(|watchers| watchers.max(1)));
    set(&mut sizes.seconds, load.seconds.map(|seconds| seconds.clamp(0.1, 3600.0)));
    set(&mut sizes.slow, load.slow);
    set(&mut sizes.informers, load.informers.map(|informers| informers.max(1)));
    set(&mut sizes.starts, load.starts);
    set(&mut sizes.nodes, load.nodes);
    set(&mut sizes.pods, load.pods);
    set(&mut sizes.definitions, load.definitions.map(|definitions| definitions.max(1)));
    set(&mut sizes.worlds, load.worlds.map(|worlds| worlds.max(1)));
    if let Some(puts) = load.puts {
        (sizes.store.puts, sizes.store.objects, sizes.store.rounds) = (puts, puts, 1);
    }
    let rate = load.rate.map(|rate| rate.clamp(0.1, 1e6));
    sizes.rate = rate;
    // Options for watchers replace the fan-out measurements of the budget by the one they describe.
    let has_options = load.watchers.is_some() || rate.is_some() || args.http2 || load.connections.is_some();
    if has_options || load.label_selector.is_some() || load.field_selector.is_some() {
        sizes.fanouts = vec![Fanout {
            watchers: sizes.watchers,
            rate: rate.unwrap_or(20.0),
            connections: load.connections,
            protocol,
            label_selector: load.label_selector.clone(),
            field_selector: load.field_selector.clone(),
        }];
    }
    sizes
}

fn compare_files(args: &BenchCompare) -> Result<(), Failure> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let (a_name, b_name) = (name(&args.a, &a), name(&args.b, &b));
    let lines = compare::lines(&a, &b);
    if lines.is_empty() {
        return Err(Failure::new(format!(
            "{} and {} have no case in common that both finished",
            args.a.display(),
            args.b.display()
        )));
    }
    print!("{}", compare::table(&a_name, &b_name, &lines));
    if let Some(picture) = plot::svg(&a_name, &b_name, &a, &b) {
        std::fs::write(&args.plot, picture)
            .map_err(|error| Failure::new(format!("{} cannot be written: {error}", args.plot.display())))?;
        println!("drawn in {}", args.plot.display());
    }
    Ok(())
}

fn read(path: &Path) -> Result<Report, Failure> {
    let text = std::fs::read(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    serde_json::from_slice(&text).map_err(|error| {
        Failure::new(format!("{} is not a result of `dogwatch bench … --json`: {error}", path.display()))
    })
}

fn name(path: &Path, report: &Report) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    stem.unwrap_or_else(|| report.server.clone())
}
