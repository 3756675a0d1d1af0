//! DefaultStorageClass and DefaultIngressClass: claims and ingresses without a class get the newest that is marked as default.

use machinery::json::{Value, json};

use super::plugin::{Attributes, Decision, Operation, Plugin};
use crate::collections::{INGRESS_CLASSES, INGRESSES, PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES};
use crate::meta;
use crate::storage::Storage;

const STORAGE_MARKS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const INGRESS_MARKS: [&str; 1] = ["ingressclass.kubernetes.io/is-default-class"];

pub(super) struct DefaultStorageClass {
    storage: Storage,
}

pub(super) struct DefaultIngressClass {
    storage: Storage,
}

impl DefaultStorageClass {
    pub(super) fn new(storage: Storage) -> Self {
        DefaultStorageClass { storage }
    }
}

impl DefaultIngressClass {
    pub(super) fn new(storage: Storage) -> Self {
        DefaultIngressClass { storage }
    }
}

impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.writes(Operation::Create, PERSISTENT_VOLUME_CLAIMS)
    }

    fn mutate<'a>(&'a self, _: &'a Attributes<'a>, claim: &'a mut Value, _: Option<&'a Value>) -> Decision<'a> {
        let annotations = &claim["metadata"]["annotations"];
        let has_class = annotations.get("volume.beta.kubernetes.io/storage-class").is_some()
            || claim["spec"]["storageClassName"].is_string();
        if !has_class && let Some(class) = default_of(&self.storage.values(STORAGE_CLASSES, None), &STORAGE_MARKS) {
            claim["spec"]["storageClassName"] = json!(class);
        }
        Decision::ADMIT
    }
}

impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.writes(Operation::Create, INGRESSES)
    }

    fn mutate<'a>(&'a self, _: &'a Attributes<'a>, ingress: &'a mut Value, _: Option<&'a Value>) -> Decision<'a> {
        let annotations = &ingress["metadata"]["annotations"];
        let has_class =
            annotations.get("kubernetes.io/ingress.class").is_some() || ingress["spec"]["ingressClassName"].is_string();
        if !has_class && let Some(class) = default_of(&self.storage.values(INGRESS_CLASSES, None), &INGRESS_MARKS) {
            ingress["spec"]["ingressClassName"] = json!(class);
        }
        Decision::ADMIT
    }
}

/// The newest class with one of the marks; of several that are as new, the first by name.
fn default_of<'a>(classes: &'a [Value], marks: &[&str]) -> Option<&'a str> {
    let marked = |class: &&Value| marks.iter().any(|mark| class["metadata"]["annotations"][*mark] == "true");
    let newest_first = |class: &&Value| {
        (std::cmp::Reverse(meta::text(class, "creationTimestamp").to_owned()), meta::name(class).to_owned())
    };
    classes.iter().filter(marked).min_by_key(newest_first).map(meta::name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_marked_class_is_the_default() {
        let class = |name: &str, made: &str, mark: &str| json!({"metadata": {"name": name, "creationTimestamp": made, "annotations": {"m": mark}}});
        let (old, new) = ("2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z");
        let classes =
            [class("a", old, "true"), class("c", new, "true"), class("b", new, "true"), class("d", new, "false")];
        assert_eq!(default_of(&classes, &["m"]), Some("b"));
        assert_eq!(default_of(&classes[3..], &["m"]), None);
    }
}
