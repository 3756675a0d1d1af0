//! The cost of a CustomResourceDefinition: processor time until it is established, live heap before and after its first
//! object, and a write of one of its objects.
//!
//! ```text
//! cargo run --profile counts -p dogwatch-registry --example definitions [count]          generated definitions
//! cargo run --profile counts -p dogwatch-registry --example definitions FILE…            those of manifests
//! ```
//!
//! Times are of the process and not of the clock, so that a busy machine does not change them. The history of recent changes
//! is left out of the heap: it is bounded for all definitions together and not a cost of one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use machinery::Status;
use machinery::json::{self, Value, json};
use machinery::media::{MediaType, PatchType};
use machinery::options::{CreateOptions, PatchOptions};
use peak_alloc::PeakAlloc;
use registry::{Body, Context, PatchBody, Registry, Settings, Target, WriteRequest};
use rustix::time::{ClockId, clock_gettime};
use store::embedded::{EmbeddedOptions, EmbeddedStore};

#[path = "../../bench/src/definition.rs"]
mod definition;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Objects written to measure the cost of one write.
const WRITES: usize = 2000;

/// The definition that `dogwatch bench crds` measures with.
fn generated(number: usize) -> Value {
    json::from_slice(definition::body(&group(number)).as_bytes()).expect("it is JSON")
}

fn group(number: usize) -> String {
    format!("g{number}.example.com")
}

/// The definitions of manifests, in the order of the files.
fn shipped(files: &[String]) -> Vec<Value> {
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
        for part in text.split("\n---") {
            let Ok(read) = machinery::yaml::read(part.as_bytes()) else { continue };
            let value = read.value;
            if value["kind"] == "CustomResourceDefinition" {
                found.push(value);
            }
        }
    }
    found
}

/// The target of new objects of a definition, once it is served.
fn place(registry: &Registry, definition: &Value) -> Option<Target> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let versions = spec["versions"].as_array()?;
    let version = versions.iter().find(|version| version["storage"] == true)?;
    target(registry, &text(&spec["group"]), &text(&version["name"]), &text(&spec["names"]["plural"]))
}

fn target(registry: &Registry, group: &str, version: &str, plural: &str) -> Option<Target> {
    let kind = Arc::clone(registry.kinds().get(group, version, plural)?);
    let namespace = kind.namespaced.then(|| "default".to_owned());
    Some(Target { kind, namespace, name: None, subresource: None })
}

async fn create(registry: &Registry, target: &Target, object: String) -> Result<(), Status> {
    let body = Body { bytes: Bytes::from(object), media: MediaType::Json };
    registry
        .create(WriteRequest { target, options: &CreateOptions::default(), ctx: &Context::default() }, &body)
        .await
        .map(|_| ())
}

async fn patch(registry: &Registry, target: &Target, name: &str, patch: String) -> Result<(), Status> {
    let target = Target { name: Some(name.to_owned()), ..target.clone() };
    let body = PatchBody { bytes: Bytes::from(patch), kind: PatchType::Merge };
    registry
        .patch(WriteRequest { target: &target, options: &PatchOptions::default(), ctx: &Context::default() }, &body)
        .await
        .map(|_| ())
}

fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or_default(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

fn heap() -> f64 {
    HEAP.current_usage() as f64 / 1e3
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn show(what: &str, unit: &str, values: &mut [f64]) {
    let (middle, largest) = (median(values), values.last().copied().unwrap_or_default());
    println!("{what:<32}{middle:>9.1} {unit} median, {largest:.1} {unit} at most");
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let count = words.first().map_or(Some(100), |word| word.parse::<usize>().ok());
    let wanted = count.map_or_else(|| shipped(&words), |count| (0..count).map(generated).collect());
    let folder = tempfile::tempdir().expect("a folder");
    let store = EmbeddedStore::open(EmbeddedOptions { tail_bytes_max: 0, ..EmbeddedOptions::new(folder.path()) });
    let mut settings = Settings::default();
    settings.cache.history.bytes_max = 0;
    let registry = Registry::start(Arc::new(store.expect("a store")), settings).await.expect("a registry on it");
    let definitions =
        target(&registry, "apiextensions.k8s.io", "v1", "customresourcedefinitions").expect("it is built in");
    create(&registry, &definitions, generated(wanted.len()).to_string())
        .await
        .expect("the first one, which fills what is shared");

    let (mut size, mut time, mut unused) = (Vec::new(), Vec::new(), Vec::new());
    for definition in &wanted {
        size.push(definition.to_string().len() as f64 / 1e3);
        let before = (cpu(), heap());
        if let Err(refused) = create(&registry, &definitions, definition.to_string()).await {
            println!("refused: {refused}");
            continue;
        }
        while place(&registry, definition).is_none() {
            // Polling without a pause would be counted.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        time.push(milliseconds(cpu().saturating_sub(before.0)));
        // The write that accepted its names is not over when others see it, and still holds the definition's states.
        tokio::time::sleep(Duration::from_millis(5)).await;
        unused.push(heap() - before.1);
    }
    println!("{} definitions", time.len());
    show("text", "kB", &mut size);
    show("until served, CPU", "ms", &mut time);
    show("heap, unused", "kB", &mut unused);

    let (mut first, mut used) = (Vec::new(), Vec::new());
    for definition in &wanted {
        let Some(things) = place(&registry, definition) else { continue };
        let before = (cpu(), heap());
        // An object of a shipped definition may be refused as incomplete, which compiles the schema too.
        let kind = &things.kind;
        let object = match kind.gvk.kind.as_str() {
            "Thing" => definition::object(&kind.gvk.group, "x"),
            other => json!({"apiVersion": kind.group_version().to_string(), "kind": other,
                "metadata": {"name": "x"}, "spec": {}})
            .to_string(),
        };
        let _ = create(&registry, &things, object).await;
        first.push(milliseconds(cpu().saturating_sub(before.0)));
        used.push(heap() - before.1);
    }
    show("first object, CPU", "ms", &mut first);
    show("heap, in use, in addition", "kB", &mut used);
    if count.is_some() {
        writes(&registry, &wanted[0]).await;
    }
}

/// The cost of a create and a patch of a custom resource, compared with those of a ConfigMap.
async fn writes(registry: &Registry, definition: &Value) {
    let maps = target(registry, "", "v1", "configmaps").expect("they are built in");
    let things = place(registry, definition).expect("it is served");
    for target in [&things, &maps] {
        let kind = &target.kind;
        let object = |n: usize| match kind.custom {
            true => definition::object(&kind.gvk.group, &format!("w{n}")),
            false => json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("w{n}")},
                "data": {"a": "b"}})
            .to_string(),
        };
        let before = cpu();
        for n in 0..WRITES {
            create(registry, target, object(n)).await.expect("it is valid");
        }
        let created = cpu().saturating_sub(before);
        let before = cpu();
        for n in 0..WRITES {
            let change = match kind.custom {
                true => definition::patch(n as u64),
                false => json!({"data": {"a": n.to_string()}}).to_string(),
            };
            patch(registry, target, &format!("w{}", n % 100), change).await.expect("it is valid");
        }
        let patched = cpu().saturating_sub(before);
        let each = |time: Duration| time.as_secs_f64() * 1e6 / WRITES as f64;
        println!("{:<12} create {:.1} µs, merge patch {:.1} µs", kind.gvk.kind, each(created), each(patched));
    }
}
