//! What an aggregated server serves: its own discovery, in the aggregated form.

use http::HeaderValue;
use machinery::json::{self, Value, json};
use outbound::Answer;
use registry::api_services::RemoteService;

/// Asks for the aggregated form, and takes the plain one.
pub(super) const ACCEPT: HeaderValue =
    HeaderValue::from_static("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json");

/// The resources of a group version, as the aggregated form lists them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct VersionDocument {
    pub(super) resources: Value,
}

impl VersionDocument {
    /// From the aggregated `/apis` of the server; none if it does not have that form, or not this group version.
    pub(super) fn aggregated(answer: &Answer, remote: &RemoteService) -> Option<Self> {
        if !answer.status.is_success() {
            return None;
        }
        let list: Value = json::from_slice(&answer.body).ok()?;
        if list["kind"] != "APIGroupDiscoveryList" {
            return None;
        }
        let groups = list["items"].as_array()?;
        let group = groups.iter().find(|group| group["metadata"]["name"] == remote.group.as_str())?;
        let versions = group["versions"].as_array()?;
        let version = versions.iter().find(|version| version["version"] == remote.version.as_str())?;
        Some(VersionDocument { resources: version["resources"].clone() })
    }

    /// From an `APIResourceList`.
    pub(super) fn plain(body: &[u8]) -> Option<Self> {
        let list: Value = json::from_slice(body).ok()?;
        let (group, version) = match list["groupVersion"].as_str().unwrap_or_default().rsplit_once('/') {
            Some((group, version)) => (group.to_owned(), version.to_owned()),
            None => (String::new(), list["groupVersion"].as_str().unwrap_or_default().to_owned()),
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind_of = |resource: &Value| {
            let or = |member: &str, default: &str| match text(&resource[member]) {
                none if none.is_empty() => default.to_owned(),
                found => found,
            };
            json!({"group": or("group", &group), "version": or("version", &version), "kind": text(&resource["kind"])})
        };
        let mut resources: Vec<Value> = Vec::new();
        for resource in list["resources"].as_array()?.iter() {
            let name = text(&resource["name"]);
            let Some((parent, subresource)) = name.split_once('/') else {
                let mut entry = json!({
                    "resource": name,
                    "responseKind": kind_of(resource),
                    "scope": if resource["namespaced"] == true { "Namespaced" } else { "Cluster" },
                    "singularResource": text(&resource["singularName"]),
                    "verbs": resource["verbs"].clone(),
                });
                for member in ["shortNames", "categories"] {
                    if resource[member].is_array() {
                        entry[member] = resource[member].clone();
                    }
                }
                resources.push(entry);
                continue;
            };
            let entry = json!({
                "subresource": subresource, "responseKind": kind_of(resource), "verbs": resource["verbs"].clone(),
            });
            // Those of a resource that is not listed have no place in this form.
            if let Some(parent) = resources.iter_mut().find(|resource| resource["resource"] == parent) {
                if !parent["subresources"].is_array() {
                    parent["subresources"] = json!([]);
                }
                if let Some(list) = parent["subresources"].as_array_mut() {
                    list.push(entry);
                }
            }
        }
        Some(VersionDocument { resources: resources.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agg_8_a_plain_list_becomes_the_aggregated_form() {
        let list = json!({"kind": "APIResourceList", "groupVersion": "metrics.k8s.io/v1beta1", "resources": [
            {"name": "pods", "singularName": "pod", "namespaced": true, "kind": "PodMetrics", "verbs": ["get", "list"]},
            {"name": "pods/scale", "namespaced": true, "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get"]},
            {"name": "gone/status", "namespaced": true, "kind": "Gone", "verbs": ["get"]},
        ]});
        let document = VersionDocument::plain(json::to_string(&list).as_bytes()).unwrap();
        assert_eq!(
            document.resources,
            json!([{
                "resource": "pods", "scope": "Namespaced", "singularResource": "pod", "verbs": ["get", "list"],
                "responseKind": {"group": "metrics.k8s.io", "version": "v1beta1", "kind": "PodMetrics"},
                "subresources": [{
                    "subresource": "scale", "verbs": ["get"],
                    "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                }],
            }])
        );
        assert_eq!(VersionDocument::plain(b"<html>"), None);
        assert_eq!(VersionDocument::plain(b"{}"), None);
    }
}
