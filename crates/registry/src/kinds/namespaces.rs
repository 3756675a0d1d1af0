//! Namespaces: deleted in two steps, and held by the finalizers in their spec too.

use jiff::Timestamp;
use machinery::json::{Value, json};
use machinery::options::{DeleteOptions, Propagation};

use super::KindBehaviour;
use crate::meta;
use crate::write::delete::{DeleteStep, FOREGROUND, ORPHAN};

pub(super) struct Namespaces;

impl KindBehaviour for Namespaces {
    /// A namespace is marked first and removed only once both kinds of finalizers are gone.
    fn delete_step(&self, namespace: &Value, options: &DeleteOptions, now: Timestamp) -> Option<DeleteStep> {
        let terminating = namespace["status"]["phase"] == "Terminating";
        if !meta::is_deleting(namespace) || !terminating {
            return Some(DeleteStep::Mark(mark(namespace, options, now)));
        }
        let held = self.is_held(namespace) || !meta::finalizers(namespace).is_empty();
        Some(if held { DeleteStep::Keep } else { DeleteStep::Remove })
    }

    fn checks_preconditions_as_update(&self) -> bool {
        true
    }

    fn is_held(&self, namespace: &Value) -> bool {
        namespace["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
    }
}

fn mark(namespace: &Value, options: &DeleteOptions, now: Timestamp) -> Value {
    let mut marked = namespace.clone();
    if !meta::is_deleting(namespace) {
        meta::of_mut(&mut marked).insert("deletionTimestamp", json!(meta::timestamp(now)));
    }
    marked["status"]["phase"] = json!("Terminating");
    let kept = meta::finalizers(namespace).into_iter().filter(|name| !matches!(*name, ORPHAN | FOREGROUND));
    let mut finalizers: Vec<String> = kept.map(str::to_owned).collect();
    let orphan = options.orphan_dependents == Some(true) || options.propagation == Some(Propagation::Orphan);
    if orphan {
        finalizers.push(ORPHAN.to_owned());
    } else if options.propagation == Some(Propagation::Foreground) {
        finalizers.push(FOREGROUND.to_owned());
    }
    meta::set_finalizers(&mut marked, &finalizers);
    marked
}
