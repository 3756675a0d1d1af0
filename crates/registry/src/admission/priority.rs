//! A pod's priority comes from its class.

use machinery::Status;
use machinery::json::{Value, json};

use crate::meta;
use crate::registry::Registry;
use crate::request::Target;
use crate::view;

impl Registry {
    /// A pod's priority comes from its class, or from the class that is the default, or is zero.
    pub(super) async fn resolve_priority(&self, target: &Target, pod: &mut Value) -> Result<(), Status> {
        let class = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
        let found = if class.is_empty() {
            self.default_priority_class()
        } else {
            let found = self.lookup("scheduling.k8s.io", "v1", "priorityclasses", None, &class).await?;
            let found = found.ok_or_else(|| {
                let why = format!("no PriorityClass with name {class} was found");
                Status::forbidden(&target.gr(), meta::name(pod), why)
            })?;
            Some(view::parse(&found)?)
        };
        let (priority, policy) = match &found {
            Some(found) => {
                if class.is_empty() {
                    pod["spec"]["priorityClassName"] = json!(meta::name(found));
                }
                (found["value"].as_i64().unwrap_or_default(), found["preemptionPolicy"].clone())
            }
            None => (0, Value::Null),
        };
        if let Some(said) = pod["spec"]["priority"].as_i64().filter(|said| *said != priority) {
            let why = format!(
                "the integer value of priority ({said}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
            );
            return Err(Status::forbidden(&target.gr(), meta::name(pod), why));
        }
        let policy = policy.as_str().unwrap_or("PreemptLowerPriority");
        if let Some(said) = pod["spec"]["preemptionPolicy"].as_str().filter(|said| *said != policy) {
            let why = format!(
                "the string value of PreemptionPolicy ({said}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            );
            return Err(Status::forbidden(&target.gr(), meta::name(pod), why));
        }
        pod["spec"]["priority"] = priority.into();
        pod["spec"]["preemptionPolicy"] = policy.into();
        Ok(())
    }

    /// The class marked as the default; of several the one with the lowest value.
    fn default_priority_class(&self) -> Option<Value> {
        let collection = self.cache().collection("scheduling.k8s.io/priorityclasses");
        let snapshot = self.cache().snapshot(&collection);
        // Every pod that names no class asks: only those that may be the default are read.
        let marked = |item: &&std::sync::Arc<cache::Item>| {
            memchr::memmem::find(item.encoded().whole(), br#""globalDefault":true"#).is_some()
        };
        let classes =
            snapshot.scan(collection.name(), None, None).filter(marked).filter_map(|item| view::parse(item).ok());
        classes.filter(|class| class["globalDefault"] == true).min_by_key(|class| class["value"].as_i64())
    }
}
