//! Priority: the priority of a pod is that of its class.

use std::sync::{Arc, LazyLock};

use cache::Item;
use machinery::Status;
use machinery::json::{Value, json};
use memchr::memmem::Finder;

use super::plugin::{Attributes, Decision, Operation, Plugin};
use crate::collections::{PODS, PRIORITY_CLASSES};
use crate::meta;
use crate::read::view;
use crate::storage::Storage;

/// Found in the text of a class that may be the default.
static IS_DEFAULT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""globalDefault":true"#));

pub(super) struct Priority {
    storage: Storage,
}

impl Priority {
    pub(super) fn new(storage: Storage) -> Self {
        Priority { storage }
    }

    /// Takes the priority from the class that a pod names, else from the default class; else it is zero.
    fn assign(&self, attributes: &Attributes<'_>, pod: &mut Value, found: Option<Value>) -> Result<(), Status> {
        let (priority, policy) = match &found {
            Some(found) => {
                if pod["spec"]["priorityClassName"].as_str().unwrap_or_default().is_empty() {
                    pod["spec"]["priorityClassName"] = json!(meta::name(found));
                }
                (found["value"].as_i64().unwrap_or_default(), found["preemptionPolicy"].clone())
            }
            None => (0, Value::Null),
        };
        if let Some(sent) = pod["spec"]["priority"].as_i64().filter(|sent| *sent != priority) {
            let why = format!(
                "the integer value of priority ({sent}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
            );
            return Err(attributes.forbidden(pod, why));
        }
        let policy = policy.as_str().unwrap_or("PreemptLowerPriority");
        if let Some(sent) = pod["spec"]["preemptionPolicy"].as_str().filter(|sent| *sent != policy) {
            let why = format!(
                "the string value of PreemptionPolicy ({sent}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            );
            return Err(attributes.forbidden(pod, why));
        }
        pod["spec"]["priority"] = priority.into();
        pod["spec"]["preemptionPolicy"] = policy.into();
        Ok(())
    }

    async fn find_named(&self, attributes: &Attributes<'_>, pod: &Value, class: &str) -> Result<Value, Status> {
        match self.storage.current_named(PRIORITY_CLASSES, None, class).await? {
            Some(found) => view::parse(&found),
            None => Err(attributes.forbidden(pod, format!("no PriorityClass with name {class} was found"))),
        }
    }

    /// The class marked as the default; of several the one with the lowest value.
    fn default_class(&self) -> Option<Value> {
        let cache = self.storage.cache();
        let snapshot = cache.snapshot(&cache.collection(PRIORITY_CLASSES));
        // This runs for every pod that names no class: only classes that may be the default are parsed.
        let marked = |item: &&Arc<Item>| IS_DEFAULT.find(item.encoded().whole()).is_some();
        let classes =
            snapshot.scan(PRIORITY_CLASSES, None, None).filter(marked).filter_map(|item| view::parse(item).ok());
        classes.filter(|class| class["globalDefault"] == true).min_by_key(|class| class["value"].as_i64())
    }
}

impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.writes(Operation::Create, PODS) || attributes.writes(Operation::Update, PODS)
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        pod: &'a mut Value,
        old: Option<&'a Value>,
    ) -> Decision<'a> {
        if let Some(old) = old {
            schema::strategy::keep_priority(pod, old);
            return Decision::ADMIT;
        }
        let class = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
        if class.is_empty() {
            return Decision::Now(self.assign(attributes, pod, self.default_class()));
        }
        Decision::later(async move {
            let found = self.find_named(attributes, pod, &class).await?;
            self.assign(attributes, pod, Some(found))
        })
    }
}
