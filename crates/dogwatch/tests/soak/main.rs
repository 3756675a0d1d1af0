//! Ten informers follow a server that is killed and restarted three times under load. Afterwards each store equals the
//! server's list, each handler has seen the same state, and tasks and memory are back at their start values.
//!
//! `DOGWATCH_SOAK="INFORMERS OBJECTS CHANGES_PER_SECOND SECONDS"` makes it longer; `cargo xtask soak` runs it in release with
//! 10 informers, 50 000 objects and 2 000 changes a second for a minute.

#[path = "../../../client/examples/soak.rs"]
mod soak;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kube::Client;
use peak_alloc::PeakAlloc;
use soak::Load;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Memory that may remain: pools and caches of the client, which do not grow with the load.
const LEFT_BEHIND_MAX: u64 = 4 << 20;

/// A server process with its own data and address.
struct Process {
    child: Child,
}

impl Process {
    /// Starts a server and waits until it is ready.
    fn start(data: &Path, listen: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dogwatch"));
        command.args(["up", "--no-controllers", "--listen", listen, "--data-dir"]).arg(data);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary was built with this test");
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let ready = lines.map_while(Result::ok).any(|line| line.starts_with("ready in"));
        assert!(ready, "the server ended before it was ready");
        Self { child }
    }
}

/// SIGKILL.
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn load() -> Load {
    let text = std::env::var("DOGWATCH_SOAK").unwrap_or_else(|_| "10 1000 150 12".to_owned());
    let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().expect("four numbers")).collect();
    let [informers, objects, rate, seconds] = numbers[..] else { panic!("four numbers, not {text:?}") };
    Load { informers: usize::try_from(informers).expect("a small number"), objects, rate, seconds }
}

/// Connects as users of the runtime do: with a separate connection for each watch.
async fn connect(kubeconfig: &Path) -> Client {
    client::connect::from_kubeconfig(kubeconfig, None).await.expect("the server wrote it")
}

#[tokio::test(flavor = "multi_thread")]
async fn informers_lose_nothing_through_three_kills() {
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let data = folder.path().to_owned();
    let mut server = Process::start(&data, "127.0.0.1:0");
    let client = connect(&data.join("kubeconfig")).await;
    let kubeconfig = std::fs::read_to_string(data.join("kubeconfig")).expect("the server wrote it");
    let url = kubeconfig.split("https://").nth(1).expect("it has an address");
    let address = url.split(['"', '\n']).next().expect("it has an address").trim().to_owned();

    let load = load();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let kills = tokio::task::spawn(async move {
        begun.await.expect("the load begins");
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(load.seconds) / 4).await;
            drop(server);
            server = tokio::task::block_in_place(|| Process::start(&data, &address));
        }
        server
    });
    let began = move || begin.send(()).expect("the task that kills is running");
    let soaking = soak::soak(client, load, began, || MEMORY.current_usage() as u64);
    // The load waits for the server without a limit of its own.
    let both = async { tokio::join!(soaking, async { kills.await.expect("the server was started again each time") }) };
    let (toll, server) = tokio::time::timeout(Duration::from_secs(load.seconds * 10 + 300), both)
        .await
        .expect("informers and server come to an end");
    drop(server);
    let toll = toll.expect("every informer agrees with the server");
    // A watch that was reconnecting during a kill is not counted for it.
    assert!(toll.restarts >= load.informers as u64, "kills cut watches: {toll:?}");
    assert!(toll.tasks.1 <= toll.tasks.0, "tasks are left: {toll:?}");
    assert!(toll.memory.1 <= toll.memory.0 + LEFT_BEHIND_MAX, "memory is left: {toll:?}");
}
