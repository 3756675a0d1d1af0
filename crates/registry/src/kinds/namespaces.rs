//! Namespaces: deleted in two steps, and held by the finalizers in their spec too.

use access::User;
use jiff::Timestamp;
use machinery::json::{Value, json};
use machinery::options::{DeleteOptions, Propagation};

use super::KindBehaviour;
use crate::meta;
use crate::write::delete::{DeleteStep, FOREGROUND, ORPHAN};

pub(super) struct Namespaces;

/// The label by which selectors of namespaces find one by its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl KindBehaviour for Namespaces {
    /// Sets the label again: a generated name was not known when defaults were set, and admission may have changed it.
    fn complete_new(&self, namespace: &mut Value, _user: &User) {
        let name = meta::name(namespace).to_owned();
        namespace["metadata"]["labels"][NAME_LABEL] = json!(name);
    }

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
