//! The cost of a CustomResourceDefinition: until it is established, until it has an object, and for writes of its objects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::requests::measure;
use crate::definition;
use crate::frames::Lines;
use crate::load_driver::RequestFactory;
use crate::progress::Progress;
use crate::report::Case;
use crate::sample::Latencies;
use crate::stage::{Meter, Stage};
use crate::trouble::Trouble;
use crate::wire::{Connection, Request, Stream};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Time after which a definition counts as failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of objects that are patched in turn.
const PATCHED: u64 = 500;

pub(super) async fn run(stage: &mut Stage) -> Result<(), Trouble> {
    stage.renew();
    let installed = install(stage).await;
    let measured = match installed {
        Ok(()) => writes(stage).await,
        Err(trouble) => Err(trouble),
    };
    leave(stage).await;
    // Its kinds would affect the next measurement.
    stage.renew();
    measured
}

/// The API group of a definition by its number.
fn group(namespace: &str, number: u64) -> String {
    format!("g{number}.{namespace}.example.com")
}

fn things(namespace: &str, number: u64) -> String {
    format!("/apis/{}/v1/namespaces/{namespace}/things", group(namespace, number))
}

/// Creates all definitions one after the other, then an object of each.
async fn install(stage: &mut Stage) -> Result<(), Trouble> {
    let (count, protocol) = (stage.sizes().definitions.max(1), stage.options.protocol);
    let server = stage.server().await?;
    let (target, processes, namespace) = (server.target.clone(), server.processes.clone(), server.namespace.clone());
    let mut connection = Connection::open(&target, protocol).await?;
    // The first one initialises what all share.
    let mut definitions = Definitions::watch(Connection::open(&target, protocol).await?).await?;
    establish(&mut connection, &mut definitions, &group(&namespace, count)).await?;
    create(&mut connection, &namespace, count, "first").await?;

    let size = definition::body(&group(&namespace, 0)).len();
    let new = |name: &str| Case::new("crds", name, "definition").with("definitions", count).with("bytes", size);
    let memory = stage.server().await?.quiet_memory().await;
    let (mut case, latencies, mut until) = (new("established"), Latencies::new(), Vec::new());
    let progress = Progress::new("definitions", 2 * count);
    let meter = Meter::start(&processes);
    for number in 0..count {
        let took = establish(&mut connection, &mut definitions, &group(&namespace, number)).await?;
        latencies.record(took);
        until.push(took);
        progress.add(1);
    }
    meter.end(&mut case, count);
    case.latency = latencies.summary();
    let unused = stage.server().await?.quiet_memory().await;
    let each = |from: Option<u64>, to: Option<u64>| Some(to?.saturating_sub(from?) as f64 / 1e3 / count as f64);
    if let Some(kilobytes) = each(memory, unused) {
        case.figure("memory_each_kb", kilobytes);
    }
    stage.record(case);

    let (mut case, latencies) = (new("first object"), Latencies::new());
    let meter = Meter::start(&processes);
    for number in 0..count {
        let begin = Instant::now();
        create(&mut connection, &namespace, number, "first").await?;
        if let Some(until) = until.get(usize::try_from(number).unwrap_or_default()) {
            latencies.record(*until + begin.elapsed());
        }
        progress.add(1);
    }
    meter.end(&mut case, count);
    // Measured from the request that creates the definition.
    case.latency = latencies.summary();
    let used = stage.server().await?.quiet_memory().await;
    if let Some(kilobytes) = each(memory, used) {
        case.figure("memory_each_kb", kilobytes);
    }
    stage.record(case);
    Ok(())
}

/// Creates a definition and waits until a watch shows that it is established; returns the time that took.
async fn establish(
    connection: &mut Connection,
    definitions: &mut Definitions,
    group: &str,
) -> Result<Duration, Trouble> {
    let begin = Instant::now();
    connection.must("create a definition", &Request::post(CRDS, definition::body(group))).await?;
    let name = format!("things.{group}");
    match tokio::time::timeout(PATIENCE, definitions.established(&name)).await {
        Ok(seen) => seen.map(|()| begin.elapsed()),
        Err(_) => Err(Trouble::impossible(format!("{name} was not established within {PATIENCE:?}"))),
    }
}

/// A watch of all definitions: polling would measure the pauses too.
struct Definitions {
    stream: Stream,
    lines: Lines,
}

impl Definitions {
    async fn watch(connection: Connection) -> Result<Self, Trouble> {
        let stream = connection.watch(&format!("{CRDS}?watch=true&timeoutSeconds=3000")).await?;
        Ok(Definitions { stream, lines: Lines::default() })
    }

    async fn established(&mut self, name: &str) -> Result<(), Trouble> {
        let mut seen = false;
        while !seen {
            let Definitions { stream, lines } = self;
            if !stream.read(|piece| lines.feed(piece, |line| seen |= is_established(line, name))).await? {
                return Err(Trouble::gone("the watch of definitions ended"));
            }
        }
        Ok(())
    }
}

/// The fields of an event that show whether its definition is established.
#[derive(Deserialize)]
struct Event {
    object: Definition,
}

#[derive(Deserialize)]
struct Definition {
    metadata: Named,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Default, Deserialize)]
struct Status {
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

fn is_established(event: &[u8], name: &str) -> bool {
    let Ok(Event { object }) = serde_json::from_slice(event) else { return false };
    let conditions = object.status.conditions.unwrap_or_default();
    object.metadata.name == name && conditions.iter().any(|one| one.kind == "Established" && one.status == "True")
}

async fn create(connection: &mut Connection, namespace: &str, number: u64, name: &str) -> Result<(), Trouble> {
    let body = definition::object(&group(namespace, number), name);
    connection.must("create a custom resource", &Request::post(things(namespace, number), body)).await.map(|_| ())
}

/// Creates and merge patches of objects of the first kind.
async fn writes(stage: &mut Stage) -> Result<(), Trouble> {
    let requests = stage.sizes().requests.max(1);
    let namespace = stage.server().await?.namespace.clone();
    let (group, path) = (group(&namespace, 0), things(&namespace, 0));
    let at = path.clone();
    let make: RequestFactory =
        Arc::new(move |number, _| Request::post(at.clone(), definition::object(&group, &format!("x{number}"))));
    let case = measure(stage, Case::new("crds", "create", "request"), 0, requests, make).await?;
    stage.record(case);
    let among = requests.min(PATCHED);
    let make: RequestFactory = Arc::new(move |number, _| {
        // Each round changes the number of the previous round.
        Request::merge_patch(format!("{path}/x{}", number % among), definition::patch(number / among + number))
    });
    let case = measure(stage, Case::new("crds", "merge patch", "request"), 0, requests, make).await?;
    stage.record(case);
    Ok(())
}

/// Removes the definitions, and with them their objects, from a server that is not our own.
async fn leave(stage: &mut Stage) {
    let (count, protocol) = (stage.sizes().definitions.max(1), stage.options.protocol);
    let Ok(server) = stage.server().await else { return };
    if server.own.is_some() {
        return;
    }
    let namespace = server.namespace.clone();
    if let Ok(mut connection) = Connection::open(&server.target, protocol).await {
        for number in 0..=count {
            // Those that were never created are not found.
            let _ = connection.ask(&Request::delete(format!("{CRDS}/things.{}", group(&namespace, number)))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_definition_its_object_and_its_patch_are_json() {
        let made: Value = serde_json::from_str(&definition::body("a.example.com")).expect("JSON");
        assert_eq!(made["metadata"]["name"], "things.a.example.com");
        let schema = &made["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let groups = schema["properties"]["spec"]["properties"].as_object().expect("properties");
        let fields = groups.values().filter_map(|group| group["properties"].as_object()).map(serde_json::Map::len);
        assert_eq!(fields.sum::<usize>(), 300);
        let object: Value = serde_json::from_str(&definition::object("a.example.com", "x")).expect("JSON");
        assert_eq!(object["apiVersion"], "a.example.com/v1");
        let patch: Value = serde_json::from_str(&definition::patch(1003)).expect("JSON");
        assert_eq!(patch["spec"]["group0"]["field1"], 3);
    }

    #[test]
    fn an_established_definition_is_recognised() {
        let seen = |name: &str, conditions: &str| {
            let event = format!(
                r#"{{"type":"MODIFIED","object":{{"metadata":{{"name":"{name}"}},"status":{{"conditions":{conditions}}}}}}}"#
            );
            is_established(event.as_bytes(), "a")
        };
        let established = r#"[{"type":"NamesAccepted","status":"True"},{"type":"Established","status":"True"}]"#;
        assert!(seen("a", established) && !seen("b", established));
        assert!(!seen("a", "null") && !seen("a", r#"[{"type":"Established","status":"False"}]"#));
        assert!(!is_established(br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#, "a"));
    }
}
