//! `dogwatch bench` end to end: every scenario counts operations, and an error is one sentence and exit code 1.
//!
//! These tests do not check speed.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

const SCENARIOS: [&str; 18] = [
    "start",
    "store",
    "create",
    "get",
    "patch",
    "list",
    "watchlist",
    "relist-storm",
    "fanout",
    "fanout-selective",
    "slow-watchers",
    "idle-watchers",
    "restart",
    "scale",
    "crds",
    "access",
    "fairness",
    "worlds",
];

/// The smallest load.
const TINY: &str = "--objects 30 --requests 30 --callers 2 --lists 1 --watchers 5 --rate 50 --seconds 0.2 --slow 2 \
    --informers 2 --starts 1 --puts 200 --nodes 2 --pods 4 --definitions 2 --worlds 2";

fn bench(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dogwatch"));
    command.arg("bench").args(words.split_whitespace());
    command
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The one sentence on stderr of a command that failed.
fn sentence(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    text
}

/// A server that `bench` did not start. Killed when dropped.
struct Server {
    child: Child,
    kubeconfig: PathBuf,
    _folder: TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = Command::new(env!("CARGO_BIN_EXE_dogwatch"))
            .args(["up", "--memory", "--no-controllers", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.starts_with("ready in")), "it gets ready");
        Server { child, kubeconfig: folder.path().join("kubeconfig"), _folder: folder }
    }

    fn bench(&self, words: &str) -> Command {
        let mut command = bench(words);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--pid", &self.child.id().to_string()]);
        command
    }

    fn has_pods(&self) -> bool {
        let listed = Command::new(env!("CARGO_BIN_EXE_dogwatch"))
            .args(["get", "pods", "-A", "-o", "name", "--kubeconfig"])
            .arg(&self.kubeconfig)
            .output()
            .expect("it runs");
        listed.stdout.split(|byte| *byte == b'\n').count() > 10
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_scenario_counts_something() {
    let output = bench(&format!("all --quick --json {TINY}")).output().expect("it runs");
    let report = report(&output);
    assert!(output.status.success() && report["complete"] == true, "{report:#}");
    let cases = report["cases"].as_array().expect("there are cases");
    for scenario in SCENARIOS {
        let mut of = cases.iter().filter(|case| case["scenario"] == scenario).peekable();
        assert!(of.peek().is_some(), "{scenario} is missing");
        for case in of {
            assert!(case["operations"].as_u64() > Some(0) && case["complete"] == true, "{case:#}");
            for figure in ["missed", "closed", "relists", "slow_missed", "slow_closed", "events_by_mistake"] {
                assert!(case["figures"].get(figure).is_none_or(|count| count == 0.0), "{figure} in {case:#}");
            }
        }
    }
    let list = cases.iter().find(|case| case["scenario"] == "list").expect("a list");
    assert!(list["floor"]["cpu_us_each"].as_f64() > Some(0.0), "the floor of the same run is there: {list:#}");
    let paged = cases.iter().find(|case| case["case"] == "paged").expect("a list by pages");
    assert_eq!(list["figures"]["mb_each"], paged["figures"]["mb_each"]);

    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("a.json"), &output.stdout).expect("it can be written");
    let compared = Command::new(env!("CARGO_BIN_EXE_dogwatch"))
        .args(["bench", "compare", "a.json", "a.json"])
        .current_dir(folder.path())
        .output()
        .expect("it runs");
    let table = String::from_utf8_lossy(&compared.stdout).into_owned();
    // The last column is the ratio.
    let ratios: Vec<f64> = table.lines().filter_map(|line| line.split_whitespace().last()?.parse().ok()).collect();
    let alike = |ratio: &f64| (ratio - 1.0).abs() < 0.005;
    assert!(compared.status.success() && ratios.len() > 20 && ratios.iter().all(alike), "{table}");
    let picture = std::fs::read_to_string(file("bench-compare.svg")).expect("it was drawn");
    assert!(picture.starts_with("<svg") && picture.contains("store 64 at once"));
}

#[test]
fn watches_share_connections_over_http2() {
    let words =
        "fanout --json --http2 --watchers 6 --connections 2 --rate 50 --seconds 0.2 --label-selector bench=load";
    let output = Server::start().bench(words).output().expect("it runs");
    let report = report(&output);
    assert_eq!(report["cases"][0]["operations"], 60, "{report:#}");
    assert!(report["cases"][0]["server"]["memory_mb"].as_f64() > Some(1.0), "{report:#}");
}

#[test]
fn a_foreign_server_is_left_as_it_was() {
    let server = Server::start();
    let output = server.bench(&format!("get {TINY}")).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("CPU µs each"));
    assert!(!server.has_pods());
}

#[test]
fn what_was_measured_before_a_server_went_away_is_kept_and_marked() {
    let mut server = Server::start();
    let mut command = server.bench("create --json --objects 100000000");
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    while !server.has_pods() {
        std::thread::sleep(Duration::from_millis(20));
    }
    server.child.kill().expect("it is ours");
    let output = running.wait_with_output().expect("it ends");
    assert!(sentence(&output).contains("create: "));
    let report = report(&output);
    assert_eq!(report["complete"], false);
    assert!(report["error"].is_string());
    let case = &report["cases"][0];
    assert!(case["complete"] == false && case["operations"].as_u64() > Some(0), "{case:#}");
}

#[test]
fn a_kubeconfig_that_is_wrong_is_one_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |text: &str| {
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, text).expect("it can be written");
        bench("get --json --objects 1").arg("--kubeconfig").arg(&path).output().expect("it runs")
    };
    let missing = bench("get --kubeconfig").arg(Path::new("/nowhere/kubeconfig")).output().expect("it runs");
    assert!(sentence(&missing).contains("/nowhere/kubeconfig"));
    assert!(sentence(&run("clusters: []\n")).contains("no current-context"));
    let unreachable = "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\n\
        clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', insecure-skip-tls-verify: true}}]\n";
    let output = run(unreachable);
    assert!(sentence(&output).contains("https://127.0.0.1:1 cannot be reached"));
    assert_eq!(report(&output)["complete"], false);
}

#[test]
fn a_refusal_is_reported_in_the_words_of_the_server() {
    let server = Server::start();
    let text = std::fs::read_to_string(&server.kubeconfig).expect("it is there");
    // The same server, without a client certificate.
    let anonymous = text.split("users:").next().unwrap_or_default().to_owned()
        + "contexts:\n- name: a\n  context: {cluster: dogwatch}\ncurrent-context: a\n";
    let path = server.kubeconfig.with_file_name("anonymous");
    std::fs::write(&path, anonymous).expect("it can be written");
    let output = bench("create --json --objects 5 --kubeconfig").arg(&path).output().expect("it runs");
    let text = sentence(&output);
    assert!(text.contains("the server refused to create a namespace") && text.contains("anonymous"), "{text}");
    let report = report(&output);
    assert!(report["complete"] == false && report["cases"][0]["complete"] == false, "{report:#}");
}

#[test]
fn what_cannot_be_measured_here_is_refused() {
    let server = Server::start();
    let restart = server.bench("restart").output().expect("it runs");
    assert!(sentence(&restart).contains("leave out --kubeconfig"));
    let shared = bench("fanout --watchers 4 --connections 2").output().expect("it runs");
    assert!(sentence(&shared).contains("a connection of its own"));
    let gone =
        bench("get --objects 1 --pid 4294967295 --kubeconfig").arg(&server.kubeconfig).output().expect("it runs");
    assert!(sentence(&gone).contains("no process 4294967295"));
    let nonsense = bench("compare /nowhere/a.json /nowhere/b.json").output().expect("it runs");
    assert!(sentence(&nonsense).contains("/nowhere/a.json"));
}
