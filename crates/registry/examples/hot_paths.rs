//! The hot paths of the registry, each run on its own many times: `hot_paths <path> <times>`, or all of them with CPU times
//! when nothing is named.
//!
//! `cargo xtask counts` runs it under callgrind and compares the instructions of a path with those on record. Everything
//! happens in one thread on a memory store, so that the same work is the same number of instructions.

use std::sync::Arc;
use std::task::{Context as TaskContext, Waker};

use bytes::Bytes;
use jiff::Timestamp;
use machinery::media::{MediaType, PatchType};
use machinery::options::{CreateOptions, GetOptions, ListOptions, PatchOptions};
use machinery::query::Query;
use registry::{Body, Context, Form, PatchBody, Registry, Settings, Target, WatchView, WriteRequest};
use store::Retention;
use store::memory::MemoryStore;

const PATHS: [&str; 9] = [
    "get",
    "list-1000",
    "create",
    "create-again",
    "create-policy",
    "create-again-policy",
    "merge-patch",
    "strategic-patch",
    "fan-out-100",
];

/// A policy of three simple rules that every pod meets, as `dogwatch bench admission` has it, and its binding.
const POLICY: [(&str, &str); 2] = [
    (
        "validatingadmissionpolicies",
        r#"{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"three"},
        "spec":{"matchConstraints":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"default"}},
        "resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]},
        "validations":[{"expression":"object.spec.containers.all(c, c.image.startsWith('nginx:'))"},
        {"expression":"has(object.metadata.labels) && 'app' in object.metadata.labels"},
        {"expression":"object.spec.terminationGracePeriodSeconds <= 60"}]}}"#,
    ),
    (
        "validatingadmissionpolicybindings",
        r#"{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding",
        "metadata":{"name":"three"},"spec":{"policyName":"three","validationActions":["Deny"]}}"#,
    ),
];

struct World {
    registry: Arc<Registry>,
    ctx: Context,
}

impl World {
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::new(Retention::default()));
        let registry = Registry::start(store, Settings::default()).await.expect("a memory store opens");
        World { registry, ctx: Context { user_agent: "hot_paths/1".to_owned(), ..Context::default() } }
    }

    fn pods(&self, name: Option<usize>) -> Target {
        let kind = Arc::clone(self.registry.kinds().get("", "v1", "pods").expect("pods are served"));
        Target {
            kind,
            namespace: Some("default".to_owned()),
            name: name.map(|number| format!("pod-{number:06}")),
            subresource: None,
        }
    }

    async fn create(&self, pod: Bytes) {
        self.create_at(&self.pods(None), pod).await;
    }

    async fn create_at(&self, target: &Target, object: Bytes) {
        let body = Body { bytes: object, media: MediaType::Json };
        let request = WriteRequest { target, options: &CreateOptions::default(), ctx: &self.ctx };
        let created = self.registry.create(request, &body).await;
        created
            .and_then(|outcome| outcome.view.render(&Form::default(), Timestamp::UNIX_EPOCH))
            .expect("an object is made");
    }

    async fn add_policy(&self) {
        for (plural, object) in POLICY {
            let kinds = self.registry.kinds();
            let kind = kinds.get("admissionregistration.k8s.io", "v1", plural).expect("policies are served");
            let target = Target { kind: Arc::clone(kind), namespace: None, name: None, subresource: None };
            self.create_at(&target, Bytes::from_static(object.as_bytes())).await;
        }
    }

    async fn patch(&self, number: usize, kind: PatchType, turn: usize) {
        let bytes = Bytes::from(format!(r#"{{"metadata":{{"labels":{{"turn":"{turn}"}}}}}}"#));
        let body = PatchBody { bytes, kind };
        let patched = self
            .registry
            .patch(
                WriteRequest { target: &self.pods(Some(number)), options: &PatchOptions::default(), ctx: &self.ctx },
                &body,
            )
            .await;
        patched
            .and_then(|outcome| outcome.view.render(&Form::default(), Timestamp::UNIX_EPOCH))
            .expect("a pod changes");
    }

    async fn watch(&self) -> WatchView {
        let options =
            ListOptions::from_query(&Query::parse("watch=true&resourceVersion=0")).expect("a watch is asked for");
        self.registry.watch(&self.pods(None), &options).await.expect("a watch opens")
    }
}

/// Takes every event that waits for a watcher.
fn drain(watcher: &mut WatchView) {
    let mut cx = TaskContext::from_waker(Waker::noop());
    while let std::task::Poll::Ready(Some(frames)) = watcher.poll_frames(&mut cx, 1 << 16) {
        std::hint::black_box(frames);
    }
}

/// A pod of 3.5 KB, most of it environment. Pods on one node have the same spec.
fn pod(number: usize, node: usize) -> Bytes {
    let variable = |at: usize| {
        format!(r#"{{"name":"VARIABLE_{at:02}","value":"some value of the variable {at:02}, padded out"}}"#)
    };
    let env: Vec<String> = (0..30).map(variable).collect();
    let (env, ports) = (env.join(","), r#"[{"containerPort":80}]"#);
    let resources = r#"{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{"cpu":"200m","memory":"128Mi"}}"#;
    let container =
        format!(r#"{{"name":"main","image":"nginx:1.25","ports":{ports},"resources":{resources},"env":[{env}]}}"#);
    let labels = r#"{"app":"web","tier":"front"}"#;
    let metadata = format!(r#"{{"name":"pod-{number:06}","namespace":"default","labels":{labels}}}"#);
    Bytes::from(format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{metadata},"spec":{{"nodeName":"node-{node:06}","containers":[{container}]}}}}"#
    ))
}

/// The measured part: callgrind counts only below this function.
#[inline(never)]
fn measured(runtime: &tokio::runtime::Runtime, work: impl Future<Output = ()>) {
    runtime.block_on(work);
}

fn run(runtime: &tokio::runtime::Runtime, path: &str, times: usize) {
    let world = runtime.block_on(World::new());
    let prepare = |count: usize| {
        runtime.block_on(async {
            for number in 0..count {
                world.create(pod(number, 1)).await;
            }
        });
    };
    match path {
        "get" => {
            prepare(100);
            measured(runtime, async {
                for turn in 0..times {
                    let target = world.pods(Some(turn % 100));
                    let view = world.registry.get(&target, &GetOptions::default()).await.expect("a pod is there");
                    let shown = view.render(&Form::default(), Timestamp::UNIX_EPOCH).expect("it is shown");
                    std::hint::black_box(shown);
                }
            });
        }
        "list-1000" => {
            prepare(1000);
            measured(runtime, async {
                for _ in 0..times {
                    let list = world.registry.list(&world.pods(None), &ListOptions::default()).await;
                    let shown = list.and_then(|list| list.render(&Form::default(), Timestamp::UNIX_EPOCH));
                    std::hint::black_box(shown.expect("pods are listed"));
                }
            });
        }
        "create" | "create-again" | "create-policy" | "create-again-policy" => {
            prepare(100);
            if path.ends_with("-policy") {
                runtime.block_on(world.add_policy());
            }
            let node = |turn| if path.contains("again") { 1 } else { 100 + turn };
            let pods: Vec<Bytes> = (0..times).map(|turn| pod(100 + turn, node(turn))).collect();
            measured(runtime, async {
                for pod in pods {
                    world.create(pod).await;
                }
            });
        }
        "merge-patch" | "strategic-patch" => {
            prepare(100);
            let kind = if path == "merge-patch" { PatchType::Merge } else { PatchType::Strategic };
            measured(runtime, async {
                for turn in 0..times {
                    world.patch(turn % 100, kind, turn).await;
                }
            });
        }
        "fan-out-100" => {
            prepare(100);
            let mut watchers = runtime.block_on(async {
                let mut watchers = Vec::new();
                for _ in 0..100 {
                    watchers.push(world.watch().await);
                }
                // The initial events of each.
                watchers.iter_mut().for_each(drain);
                watchers
            });
            // The write has a record of its own; only the cost of the watchers is counted here.
            for turn in 0..times {
                runtime.block_on(world.patch(turn % 100, PatchType::Merge, turn));
                measured(runtime, async { watchers.iter_mut().for_each(drain) });
            }
        }
        other => panic!("no path is called {other}: {PATHS:?}"),
    }
}

fn cpu_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_default()
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let mut args = std::env::args().skip(1);
    if let (Some(path), Some(times)) = (args.next(), args.next()) {
        run(&runtime, &path, times.parse().expect("a number of times"));
        return;
    }
    for path in PATHS {
        let times = if path == "get" { 100_000 } else { 3000 };
        let (few, many) = (times / 10, times);
        let began = cpu_ns();
        run(&runtime, path, few);
        let between = cpu_ns();
        run(&runtime, path, many);
        let took = (cpu_ns() - between) - (between - began);
        println!("{path:16} {:8.1} µs", took / 1e3 / (many - few) as f64);
    }
}
