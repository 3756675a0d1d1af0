//! Who a pod of a stateful set is: its name, its ordinal, its labels and its volumes (SS-1).

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::owners::{name, namespace, reference};
use crate::pods;

pub(super) const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
pub(super) const REVISION: &str = "controller-revision-hash";

/// The ordinals of a set.
pub(super) fn ordinals(set: &StatefulSet) -> std::ops::Range<i64> {
    let spec = set.spec.as_ref();
    let start = spec.and_then(|spec| spec.ordinals.as_ref()?.start).unwrap_or(0);
    let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(1);
    i64::from(start)..i64::from(start) + i64::from(replicas.max(0))
}

/// The set's name and the ordinal in a pod's name.
pub(super) fn parse(pod: &str) -> Option<(&str, i64)> {
    let (parent, digits) = pod.rsplit_once('-')?;
    let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Some((parent, digits.parse::<i32>().ok().filter(|_| numeric)?.into()))
}

/// The ordinal of a pod, if its name says that it is one of this set.
pub(super) fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i64> {
    parse(name(pod)).filter(|(parent, _)| *parent == name(set)).map(|(_, ordinal)| ordinal)
}

/// The revision a pod was made of.
pub(super) fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION)).map_or("", String::as_str)
}

/// The claims of a pod: the name of the volume, and the claim.
pub(super) fn claims(set: &StatefulSet, ordinal: i64) -> Vec<(String, PersistentVolumeClaim)> {
    let Some(spec) = &set.spec else { return Vec::new() };
    let templates = spec.volume_claim_templates.iter().flatten();
    let claim = |template: &PersistentVolumeClaim| {
        let mut labels = template.metadata.labels.clone().unwrap_or_default();
        labels.extend(spec.selector.match_labels.clone().unwrap_or_default());
        let volume = name(template).to_owned();
        let metadata = ObjectMeta {
            name: Some(claim_name(template, set, ordinal)),
            namespace: Some(namespace(set).to_owned()),
            labels: Some(labels).filter(|labels| !labels.is_empty()),
            annotations: template.metadata.annotations.clone(),
            ..ObjectMeta::default()
        };
        (volume, PersistentVolumeClaim { metadata, spec: template.spec.clone(), status: None })
    };
    templates.map(claim).collect()
}

fn claim_name(template: &PersistentVolumeClaim, set: &StatefulSet, ordinal: i64) -> String {
    format!("{}-{}-{ordinal}", name(template), name(set))
}

/// The pod of an ordinal, made of a template.
pub(super) fn pod(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i64) -> Pod {
    let mut pod = pods::of_template(template, reference(set), namespace(set));
    pod.metadata.generate_name = None;
    pod.metadata.name = Some(format!("{}-{ordinal}", name(set)));
    identify(set, &mut pod, ordinal);
    pod.metadata.labels.get_or_insert_default().insert(REVISION.into(), revision.into());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = pod.metadata.name.clone();
    spec.subdomain = set.spec.as_ref().and_then(|spec| spec.service_name.clone()).filter(|name| !name.is_empty());
    pod
}

/// Gives a pod the labels and volumes of its ordinal.
pub(super) fn identify(set: &StatefulSet, pod: &mut Pod, ordinal: i64) {
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.into(), pod.metadata.name.clone().unwrap_or_default());
    labels.insert(POD_INDEX.into(), ordinal.to_string());
    let claims = claims(set, ordinal);
    let spec = pod.spec.get_or_insert_default();
    let kept = spec.volumes.take().unwrap_or_default();
    let kept = kept.into_iter().filter(|volume| !claims.iter().any(|(name, _)| *name == volume.name));
    let volumes: Vec<Volume> = claims.iter().map(|(volume, claim)| claimed(volume, name(claim))).chain(kept).collect();
    spec.volumes = Some(volumes).filter(|volumes| !volumes.is_empty());
}

fn claimed(volume: &str, claim: &str) -> Volume {
    let source = PersistentVolumeClaimVolumeSource { claim_name: claim.to_owned(), read_only: None };
    Volume { name: volume.to_owned(), persistent_volume_claim: Some(source), ..Volume::default() }
}

/// Whether a pod still has the labels and volumes of its ordinal.
pub(super) fn is_itself(set: &StatefulSet, pod: &Pod, ordinal: i64) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let named = labels.and_then(|labels| labels.get(POD_NAME)) == pod.metadata.name.as_ref();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let stored = claims(set, ordinal).iter().all(|(volume, claim)| {
        let found = volumes.iter().find(|candidate| candidate.name == *volume);
        let source = found.and_then(|found| found.persistent_volume_claim.as_ref());
        source.is_some_and(|source| source.claim_name == name(claim))
    });
    named && stored
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set() -> StatefulSet {
        serde_json::from_value(json!({
            "metadata": {"name": "db", "namespace": "n", "uid": "u"},
            "spec": {
                "replicas": 2,
                "ordinals": {"start": 3},
                "serviceName": "svc",
                "selector": {"matchLabels": {"app": "db"}},
                "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c"}], "volumes": [{"name": "data"}, {"name": "tmp"}]}},
                "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"x": "y"}}, "spec": {}}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn ss_1_names_and_ordinals() {
        assert_eq!(ordinals(&set()), 3..5);
        for (pod, expected) in [
            ("db-0", Some(("db", 0))),
            ("a-b-12", Some(("a-b", 12))),
            ("db", None),
            ("db-", None),
            ("db-x", None),
            ("db-+1", None),
            ("db-99999999999", None),
        ] {
            assert_eq!(parse(pod), expected, "{pod}");
        }
    }

    #[test]
    fn ss_1_a_pod_has_its_labels_hostname_and_claims() {
        let set = set();
        let template = &set.spec.as_ref().unwrap().template;
        let mut pod = pod(&set, template, "db-abc", 4);
        let value = serde_json::to_value(&pod).unwrap();
        assert_eq!(value["metadata"]["name"], "db-4");
        let labels = json!({"app": "db", POD_NAME: "db-4", POD_INDEX: "4", REVISION: "db-abc"});
        assert_eq!(value["metadata"]["labels"], labels);
        assert_eq!((&value["spec"]["hostname"], &value["spec"]["subdomain"]), (&json!("db-4"), &json!("svc")));
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-4"}}, {"name": "tmp"}]);
        assert_eq!(value["spec"]["volumes"], volumes);
        assert!(is_itself(&set, &pod, 4));
        pod.metadata.labels.as_mut().unwrap().remove(POD_NAME);
        assert!(!is_itself(&set, &pod, 4));
        let (_, claim) = claims(&set, 4).remove(0);
        assert_eq!(serde_json::to_value(&claim.metadata.labels).unwrap(), json!({"app": "db", "x": "y"}));
    }
}
