//! What a CustomResourceDefinition costs: time until it is established, memory, and a write of one of its objects.
//!
//! `cargo run --release -p dogwatch-registry --example definitions [count]`

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use machinery::json::{Value, json};
use machinery::media::MediaType;
use machinery::options::CreateOptions;
use registry::{Body, Context, Registry, Settings, Target};
use store::Retention;
use store::memory::MemoryStore;

/// A schema of about 30 KB: 150 fields with descriptions, bounds, patterns and defaults.
fn definition(group: &str) -> Value {
    let field = |n: usize| {
        let description =
            format!("Field number {n}, described as fields of operators are, in a sentence or two of text.");
        match n % 4 {
            0 => {
                json!({"type": "string", "description": description, "maxLength": 253, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"})
            }
            1 => json!({"type": "integer", "description": description, "minimum": 0, "default": n}),
            2 => json!({"type": "array", "description": description, "maxItems": 16, "items": {"type": "string"}}),
            _ => json!({"type": "object", "description": description, "additionalProperties": {"type": "string"}}),
        }
    };
    let fields: Value = (0..150).map(|n| (format!("field{n}"), field(n))).collect();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                          "schema": {"openAPIV3Schema": schema}}]}})
}

fn target(registry: &Registry, group: &str, plural: &str, namespace: Option<&str>) -> Option<Target> {
    let kind = Arc::clone(registry.kinds().get(group, "v1", plural)?);
    Some(Target { kind, namespace: namespace.map(str::to_owned), name: None, subresource: None })
}

async fn create(registry: &Registry, target: &Target, object: &Value) {
    let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
    let made = registry.create(target, body, &CreateOptions::default(), &Context::default()).await;
    made.unwrap_or_else(|refused| panic!("{refused}"));
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[tokio::main]
async fn main() {
    let count: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200);
    let store = Arc::new(MemoryStore::new(Retention::default()));
    let registry = Registry::start(store, Settings::default()).await.expect("a registry on memory");
    let definitions = target(&registry, "apiextensions.k8s.io", "customresourcedefinitions", None).expect("built in");
    create(&registry, &definitions, &definition("warm.example.com")).await;
    let size = definition("warm.example.com").to_string().len();
    let before = resident();
    let mut times = Vec::new();
    for n in 0..count {
        let group = format!("g{n}.example.com");
        let wanted = definition(&group);
        let begin = Instant::now();
        create(&registry, &definitions, &wanted).await;
        while target(&registry, &group, "things", None).is_none() {
            tokio::task::yield_now().await;
        }
        times.push(begin.elapsed());
    }
    let unused = resident().saturating_sub(before);
    println!("definitions       {count} of {} KB", size / 1024);
    println!("until served      {:?} (median)", median(times));
    println!("memory, unused    {} KB each", unused / count);
    let object = |group: &str, name: usize| {
        json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": format!("x{name}")},
               "spec": {"field0": "abc", "field2": ["a", "b"], "field3": {"a": "b"}}})
    };
    for n in 0..count {
        let group = format!("g{n}.example.com");
        let things = target(&registry, &group, "things", Some("default")).expect("served");
        create(&registry, &things, &object(&group, 0)).await;
    }
    println!("memory, in use    {} KB each", resident().saturating_sub(before) / count);
    let things = target(&registry, "g0.example.com", "things", Some("default")).expect("served");
    let maps = target(&registry, "", "configmaps", Some("default")).expect("built in");
    let (mut custom, mut plain) = (Vec::new(), Vec::new());
    for n in 1..2000 {
        let begin = Instant::now();
        create(&registry, &things, &object("g0.example.com", n)).await;
        custom.push(begin.elapsed());
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("x{n}")}, "data": {"a": "b"}});
        let begin = Instant::now();
        create(&registry, &maps, &map).await;
        plain.push(begin.elapsed());
    }
    println!("write             {:?}, of a ConfigMap {:?} (median)", median(custom), median(plain));
}
