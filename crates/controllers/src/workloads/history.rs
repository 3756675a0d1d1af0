//! The templates a workload had, as ControllerRevisions: which one is wanted now, and which may be forgotten.
//!
//! The data of a revision is the patch that brings its template back; `kubectl rollout undo` sends it as it is:
//!
//! ```json
//! {"spec": {"template": {"$patch": "replace", "metadata": {…}, "spec": {…}}}}
//! ```
//!
//! Its members are sorted, as Go writes them: clients compare the text with what they would have written themselves.

use std::collections::BTreeSet;
use std::sync::Arc;

use client::Error;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::template::hash;
use crate::json::{from_value, to_value};
use crate::owners::{name, namespace, reference};
use crate::writer::{Namespaced, Writer};

/// The longest part of a revision's name that is its owner's.
const LONGEST_PREFIX: usize = 223;

fn data_of(template: &PodTemplateSpec) -> Value {
    let mut template = to_value(template);
    template["$patch"] = "replace".into();
    let mut data = json!({ "spec": { "template": template } });
    data.sort_all_objects();
    data
}

/// The template that a revision keeps.
pub(crate) fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    from_value(&template).ok()
}

fn keeps(revision: &ControllerRevision, data: &Value) -> bool {
    revision.data.as_ref().is_some_and(|kept| kept.0 == *data)
}

/// Sorts revisions, the newest last.
pub(crate) fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by(|a, b| {
        let created = |revision: &ControllerRevision| revision.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let by_age = || created(a).cmp(&created(b)).then_with(|| name(&**a).cmp(name(&**b)));
        a.revision.cmp(&b.revision).then_with(by_age)
    });
}

/// Makes the revision of a template the newest: finds it, renumbers it if it is an old one, or creates it. `revisions` are
/// sorted, and stay so. `collisions` counts different templates that met in one name. The label `hash_label` carries the
/// short name.
pub(crate) async fn advance<O: Namespaced>(
    owner: &O,
    template: &PodTemplateSpec,
    hash_label: &str,
    revisions: &mut Vec<Arc<ControllerRevision>>,
    collisions: &mut i32,
    writer: &Writer,
) -> Result<Arc<ControllerRevision>, Error> {
    let data = data_of(template);
    let next = revisions.last().map_or(1, |newest| newest.revision + 1);
    let wanted = match revisions.iter().rposition(|revision| keeps(revision, &data)) {
        Some(at) if at + 1 == revisions.len() => return Ok(revisions[at].clone()),
        Some(at) => {
            let old = revisions.remove(at);
            Arc::new(writer.replace(ControllerRevision { revision: next, ..(*old).clone() }).await?)
        }
        None => Arc::new(create(owner, template, data, next, hash_label, collisions, writer).await?),
    };
    revisions.push(wanted.clone());
    Ok(wanted)
}

async fn create<O: Namespaced>(
    owner: &O,
    template: &PodTemplateSpec,
    data: Value,
    revision: i64,
    hash_label: &str,
    collisions: &mut i32,
    writer: &Writer,
) -> Result<ControllerRevision, Error> {
    let mut wanted =
        ControllerRevision { data: Some(RawExtension(data.clone())), revision, ..ControllerRevision::default() };
    wanted.metadata.namespace = Some(namespace(owner).to_owned());
    wanted.metadata.owner_references = Some(vec![reference(owner)]);
    wanted.metadata.labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone());
    wanted.metadata.annotations = owner.meta().annotations.clone();
    let prefix = name(owner).get(..LONGEST_PREFIX).unwrap_or(name(owner));
    loop {
        let hash = hash(&data, (*collisions > 0).then_some(*collisions));
        wanted.metadata.name = Some(format!("{prefix}-{hash}"));
        wanted.metadata.labels.get_or_insert_default().insert(hash_label.to_owned(), hash);
        match writer.create(&wanted).await {
            Err(error) if error.is_already_exists() => match writer.read(&wanted).await? {
                Some(there) if keeps(&there, &data) => return Ok(there),
                Some(_) => *collisions += 1,
                None => return Err(error),
            },
            other => return other,
        }
    }
}

/// Deletes the oldest unused revisions beyond `limit`.
pub(crate) async fn forget(
    revisions: &[Arc<ControllerRevision>],
    is_used: impl Fn(&ControllerRevision) -> bool,
    limit: usize,
    writer: &Writer,
) -> Result<(), Error> {
    let unused: Vec<_> = revisions.iter().filter(|revision| !is_used(revision)).collect();
    for revision in unused.iter().take(unused.len().saturating_sub(limit)) {
        match writer.delete(&***revision, &DeleteParams::default()).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The values that some pods have of a label.
pub(crate) fn in_use<'a>(
    pods: impl IntoIterator<Item = &'a Arc<k8s_openapi::api::core::v1::Pod>>,
    label: &str,
) -> BTreeSet<String> {
    let labels = pods.into_iter().filter_map(|pod| pod.metadata.labels.as_ref());
    labels.filter_map(|labels| labels.get(label).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ss_4_the_data_of_a_revision_is_the_patch_that_brings_its_template_back() {
        let template: PodTemplateSpec = serde_json::from_value(
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}),
        )
        .unwrap();
        let data = data_of(&template);
        assert_eq!(data["spec"]["template"]["$patch"], "replace");
        let revision = ControllerRevision { data: Some(RawExtension(data.clone())), ..ControllerRevision::default() };
        assert_eq!(template_of(&revision), Some(template));
        assert!(keeps(&revision, &data));
        let text = r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c"}]}}}}"#;
        assert_eq!(data.to_string(), text, "members are sorted");
    }
}
