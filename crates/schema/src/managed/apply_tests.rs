//! Tests of apply as sequences of writes to one object: the managers, the fields they own, the conflicts.

use machinery::json::{Value, json};
use machinery::{GroupVersion, GroupVersionKind};

use super::*;
use crate::decode::normalise;
use crate::facts::{Type, Types};

mod kinds;

/// One object and the writes to it.
struct Scenario {
    gvk: GroupVersionKind,
    ty: Type,
    custom: bool,
    live: Option<Value>,
    clock: u32,
}

impl Scenario {
    fn new(version: &str, kind: &str) -> Scenario {
        let version = GroupVersion::parse(version).unwrap();
        let gvk = GroupVersionKind::new(version.group, version.version, kind);
        let ty = Types::get().kind(&gvk).unwrap();
        Scenario { gvk, ty, custom: false, live: None, clock: 0 }
    }

    fn custom(schema: Value) -> Scenario {
        let gvk = GroupVersionKind::new("e.io", "v1", "Thing");
        Scenario { gvk, ty: Type::of_schema(Some(&schema)), custom: true, live: None, clock: 0 }
    }

    fn run<T>(
        &mut self,
        manager: &str,
        subresource: &str,
        act: impl FnOnce(&Subject<'_>, Option<&Value>, &Writer<'_>) -> T,
    ) -> T {
        self.clock += 1;
        let time = format!("2024-01-01T00:{:02}:{:02}Z", self.clock / 60, self.clock % 60);
        let subject = Subject { gvk: &self.gvk, ty: &self.ty, custom: self.custom, has_status: true, convert: None };
        act(&subject, self.live.as_ref(), &Writer { manager, subresource, time: &time })
    }

    fn config(&self, content: &Value) -> Value {
        let mut config = json!({"apiVersion": self.gvk.group_version().to_string(), "kind": self.gvk.kind, "metadata": {"name": "x"}});
        for (key, value) in content.as_object().unwrap() {
            if key == "metadata" {
                config["metadata"].as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
            } else {
                config[key] = value.clone();
            }
        }
        config
    }

    fn try_apply(&mut self, manager: &str, content: &Value, force: bool) -> Result<(), ApplyError> {
        self.try_apply_to(manager, "", content, force)
    }

    fn try_apply_to(
        &mut self,
        manager: &str,
        subresource: &str,
        content: &Value,
        force: bool,
    ) -> Result<(), ApplyError> {
        let config = self.config(content);
        let mut applied =
            self.run(manager, subresource, |subject, live, writer| apply(subject, live, &config, writer, force))?;
        if let Some(live) = &self.live {
            keep_times_if_unchanged(live, &mut applied);
        }
        applied["metadata"]["uid"] = json!("u");
        self.live = Some(applied);
        Ok(())
    }

    #[track_caller]
    fn apply(&mut self, manager: &str, content: Value) -> &mut Self {
        self.try_apply(manager, &content, false).unwrap();
        self
    }

    #[track_caller]
    fn force(&mut self, manager: &str, content: Value) -> &mut Self {
        self.try_apply(manager, &content, true).unwrap();
        self
    }

    /// Returns the message of the refusal.
    #[track_caller]
    fn refused(&mut self, manager: &str, content: Value) -> String {
        self.try_apply(manager, &content, false).unwrap_err().to_status().message
    }

    fn update(&mut self, manager: &str, change: impl FnOnce(&mut Value)) -> &mut Self {
        let mut new = self.live.clone().unwrap_or_else(|| self.config(&json!({})));
        change(&mut new);
        if !self.custom {
            normalise(&self.ty, &mut new, None).unwrap();
        }
        self.run(manager, "", |subject, live, writer| track_update(subject, live, &mut new, writer));
        new["metadata"]["uid"] = json!("u");
        self.live = Some(new);
        self
    }

    fn at(&self, path: &str) -> Value {
        self.live.as_ref().and_then(|live| live.pointer(path)).cloned().unwrap_or(Value::Null)
    }

    fn owns(&self, manager: &str) -> Value {
        let list = self.at("/metadata/managedFields");
        let found = list.as_array().into_iter().flatten().find(|entry| entry["manager"] == manager);
        found.map_or(Value::Null, |entry| entry["fieldsV1"].parsed().into_owned())
    }
}

fn config_map() -> Scenario {
    Scenario::new("v1", "ConfigMap")
}

fn deployment(containers: Value) -> Value {
    json!({"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers}}}})
}

#[test]
fn a_first_apply_owns_what_it_states() {
    let mut scenario = config_map();
    scenario.apply("a", json!({"data": {"k": "1"}, "metadata": {"labels": {"l": "1"}}}));
    assert_eq!(scenario.owns("a"), json!({"f:data": {"f:k": {}}, "f:metadata": {"f:labels": {"f:l": {}}}}));
    assert_eq!(scenario.at("/metadata/managedFields/0/operation"), "Apply");
    let before = scenario.live.clone();
    scenario.apply("a", json!({"data": {"k": "1"}, "metadata": {"labels": {"l": "1"}}}));
    assert_eq!(scenario.live, before, "the same again is no change, not even of the time");
}

#[test]
fn fields_no_longer_stated_are_removed() {
    let mut scenario = config_map();
    scenario.apply("a", json!({"data": {"k": "1", "l": "2"}})).apply("a", json!({"data": {"l": "2", "m": "3"}}));
    assert_eq!(scenario.at("/data"), json!({"l": "2", "m": "3"}));
    scenario.apply("a", json!({}));
    assert_eq!(scenario.at("/data"), Value::Null);
    assert_eq!(scenario.owns("a"), Value::Null);
}

#[test]
fn what_others_own_stays() {
    let mut scenario = config_map();
    scenario
        .apply("a", json!({"data": {"k": "1", "l": "2"}}))
        .apply("b", json!({"data": {"k": "1"}}))
        .apply("a", json!({"data": {"l": "2"}}));
    assert_eq!(scenario.at("/data"), json!({"k": "1", "l": "2"}));
    assert_eq!(scenario.owns("b"), json!({"f:data": {"f:k": {}}}));
    // A value that an update wrote over it is kept too.
    scenario.update("u", |object| object["data"]["l"] = json!("9"));
    assert_eq!(scenario.owns("a"), Value::Null, "the updater took the last field");
    scenario.apply("a", json!({}));
    assert_eq!(scenario.at("/data/l"), "9");
}

#[test]
fn another_value_of_anothers_field_is_a_conflict() {
    let mut scenario = config_map();
    scenario.apply("a", json!({"data": {"k": "1", "l": "1"}}));
    assert_eq!(
        scenario.refused("b", json!({"data": {"k": "2"}})),
        "Apply failed with 1 conflict: conflict with \"a\": .data.k"
    );
    assert_eq!(
        scenario.refused("b", json!({"data": {"k": "2", "l": "2"}})),
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .data.k\n- .data.l"
    );
    scenario.force("b", json!({"data": {"k": "2"}}));
    assert_eq!(scenario.at("/data"), json!({"k": "2", "l": "1"}));
    assert_eq!(scenario.owns("a"), json!({"f:data": {"f:l": {}}}));
    assert_eq!(scenario.owns("b"), json!({"f:data": {"f:k": {}}}));
    scenario.update("u", |object| object["data"]["l"] = json!("3"));
    assert_eq!(
        scenario.refused("a", json!({"data": {"l": "1"}})),
        "Apply failed with 1 conflict: conflict with \"u\" using v1: .data.l"
    );
    let status = scenario.try_apply("a", &json!({"data": {"l": "1"}}), false).unwrap_err().to_status();
    assert_eq!(status.code, 409);
    assert_eq!(status.details.unwrap().causes[0].field, ".data.l");
}

#[test]
fn equal_values_are_shared() {
    let mut scenario = config_map();
    scenario.apply("a", json!({"data": {"k": "1"}})).apply("b", json!({"data": {"k": "1"}}));
    assert_eq!(
        (scenario.owns("a"), scenario.owns("b")),
        (json!({"f:data": {"f:k": {}}}), json!({"f:data": {"f:k": {}}}))
    );
    assert!(
        scenario.at("/metadata/managedFields/0").get("time").is_none(),
        "an apply that changes nothing has no time"
    );
    assert!(scenario.refused("a", json!({"data": {"k": "2"}})).contains("conflict with \"b\""));
}

#[test]
fn lists_with_keys_are_shared_by_item() {
    let mut scenario = Scenario::new("apps/v1", "Deployment");
    scenario.apply("a", deployment(json!([{"name": "one", "image": "1"}])));
    scenario.apply("b", deployment(json!([{"name": "two", "image": "2"}])));
    let names = |scenario: &Scenario| -> Vec<Value> {
        scenario.at("/spec/template/spec/containers").as_array().unwrap().iter().map(|c| c["name"].clone()).collect()
    };
    assert_eq!(names(&scenario), ["one", "two"]);
    assert!(scenario.owns("b")["f:spec"]["f:template"]["f:spec"]["f:containers"].get("k:{\"name\":\"two\"}").is_some());
    let message =
        scenario.refused("b", deployment(json!([{"name": "one", "image": "9"}, {"name": "two", "image": "2"}])));
    assert_eq!(
        message,
        "Apply failed with 1 conflict: conflict with \"a\": .spec.template.spec.containers[name=\"one\"].image"
    );
    scenario.apply("a", deployment(json!([])));
    assert_eq!(names(&scenario), ["two"]);
}

#[test]
fn items_follow_the_order_of_the_one_who_applies() {
    let mut scenario = Scenario::new("apps/v1", "Deployment");
    let list = |names: &[&str]| -> Value { names.iter().map(|name| json!({"name": name, "image": "i"})).collect() };
    let names = |scenario: &Scenario| -> String {
        scenario
            .at("/spec/template/spec/containers")
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap())
            .collect()
    };
    scenario.apply("a", deployment(list(&["a", "b", "c"]))).apply("a", deployment(list(&["c", "a", "b"])));
    assert_eq!(names(&scenario), "cab");
    scenario.apply("b", deployment(list(&["x", "a"])));
    assert_eq!(names(&scenario), "cxab");
    scenario.apply("b", deployment(list(&["x"])));
    assert_eq!(names(&scenario), "cxab", "a is still owned by the first");
}

#[test]
fn a_port_is_known_by_number_and_protocol() {
    let mut scenario = Scenario::new("apps/v1", "Deployment");
    scenario.apply("a", deployment(json!([{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}])));
    let fields = scenario.owns("a");
    let ports = &fields["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"]["f:ports"];
    assert_eq!(*ports, json!({"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}));
    let twice = json!([{"name": "c", "image": "i", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]}]);
    assert!(
        scenario
            .refused("a", deployment(twice))
            .ends_with("duplicate entries for key [containerPort=80,protocol=\"TCP\"]")
    );
}

#[test]
fn atomic_parts_are_one_field() {
    let mut scenario = Scenario::new("apps/v1", "Deployment");
    scenario.apply("a", deployment(json!([{"name": "c", "image": "i"}])));
    assert_eq!(scenario.owns("a")["f:spec"]["f:selector"], json!({}));
    let other = json!({"spec": {"selector": {"matchLabels": {"app": "y"}}}});
    assert_eq!(scenario.refused("b", other), "Apply failed with 1 conflict: conflict with \"a\": .spec.selector");
    let mut scenario = Scenario::new("rbac.authorization.k8s.io/v1", "Role");
    scenario.apply("a", json!({"rules": [{"verbs": ["get"], "resources": ["pods"], "apiGroups": [""]}]}));
    assert_eq!(scenario.owns("a"), json!({"f:rules": {}}));
}

#[test]
fn sets_are_shared_by_value() {
    let mut scenario = config_map();
    scenario.apply("a", json!({"metadata": {"finalizers": ["e.io/a", "e.io/b"]}}));
    scenario.apply("b", json!({"metadata": {"finalizers": ["e.io/b", "e.io/c"]}}));
    assert_eq!(scenario.at("/metadata/finalizers"), json!(["e.io/a", "e.io/b", "e.io/c"]));
    scenario.apply("a", json!({}));
    assert_eq!(scenario.at("/metadata/finalizers"), json!(["e.io/b", "e.io/c"]));
    assert!(
        scenario
            .refused("a", json!({"metadata": {"finalizers": ["e.io/z", "e.io/z"]}}))
            .contains("duplicate entries for key [=\"e.io/z\"]")
    );
}

#[test]
fn status_and_spec_are_applied_apart() {
    let mut scenario = Scenario::new("apps/v1", "Deployment");
    let mut content = deployment(json!([{"name": "c", "image": "i"}]));
    content["status"] = json!({"replicas": 9});
    scenario.apply("a", content);
    assert!(scenario.owns("a").get("f:status").is_none());
    scenario.try_apply_to("s", "status", &json!({"status": {"replicas": 3}, "spec": {"replicas": 7}}), true).unwrap();
    assert_eq!(scenario.owns("s"), json!({"f:status": {"f:replicas": {}}}));
    let entry = scenario
        .at("/metadata/managedFields")
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["manager"] == "s")
        .cloned()
        .unwrap();
    assert_eq!(entry["subresource"], "status");
}

#[test]
fn an_object_without_owners_belongs_to_those_before() {
    let mut scenario = config_map();
    scenario.update("u", |object| object["data"] = json!({"k": "1"}));
    scenario.update("u", |object| object["metadata"]["managedFields"] = json!([]));
    assert_eq!(scenario.at("/metadata/managedFields"), Value::Null);
    assert_eq!(
        scenario.refused("a", json!({"data": {"k": "2"}})),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.k"
    );
    scenario.apply("a", json!({"data": {"l": "1"}}));
    assert_eq!(scenario.owns("before-first-apply"), json!({"f:data": {".": {}, "f:k": {}}}));
}

#[test]
fn kubectl_takes_over_what_it_applied_on_the_client() {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let stated = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "annotations": {}}, "data": {"k": "1"}});
    let create = |scenario: &mut Scenario| {
        scenario.update("kubectl-client-side-apply", |object| {
            object["data"] = json!({"k": "1", "l": "1"});
            object["metadata"]["annotations"] = json!({annotation: stated.to_string()});
        });
    };
    let mut scenario = config_map();
    create(&mut scenario);
    assert!(scenario.refused("other", json!({"data": {"k": "2"}})).contains("kubectl-client-side-apply"));
    assert!(scenario.refused("kubectl", json!({"data": {"l": "2"}})).ends_with(".data.l"));
    scenario.apply("kubectl", json!({"data": {"k": "2"}}));
    assert_eq!(scenario.at("/data/k"), "2");
    assert_eq!(
        scenario.at("/metadata/annotations")[annotation],
        "{\"apiVersion\":\"v1\",\"data\":{\"k\":\"2\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"x\"}}\n"
    );
}

#[test]
fn malformed_configurations_are_refused() {
    let mut scenario = Scenario::new("apps/v1", "Deployment");
    let typed = "failed to create typed patch object (/x; apps/v1, Kind=Deployment): ";
    for (content, wanted) in [
        (json!({"spec": {"nope": 1}}), ".spec.nope: field not declared in schema"),
        (json!({"spec": {"replicas": "x"}}), ".spec.replicas: expected numeric (int or float), got string"),
        (json!({"spec": {"paused": "yes"}}), ".spec.paused: expected boolean, got &{yes}"),
        (deployment(json!({"name": "c1"})), ".spec.template.spec.containers: expected list, got &{map[name:c1]}"),
        (
            deployment(json!([{"name": "c"}, {"name": "c"}])),
            ".spec.template.spec.containers: duplicate entries for key [name=\"c\"]",
        ),
        (
            json!({"metadata": {"labels": {"a": true}}}),
            ".metadata.labels.a: expected string, got &value.valueUnstructured{Value:true}",
        ),
    ] {
        let found = scenario.try_apply("a", &content, false);
        assert_eq!(found.unwrap_err().to_status().message, format!("{typed}{wanted}"));
    }
    let wrong = |config: Value| {
        let gvk = GroupVersionKind::new("", "v1", "ConfigMap");
        let ty = Types::get().kind(&gvk).unwrap();
        let subject = Subject { gvk: &gvk, ty: &ty, custom: false, has_status: false, convert: None };
        let writer = Writer { manager: "a", subresource: "", time: "2024-01-01T00:00:00Z" };
        apply(&subject, None, &config, &writer, false).unwrap_err().to_status()
    };
    assert_eq!(wrong(json!({"kind": "Secret", "apiVersion": "v1"})).message, "invalid object type: /v1, Kind=Secret");
    assert_eq!(wrong(json!({"kind": "Secret"})).code, 400);
    let managed = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"managedFields": []}});
    assert_eq!(wrong(managed).message, "metadata.managedFields must be nil");
    assert!(
        read(b"a: b: c")
            .unwrap_err()
            .to_status()
            .message
            .starts_with("error decoding YAML: error converting YAML to JSON: yaml:")
    );
    assert!(
        read(b"[]")
            .unwrap_err()
            .to_status()
            .message
            .ends_with("cannot unmarshal array into Go value of type map[string]interface {}")
    );
}

#[test]
fn null_states_a_field_without_a_value() {
    let mut scenario = config_map();
    scenario.apply("a", json!({"data": {"k": "1", "l": "2"}})).apply("a", json!({"data": null}));
    assert_eq!(scenario.at("/data"), Value::Null);
    let mut scenario = config_map();
    scenario.apply("a", json!({"data": {"k": null}}));
    assert_eq!(scenario.at("/data"), json!({"k": ""}));
}

#[test]
fn custom_kinds_merge_by_their_schema() {
    let mut scenario =
        Scenario::custom(json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "n": {"type": "integer"},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string"}}}},
        "one": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}));
    scenario.apply("a", json!({"spec": {"n": 1, "set": ["x"], "map": [{"k": "1", "v": "a"}], "one": {"a": "1"}, "free": {"deep": {"er": [1]}}}}));
    assert_eq!(
        scenario.owns("a"),
        json!({"f:spec": {"f:free": {"f:deep": {".": {}, "f:er": {}}}, "f:map": {"k:{\"k\":\"1\"}": {".": {}, "f:k": {}, "f:v": {}}},
            "f:n": {}, "f:one": {}, "f:set": {"v:\"x\"": {}}}})
    );
    scenario.apply("b", json!({"spec": {"set": ["y"], "map": [{"k": "2", "v": "b"}], "free": {"deep": {"too": 1}}}}));
    assert_eq!(scenario.at("/spec/set"), json!(["x", "y"]));
    assert_eq!(scenario.at("/spec/free"), json!({"deep": {"er": [1], "too": 1}}));
    assert!(scenario.refused("b", json!({"spec": {"one": {"b": "1"}}})).ends_with("conflict with \"a\": .spec.one"));
    assert!(scenario.refused("b", json!({"spec": {"nope": 1}})).ends_with(".spec.nope: field not declared in schema"));
    scenario.apply("a", json!({"spec": {"n": 2}}));
    assert_eq!(
        scenario.at("/spec"),
        json!({"n": 2, "set": ["y"], "map": [{"k": "2", "v": "b"}], "free": {"deep": {"too": 1}}})
    );
}

#[test]
fn an_applier_is_the_same_in_all_versions() {
    let mut scenario = Scenario::new("autoscaling/v1", "HorizontalPodAutoscaler");
    scenario.apply("a", json!({"spec": {"minReplicas": 1, "maxReplicas": 3}}));
    scenario.update("u", |object| object["spec"]["targetCPUUtilizationPercentage"] = json!(50));
    let live = scenario.live.take();
    let mut scenario = Scenario::new("autoscaling/v2", "HorizontalPodAutoscaler");
    scenario.live = live;
    scenario.live.as_mut().unwrap()["apiVersion"] = json!("autoscaling/v2");
    scenario.live.as_mut().unwrap()["spec"].as_object_mut().unwrap().shift_remove("targetCPUUtilizationPercentage");
    scenario.apply("a", json!({"spec": {"maxReplicas": 4}}));
    assert_eq!(
        scenario.at("/spec/minReplicas"),
        Value::Null,
        "it no longer states what it stated in the other version"
    );
    assert_eq!(scenario.owns("a"), json!({"f:spec": {"f:maxReplicas": {}}}));
    assert_eq!(
        scenario.owns("u"),
        json!({"f:spec": {"f:targetCPUUtilizationPercentage": {}}}),
        "others keep what they had"
    );
}
