//! No write and no list costs more than time proportional to what the client sends.
//!
//! Each request is made with an input and with one eight times as large. Proportional work takes eight times as long, quadratic
//! work sixty-four times; the bound is between the two, in CPU time of the thread that does everything, and the fastest of
//! several runs counts, so that a busy machine does not matter.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use machinery::Status;
use machinery::json::{Value, json};
use machinery::media::MediaType;
use machinery::options::{CreateOptions, ListOptions};
use machinery::query::Query;
use registry::{Body, Context, Registry, Settings, Target, WriteRequest};
use store::Retention;
use store::memory::MemoryStore;
use tokio::runtime::Runtime;

const SMALL: usize = 300;
const FACTOR: usize = 8;
const RATIO_MAX: u32 = 24;
const RUNS: usize = 5;

struct World {
    runtime: Runtime,
    registry: Arc<Registry>,
}

impl World {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let store = Arc::new(MemoryStore::new(Retention::default()));
        let registry = runtime.block_on(Registry::start(store, Settings::default())).expect("the registry starts");
        World { runtime, registry }
    }

    fn target(&self, plural: &str) -> Target {
        let kind = Arc::clone(self.registry.kinds().get("", "v1", plural).expect("a served kind"));
        Target { kind, namespace: Some("default".to_owned()), name: None, subresource: None }
    }

    /// Creates an object; only for show if it is not one of the preparations.
    fn create(&self, plural: &str, mut object: Value, dry_run: bool) -> (Result<(), Status>, Vec<String>) {
        let target = self.target(plural);
        object["kind"] = json!(target.kind.gvk.kind);
        object["apiVersion"] = json!("v1");
        let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
        let (options, ctx) = (CreateOptions { dry_run, ..CreateOptions::default() }, Context::default());
        let request = WriteRequest { target: &target, options: &options, ctx: &ctx };
        let created = self.runtime.block_on(self.registry.create(request, &body));
        (created.map(|_| ()), ctx.warnings.take())
    }

    fn prepare(&self, plural: &str, object: Value) {
        self.create(plural, object, false).0.expect("it is created");
    }

    /// Number of objects that a list selects.
    fn list(&self, query: &str) -> usize {
        let options = ListOptions::from_query(&Query::parse(query)).expect("a query");
        let listed = self.runtime.block_on(self.registry.list(&self.target("configmaps"), &options));
        listed.expect("a list").items.len()
    }
}

/// The CPU time that the thread has used.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Holds a request of a growing size to proportional time.
fn hold<I>(input: impl Fn(usize) -> I, request: impl Fn(&I)) {
    let fastest = |size: usize| {
        let input = input(size);
        let run = || {
            let before = cpu_time();
            request(&input);
            cpu_time() - before
        };
        (0..RUNS).map(|_| run()).min().unwrap_or_default()
    };
    let (small, large) = (fastest(SMALL), fastest(SMALL * FACTOR));
    assert!(large <= small * RATIO_MAX, "{small:?} for {SMALL}, {large:?} for {}", SMALL * FACTOR);
}

fn numbered(count: usize, each: impl Fn(usize) -> Value) -> Value {
    (0..count).map(each).collect::<Vec<Value>>().into()
}

#[test]
fn owner_references_of_which_each_is_there_twice() {
    let world = World::start();
    let owners = |count: usize| {
        let owner = |at: usize| json!({"apiVersion": "v1", "kind": "Node", "name": format!("n{}", at / 2), "uid": format!("u{}", at / 2)});
        json!({"metadata": {"name": "a", "ownerReferences": numbered(count, owner)}})
    };
    let (created, warnings) = world.create("configmaps", owners(4), true);
    created.expect("duplicates are dropped");
    assert!(warnings[0].ends_with("duplicate UID(s) observed: u0, u1"), "{warnings:?}");
    hold(owners, |object| world.create("configmaps", object.clone(), true).0.expect("it is accepted"));
}

#[test]
fn owner_references_of_one_uid_with_different_names() {
    let world = World::start();
    let owners = |count: usize| {
        let owner = |at: usize| json!({"apiVersion": "v1", "kind": "Node", "name": format!("n{at}"), "uid": "u"});
        json!({"metadata": {"name": "a", "ownerReferences": numbered(count, owner)}})
    };
    hold(owners, |object| world.create("configmaps", object.clone(), true).0.expect("it is accepted"));
}

#[test]
fn warnings_for_each_item() {
    hold(
        |count| (0..count).map(|at| format!("item {at} is odd")).collect::<Vec<_>>(),
        |texts| {
            let ctx = Context::default();
            texts.iter().chain(texts).for_each(|text| ctx.warnings.push(text.as_str()));
            assert_eq!(ctx.warnings.take().len(), texts.len());
        },
    );
}

#[test]
fn node_ports_of_a_service() {
    let world = World::start();
    let ports = |count: usize| {
        let protocols = ["TCP", "UDP"];
        let port = |at: usize| {
            let number = 30_000 + at / 2;
            json!({"name": format!("p{at}"), "port": 1 + at / 2, "protocol": protocols[at % 2], "nodePort": number})
        };
        json!({"metadata": {"name": "a"}, "spec": {"type": "NodePort", "ports": numbered(count, port)}})
    };
    hold(ports, |service| world.create("services", service.clone(), true).0.expect("it is accepted"));
}

#[test]
fn containers_under_a_quota_and_a_limit_range() {
    let world = World::start();
    let limits = json!([
        {"type": "Container", "default": {"cpu": "1"}, "max": {"memory": "1Gi"}},
        {"type": "Pod", "max": {"cpu": "1M"}},
    ]);
    world.prepare("limitranges", json!({"metadata": {"name": "l"}, "spec": {"limits": limits}}));
    let hard = json!({"requests.cpu": "1M", "requests.example.com/r0": "1M", "pods": "10"});
    world.prepare("resourcequotas", json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}));
    let counting = world.runtime.spawn(registry::reserve::quota::recount::keep_counts(Arc::clone(&world.registry)));
    world.runtime.block_on(async {
        while world
            .registry
            .cache()
            .collection("core/resourcequotas")
            .objects()
            .scan("core/resourcequotas", None, None)
            .all(|quota| !String::from_utf8_lossy(quota.encoded().whole()).contains("\"used\""))
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    counting.abort();
    // Each sidecar has a resource of its own.
    let pod = |count: usize| {
        let amounts = |at: usize| json!({"cpu": "1m", "memory": "1Mi", format!("example.com/r{at}"): "1"});
        let sidecar = |at: usize| {
            let resources = json!({"requests": amounts(at), "limits": amounts(at)});
            json!({"name": format!("c{at}"), "image": "i", "restartPolicy": "Always", "resources": resources})
        };
        let main = json!([{"name": "main", "image": "i", "resources": {"limits": {"memory": "1Mi", "cpu": "1m"}}}]);
        json!({"metadata": {"name": "a"}, "spec": {"containers": main, "initContainers": numbered(count, sidecar)}})
    };
    hold(pod, |pod| world.create("pods", pod.clone(), true).0.expect("it is accepted"));
}

#[test]
fn defaults_of_a_limit_range_do_not_multiply_without_bound() {
    let world = World::start();
    let defaults: Value = (0..400).map(|at| (format!("example.com/r{at}"), json!("1"))).collect();
    let limits = json!([{"type": "Container", "default": defaults}]);
    world.prepare("limitranges", json!({"metadata": {"name": "l"}, "spec": {"limits": limits}}));
    let pod = |count: usize| {
        let container = |at: usize| json!({"name": format!("c{at}"), "image": "i"});
        json!({"metadata": {"name": "a"}, "spec": {"containers": numbered(count, container)}})
    };
    world.create("pods", pod(10), true).0.expect("it is accepted");
    let refused = world.create("pods", pod(100), true).0.expect_err("too large");
    assert_eq!(refused.code, 413, "{refused}");
}

#[test]
fn selectors_of_a_list() {
    let world = World::start();
    let objects = 300;
    for at in 0..objects {
        let labels = json!({"a": "b", "k": format!("x{at}")});
        world.prepare("configmaps", json!({"metadata": {"name": format!("o{at}"), "labels": labels}}));
    }
    let terms = |term: fn(usize) -> String| move |count: usize| (0..count).map(term).collect::<Vec<_>>().join(",");
    let labels: [fn(usize) -> String; 3] =
        [|at| format!("!z{at}"), |at| format!("k!={at}"), |at| format!("k notin ({at},y{at})")];
    for term in labels {
        hold(terms(term), |selector| assert_eq!(world.list(&format!("labelSelector={selector}")), objects));
    }
    let fields: fn(usize) -> String = |at| format!("metadata.name!=n{at}");
    hold(terms(fields), |selector| assert_eq!(world.list(&format!("fieldSelector={selector}")), objects));
}
