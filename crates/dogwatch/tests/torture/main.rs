//! A cluster that is killed again and again in the middle of everything, and then compared with what was asked of it.
//!
//! A user rolls a deployment and a stateful set, runs jobs, creates and deletes namespaces and definitions, and repeats each
//! request until it is acknowledged; meanwhile the process gets SIGKILL and starts on the same directory. Afterwards every object
//! must be as the specs want it, and nothing else may be there.
//!
//! `DOGWATCH_TORTURE_CLUSTER_KILLS=500` makes it longer, `DOGWATCH_TORTURE_CLUSTER_SEED=1` kills at other moments; `cargo xtask torture
//! --cluster --kills N [--seed S]` runs it.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const DEPLOYMENT_PODS: usize = 20;
const STATEFUL_PODS: usize = 3;
const JOB_PODS: usize = 3;
const KILLS: usize = 3;

/// Longest time in which nothing comes closer to what it should be, and until everything is so: a busy machine is slow.
const STANDSTILL_MAX: Duration = Duration::from_secs(180);
const SETTLING_MAX: Duration = Duration::from_secs(1200);
/// Longest time until a request is acknowledged, kills included.
const REQUEST_MAX: Duration = Duration::from_secs(120);

/// A server process with controllers and nodes.
struct Process {
    child: Child,
}

impl Process {
    /// Starts a server and waits until it is ready.
    fn start(data: &Path, listen: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dogwatch"));
        command.args(["up", "--log", "error", "--listen", listen, "--data-dir"]).arg(data);
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

/// Repeats a request until it is acknowledged. One that was made and not acknowledged is refused the second time.
async fn insist<T, E: Debug>(what: &str, made: impl Fn(&E) -> bool, request: impl AsyncFn() -> Result<T, E>) {
    let deadline = Instant::now() + REQUEST_MAX;
    loop {
        match request().await {
            Ok(_) => return,
            Err(error) if made(&error) => return,
            Err(error) => assert!(Instant::now() < deadline, "{what}: {error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

fn has_code(code: u16) -> impl Fn(&kube::Error) -> bool {
    move |error| matches!(error, kube::Error::Api(status) if status.code == code)
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).expect("an object of its kind");
    insist(&object.name_any(), has_code(409), async || api.create(&PostParams::default(), &object).await).await;
}

async fn delete<K: Clone + Debug + DeserializeOwned>(api: &Api<K>, name: &str) {
    insist(name, has_code(404), async || api.delete(name, &DeleteParams::default()).await).await;
}

fn template(app: &str, image: usize) -> Value {
    let spec =
        json!({"containers": [{"name": "c", "image": format!("i:{image}")}], "terminationGracePeriodSeconds": 2});
    json!({"metadata": {"labels": {"app": app}}, "spec": spec})
}

fn workload(name: &str, replicas: usize) -> Value {
    let spec = json!({
        "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name, 0),
        "serviceName": name, "podManagementPolicy": "Parallel",
    });
    json!({"metadata": {"name": name}, "spec": spec})
}

fn definition(round: usize) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let plural = format!("k{round}s");
    json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": plural, "singular": format!("k{round}"), "kind": format!("K{round}")},
        },
    })
}

/// The user's requests.
struct User {
    client: Client,
}

impl User {
    fn api<K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn global<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    async fn begin(&self) {
        let mut deployment = workload("web", DEPLOYMENT_PODS);
        for member in ["serviceName", "podManagementPolicy"] {
            deployment["spec"].as_object_mut().expect("a spec").remove(member);
        }
        create::<Deployment>(&self.api(), deployment).await;
        create::<StatefulSet>(&self.api(), workload("db", STATEFUL_PODS)).await;
    }

    /// One round: everything changes, and what the round before created is deleted.
    async fn round(&self, round: usize) {
        let acknowledged =
            json!({"metadata": {"name": format!("round-{round}")}, "data": {"round": round.to_string()}});
        create::<ConfigMap>(&self.api(), acknowledged).await;
        let patch = |app: &str| Patch::Strategic(json!({"spec": {"template": template(app, round)}}));
        let (web, db) = (patch("web"), patch("db"));
        let (deployments, sets) = (self.api::<Deployment>(), self.api::<StatefulSet>());
        insist("web", |_| false, async || deployments.patch("web", &PatchParams::default(), &web).await).await;
        insist("db", |_| false, async || sets.patch("db", &PatchParams::default(), &db).await).await;
        let mut ending = template("job", round);
        ending["spec"]["restartPolicy"] = json!("Never");
        let spec = json!({"completions": JOB_PODS, "parallelism": JOB_PODS, "template": ending});
        create::<Job>(&self.api(), json!({"metadata": {"name": format!("job-{round}")}, "spec": spec})).await;
        let name = format!("space-{round}");
        create::<Namespace>(&self.global(), json!({"metadata": {"name": name}})).await;
        let within: Api<Deployment> = Api::namespaced(self.client.clone(), &name);
        let mut deployment = workload("inner", 2);
        for member in ["serviceName", "podManagementPolicy"] {
            deployment["spec"].as_object_mut().expect("a spec").remove(member);
        }
        create(&within, deployment).await;
        create::<CustomResourceDefinition>(&self.global(), definition(round)).await;
        if let Some(before) = round.checked_sub(1).filter(|before| *before > 0) {
            delete::<Namespace>(&self.global(), &format!("space-{before}")).await;
            delete::<CustomResourceDefinition>(&self.global(), &format!("k{before}s.example.com")).await;
        }
    }

    /// Everything that is not as it should be after the last round.
    async fn differences(&self, rounds: usize) -> Result<Vec<String>, kube::Error> {
        let all = ListParams::default();
        let mut found = Vec::new();
        let pods = self.global::<Pod>().list(&all).await?.items;
        let sets = self.global::<ReplicaSet>().list(&all).await?.items;
        let jobs = self.global::<Job>().list(&all).await?.items;
        let stateful = self.global::<StatefulSet>().list(&all).await?.items;
        let deployments = self.global::<Deployment>().list(&all).await?.items;
        let uids = |objects: &mut dyn Iterator<Item = Option<String>>| objects.flatten().collect::<BTreeSet<String>>();
        let owners = uids(
            &mut sets
                .iter()
                .map(ResourceExt::uid)
                .chain(jobs.iter().map(ResourceExt::uid))
                .chain(stateful.iter().map(ResourceExt::uid))
                .chain(deployments.iter().map(ResourceExt::uid)),
        );
        let references = pods.iter().map(|pod| (pod.name_any(), pod.owner_references()));
        let references = references.chain(sets.iter().map(|set| (set.name_any(), set.owner_references())));
        for (name, references) in references {
            if references.is_empty() || references.iter().any(|owner| !owners.contains(&owner.uid)) {
                found.push(format!("{name} has no owner"));
            }
        }
        for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
            found.push(format!("{} is being deleted since {:?}", pod.name_any(), pod.metadata.deletion_timestamp));
        }
        let last = format!("i:{rounds}");
        let mut expect = |namespace: &str, app: &str, image: &str, phase: &str, count: usize| {
            let of_app = |pod: &&Pod| {
                let label = pod.labels().get("app").is_some_and(|label| label == app);
                label && pod.namespace().as_deref() == Some(namespace)
            };
            let right = |pod: &&Pod| {
                let now = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                let runs = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref());
                now == Some(phase) && (image.is_empty() || runs == Some(image))
            };
            let there = pods.iter().filter(of_app).count();
            let good = pods.iter().filter(of_app).filter(right).count();
            if (there, good) != (count, count) {
                found.push(format!("{there} pods of {namespace}/{app}, {good} of them right, {count} wanted"));
            }
        };
        expect("default", "web", &last, "Running", DEPLOYMENT_PODS);
        expect("default", "db", &last, "Running", STATEFUL_PODS);
        expect("default", "job", "", "Succeeded", JOB_PODS * rounds);
        expect(&format!("space-{rounds}"), "inner", "", "Running", 2);
        found.extend(deployments.iter().filter_map(deployment_difference));
        found.extend(sets.iter().filter_map(|set| replica_set_difference(set, &pods)));
        found.extend(stateful.iter().filter_map(stateful_difference));
        let complete = |job: &&Job| {
            let Some(status) = &job.status else { return false };
            status.succeeded == i32::try_from(JOB_PODS).ok() && status.completion_time.is_some()
        };
        if (jobs.len(), jobs.iter().filter(complete).count()) != (rounds, rounds) {
            found.push(format!("{} jobs, {} complete", jobs.len(), jobs.iter().filter(complete).count()));
        }
        let spaces: Vec<String> =
            self.global::<Namespace>().list(&all).await?.iter().map(ResourceExt::name_any).collect();
        let spaces: Vec<&String> = spaces.iter().filter(|name| name.starts_with("space-")).collect();
        if spaces != [&format!("space-{rounds}")] {
            found.push(format!("namespaces {spaces:?}"));
        }
        let definitions = self.global::<CustomResourceDefinition>().list(&all).await?;
        let definitions: Vec<String> = definitions.iter().map(ResourceExt::name_any).collect();
        if definitions != [format!("k{rounds}s.example.com")] {
            found.push(format!("definitions {definitions:?}"));
        }
        let kept = self.global::<ConfigMap>().list(&all).await?.items;
        for round in 1..=rounds {
            let name = format!("round-{round}");
            let is_kept = |kept: &ConfigMap| {
                let data = kept.data.as_ref().and_then(|data| data.get("round"));
                kept.name_any() == name && data.is_some_and(|data| *data == round.to_string())
            };
            if !kept.iter().any(is_kept) {
                found.push(format!("{name} was acknowledged and is not there"));
            }
        }
        let accounts = self.global::<ServiceAccount>().list(&all).await?.items;
        let placed = kept.iter().map(|kept| (kept.name_any(), kept.namespace()));
        for (name, namespace) in placed.chain(accounts.iter().map(|account| (account.name_any(), account.namespace())))
        {
            let namespace = namespace.unwrap_or_default();
            if namespace.starts_with("space-") && namespace != format!("space-{rounds}") {
                found.push(format!("{name} is left of the namespace {namespace}"));
            }
        }
        Ok(found)
    }
}

fn deployment_difference(deployment: &Deployment) -> Option<String> {
    let wanted = deployment.spec.as_ref()?.replicas;
    let status = deployment.status.clone().unwrap_or_default();
    let counts = [status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas];
    let is_right = counts.iter().all(|count| *count == wanted)
        && status.observed_generation == deployment.metadata.generation
        && status.unavailable_replicas.is_none_or(|count| count == 0);
    (!is_right).then(|| format!("deployment {}: {status:?}", deployment.name_any()))
}

/// Compares what a set wants, what it reports, and the pods that it owns.
fn replica_set_difference(set: &ReplicaSet, pods: &[Pod]) -> Option<String> {
    let uid = set.uid().unwrap_or_default();
    let owned = pods.iter().filter(|pod| pod.owner_references().iter().any(|owner| owner.uid == uid)).count();
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).and_then(|count| usize::try_from(count).ok());
    let reported = set.status.as_ref().and_then(|status| usize::try_from(status.replicas).ok());
    let is_right = wanted == Some(owned) && reported == Some(owned);
    (!is_right).then(|| format!("replica set {} wants {wanted:?}, reports {reported:?}, has {owned}", set.name_any()))
}

fn stateful_difference(set: &StatefulSet) -> Option<String> {
    let wanted = set.spec.as_ref()?.replicas;
    let status = set.status.clone().unwrap_or_default();
    let counts = [Some(status.replicas), status.ready_replicas, status.updated_replicas];
    let is_right = counts.iter().all(|count| *count == wanted) && status.current_revision == status.update_revision;
    (!is_right).then(|| format!("stateful set {}: {status:?}", set.name_any()))
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_was_killed_ends_as_its_specs_want_it() {
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let data = folder.path().to_owned();
    let mut server = Process::start(&data, "127.0.0.1:0");
    let kubeconfig = std::fs::read_to_string(data.join("kubeconfig")).expect("the server wrote it");
    let url = kubeconfig.split("https://").nth(1).expect("it has an address");
    let address = url.split(['"', '\n']).next().expect("it has an address").trim().to_owned();
    let client = client::connect::from_kubeconfig(&data.join("kubeconfig"), None).await.expect("a client");
    let user = User { client };
    user.begin().await;
    let (kills, seed) = (number("DOGWATCH_TORTURE_CLUSTER_KILLS", KILLS), number("DOGWATCH_TORTURE_CLUSTER_SEED", 0));
    let mut slowest = Duration::ZERO;
    for round in 1..=kills {
        let kill = async {
            // At another moment each time: 150 ms to 1.5 s after the first request of the round.
            let moment = (round + seed * 104_729) * 7919 % 1350;
            tokio::time::sleep(Duration::from_millis(150 + moment as u64)).await;
            drop(server);
            let began = Instant::now();
            let server = tokio::task::block_in_place(|| Process::start(&data, &address));
            (server, began.elapsed())
        };
        let ((), (started, took)) = tokio::join!(user.round(round), kill);
        server = started;
        slowest = slowest.max(took);
        eprintln!("{round} of {kills} kills, ready after {} ms", took.as_millis());
    }
    let (begun, mut moved, mut before) = (Instant::now(), Instant::now(), Vec::new());
    let mut quiet = 0;
    while quiet < 4 {
        let found = user.differences(kills).await.unwrap_or_else(|error| vec![error.to_string()]);
        quiet = if found.is_empty() { quiet + 1 } else { 0 };
        if found != before {
            moved = Instant::now();
            eprintln!("{:.0} s: {} differences", begun.elapsed().as_secs_f64(), found.len());
        }
        let is_late = moved.elapsed() > STANDSTILL_MAX || begun.elapsed() > SETTLING_MAX;
        assert!(found.is_empty() || !is_late, "after {kills} kills: {found:#?}");
        before = found;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let (settled, slowest) = (begun.elapsed().as_secs_f64(), slowest.as_secs_f64());
    eprintln!("settled {settled:.1} s after {kills} kills; the slowest start took {slowest:.1} s");
    drop(server);
}
