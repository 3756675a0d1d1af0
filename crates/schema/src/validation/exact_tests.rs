//! Rows of the specification: refusals whose words clients compare.

use machinery::json::{Value, json};

use super::*;
use crate::decode::{self, FieldValidation};
use crate::facts::Types;
use crate::{defaults, kinds, strategy};

fn kind(group: &str, plural: &str) -> &'static Kind {
    kinds::builtin().get(group, "v1", plural).unwrap()
}

fn prepared(kind: &Kind, mut object: Value) -> Value {
    let ty = Types::get().kind(&kind.gvk).unwrap();
    object["kind"] = kind.gvk.kind.as_str().into();
    object["apiVersion"] = kind.gvk.group_version().to_string().into();
    let body = object.to_string();
    let media = machinery::media::MediaType::Json;
    let decoded = decode::decode(&ty, &kind.gvk, body.as_bytes(), media, FieldValidation::Warn, None);
    let mut object = decoded.unwrap().value;
    object["metadata"]["namespace"] = if kind.namespaced { "ns".into() } else { Value::Null };
    object["metadata"]["uid"] = "u".into();
    defaults::apply(kind, &mut object, None);
    strategy::prepare_for_create(kind, &mut object);
    object
}

fn refused(group: &str, plural: &str, object: Value) -> Vec<String> {
    let kind = kind(group, plural);
    validate_create(kind, &prepared(kind, object), false).iter().map(ToString::to_string).collect()
}

fn changed(group: &str, plural: &str, old: Value, change: impl FnOnce(&mut Value)) -> Vec<String> {
    let kind = kind(group, plural);
    let mut old = prepared(kind, old);
    old["metadata"]["resourceVersion"] = "1".into();
    let mut new = old.clone();
    change(&mut new);
    validate_update(kind, &new, &old, &mut Vec::new()).iter().map(ToString::to_string).collect()
}

fn job(spec: Value) -> Value {
    let mut spec = spec;
    spec["template"] = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}});
    json!({"metadata": {"name": "x"}, "spec": spec})
}

#[test]
fn verbs_14_38_values_are_shown_as_go_structs() {
    let taint = json!({"key": "a", "value": "b", "effect": "NoSchedule"});
    let node = json!({"metadata": {"name": "n"}, "spec": {"taints": [taint, taint]}});
    assert_eq!(
        refused("", "nodes", node),
        [
            "metadata.taints[1]: Duplicate value: {\"Key\":\"a\",\"Value\":\"b\",\"Effect\":\"NoSchedule\",\"TimeAdded\":null}: \
          taints must be unique by key and effect pair"
        ]
    );
    let found = changed("batch", "jobs", job(json!({})), |job| {
        job["spec"]["template"]["spec"]["containers"][0]["image"] = "i:2".into();
    });
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains(
        "\"Spec\":{\"Volumes\":null,\"InitContainers\":null,\"Containers\":[{\"Name\":\"c\",\"Image\":\"i:2\""
    ));
    assert!(found[0].ends_with(": field is immutable"));
}

#[test]
fn verbs_14_39_a_change_of_a_fixed_pod_field_is_shown_as_a_difference() {
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let found = changed("", "pods", pod, |pod| pod["spec"]["restartPolicy"] = "Never".into());
    assert_eq!(found.len(), 1, "{found:?}");
    let lines =
        "- \"RestartPolicy\": \"Always\",\n+ \"RestartPolicy\": \"Never\",\n  \"TerminationGracePeriodSeconds\": 30,\n";
    assert!(found[0].contains(lines), "{}", found[0]);
}

#[test]
fn verbs_14_40_jobs_with_a_selector_of_their_own_and_success_policies() {
    let found = refused("batch", "jobs", job(json!({"selector": {"matchLabels": {"app": "x"}}})));
    assert!(
        found[0].starts_with("spec.selector: Invalid value: ") && found[0].ends_with("`selector` not auto-generated")
    );
    let rule = json!({"succeededCount": 9, "succeededIndexes": "2-1"});
    let spec = json!({"completionMode": "Indexed", "completions": 3, "successPolicy": {"rules": [rule]}});
    assert_eq!(
        refused("batch", "jobs", job(spec)),
        [
            "spec.successPolicy.rules[0].succeededIndexes: Invalid value: \"2-1\": error parsing succeededIndexes: \
             non-increasing order, previous: 2, current: 1",
            "spec.successPolicy.rules[0].succeededCount: Invalid value: 9: must be less than or equal to 3 (the number of \
             specified completions)",
            "spec.successPolicy.rules[0].succeededCount: Invalid value: 9: must be less than or equal to 0 (the number of \
             indexes in the specified succeededIndexes field)",
        ]
    );
}

#[test]
fn verbs_14_41_amounts_of_limit_ranges_quotas_and_levels() {
    let limit =
        json!({"type": "Container", "min": {"cpu": "2"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}});
    let found = refused("", "limitranges", json!({"metadata": {"name": "l"}, "spec": {"limits": [limit]}}));
    let wanted = "spec.limits[0].default[cpu]: Invalid value: \"2\": min value 2 is greater than default value 1";
    assert!(found.iter().any(|error| error == wanted), "{found:?}");
    let expressions = json!([{"scopeName": "Terminating", "operator": "In", "values": ["x"]}]);
    let quota = json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": expressions}});
    let found = refused("", "resourcequotas", json!({"metadata": {"name": "q"}, "spec": quota}));
    assert!(
        found[0].starts_with("spec.scopeSelector.matchExpressions.operator: Invalid value: \"In\": must be 'Exists'")
    );
    let limited = json!({
        "nominalConcurrencyShares": -1, "lendablePercent": 101, "borrowingLimitPercent": -1,
        "limitResponse": {"type": "Queue", "queuing": {"queues": 1, "handSize": 8, "queueLengthLimit": 1}},
    });
    let level = json!({"metadata": {"name": "p"}, "spec": {"type": "Limited", "limited": limited}});
    let fields: Vec<String> = refused("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", level);
    assert_eq!(
        fields,
        [
            "spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
            "spec.limited.limitResponse.queuing.handSize: Invalid value: 8: should not be greater than queues (1)",
            "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
            "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer",
        ]
    );
}

#[test]
fn verbs_14_42_topologies_of_storage_classes_and_nodes() {
    let term = json!({"matchLabelExpressions": [{"key": "a", "values": ["x"]}]});
    let class = json!({"metadata": {"name": "c"}, "provisioner": "p", "allowedTopologies": [term, term]});
    assert_eq!(
        refused("storage.k8s.io", "storageclasses", class),
        ["allowedTopologies[1].matchLabelExpressions: Duplicate value: \"\""]
    );
    let driver = json!({"name": "d", "nodeID": "n", "topologyKeys": ["a", "a"], "allocatable": {"count": -1}});
    let found =
        refused("storage.k8s.io", "csinodes", json!({"metadata": {"name": "n"}, "spec": {"drivers": [driver]}}));
    assert_eq!(
        found,
        [
            "spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0",
            "spec.drivers[0]: Duplicate value: \"a\"",
        ]
    );
}

#[test]
fn verbs_14_43_bodies_of_other_versions() {
    let kind = kind("apps", "deployments");
    let ty = Types::get().kind(&kind.gvk).unwrap();
    let refused = |version: &str| {
        let body = json!({"apiVersion": version, "kind": "Deployment"}).to_string();
        let media = machinery::media::MediaType::Json;
        let error = decode::decode(&ty, &kind.gvk, body.as_bytes(), media, FieldValidation::Warn, None)
            .map(|_| ())
            .unwrap_err();
        error.to_status("Deployment", body.as_bytes()).message
    };
    assert_eq!(
        refused("apps/v1beta1"),
        "the API version in the data (apps/v1beta1) does not match the expected API version (apps/v1)"
    );
    assert_eq!(
        refused("apps/v9"),
        "Deployment in version \"v9\" cannot be handled as a Deployment: no kind \"Deployment\" is registered for version \
         \"apps/v9\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
    );
}

#[test]
fn verbs_14_44_claims_of_containers_must_be_those_of_the_pod() {
    let container = json!({"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}});
    assert_eq!(
        refused("", "pods", pod),
        [
            "spec.containers[0].resources.claims[0]: Not found: \"gpu\": must be one of the names in pod.spec.resourceClaims \
          which is empty"
        ]
    );
}
