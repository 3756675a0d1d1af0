//! Discovery documents: the bodies below `/api` and `/apis`, in the old and the aggregated form.

use base64::Engine as _;
use machinery::json::{Map, Value, json};
use machinery::{GroupVersion, GroupVersionKind};
use sha2::{Digest as _, Sha256, Sha512};

use crate::kind::Kind;
use crate::kinds::{Group, Kinds, Version};

/// The Content-Type of [`aggregated_core`] and [`aggregated_groups`], which clients request in Accept.
pub const AGGREGATED_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Returns `/api`. The address is the `host:port` that clients use.
#[must_use]
pub fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`
#[must_use]
pub fn groups(kinds: &Kinds) -> Value {
    let groups: Vec<Value> =
        kinds.groups().filter(|group| !group.name.is_empty()).map(|group| Value::Object(group_body(group))).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/{group}`
#[must_use]
pub fn group(kinds: &Kinds, name: &str) -> Option<Value> {
    let group = kinds.group(name).filter(|group| !group.name.is_empty())?;
    let mut body = Map::new();
    body.insert("kind", "APIGroup".into());
    body.insert("apiVersion", "v1".into());
    body.extend(group_body(group));
    Some(Value::Object(body))
}

/// `/api/v1` (the empty group) and `/apis/{group}/{version}`
#[must_use]
pub fn resources(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let version = kinds.group(group)?.version(version)?;
    let mut list = Vec::new();
    for kind in &version.kinds {
        list.push(resource(kind));
        list.extend(kind.subresources.iter().map(|sub| {
            let mut body = json!({
                "name": format!("{}/{}", kind.plural, sub.name),
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": sub.gvk.kind,
                "verbs": sub.verbs,
            });
            if sub.gvk.group_version() != kind.group_version() {
                body["group"] = sub.gvk.group.as_str().into();
                body["version"] = sub.gvk.version.as_str().into();
            }
            body
        }));
    }
    let mut body = Map::new();
    body.insert("kind", "APIResourceList".into());
    if !group.is_empty() {
        body.insert("apiVersion", "v1".into());
    }
    body.insert("groupVersion", GroupVersion::new(group, &*version.name).to_string().into());
    body.insert("resources", list.into());
    Some(Value::Object(body))
}

/// `/api` in the aggregated form.
#[must_use]
pub fn aggregated_core(kinds: &Kinds) -> Value {
    aggregated(kinds.groups().filter(|group| group.name.is_empty()))
}

/// `/apis` in the aggregated form.
#[must_use]
pub fn aggregated_groups(kinds: &Kinds) -> Value {
    aggregated(kinds.groups().filter(|group| !group.name.is_empty()))
}

/// Returns the ETag of a body, including quotes.
#[must_use]
pub fn etag(body: &[u8]) -> String {
    let mut tag = String::with_capacity(130);
    tag.push('"');
    for byte in Sha512::digest(body) {
        tag.push_str(&format!("{byte:02X}"));
    }
    tag.push('"');
    tag
}

/// Returns a hash of the version that objects are stored in, by which clients detect a change. `None` for kinds that
/// are not stored.
#[must_use]
pub fn storage_version_hash(kind: &Kind) -> Option<String> {
    if !kind.stored() {
        return None;
    }
    let stored = kind.storage_hash.as_ref().unwrap_or(&kind.storage);
    let digest = Sha256::digest(format!("{}/{}/{}", stored.group, stored.version, kind.gvk.kind));
    Some(base64::engine::general_purpose::STANDARD.encode(&digest[..8]))
}

fn group_body(group: &Group) -> Map {
    let version = |version: &Version| json!({"groupVersion": GroupVersion::new(&*group.name, &*version.name).to_string(), "version": version.name});
    let mut body = Map::new();
    body.insert("name", group.name.as_str().into());
    body.insert("versions", group.versions.iter().map(version).collect());
    if let Some(preferred) = group.preferred() {
        body.insert("preferredVersion", version(preferred));
    }
    body
}

fn resource(kind: &Kind) -> Value {
    let mut body = json!({
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.gvk.kind,
        "verbs": verbs(kind),
    });
    if !kind.short_names.is_empty() {
        body["shortNames"] = kind.short_names.clone().into();
    }
    if !kind.categories.is_empty() {
        body["categories"] = kind.categories.clone().into();
    }
    if let Some(hash) = storage_version_hash(kind) {
        body["storageVersionHash"] = hash.into();
    }
    body
}

/// Returns the verbs of a kind: objects of a custom kind can only be read and deleted while its definition is being
/// deleted.
fn verbs(kind: &Kind) -> Vec<&str> {
    let terminating = kind.definition.as_ref().is_some_and(|definition| definition.terminating);
    let shown = |verb: &&str| !(terminating && matches!(*verb, "create" | "patch" | "update"));
    kind.verbs.iter().map(String::as_str).filter(shown).collect()
}

fn aggregated<'a>(groups: impl Iterator<Item = &'a Group>) -> Value {
    let items: Vec<Value> = groups
        .map(|group| {
            let versions: Vec<Value> = group
                .versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = version.kinds.iter().map(|kind| aggregated_resource(kind)).collect();
                    json!({"version": version.name, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_resource(kind: &Kind) -> Value {
    let mut body = json!({
        "resource": kind.plural,
        "responseKind": response_kind(kind, &kind.gvk),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": verbs(kind),
    });
    if !kind.short_names.is_empty() {
        body["shortNames"] = kind.short_names.clone().into();
    }
    if !kind.categories.is_empty() {
        body["categories"] = kind.categories.clone().into();
    }
    if !kind.subresources.is_empty() {
        body["subresources"] = kind
            .subresources
            .iter()
            .map(|sub| {
                json!({
                    "subresource": sub.name,
                    "responseKind": response_kind(kind, &sub.gvk),
                    "verbs": sub.verbs,
                })
            })
            .collect();
    }
    body
}

/// Built-in kinds omit the group and version that they are listed under; custom resources have them.
fn response_kind(listed: &Kind, gvk: &GroupVersionKind) -> Value {
    if !listed.custom && gvk.group_version() == listed.group_version() {
        json!({"group": "", "version": "", "kind": gvk.kind})
    } else {
        json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::builtin;

    fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
        list["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).unwrap()
    }

    #[test]
    fn resources_of_a_version_list_subresources_after_their_kind() {
        let apps = resources(builtin(), "apps", "v1").unwrap();
        assert_eq!((&apps["apiVersion"], &apps["groupVersion"]), (&json!("v1"), &json!("apps/v1")));
        let names: Vec<_> = apps["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
        assert_eq!(&names[..4], ["controllerrevisions", "daemonsets", "daemonsets/status", "deployments"]);
        let scale = named(&apps, "deployments/scale");
        assert_eq!(
            (&scale["group"], &scale["version"], &scale["kind"]),
            (&json!("autoscaling"), &json!("v1"), &json!("Scale"))
        );
        assert_eq!(named(&apps, "deployments")["storageVersionHash"], "8aSe+NMegvE=");
        assert!(resources(builtin(), "apps", "v1beta1").is_none());
    }

    #[test]
    fn the_core_list_has_no_api_version_and_reviews_have_no_hash() {
        let core = resources(builtin(), "", "v1").unwrap();
        assert!(core.get("apiVersion").is_none());
        assert_eq!(core["groupVersion"], "v1");
        assert!(named(&core, "bindings").get("storageVersionHash").is_none());
        assert_eq!(named(&core, "pods")["shortNames"], json!(["po"]));
    }

    #[test]
    fn the_preferred_version_is_the_first() {
        let group = group(builtin(), "autoscaling").unwrap();
        assert_eq!(group["preferredVersion"]["version"], "v2");
        assert_eq!(group["versions"][1]["groupVersion"], "autoscaling/v1");
        assert!(super::group(builtin(), "").is_none(), "the core group is not below /apis");
    }

    #[test]
    fn aggregated_kinds_name_only_foreign_groups() {
        let core = aggregated_core(builtin());
        let pods =
            core["items"][0]["versions"][0]["resources"].as_array().unwrap().iter().find(|r| r["resource"] == "pods");
        let subs = pods.unwrap()["subresources"].as_array().unwrap();
        let of = |name: &str| &subs.iter().find(|s| s["subresource"] == name).unwrap()["responseKind"];
        assert_eq!(of("status"), &json!({"group": "", "version": "", "kind": "Pod"}));
        assert_eq!(of("eviction"), &json!({"group": "policy", "version": "v1", "kind": "Eviction"}));
        assert_eq!(aggregated_groups(builtin())["items"][0]["metadata"]["name"], "apiregistration.k8s.io");
    }

    #[test]
    fn the_tag_is_of_the_bytes() {
        assert_eq!(etag(b"a"), etag(b"a"));
        assert_ne!(etag(b"a"), etag(b"b"));
        assert_eq!(etag(b"").len(), 130);
        assert!(etag(b"").starts_with("\"CF83E1357EEFB8BD"));
    }
}
