//! Preparation of jobs, which select their pods by a generated label, and of daemon sets, which count the changes of their template.

use machinery::json::{Value, json};

use super::metadata;
use crate::walk::{Fields, Fill as _, Walk as _};

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) fn create_daemon_set(set: &mut Fields) {
    let annotation = metadata(set).and_then(|metadata| metadata.child_or_new("annotations"));
    if let Some(annotations) = annotation {
        let counted = annotations.word(TEMPLATE_GENERATION).parse::<i64>().unwrap_or(0).max(1);
        annotations.insert(TEMPLATE_GENERATION.to_owned(), counted.to_string().into());
    }
}

pub(super) fn update_daemon_set(set: &mut Fields, old: &Value) {
    let stored = old.map("metadata.annotations").and_then(|map| map.get(TEMPLATE_GENERATION));
    let counted = stored.and_then(Value::as_str).and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    let changed = set.get("spec").map_or(&Value::Null, |spec| spec.at("template")) != old.at("spec.template");
    if let Some(annotations) = metadata(set).and_then(|metadata| metadata.child_or_new("annotations")) {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), (counted + i64::from(changed)).to_string().into());
    }
}

/// Labels its pods with the job's uid and selects them by it, unless the author set a selector.
pub(super) fn create_job(job: &mut Fields) {
    let (name, uid) = match job.get("metadata") {
        Some(metadata) => (metadata.text("name").to_owned(), metadata.text("uid").to_owned()),
        None => return,
    };
    if let Some(spec) = job.child("spec")
        && spec.get("manualSelector") != Some(&Value::Bool(true))
    {
        let labels = spec
            .child_or_new("template")
            .and_then(|template| template.child_or_new("metadata"))
            .and_then(|metadata| metadata.child_or_new("labels"));
        if let Some(labels) = labels {
            for (label, value) in [
                ("job-name", &name),
                ("batch.kubernetes.io/job-name", &name),
                ("controller-uid", &uid),
                ("batch.kubernetes.io/controller-uid", &uid),
            ] {
                if !labels.contains_key(label) {
                    labels.insert(label.to_owned(), value.as_str().into());
                }
            }
        }
        let labels = spec.child_or_new("selector").and_then(|selector| selector.child_or_new("matchLabels"));
        if let Some(labels) = labels {
            labels.fill("batch.kubernetes.io/controller-uid", uid);
        }
    }
    default_job_labels(job);
}

/// Copies the labels of its pods to a job without labels. A default, but it must include the labels that creation adds.
pub(super) fn default_job_labels(job: &mut Fields) {
    let labels = job.get("spec").map_or(json!(null), |spec| spec.at("template.metadata.labels").clone());
    if labels.as_object().is_some_and(|labels| !labels.is_empty())
        && let Some(metadata) = metadata(job)
    {
        metadata.fill_empty("labels", labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_selected_by_its_uid() {
        let mut job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"manualSelector": false, "template": {"metadata": {"labels": {"app": "x"}}}}});
        create_job(job.as_object_mut().unwrap());
        assert_eq!(job["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}));
        assert_eq!(job["spec"]["template"]["metadata"]["labels"]["job-name"], "j");
        assert_eq!(job["metadata"]["labels"]["app"], "x");
        assert_eq!(job["metadata"]["labels"]["controller-uid"], "u");
    }

    #[test]
    fn a_daemon_set_counts_its_templates() {
        let mut old = json!({"metadata": {}, "spec": {"template": {"a": 1}}});
        create_daemon_set(old.as_object_mut().unwrap());
        assert_eq!(old["metadata"]["annotations"][TEMPLATE_GENERATION], "1");
        let mut new = json!({"spec": {"template": {"a": 2}}});
        update_daemon_set(new.as_object_mut().unwrap(), &old);
        assert_eq!(new["metadata"]["annotations"][TEMPLATE_GENERATION], "2");
    }
}
