//! Compares informers on the same server, pods and changes, one after the other: ours (with bytes kept, and decoded),
//! kube-rs' reflector, client-go's shared informer; before and after them the floor, which reads and discards the same watch.
//!
//! `informers [PODS [RATE [SECONDS [CLIENT]]]]`, run by `cargo xtask informers`, which builds the clients. CLIENT: only the
//! floor and the clients whose name contains this. For each client: time to sync, idle and peak memory, CPU and latency for
//! each event, and peak memory in a relist, which is forced by stopping the client until its position is out of the server's
//! history: once with a tenth of the pods changed, once with all of them. CPU is also in multiples of the floor, the mean of
//! its two runs, since machines differ, and one machine differs from hour to hour and from minute to minute. So at the end
//! all clients follow the same changes at the same time, for CPU alone.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use blackbox::{Server, tools};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use testkit::gauge::DUE;

/// Concurrent requests for the highest rate.
const WRITERS: usize = 16;
/// Changes that a stopped client misses, 90 MB: well beyond the history and every buffer in between. Sockets alone hold up
/// to 36 MB where the system lets them grow.
const MISSED: usize = 24_000;
/// History of the server, so short that a stopped client loses its position.
const HISTORY: [&str; 5] = ["--history-age", "1", "--history-changes", "50", "--history-bytes"];

/// A measured client.
struct Contender {
    name: &'static str,
    program: PathBuf,
    args: &'static [&'static str],
    /// Has no store, so that it cannot relist.
    floor: bool,
}

impl Contender {
    fn new(name: &'static str, program: PathBuf, args: &'static [&'static str]) -> Self {
        Self { name, program, args, floor: false }
    }

    fn floor(name: &'static str, program: PathBuf) -> Self {
        Self { name, program, args: &[], floor: true }
    }
}

struct Follower {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Follower {
    fn start(server: &Server, contender: &Contender) -> Self {
        let mut command = Command::new(&contender.program);
        command.args(contender.args).env("KUBECONFIG", server.kubeconfig());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", contender.program.display()));
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Self { child, stdin, stdout }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line).expect("its output can be read");
        assert!(read > 0, "the client ended");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, command: &str) -> String {
        writeln!(self.stdin, "{command}").expect("the client reads its input");
        self.line()
    }

    fn report(&mut self) -> Value {
        serde_json::from_str(&self.ask("report")).expect("a report is JSON")
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {}", self.child.id())]).status();
        assert!(sent.is_ok_and(|status| status.success()), "the client has ended");
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A pod of 3.7 KB on the wire, about half of it managed fields.
fn pod(name: &str) -> Pod {
    let env: Vec<Value> =
        (0..21).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": format!("value-{n}")})).collect();
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "registry.example.com/team/web:1.2.3", "env": env}]}}))
    .expect("a pod")
}

fn now() -> i128 {
    blackbox::clock::now().as_nanosecond()
}

async fn touch(api: &Api<Pod>, n: usize, pods: usize) {
    let patch = json!({"metadata": {"annotations": {DUE: now().to_string()}}});
    let name = format!("p{:05}", n % pods);
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("the server takes a patch");
}

/// Makes changes at the given rate, at most.
async fn changes(api: &Api<Pod>, pods: usize, rate: usize, seconds: usize) {
    let began = tokio::time::Instant::now();
    let due = futures::stream::iter(0..rate * seconds).then(|n| async move {
        tokio::time::sleep_until(began + Duration::from_secs_f64(n as f64 / rate as f64)).await;
        n
    });
    due.for_each_concurrent(WRITERS, |n| touch(api, n * 7919, pods)).await;
}

/// Stops the client while the first `changed` pods change again and again, so that it has to relist. Returns its peak
/// memory.
async fn relist(follower: &mut Follower, api: &Api<Pod>, changed: usize) -> Value {
    follower.ask("mark");
    let sets = follower.report()["sets"].as_u64();
    follower.signal("STOP");
    futures::stream::iter(0..MISSED).for_each_concurrent(WRITERS, |n| touch(api, n, changed)).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    futures::stream::iter(0..100).for_each_concurrent(WRITERS, |n| touch(api, n, changed)).await;
    follower.signal("CONT");
    let mut after = follower.report();
    for _ in 0..600 {
        if after["sets"].as_u64() > sets {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        after = follower.report();
    }
    assert!(after["sets"].as_u64() > sets, "it never listed again: {after}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    follower.report()["peak_kib"].take()
}

async fn measure(server: &Server, api: &Api<Pod>, contender: &Contender, [pods, rate, seconds]: [usize; 3]) -> Value {
    let mut follower = Follower::start(server, contender);
    let synced: u64 = follower.line().trim_start_matches("synced ").parse().expect("a number of milliseconds");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let rest = follower.report();
    assert!(rest["objects"].as_u64() >= Some(pods as u64), "{rest}");
    follower.ask("mark");
    changes(api, pods, rate, seconds).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let events = follower.report();
    let (mut tenth, mut whole) = (Value::Null, Value::Null);
    if !contender.floor {
        tenth = relist(&mut follower, api, (pods / 10).max(1)).await;
        whole = relist(&mut follower, api, pods).await;
    }
    let count = events["events"].as_u64().unwrap_or_default().max(1);
    json!({"sync_ms": synced, "rest_kib": rest["rss_kib"], "first_peak_kib": rest["peak_kib"], "steady_kib": events["rss_kib"],
        "relist_tenth_kib": tenth, "relist_all_kib": whole, "events": count, "cpu_us_each": events["cpu_us"].as_u64().unwrap_or_default() / count,
        "p50_us": events["p50_us"], "p99_us": events["p99_us"]})
}

#[tokio::main]
async fn main() {
    let mut numbers = [10_000, 200, 20];
    let mut said = std::env::args().skip(1);
    for (number, said) in numbers.iter_mut().zip(said.by_ref()) {
        *number = said.parse().expect("usage: informers [PODS [RATE [SECONDS [CLIENT]]]]");
    }
    let only = said.next().unwrap_or_default();
    let flags: Vec<&str> = HISTORY.iter().copied().chain(["4000000"]).collect();
    let server = Server::start_with(&flags);
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).expect("the server wrote it");
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("it can be used");
    let api: Api<Pod> = Api::default_namespaced(Client::try_from(config).expect("a client"));
    eprintln!("{} pods ...", numbers[0]);
    futures::stream::iter(0..numbers[0])
        .for_each_concurrent(WRITERS, |n| {
            let api = api.clone();
            async move {
                api.create(&PostParams::default(), &pod(&format!("p{n:05}"))).await.expect("the server takes a pod");
            }
        })
        .await;
    assert_eq!(api.list_metadata(&ListParams::default()).await.expect("a list").items.len(), numbers[0]);
    let here = std::env::current_exe().expect("a running program has a file");
    let beside = |name: &str| here.with_file_name(name);
    let contenders = [
        Contender::floor("floor, before", beside("watch_floor")),
        Contender::new("dogwatch, bytes kept", beside("informer"), &["encoded"]),
        Contender::new("dogwatch, bytes kept, one thread", beside("informer"), &["encoded", "one-thread"]),
        Contender::new("dogwatch, in place", beside("informer"), &["in-place"]),
        Contender::new("dogwatch, decoded", beside("informer"), &["decoded"]),
        Contender::new("dogwatch, decoded, one thread", beside("informer"), &["decoded", "one-thread"]),
        Contender::new("kube-rs reflector", beside("kube_rs_informer"), &[]),
        Contender::new("kube-rs reflector, one thread", beside("kube_rs_informer"), &["one-thread"]),
        Contender::new("client-go informer", tools::installed("bin/go-clients"), &["measure"]),
        Contender::floor("floor, after", beside("watch_floor")),
    ];
    let mut results = Vec::new();
    for contender in contenders.iter().filter(|contender| contender.floor || contender.name.contains(&only)) {
        eprintln!("{} ...", contender.name);
        results.push((contender, measure(&server, &api, contender, numbers).await));
    }
    print(&results);
    let chosen: Vec<&Contender> = results.iter().map(|(contender, _)| *contender).skip(1).collect();
    eprintln!("all at once ...");
    print_together(&together(&server, &api, &chosen, numbers).await);
}

/// Rounds of all clients at once.
const ROUNDS: usize = 5;

/// The CPU time of each client for an event, in µs, for each round: other load on the machine affects all of them alike.
async fn together<'a>(
    server: &Server,
    api: &Api<Pod>,
    contenders: &[&'a Contender],
    [pods, rate, seconds]: [usize; 3],
) -> Vec<(&'a Contender, Vec<f64>)> {
    let mut followers = Vec::new();
    for contender in contenders {
        let mut follower = Follower::start(server, contender);
        follower.line();
        followers.push((*contender, follower, Vec::new()));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    for _ in 0..ROUNDS {
        for (_, follower, _) in &mut followers {
            follower.ask("mark");
        }
        changes(api, pods, rate, seconds).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        for (_, follower, costs) in &mut followers {
            let report = follower.report();
            let count = report["events"].as_f64().unwrap_or_default().max(1.0);
            costs.push(report["cpu_us"].as_f64().unwrap_or_default() / count);
        }
    }
    followers.into_iter().map(|(contender, _, costs)| (contender, costs)).collect()
}

/// Medians, of CPU and of its ratios in each round.
fn print_together(results: &[(&Contender, Vec<f64>)]) {
    let costs_of = |wanted: fn(&Contender) -> bool| results.iter().find(|(of, _)| wanted(of)).map(|(_, costs)| costs);
    let (floor, peer) = (costs_of(|of| of.floor), costs_of(|of| of.name.starts_with("client-go")));
    println!("{:32} {:>9} {:>8} {:>11}  rounds", "all at once", "CPU µs", "x floor", "x client-go");
    for (contender, costs) in results {
        let ratio = |to: Option<&Vec<f64>>| match to {
            Some(to) => format!("{:.2}", median(costs.iter().zip(to).map(|(cost, of)| cost / of.max(1.0)).collect())),
            None => "-".to_owned(),
        };
        let rounds: Vec<String> = costs.iter().map(|cost| format!("{cost:.0}")).collect();
        println!(
            "{:32} {:>9.0} {:>8} {:>11}  {}",
            contender.name,
            median(costs.clone()),
            ratio(floor),
            ratio(peer),
            rounds.join(" ")
        );
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or_default()
}

fn print(results: &[(&Contender, Value)]) {
    println!(
        "{:32} {:>8} {:>9} {:>9} {:>9} {:>17} {:>17} {:>9} {:>8} {:>8} {:>8}",
        "client",
        "sync ms",
        "rest MB",
        "peak MB",
        "steady",
        "relist of a tenth",
        "relist of all",
        "CPU µs",
        "x floor",
        "p50 ms",
        "p99 ms"
    );
    let cpu = |result: &Value| result["cpu_us_each"].as_f64().unwrap_or_default();
    let floors: Vec<f64> = results.iter().filter(|(contender, _)| contender.floor).map(|(_, of)| cpu(of)).collect();
    let floor = floors.iter().sum::<f64>() / floors.len() as f64;
    for (contender, result) in results {
        let mb = |field: &str| result[field].as_f64().unwrap_or_default() / 1024.0;
        let ms = |field: &str| result[field].as_f64().unwrap_or_default() / 1000.0;
        let relist = |field: &str| match result[field].is_null() {
            true => "-".to_owned(),
            false => format!("{:.0}, {:.2} x", mb(field), mb(field) / mb("steady_kib")),
        };
        println!(
            "{:32} {:>8} {:>9.0} {:>9.0} {:>9.0} {:>17} {:>17} {:>9} {:>8.2} {:>8.2} {:>8.2}",
            contender.name,
            result["sync_ms"].to_string(),
            mb("rest_kib"),
            mb("first_peak_kib"),
            mb("steady_kib"),
            relist("relist_tenth_kib"),
            relist("relist_all_kib"),
            result["cpu_us_each"].to_string(),
            cpu(result) / floor,
            ms("p50_us"),
            ms("p99_us")
        );
    }
    let all: Vec<Value> =
        results.iter().map(|(contender, result)| json!({"client": contender.name, "result": result})).collect();
    println!("{}", json!(all));
}
