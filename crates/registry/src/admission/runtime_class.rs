//! A runtime class that a pod names must be there; its overhead and placement become the pod's.

use machinery::Status;
use machinery::json::{Value, json};

use crate::meta;
use crate::registry::Registry;
use crate::request::Target;
use crate::reserve::amounts::Amounts;
use crate::view;

impl Registry {
    pub(super) async fn find_runtime_class(&self, target: &Target, pod: &mut Value) -> Result<(), Status> {
        let class = pod["spec"]["runtimeClassName"].as_str().unwrap_or_default().to_owned();
        let refuse = |pod: &Value, why: String| Err(Status::forbidden(&target.gr(), meta::name(pod), why));
        let class = if class.is_empty() {
            Value::Null
        } else {
            match self.lookup("node.k8s.io", "v1", "runtimeclasses", None, &class).await? {
                Some(found) => view::parse(&found)?,
                None => return refuse(pod, format!("pod rejected: RuntimeClass \"{class}\" not found")),
            }
        };
        match take(&class, pod) {
            Ok(()) => Ok(()),
            Err(why) => refuse(pod, why),
        }
    }
}

fn take(class: &Value, pod: &mut Value) -> Result<(), String> {
    let said = &pod["spec"]["overhead"];
    let overhead = &class["overhead"]["podFixed"];
    if !class["overhead"].is_object() {
        if said.is_object() {
            return Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned());
        }
    } else {
        let given = said.as_object().is_some_and(|said| !said.is_empty());
        if given && Amounts::from_value(said) != Amounts::from_value(overhead) {
            return Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned());
        }
        if overhead.is_object() {
            pod["spec"]["overhead"] = overhead.clone();
        }
    }
    let scheduling = &class["scheduling"];
    if let Some(wanted) = scheduling["nodeSelector"].as_object() {
        for (key, value) in wanted {
            let said = &pod["spec"]["nodeSelector"][key];
            if said.is_string() && said != value {
                let (said, value) = (said.as_str().unwrap_or_default(), value.as_str().unwrap_or_default());
                return Err(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {said}"
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

    fn taken(class: Value, mut pod: Value) -> Result<Value, String> {
        take(&class, &mut pod).map(|()| pod["spec"].clone())
    }

    #[test]
    fn a_class_gives_overhead_and_placement() {
        let class = json!({
            "overhead": {"podFixed": {"cpu": "100m"}},
            "scheduling": {"nodeSelector": {"a": "1"}, "tolerations": [{"key": "k"}]},
        });
        let spec =
            taken(class.clone(), json!({"spec": {"nodeSelector": {"b": "2"}, "overhead": {"cpu": "0.1"}}})).unwrap();
        assert_eq!(spec["overhead"], json!({"cpu": "100m"}));
        assert_eq!(spec["nodeSelector"], json!({"a": "1", "b": "2"}));
        assert_eq!(spec["tolerations"], json!([{"key": "k"}]));
        let error = taken(class.clone(), json!({"spec": {"nodeSelector": {"a": "2"}}})).unwrap_err();
        assert_eq!(error, "conflict: runtimeClass.scheduling.nodeSelector[a] = 1; pod.spec.nodeSelector[a] = 2");
        assert!(taken(class, json!({"spec": {"overhead": {"cpu": "2"}}})).unwrap_err().contains("doesn't match"));
    }

    #[test]
    fn overhead_without_a_class_is_refused() {
        assert!(taken(Value::Null, json!({"spec": {"overhead": {"cpu": "2"}}})).unwrap_err().contains("without"));
        assert!(taken(Value::Null, json!({"spec": {}})).is_ok());
    }
}
