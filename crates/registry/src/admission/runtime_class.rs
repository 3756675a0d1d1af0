//! RuntimeClass: a class that a pod names must exist; its overhead and placement become the pod's.

use machinery::Status;
use machinery::json::{Value, json};

use super::plugin::{Attributes, Decision, Operation, Plugin};
use crate::collections::{PODS, RUNTIME_CLASSES};
use crate::read::view;
use crate::reserve::amounts::Amounts;
use crate::storage::Storage;

pub(super) struct RuntimeClass {
    storage: Storage,
}

impl RuntimeClass {
    pub(super) fn new(storage: Storage) -> Self {
        RuntimeClass { storage }
    }

    async fn apply_named(&self, attributes: &Attributes<'_>, pod: &mut Value, name: &str) -> Result<(), Status> {
        let Some(found) = self.storage.current_named(RUNTIME_CLASSES, None, name).await? else {
            return Err(attributes.forbidden(pod, format!("pod rejected: RuntimeClass \"{name}\" not found")));
        };
        apply_class(attributes, &view::parse(&found)?, pod)
    }
}

impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.writes(Operation::Create, PODS)
    }

    fn mutate<'a>(&'a self, attributes: &'a Attributes<'a>, pod: &'a mut Value, _: Option<&'a Value>) -> Decision<'a> {
        let name = pod["spec"]["runtimeClassName"].as_str().unwrap_or_default().to_owned();
        if name.is_empty() {
            return Decision::Now(apply_class(attributes, &Value::Null, pod));
        }
        Decision::later(async move { self.apply_named(attributes, pod, &name).await })
    }
}

fn apply_class(attributes: &Attributes<'_>, class: &Value, pod: &mut Value) -> Result<(), Status> {
    apply(class, pod).map_err(|why| attributes.forbidden(pod, why))
}

fn apply(class: &Value, pod: &mut Value) -> Result<(), String> {
    let stated = &pod["spec"]["overhead"];
    let overhead = &class["overhead"]["podFixed"];
    if !class["overhead"].is_object() {
        if stated.is_object() {
            return Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned());
        }
    } else {
        let given = stated.as_object().is_some_and(|stated| !stated.is_empty());
        if given && Amounts::from_value(stated) != Amounts::from_value(overhead) {
            return Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned());
        }
        if overhead.is_object() {
            pod["spec"]["overhead"] = overhead.clone();
        }
    }
    let scheduling = &class["scheduling"];
    if let Some(wanted) = scheduling["nodeSelector"].as_object() {
        for (key, value) in wanted {
            let stated = &pod["spec"]["nodeSelector"][key];
            if stated.is_string() && stated != value {
                let (stated, value) = (stated.as_str().unwrap_or_default(), value.as_str().unwrap_or_default());
                return Err(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {stated}"
                ));
            }
            if !pod["spec"]["nodeSelector"].is_object() {
                pod["spec"]["nodeSelector"] = json!({});
            }
            pod["spec"]["nodeSelector"][key] = value.clone();
        }
    }
    if let Some(wanted) = scheduling["tolerations"].as_array() {
        let mut tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        tolerations.extend(wanted.iter().filter(|wanted| !tolerations.contains(wanted)).cloned().collect::<Vec<_>>());
        pod["spec"]["tolerations"] = json!(tolerations);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(class: Value, mut pod: Value) -> Result<Value, String> {
        apply(&class, &mut pod).map(|()| pod["spec"].clone())
    }

    #[test]
    fn a_class_gives_overhead_and_placement() {
        let class = json!({
            "overhead": {"podFixed": {"cpu": "100m"}},
            "scheduling": {"nodeSelector": {"a": "1"}, "tolerations": [{"key": "k"}]},
        });
        let spec =
            applied(class.clone(), json!({"spec": {"nodeSelector": {"b": "2"}, "overhead": {"cpu": "0.1"}}})).unwrap();
        assert_eq!(spec["overhead"], json!({"cpu": "100m"}));
        assert_eq!(spec["nodeSelector"], json!({"a": "1", "b": "2"}));
        assert_eq!(spec["tolerations"], json!([{"key": "k"}]));
        let error = applied(class.clone(), json!({"spec": {"nodeSelector": {"a": "2"}}})).unwrap_err();
        assert_eq!(error, "conflict: runtimeClass.scheduling.nodeSelector[a] = 1; pod.spec.nodeSelector[a] = 2");
        assert!(applied(class, json!({"spec": {"overhead": {"cpu": "2"}}})).unwrap_err().contains("doesn't match"));
    }

    #[test]
    fn overhead_without_a_class_is_refused() {
        assert!(applied(Value::Null, json!({"spec": {"overhead": {"cpu": "2"}}})).unwrap_err().contains("without"));
        assert!(applied(Value::Null, json!({"spec": {}})).is_ok());
    }
}
