//! Defaults of fields that a client omits. They are set on a decoded object, before and after admission.
//!
//! - `pod.rs`: pods and pod templates; `volume.rs`: the sources of volumes
//! - `workload.rs`, `core.rs`, `policy.rs`: the other kinds
//!
//! Defaults that depend on the state of the server are not here: the addresses, families and node ports of a service, the class
//! of a claim, priorities by name.

use machinery::json::Value;
use machinery::quantity::Quantity;

use crate::custom;
use crate::kind::Kind;
use crate::walk::{Fields, Fill as _};

mod core;
mod pod;
mod policy;
mod volume;
mod workload;

/// Sets the defaults of a kind. Custom resources get theirs from their schema. What is the same memory as in `known`, an
/// object of the kind with its defaults, is left alone.
pub fn apply(kind: &Kind, object: &mut Value, known: Option<&Value>) {
    if let Some(definition) = &kind.definition {
        return custom::decode::fill_defaults(definition.version(), object);
    }
    if kind.custom {
        return;
    }
    let Some(fields) = object.as_object_mut() else { return };
    let is_pod = kind.gvk.group.is_empty() && kind.gvk.kind == "Pod";
    // Pods are by far the most frequent kind, and no default in their spec depends on anything outside of it.
    let known_spec = known.filter(|_| is_pod).and_then(|known| known.get("spec"));
    if fields.get("spec").zip(known_spec).is_some_and(|(spec, known)| spec.is_same(known)) {
        return pod::status(fields);
    }
    apply_to(&kind.gvk.group, &kind.gvk.version, &kind.gvk.kind, fields);
}

fn apply_to(group: &str, version: &str, kind: &str, object: &mut Fields) {
    match group {
        "" => core::apply(kind, object),
        "apps" | "batch" => workload::apply(kind, object),
        "autoscaling" => workload::autoscaler(version, object),
        _ => policy::apply(group, kind, object),
    }
}

/// Rounds amounts of resources up to a thousandth.
fn round_up(holder: &mut Fields, maps: &[&str]) {
    for name in maps {
        let Some(amounts) = holder.child(name) else { continue };
        for amount in amounts.values_mut() {
            // The canonical text of a finer amount ends in one of these letters.
            if let Value::String(text) = amount
                && text.ends_with(['n', 'u'])
                && let Ok(exact) = text.parse::<Quantity>()
            {
                *amount = Quantity::from_milli(exact.milli_value()).to_string().into();
            }
        }
    }
}

fn spec(object: &mut Fields) -> Option<&mut Fields> {
    object.child("spec")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::builtin;
    use machinery::json::json;

    fn defaulted(group: &str, version: &str, plural: &str, mut object: Value) -> Value {
        apply(builtin().get(group, version, plural).unwrap(), &mut object, None);
        object
    }

    #[test]
    fn a_pod_whose_spec_is_as_it_was_needs_no_defaults_there() {
        let pods = builtin().get("", "v1", "pods").unwrap();
        let old =
            json!({"spec": {"containers": [{"name": "c", "image": "nginx:1.27"}]}, "status": {"podIP": "10.0.0.1"}});
        let mut new = old.clone();
        apply(pods, &mut new, Some(&old));
        assert!(new["spec"].is_same(&old["spec"]), "it is not even copied");
        assert_eq!(new["status"]["podIPs"], json!([{"ip": "10.0.0.1"}]));
        let mut changed = old.clone();
        changed["spec"]["nodeName"] = json!("n");
        let mut defaulted = changed.clone();
        apply(pods, &mut changed, Some(&old));
        apply(pods, &mut defaulted, None);
        assert_eq!(changed, defaulted);
        assert_eq!(changed["spec"]["restartPolicy"], "Always");
    }

    #[test]
    fn a_pod_with_only_what_is_required() {
        let pod = defaulted("", "v1", "pods", json!({"spec": {"containers": [{"name": "c", "image": "nginx:1.27"}]}}));
        assert_eq!(
            pod,
            json!({"spec": {
                "containers": [{
                    "name": "c", "image": "nginx:1.27", "imagePullPolicy": "IfNotPresent", "resources": {},
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                }],
                "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "restartPolicy": "Always",
                "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
            }})
        );
        assert_eq!(defaulted("", "v1", "pods", pod.clone()), pod, "a second time changes nothing");
    }

    #[test]
    fn images_without_a_tag_are_always_pulled() {
        let policy = |image: &str| {
            let pod = defaulted("", "v1", "pods", json!({"spec": {"containers": [{"image": image}]}}));
            pod["spec"]["containers"][0]["imagePullPolicy"].as_str().unwrap().to_owned()
        };
        for image in ["nginx", "nginx:latest", "reg:5000/nginx", "reg:5000/a/b:latest"] {
            assert_eq!(policy(image), "Always", "{image}");
        }
        for image in ["nginx:1", "reg:5000/nginx:1", "nginx@sha256:0123", "", "UPPER"] {
            assert_eq!(policy(image), "IfNotPresent", "{image}");
        }
    }

    #[test]
    fn requests_follow_limits_in_pods_but_not_in_templates() {
        let container = json!({"image": "i:1", "resources": {"limits": {"cpu": "1"}}});
        let pod = defaulted("", "v1", "pods", json!({"spec": {"containers": [container.clone()]}}));
        assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "1"}));
        let template = json!({"template": {"spec": {"containers": [container]}}});
        let template = defaulted("", "v1", "podtemplates", template);
        assert_eq!(template["template"]["spec"]["containers"][0]["resources"].get("requests"), None);
    }

    #[test]
    fn a_deployment_rolls() {
        let deployment = defaulted("apps", "v1", "deployments", json!({"spec": {"template": {"spec": {}}}}));
        let spec = &deployment["spec"];
        assert_eq!(
            spec["strategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}})
        );
        assert_eq!((&spec["replicas"], &spec["template"]["spec"]["restartPolicy"]), (&json!(1), &json!("Always")));
        let recreate = json!({"spec": {"strategy": {"type": "Recreate"}, "replicas": 0}});
        let recreate = defaulted("apps", "v1", "deployments", recreate);
        assert_eq!(
            (&recreate["spec"]["replicas"], &recreate["spec"]["strategy"]),
            (&json!(0), &json!({"type": "Recreate"}))
        );
    }

    #[test]
    fn a_service_without_type_is_internal() {
        let service = defaulted("", "v1", "services", json!({"spec": {"ports": [{"port": 80}]}}));
        assert_eq!(
            service["spec"],
            json!({"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "sessionAffinity": "None",
                   "type": "ClusterIP", "internalTrafficPolicy": "Cluster"})
        );
    }

    /// Returns whether a value has all members of another one, unchanged.
    fn contains(value: &Value, part: &Value) -> bool {
        match (value, part) {
            (Value::Object(value), Value::Object(part)) => {
                part.iter().all(|(name, part)| value.get(name).is_some_and(|value| contains(value, part)))
            }
            _ => value == part,
        }
    }

    #[test]
    fn odd_objects_are_left_alone() {
        for kind in builtin().iter() {
            for mut object in [
                json!(null),
                json!([]),
                json!({"spec": 3}),
                json!({"spec": {"template": [], "ports": {}, "containers": "x"}}),
            ] {
                let original = object.clone();
                apply(kind, &mut object, None);
                assert!(contains(&object, &original), "{}: {original} became {object}", kind.gvk);
            }
        }
    }
}
