//! The class of claims and ingresses that name none: the newest of those marked as the default.

use machinery::json::{Value, json};

use crate::meta;
use crate::registry::Registry;

impl Registry {
    pub(super) fn choose_storage_class(&self, claim: &mut Value) {
        let annotations = &claim["metadata"]["annotations"];
        let said = annotations.get("volume.beta.kubernetes.io/storage-class").is_some()
            || claim["spec"]["storageClassName"].is_string();
        if said {
            return;
        }
        let marks = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
        if let Some(class) = default_of(&self.storage().values("storage.k8s.io/storageclasses", None), &marks) {
            claim["spec"]["storageClassName"] = json!(class);
        }
    }

    pub(super) fn choose_ingress_class(&self, ingress: &mut Value) {
        let annotations = &ingress["metadata"]["annotations"];
        let said =
            annotations.get("kubernetes.io/ingress.class").is_some() || ingress["spec"]["ingressClassName"].is_string();
        if said {
            return;
        }
        let marks = ["ingressclass.kubernetes.io/is-default-class"];
        if let Some(class) = default_of(&self.storage().values("networking.k8s.io/ingressclasses", None), &marks) {
            ingress["spec"]["ingressClassName"] = json!(class);
        }
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
