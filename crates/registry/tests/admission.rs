//! Admission over a memory store: limits, quotas, classes, accounts and pod security.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use machinery::Status;
use machinery::json::{Value, json};
use machinery::media::{MediaType, PatchType};
use machinery::options::{CreateOptions, DeleteOptions, GetOptions, PatchOptions};
use registry::{Body, Context, Form, PatchBody, Registry, Settings, Target, View, WriteRequest};
use store::Retention;
use store::memory::MemoryStore;

struct World {
    registry: Arc<Registry>,
}

impl World {
    async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    async fn with(settings: Settings) -> Self {
        let store = Arc::new(MemoryStore::new(Retention::default()));
        World { registry: Registry::start(store, settings).await.unwrap() }
    }

    /// `group:plural/namespace/name/subresource`, without the namespace for kinds that have none.
    fn target(&self, path: &str) -> Target {
        let parts: Vec<&str> = path.split('/').collect();
        let kinds = self.registry.kinds();
        let (group, plural) = parts[0].split_once(':').unwrap_or(("", parts[0]));
        let kind = Arc::clone(kinds.get(group, "v1", plural).expect("a served kind"));
        let at = |i: usize| parts.get(i).map(|part| (*part).to_owned());
        let (namespace, name, subresource) = if kind.namespaced { (at(1), at(2), at(3)) } else { (None, at(1), at(2)) };
        Target { kind, namespace, name, subresource }
    }

    async fn create(&self, path: &str, object: Value) -> Result<Value, Status> {
        self.create_warned(path, object).await.0
    }

    async fn create_warned(&self, path: &str, mut object: Value) -> (Result<Value, Status>, Vec<String>) {
        let target = self.target(path);
        object["kind"] = json!(target.kind.gvk.kind);
        object["apiVersion"] = json!(target.kind.group_version().to_string());
        let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
        let ctx = Context::default();
        let created = self
            .registry
            .create(WriteRequest { target: &target, options: &CreateOptions::default(), ctx: &ctx }, &body)
            .await;
        (created.map(|outcome| shown(&outcome.view)), ctx.warnings.take())
    }

    async fn merge(&self, path: &str, patch: Value) -> Result<Value, Status> {
        let body = PatchBody { bytes: Bytes::from(patch.to_string()), kind: PatchType::Merge };
        let patched = self
            .registry
            .patch(
                WriteRequest {
                    target: &self.target(path),
                    options: &PatchOptions::default(),
                    ctx: &Context::default(),
                },
                &body,
            )
            .await;
        patched.map(|outcome| shown(&outcome.view))
    }

    async fn delete(&self, path: &str) {
        let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        self.registry
            .delete(WriteRequest { target: &self.target(path), options: &options, ctx: &Context::default() })
            .await
            .unwrap();
    }

    async fn get(&self, path: &str) -> Value {
        shown(&self.registry.get(&self.target(path), &GetOptions::default()).await.unwrap())
    }

    /// A quota whose figures are known.
    async fn quota(&self, hard: Value) {
        let used: machinery::json::Map =
            hard.as_object().unwrap().keys().map(|name| (name.clone(), json!("0"))).collect();
        self.create("resourcequotas/default", json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}))
            .await
            .unwrap();
        self.merge("resourcequotas/default/q/status", json!({"status": {"hard": hard, "used": used}})).await.unwrap();
    }

    async fn used(&self) -> Value {
        self.get("resourcequotas/default/q").await["status"]["used"].clone()
    }
}

fn shown(view: &View) -> Value {
    let segments = view.render(&Form::default(), machinery::Clock::system().now()).unwrap();
    serde_json::from_slice(&segments.concat()).unwrap()
}

fn pod(name: &str, resources: Value) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": resources});
    json!({"metadata": {"name": name}, "spec": {"containers": [container]}})
}

#[tokio::test]
async fn pl_28_a_quota_is_taken_and_given_back() {
    let world = World::new().await;
    world.quota(json!({"pods": "1", "requests.cpu": "1"})).await;
    let asking = |cpu: &str| json!({"requests": {"cpu": cpu}});
    world.create("pods/default", pod("a", asking("500m"))).await.unwrap();
    assert_eq!(world.used().await, json!({"pods": "1", "requests.cpu": "500m"}));
    let refused = world.create("pods/default", pod("b", asking("100m"))).await.unwrap_err();
    assert_eq!(refused.code, 403);
    assert!(refused.message.contains("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"));
    // A create that is refused for its name takes no quota.
    world.merge("resourcequotas/default/q/status", json!({"status": {"hard": {"pods": "5"}}})).await.unwrap();
    assert_eq!(world.create("pods/default", pod("a", asking("100m"))).await.unwrap_err().code, 409);
    assert_eq!(world.used().await, json!({"pods": "1", "requests.cpu": "500m"}));
    world.delete("pods/default/a").await;
    assert_eq!(world.used().await, json!({"pods": "0", "requests.cpu": "0"}));
}

#[tokio::test]
async fn a_pod_that_has_ended_makes_room() {
    let world = World::new().await;
    world.quota(json!({"pods": "1"})).await;
    world.create("pods/default", pod("a", json!({}))).await.unwrap();
    world.merge("pods/default/a/status", json!({"status": {"phase": "Succeeded"}})).await.unwrap();
    assert_eq!(world.used().await, json!({"pods": "0"}));
    world.create("pods/default", pod("b", json!({}))).await.unwrap();
    world.delete("pods/default/a").await;
    assert_eq!(world.used().await, json!({"pods": "1"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_place_is_taken_once() {
    let world = Arc::new(World::new().await);
    world.quota(json!({"count/configmaps": "90"})).await;
    let tasks: Vec<_> = (0..200)
        .map(|i| {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                let object = json!({"metadata": {"name": format!("c{i}")}});
                world.create("configmaps/default", object).await.is_ok()
            })
        })
        .collect();
    let mut made = 0;
    for task in tasks {
        made += usize::from(task.await.unwrap());
    }
    assert_eq!(made, 90);
    assert_eq!(world.used().await, json!({"count/configmaps": "90"}));
}

#[tokio::test]
async fn a_service_takes_its_ports_on_update() {
    let world = World::new().await;
    world.quota(json!({"services.nodeports": "1"})).await;
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]}});
    world.create("services/default", service).await.unwrap();
    let refused = world.merge("services/default/s", json!({"spec": {"type": "NodePort"}})).await.unwrap_err();
    assert!(
        refused.message.contains("requested: services.nodeports=2, used: services.nodeports=0"),
        "{}",
        refused.message
    );
    world.merge("services/default/s", json!({"spec": {"type": "NodePort", "ports": [{"port": 1}]}})).await.unwrap();
    assert_eq!(world.used().await, json!({"services.nodeports": "1"}));
    world.merge("services/default/s", json!({"spec": {"type": "ClusterIP"}})).await.unwrap();
    assert_eq!(world.used().await, json!({"services.nodeports": "0"}));
}

#[tokio::test]
async fn a_new_quota_is_counted() {
    let world = World::new().await;
    world.create("configmaps/default", json!({"metadata": {"name": "there"}})).await.unwrap();
    let counting = tokio::spawn(registry::reserve::quota::recount::keep_counts(Arc::clone(&world.registry)));
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "1", "pods": "2"}}});
    world.create("resourcequotas/default", quota).await.unwrap();
    let counted = async {
        while world.used().await.is_null() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), counted).await.unwrap();
    assert_eq!(world.used().await, json!({"configmaps": "1", "pods": "0"}));
    assert_eq!(world.create("configmaps/default", json!({"metadata": {"name": "more"}})).await.unwrap_err().code, 403);
    counting.abort();
}

#[tokio::test]
async fn pl_2_limit_ranges_fill_and_refuse() {
    let world = World::new().await;
    let limits =
        json!([{"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}}]);
    world.create("limitranges/default", json!({"metadata": {"name": "l"}, "spec": {"limits": limits}})).await.unwrap();
    let made = world.create("pods/default", pod("a", json!({}))).await.unwrap();
    assert_eq!(made["spec"]["containers"][0]["resources"], json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}));
    assert_eq!(made["status"]["qosClass"], "Burstable");
    assert!(made["spec"].get("initContainers").is_none());
    let refused = world.create("pods/default", pod("b", json!({"limits": {"cpu": "2"}}))).await.unwrap_err();
    assert_eq!(refused.message, "pods \"b\" is forbidden: maximum cpu usage per Container is 1, but limit is 2");
}

#[tokio::test]
async fn pl_5_a_namespace_says_what_its_pods_may_do() {
    let world = World::new().await;
    let labels =
        |level: &str| json!({"metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/enforce": level}}});
    let refused = world.create("namespaces", labels("x")).await.unwrap_err();
    assert_eq!(refused.code, 422, "{}", refused.message);
    world.create("namespaces", labels("restricted")).await.unwrap();
    let refused = world.create("pods/strict", pod("a", json!({}))).await.unwrap_err();
    assert!(refused.message.starts_with("pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": allow"));
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("", json!({}))["spec"]});
    let deployment =
        json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let (made, warnings) = world.create_warned("apps:deployments/strict", deployment).await;
    made.unwrap();
    assert!(warnings[0].starts_with("would violate PodSecurity \"restricted:latest\": allow"), "{warnings:?}");
}

#[tokio::test]
async fn ps_8_evaluations_exemptions_and_errors_are_counted() {
    let metrics = registry::admission::pod_security::metrics::PodSecurityMetrics::default();
    let world = World::with(Settings { pod_security_metrics: metrics.clone(), ..Settings::default() }).await;
    let namespace = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    let strict = json!({
        "pod-security.kubernetes.io/enforce": "baseline",
        "pod-security.kubernetes.io/warn": "restricted",
        "pod-security.kubernetes.io/warn-version": "v1.30",
        "pod-security.kubernetes.io/audit": "restricted",
        "pod-security.kubernetes.io/audit-version": "v1.99",
    });
    world.create("namespaces", namespace("strict", strict)).await.unwrap();
    world.create("pods/default", pod("open", json!({}))).await.unwrap();
    world.create("pods/strict", pod("fine", json!({}))).await.unwrap();
    let mut wrong = pod("wrong", json!({}));
    wrong["spec"]["hostPID"] = json!(true);
    world.create("pods/strict", wrong).await.unwrap_err();
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("", json!({}))["spec"]});
    let deployment =
        json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    world.create("apps:deployments/strict", deployment).await.unwrap();
    let mut all = prometheus_client::registry::Registry::default();
    metrics.register(&mut all);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &all).unwrap();
    let count = |decision: &str, standard: (&str, &str), mode: &str, resource: &str| {
        let labels = format!(
            "{{decision=\"{decision}\",policy_level=\"{}\",policy_version=\"{}\",mode=\"{mode}\",request_operation=\"create\",\
             resource=\"{resource}\",subresource=\"\"}} ",
            standard.0, standard.1
        );
        let found =
            text.lines().find_map(|line| line.strip_prefix("pod_security_evaluations_total")?.strip_prefix(&*labels));
        found.map_or(0, |number| number.parse::<u64>().unwrap())
    };
    assert_eq!(count("allow", ("privileged", "latest"), "enforce", "pod"), 1, "{text}");
    assert_eq!(count("allow", ("baseline", "latest"), "enforce", "pod"), 1, "{text}");
    assert_eq!(count("deny", ("baseline", "latest"), "enforce", "pod"), 1, "{text}");
    assert_eq!(count("deny", ("restricted", "v1.30"), "warn", "pod"), 1, "no warning of what is refused: {text}");
    assert_eq!(count("deny", ("restricted", "v1.30"), "warn", "controller"), 1, "{text}");
    assert_eq!(count("deny", ("restricted", "future"), "audit", "pod"), 2, "{text}");
}

#[tokio::test]
async fn pl_8_17_claims_and_ingresses_get_the_default_class() {
    let world = World::new().await;
    let annotated = |mark: &str| json!({"name": "usual", "annotations": {mark: "true"}});
    let class = json!({"metadata": annotated("storageclass.kubernetes.io/is-default-class"), "provisioner": "p"});
    world.create("storage.k8s.io:storageclasses", class).await.unwrap();
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let made = world.create("persistentvolumeclaims/default", claim).await.unwrap();
    assert_eq!(made["spec"]["storageClassName"], "usual");
    let class =
        json!({"metadata": annotated("ingressclass.kubernetes.io/is-default-class"), "spec": {"controller": "a.b/c"}});
    world.create("networking.k8s.io:ingressclasses", class).await.unwrap();
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let ingress = json!({"metadata": {"name": "i"}, "spec": {"defaultBackend": backend}});
    let made = world.create("networking.k8s.io:ingresses/default", ingress).await.unwrap();
    assert_eq!(made["spec"]["ingressClassName"], "usual");
}

async fn with_accounts() -> World {
    World::with(Settings { service_accounts: true, ..Settings::default() }).await
}

#[tokio::test]
async fn pr_1_a_pod_without_its_account_is_refused() {
    let world = with_accounts().await;
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "serviceAccountName": "robot"});
    let refused = world.create("pods/default", json!({"metadata": {"name": "p"}, "spec": spec})).await.unwrap_err();
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.message,
        "pods \"p\" is forbidden: error looking up service account default/robot: serviceaccount \"robot\" not found"
    );
    let generated = world.create("pods/default", json!({"metadata": {"generateName": "g-"}, "spec": spec})).await;
    assert!(generated.unwrap_err().message.starts_with("pods \"g-\" is forbidden: error looking up"));
}

#[tokio::test]
async fn pr_1_the_default_account_is_waited_for() {
    let world = Arc::new(with_accounts().await);
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let create = {
        let world = Arc::clone(&world);
        tokio::spawn(
            async move { world.create("pods/default", json!({"metadata": {"name": "p"}, "spec": spec})).await },
        )
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.create("serviceaccounts/default", json!({"metadata": {"name": "default"}})).await.unwrap();
    assert_eq!(create.await.unwrap().unwrap()["spec"]["serviceAccountName"], "default");
}

#[tokio::test]
async fn pr_2_a_pod_gets_the_token_of_its_account() {
    let world = with_accounts().await;
    let account = json!({"metadata": {"name": "robot"}, "imagePullSecrets": [{"name": "registry"}]});
    world.create("serviceaccounts/default", account).await.unwrap();
    let spec = json!({"serviceAccountName": "robot", "initContainers": [{"name": "i", "image": "i"}],
        "containers": [{"name": "c", "image": "i"}, {"name": "own", "image": "i", "volumeMounts":
            [{"name": "mine", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]}],
        "volumes": [{"name": "mine", "emptyDir": {}}]});
    let pod = world.create("pods/default", json!({"metadata": {"name": "p"}, "spec": spec})).await.unwrap();
    let volume = &pod["spec"]["volumes"][1];
    let name = volume["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-") && name.len() == "kube-api-access-".len() + 5, "{name}");
    let sources = &volume["projected"]["sources"];
    assert_eq!(sources[0]["serviceAccountToken"], json!({"expirationSeconds": 3607, "path": "token"}));
    assert_eq!(sources[1]["configMap"]["name"], "kube-root-ca.crt");
    assert_eq!(sources[2]["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"], "metadata.namespace");
    for container in [&pod["spec"]["containers"][0], &pod["spec"]["initContainers"][0]] {
        assert_eq!(container["volumeMounts"][0]["name"].as_str(), Some(name));
        assert_eq!(container["volumeMounts"][0]["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
        assert_eq!(container["volumeMounts"][0]["readOnly"], true);
    }
    assert_eq!(pod["spec"]["containers"][1]["volumeMounts"].as_array().unwrap().len(), 1, "its own is there");
    assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "registry"}]));
    assert_eq!(pod["spec"]["serviceAccount"], "robot");
}

#[tokio::test]
async fn pr_2_who_wants_no_token_gets_none() {
    let world = with_accounts().await;
    let account = json!({"metadata": {"name": "default"}, "automountServiceAccountToken": false});
    world.create("serviceaccounts/default", account).await.unwrap();
    let spec = |automount: Value| json!({"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": automount});
    for (name, automount, expected) in [("a", Value::Null, 0), ("b", json!(true), 1), ("c", json!(false), 0)] {
        let pod = json!({"metadata": {"name": name}, "spec": spec(automount)});
        let pod = world.create("pods/default", pod).await.unwrap();
        assert_eq!(pod["spec"]["volumes"].as_array().map_or(0, Vec::len), expected, "{name}");
    }
}

#[tokio::test]
async fn pr_3_pr_4_pr_5_pr_6_pl_4_7_what_new_pods_and_nodes_get() {
    let world = World::new().await;
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let pod = world
        .create(
            "pods/default",
            json!({"metadata": {"name": "p"}, "spec": spec,
        "status": {"phase": "Running"}}),
        )
        .await
        .unwrap();
    let tolerations: Vec<String> =
        pod["spec"]["tolerations"].as_array().unwrap().iter().map(Value::to_string).collect();
    assert_eq!(
        tolerations,
        ["not-ready", "unreachable"].map(|key| format!(
            r#"{{"key":"node.kubernetes.io/{key}","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}"#
        ))
    );
    assert_eq!(
        (&pod["spec"]["priority"], &pod["spec"]["preemptionPolicy"]),
        (&json!(0), &json!("PreemptLowerPriority"))
    );
    assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}), "PR-5");
    assert_eq!(pod["metadata"]["generation"], 1);
    let gated = json!({"metadata": {"name": "gated"}, "spec":
        {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": "g"}]}});
    let gated = world.create("pods/default", gated).await.unwrap();
    let condition = &gated["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"], &condition["reason"]),
        (&json!("PodScheduled"), &json!("False"), &json!("SchedulingGated"))
    );
    assert_eq!(gated["status"]["phase"], "Pending");
    // What a pod states itself stays.
    let own = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
        "tolerationSeconds": 5}]);
    let patient = json!({"metadata": {"name": "own"}, "spec":
        {"containers": [{"name": "c", "image": "i"}], "tolerations": own, "preemptionPolicy": "PreemptLowerPriority"}});
    let patient = world.create("pods/default", patient).await.unwrap();
    let tolerations = patient["spec"]["tolerations"].as_array().unwrap();
    let tolerated: Vec<(&Value, &Value)> = tolerations.iter().map(|t| (&t["key"], &t["tolerationSeconds"])).collect();
    let (not_ready, unreachable) = (json!("node.kubernetes.io/not-ready"), json!("node.kubernetes.io/unreachable"));
    assert_eq!(tolerated, [(&not_ready, &json!(5)), (&unreachable, &json!(300))], "PR-3: only what is absent");
    let node = world.create("nodes", json!({"metadata": {"name": "n"}})).await.unwrap();
    let taint = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    assert_eq!(node["spec"]["taints"], taint, "PR-6");
}

#[tokio::test]
async fn pl_1_nothing_is_created_in_a_namespace_that_is_not_there() {
    let world = World::new().await;
    let refused = world.create("configmaps/none", json!({"metadata": {"name": "m"}})).await.unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (404, "namespaces \"none\" not found"));
    let options = DeleteOptions::default();
    let target = world.target("namespaces/kube-system");
    let request = WriteRequest { target: &target, options: &options, ctx: &Context::default() };
    let refused = world.registry.delete(request).await.unwrap_err();
    let text = "namespaces \"kube-system\" is forbidden: this namespace may not be deleted";
    assert_eq!((refused.code, refused.message.as_str()), (403, text));
}

#[tokio::test]
async fn pl_6_a_pod_has_the_priority_of_its_class() {
    let world = World::new().await;
    let class = |name: &str, value: i64, default: bool| json!({"metadata": {"name": name}, "value": value, "globalDefault": default});
    world.create("scheduling.k8s.io:priorityclasses", class("high", 7, false)).await.unwrap();
    world.create("scheduling.k8s.io:priorityclasses", class("usual", 3, true)).await.unwrap();
    let mut named = pod("a", json!({}));
    named["spec"]["priorityClassName"] = json!("high");
    assert_eq!(world.create("pods/default", named.clone()).await.unwrap()["spec"]["priority"], 7);
    let default = world.create("pods/default", pod("b", json!({}))).await.unwrap();
    assert_eq!((&default["spec"]["priority"], &default["spec"]["priorityClassName"]), (&json!(3), &json!("usual")));
    named["metadata"]["name"] = json!("c");
    named["spec"]["priority"] = json!(8);
    assert_eq!(world.create("pods/default", named).await.unwrap_err().code, 403);
    let kept = world.merge("pods/default/a", json!({"metadata": {"labels": {"x": "y"}}})).await.unwrap();
    assert_eq!(kept["spec"]["priority"], 7);
}

#[tokio::test]
async fn pl_9_objects_in_use_are_protected() {
    let world = World::new().await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}});
    let class = json!({"metadata": {"name": "k"}, "driverName": "d.example.com", "parameters": {"a": "b"}});
    for (path, object, finalizer) in [
        ("persistentvolumeclaims/default", claim, "kubernetes.io/pvc-protection"),
        ("persistentvolumes", volume, "kubernetes.io/pv-protection"),
        ("storage.k8s.io:volumeattributesclasses", class, "kubernetes.io/vac-protection"),
    ] {
        let created = world.create(path, object).await.unwrap();
        assert_eq!(created["metadata"]["finalizers"], json!([finalizer]), "{path}");
    }
}

#[tokio::test]
async fn pl_11_only_a_bound_claim_grows() {
    let world = World::new().await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}});
    world.create("persistentvolumeclaims/default", claim).await.unwrap();
    let grow = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let bound = json!({"status": {"phase": "Bound"}});
    world.merge("persistentvolumeclaims/default/c/status", bound).await.unwrap();
    let refused = world.merge("persistentvolumeclaims/default/c", grow("2Gi")).await.unwrap_err();
    assert!(refused.message.contains("only dynamically provisioned pvc can be resized"), "{}", refused.message);
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "p", "allowVolumeExpansion": true});
    world.create("storage.k8s.io:storageclasses", class).await.unwrap();
    world.merge("persistentvolumeclaims/default/c", grow("2Gi")).await.unwrap();
}

#[tokio::test]
async fn pl_12_a_runtime_class_gives_its_overhead() {
    let world = World::new().await;
    let class = json!({"metadata": {"name": "r"}, "handler": "h", "overhead": {"podFixed": {"cpu": "100m"}}});
    world.create("node.k8s.io:runtimeclasses", class).await.unwrap();
    let mut named = pod("a", json!({}));
    named["spec"]["runtimeClassName"] = json!("r");
    let created = world.create("pods/default", named.clone()).await.unwrap();
    assert_eq!(created["spec"]["overhead"], json!({"cpu": "100m"}));
    named["metadata"] = json!({"generateName": "b-"});
    named["spec"]["runtimeClassName"] = json!("none");
    let refused = world.create("pods/default", named).await.unwrap_err();
    assert!(refused.message.starts_with("pods \"b-\" is forbidden: "), "{}", refused.message);
}

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}}})
}

#[tokio::test]
async fn pl_19_a_pod_has_the_topology_of_its_node() {
    let world = World::new().await;
    world.create("nodes", node("n")).await.unwrap();
    let mut bound = pod("a", json!({}));
    bound["spec"]["nodeName"] = json!("n");
    bound["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": "other", "x": "y"});
    let created = world.create("pods/default", bound).await.unwrap();
    let labels = json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "x": "y"});
    assert_eq!(created["metadata"]["labels"], labels);
    let created = world.create("pods/default", pod("b", json!({}))).await.unwrap();
    assert!(created["metadata"].get("labels").is_none());
    let target = world.target("pods/default/b/binding");
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "b"}, "target": {"kind": "Node", "name": "n"}});
    let body = Body { bytes: Bytes::from(binding.to_string()), media: MediaType::Json };
    let request = WriteRequest { target: &target, options: &CreateOptions::default(), ctx: &Context::default() };
    world.registry.bind(request, &body).await.unwrap();
    assert_eq!(world.get("pods/default/b").await["metadata"]["labels"]["topology.kubernetes.io/zone"], "z");
}

#[tokio::test]
async fn pl_21_23_a_node_must_be_able_to_resize_a_pod() {
    let world = World::new().await;
    let mut bound = pod("a", json!({"requests": {"cpu": "1", "memory": "1Mi"}}));
    bound["spec"]["nodeName"] = json!("n");
    world.create("pods/default", bound).await.unwrap();
    let resize = |cpu: &str| {
        let resources = json!({"requests": {"cpu": cpu, "memory": "1Mi"}});
        json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
    };
    let refused = world.merge("pods/default/a/resize", resize("2")).await.unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (403, "pods \"a\" is forbidden: node \"n\" not found"));
    world.create("nodes", node("n")).await.unwrap();
    world.merge("nodes/n/status", json!({"status": {"allocatable": {"cpu": "1500m", "memory": "1Gi"}}})).await.unwrap();
    let refused = world.merge("pods/default/a/resize", resize("2")).await.unwrap_err();
    let text = "pods \"a\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 2000, allocatable: 1500";
    assert_eq!(refused.message, text);
    assert_eq!(refused.details.unwrap().causes[0].reason, "NodeCapacity");
    world.merge("pods/default/a/resize", resize("1200m")).await.unwrap();
}

/// Creates a pod with annotations that are kept; returns them.
async fn annotated(
    world: &World,
    namespace: &str,
    object: Value,
) -> (Result<(), Status>, std::collections::BTreeMap<String, String>) {
    let target = world.target(&format!("pods/{namespace}"));
    let mut object = object;
    object["kind"] = json!("Pod");
    object["apiVersion"] = json!("v1");
    let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
    let ctx = Context { annotations: registry::Annotations::recording(), ..Context::default() };
    let request = WriteRequest { target: &target, options: &CreateOptions::default(), ctx: &ctx };
    let created = world.registry.create(request, &body).await.map(|_| ());
    assert!(created.is_ok() || ctx.warnings.take().is_empty(), "PS-7: a refusal has no warnings");
    (created, ctx.annotations.get())
}

#[tokio::test]
async fn ps_1_2_7_levels_are_noted_for_the_audit_log() {
    let world = World::new().await;
    let (_, open) = annotated(&world, "default", pod("a", json!({}))).await;
    assert_eq!(open["pod-security.kubernetes.io/enforce-policy"], "privileged:latest");
    let labels =
        json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/audit": "restricted"});
    world.create("namespaces", json!({"metadata": {"name": "strict", "labels": labels}})).await.unwrap();
    let mut privileged = pod("b", json!({}));
    privileged["spec"]["hostPID"] = json!(true);
    let (refused, noted) = annotated(&world, "strict", privileged).await;
    assert_eq!(refused.unwrap_err().code, 403);
    assert_eq!(noted["pod-security.kubernetes.io/enforce-policy"], "baseline:latest");
    let violations = &noted["pod-security.kubernetes.io/audit-violations"];
    assert!(violations.starts_with("would violate PodSecurity \"restricted:latest\": host namespaces"), "{violations}");
}

#[tokio::test]
async fn ps_6_some_subresources_are_not_evaluated() {
    let world = World::new().await;
    let mut privileged = pod("a", json!({}));
    privileged["spec"]["hostPID"] = json!(true);
    world.create("pods/default", privileged).await.unwrap();
    let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    world.merge("namespaces/default", labels).await.unwrap();
    world.merge("pods/default/a/status", json!({"status": {"reason": "x"}})).await.unwrap();
    world.merge("pods/default/a", json!({"metadata": {"labels": {"x": "y"}}})).await.unwrap();
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}});
    let refused = world.merge("pods/default/a/ephemeralcontainers", debug).await.unwrap_err();
    assert!(refused.message.contains("violates PodSecurity \"baseline:latest\""), "{}", refused.message);
}

#[tokio::test]
async fn ad_54_limits_quotas_and_classes_act_at_once() {
    let world = World::new().await;
    for round in 0..50 {
        let name = format!("l{round}");
        let limit =
            json!({"metadata": {"name": name}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}});
        world.create("limitranges/default", limit).await.unwrap();
        let large = pod("p", json!({"limits": {"cpu": "2"}}));
        assert_eq!(world.create("pods/default", large.clone()).await.unwrap_err().code, 403, "round {round}");
        world.delete(&format!("limitranges/default/{name}")).await;
        world.create("pods/default", large).await.unwrap();
        world.delete("pods/default/p").await;
    }
}
