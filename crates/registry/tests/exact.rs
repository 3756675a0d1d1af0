//! Rows of the specification about refusals and pages, over a memory store.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use machinery::json::{Value, json};
use machinery::media::{MediaType, PatchType};
use machinery::options::{CreateOptions, DeleteOptions, ListOptions, PatchOptions, UpdateOptions};
use machinery::query::Query;
use machinery::{Clock, Status};
use registry::{Body, Context, Encoding, Form, PatchBody, Registry, Settings, Shape, Target, View, WriteRequest};
use store::Retention;
use store::memory::MemoryStore;

const START: i64 = 1_800_000_000;

struct World {
    registry: Arc<Registry>,
    /// Seconds since the start.
    time: Arc<AtomicI64>,
}

impl World {
    async fn new() -> Self {
        let time = Arc::new(AtomicI64::new(0));
        let source = Arc::clone(&time);
        let now = move || {
            jiff::Timestamp::from_second(START + source.load(Ordering::SeqCst)).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        };
        let settings = Settings { clock: Clock::from_fn(now), ..Settings::default() };
        let store = Arc::new(MemoryStore::new(Retention::default()));
        World { registry: Registry::start(store, settings).await.unwrap(), time }
    }

    fn target(&self, group: &str, plural: &str, name: Option<&str>) -> Target {
        self.target_in(group, "v1", plural, name)
    }

    fn target_in(&self, group: &str, version: &str, plural: &str, name: Option<&str>) -> Target {
        let kind = Arc::clone(self.registry.kinds().get(group, version, plural).expect("a served kind"));
        let namespace = kind.namespaced.then(|| "default".to_owned());
        Target { kind, namespace, name: name.map(str::to_owned), subresource: None }
    }

    async fn create(&self, target: &Target, object: Value) -> Result<Value, Status> {
        let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
        let request = WriteRequest { target, options: &CreateOptions::default(), ctx: &Context::default() };
        self.registry.create(request, &body).await.map(|outcome| shown(&outcome.view))
    }

    async fn list(&self, target: &Target, query: &str) -> Result<Value, Status> {
        let options = ListOptions::from_query(&Query::parse(query))?;
        let list = self.registry.list(target, &options).await?;
        let segments = list.render(&Form::default(), Clock::system().now())?;
        Ok(serde_json::from_slice(&segments.concat()).unwrap())
    }
}

fn shown(view: &View) -> Value {
    let segments = view.render(&Form::default(), Clock::system().now()).unwrap();
    serde_json::from_slice(&segments.concat()).unwrap()
}

fn causes(status: &Status) -> Vec<String> {
    let causes = status.to_value()["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |cause: &Value| {
        format!("{}: {}", cause["field"].as_str().unwrap_or_default(), cause["message"].as_str().unwrap_or_default())
    };
    causes.iter().map(text).collect()
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

#[tokio::test]
async fn list_watch_15_23_a_list_cannot_be_continued_after_five_minutes() {
    let world = World::new().await;
    let maps = world.target("", "configmaps", None);
    for name in ["a", "b", "c"] {
        world.create(&maps, config_map(name)).await.unwrap();
    }
    let first = world.list(&maps, "limit=1").await.unwrap();
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    world.time.store(200, Ordering::SeqCst);
    let second = world.list(&maps, &format!("limit=1&continue={token}")).await.unwrap();
    assert_eq!(second["items"][0]["metadata"]["name"], "b");
    let token = second["metadata"]["continue"].as_str().unwrap().to_owned();
    world.time.store(301, Ordering::SeqCst);
    let refused = world.list(&maps, &format!("limit=1&continue={token}")).await.unwrap_err().to_value();
    assert_eq!(
        (&refused["code"], &refused["reason"]),
        (&json!(410), &json!("Expired")),
        "the age is that of the first page"
    );
    let fresh = refused["metadata"]["continue"].as_str().unwrap().to_owned();
    let rest = world.list(&maps, &format!("limit=5&continue={fresh}")).await.unwrap();
    assert_eq!(rest["items"][0]["metadata"]["name"], "c");
}

#[tokio::test]
async fn verbs_14_33_services_are_refused_for_their_families_before_anything_else() {
    let world = World::new().await;
    let services = world.target("", "services", None);
    for (spec, wanted) in [
        (
            json!({"ipFamilyPolicy": "RequireDualStack", "type": "Nope"}),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
        ),
        (
            json!({"ipFamilies": ["IPv6"]}),
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
        ),
        (
            json!({"clusterIP": "fd00::1"}),
            "spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this cluster",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": -1}]}),
            "spec.ports[0].nodePort: Invalid value: -1: provided port is not in the valid range. The range of valid ports is 30000-32767",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 30060}, {"port": 2, "nodePort": 30060}]}),
            "spec.ports[1].nodePort: Invalid value: 30060: provided port is already allocated",
        ),
    ] {
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec});
        assert_eq!(causes(&world.create(&services, object).await.unwrap_err()), [wanted]);
    }
    let spec = json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 30060}]});
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec});
    assert!(world.create(&services, object).await.is_ok(), "a refused service keeps no port");
}

#[tokio::test]
async fn verbs_14_34_a_put_for_another_uid_names_the_key() {
    let world = World::new().await;
    world.create(&world.target("", "configmaps", None), config_map("a")).await.unwrap();
    let mut object = config_map("a");
    object["metadata"]["uid"] = "other".into();
    let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
    let target = world.target("", "configmaps", Some("a"));
    let request = WriteRequest { target: &target, options: &UpdateOptions::default(), ctx: &Context::default() };
    let refused = world.registry.update(request, &body).await.map(|outcome| outcome.code).unwrap_err();
    let start = "Operation cannot be fulfilled on configmaps \"a\": StorageError: invalid object, Code: 4, \
        Key: /registry/configmaps/default/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: other";
    assert!(refused.message.starts_with(start), "{}", refused.message);
}

#[tokio::test]
async fn verbs_14_35_options_of_a_deletion_may_be_of_any_group() {
    let body = br#"{"apiVersion": "nope/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 3}"#;
    let options = DeleteOptions::from_json(body).unwrap();
    assert_eq!(options.grace_period_seconds, Some(3));
    assert!(DeleteOptions::from_json(br#"{"kind": "Pod", "apiVersion": "v1"}"#).is_err());
}

#[tokio::test]
async fn verbs_14_36_old_autoscalers_keep_metrics_in_annotations() {
    let world = World::new().await;
    let spec = json!({
        "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        "behavior": {"scaleDown": {"selectPolicy": "Disabled"}},
        "metrics": [{"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}}],
    });
    let object = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "x"}, "spec": spec});
    world.create(&world.target_in("autoscaling", "v2", "horizontalpodautoscalers", None), object).await.unwrap();
    let old = world.target("autoscaling", "horizontalpodautoscalers", Some("x"));
    let view = world.registry.get(&old, &machinery::options::GetOptions::default()).await.unwrap();
    let annotations = &shown(&view)["metadata"]["annotations"];
    assert_eq!(
        annotations["autoscaling.alpha.kubernetes.io/metrics"],
        r#"[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"1"}}]"#
    );
    let behavior = annotations["autoscaling.alpha.kubernetes.io/behavior"].as_str().unwrap();
    assert!(
        behavior.starts_with(r#"{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":["#),
        "{behavior}"
    );
    let patch = PatchBody { bytes: Bytes::from_static(br#"{"spec":{"maxReplicas":5}}"#), kind: PatchType::Merge };
    let request = WriteRequest { target: &old, options: &PatchOptions::default(), ctx: &Context::default() };
    world.registry.patch(request, &patch).await.unwrap();
    let new = world.target_in("autoscaling", "v2", "horizontalpodautoscalers", Some("x"));
    let kept = shown(&world.registry.get(&new, &machinery::options::GetOptions::default()).await.unwrap());
    assert_eq!(kept["spec"]["metrics"][0]["pods"]["metric"]["name"], "m", "a write of the old version keeps them");
    assert_eq!(kept["spec"]["behavior"]["scaleDown"]["selectPolicy"], "Disabled");
}

#[tokio::test]
async fn verbs_14_37_discovery_of_the_core_group_has_a_protobuf_form() {
    for value in [
        json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": []}),
    ] {
        let form = Form { encoding: Encoding::Protobuf, shape: Shape::Plain };
        let view = View::Made { kind: None, value: value.clone() };
        let bytes = view.render(&form, Clock::system().now()).unwrap().concat();
        assert!(bytes.starts_with(b"k8s\0"));
        let kind = value["kind"].as_str().unwrap().as_bytes();
        assert!(bytes.windows(kind.len()).any(|window| window == kind));
    }
}
