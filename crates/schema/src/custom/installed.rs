//! A CustomResourceDefinition that the server knows, and the kinds that it adds: one for each served version.
//!
//! Reading a definition does not compile its schemas: see [`Definition`].

use std::collections::HashMap;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use machinery::json::{Value, json};
use machinery::{GroupVersion, GroupVersionKind, Revision};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::columns::Column;
use super::definition::{Conversion, Definition, Scale, Source, Versions};
use crate::kind::{Kind, NameRule, Propagation, Rules, SelectableField, Subresource, UnknownField};

/// In the order of discovery.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// A definition and the kinds that it adds (none before its names are accepted).
#[derive(Clone, Debug)]
pub struct Installed {
    pub name: String,
    pub uid: String,
    pub group: String,
    /// `example.com/things`
    pub collection: String,
    pub kinds: Vec<Arc<Kind>>,
    /// Names in the spec.
    pub asked: Names,
    /// Names in the status.
    pub accepted: Names,
    pub conditions: Vec<Condition>,
    /// The definition is being deleted.
    pub deleting: bool,
    pub finalizers: Vec<String>,
    /// Hash of the spec and the accepted names.
    fingerprint: u64,
    source: Option<Arc<Source>>,
    since: Revision,
    /// The parsed spec, kept until the kinds are served: the write that accepts the names follows the create closely.
    spec: Option<Arc<ParsedSpec>>,
}

/// A parsed spec with its text.
#[derive(Debug)]
struct ParsedSpec {
    text: Bytes,
    hash: u64,
    spec: Spec,
}

impl ParsedSpec {
    fn parse(text: Bytes) -> Result<ParsedSpec, serde_json::Error> {
        let spec = serde_json::from_slice(&text)?;
        let mut hasher = std::hash::DefaultHasher::new();
        text.hash(&mut hasher);
        Ok(ParsedSpec { hash: hasher.finish(), spec, text })
    }
}

impl Installed {
    /// Reports whether the objects changed in a way that ends their watches.
    #[must_use]
    pub fn differs(&self, before: &Installed) -> bool {
        self.fingerprint != before.fingerprint || self.uid != before.uid
    }

    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Reports whether a condition is true.
    #[must_use]
    pub fn holds(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition.status == "True")
    }
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(default)]
    metadata: Metadata,
    #[serde(borrow)]
    spec: &'a RawValue,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    uid: String,
    deletion_timestamp: Option<String>,
    finalizers: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    accepted_names: Names,
    conditions: Option<Vec<Condition>>,
}

impl Status {
    fn holds(&self, name: &str) -> bool {
        self.conditions.iter().flatten().any(|condition| condition.kind == name && condition.status == "True")
    }
}

/// A condition in the status of a definition.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
}

/// `names` of a definition's spec, or `acceptedNames` of its status.
#[derive(Clone, Debug, Default, Deserialize, Hash, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Names {
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub kind: String,
    pub list_kind: String,
    pub categories: Vec<String>,
}

impl Names {
    /// Returns the names as JSON without empty ones; `plural` and `kind` are always present.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut value = json!({"plural": self.plural});
        for (name, text) in [("singular", &self.singular), ("kind", &self.kind), ("listKind", &self.list_kind)] {
            if !text.is_empty() || name == "kind" {
                value[name] = text.as_str().into();
            }
        }
        for (name, list) in [("shortNames", &self.short_names), ("categories", &self.categories)] {
            if !list.is_empty() {
                value[name] = list.iter().map(String::as_str).collect();
            }
        }
        value
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    group: String,
    scope: String,
    names: Names,
    versions: Vec<SpecVersion>,
    conversion: Option<SpecConversion>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecVersion {
    name: String,
    served: bool,
    storage: bool,
    deprecated: bool,
    deprecation_warning: Option<String>,
    subresources: Option<Subresources>,
    additional_printer_columns: Vec<Value>,
    selectable_fields: Vec<PathOnly>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Subresources {
    status: Option<Value>,
    scale: Option<SpecScale>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecScale {
    spec_replicas_path: String,
    status_replicas_path: String,
    label_selector_path: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PathOnly {
    json_path: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SpecConversion {
    strategy: String,
    webhook: Option<SpecWebhook>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecWebhook {
    client_config: Value,
    conversion_review_versions: Vec<String>,
}

/// Reads a stored definition at a revision. Compiled schemas of `before`, the same definition, are kept if they are
/// unchanged.
pub fn install(json: &Bytes, revision: Revision, before: Option<&Installed>) -> Result<Installed, serde_json::Error> {
    let head: Head<'_> = serde_json::from_slice(json)?;
    let text = head.spec.get().as_bytes();
    let parsed = match before.and_then(|before| before.spec.as_ref()).filter(|parsed| parsed.text == text) {
        Some(parsed) => Arc::clone(parsed),
        None => Arc::new(ParsedSpec::parse(json.slice_ref(text))?),
    };
    let spec = &parsed.spec;
    let names = head.status.accepted_names.clone();
    let served = head.status.holds("NamesAccepted") || head.status.holds("Established");
    let terminating = head.status.holds("Terminating");
    let fingerprint = {
        let mut hasher = std::hash::DefaultHasher::new();
        (parsed.hash, &names, served).hash(&mut hasher);
        hasher.finish()
    };
    let before = before.filter(|before| before.uid == head.metadata.uid && before.fingerprint == fingerprint);
    let mut installed = Installed {
        name: head.metadata.name.clone(),
        uid: head.metadata.uid.clone(),
        group: spec.group.clone(),
        collection: format!("{}/{}", spec.group, names.plural),
        kinds: Vec::new(),
        asked: spec.names.clone(),
        accepted: names.clone(),
        conditions: head.status.conditions.clone().unwrap_or_default(),
        deleting: head.metadata.deletion_timestamp.is_some(),
        finalizers: head.metadata.finalizers.clone(),
        fingerprint,
        source: None,
        since: before.map_or(revision, |before| before.since),
        spec: None,
    };
    if !served || names.plural.is_empty() {
        installed.spec = Some(parsed);
        return Ok(installed);
    }
    let compiled = before.and_then(|before| before.source.as_ref()).map(|source| Arc::clone(&source.versions));
    let versions =
        compiled.unwrap_or_else(|| Arc::new(Versions::new(spec.versions.iter().map(|version| version.name.clone()))));
    let source = Arc::new(Source { spec: json.slice_ref(text), versions });
    let storage = spec.versions.iter().find(|version| version.storage).map_or("", |version| &version.name).to_owned();
    let conversion = match &spec.conversion {
        Some(SpecConversion { strategy, webhook: Some(webhook) }) if strategy == "Webhook" => Conversion::Webhook {
            client: webhook.client_config.clone(),
            versions: webhook.conversion_review_versions.clone(),
        },
        _ => Conversion::None,
    };
    let before_kinds = before.map(|before| before.kinds.as_slice()).unwrap_or_default().iter();
    let before_forms: HashMap<&str, u32> =
        before_kinds.filter_map(|kind| Some((kind.gvk.version.as_str(), kind.definition.as_ref()?.form))).collect();
    for version in spec.versions.iter().filter(|version| version.served) {
        let form = before_forms.get(version.name.as_str()).copied().unwrap_or_else(next_form);
        let gvk = GroupVersionKind::new(&*spec.group, &*version.name, &*names.kind);
        let definition = Definition {
            name: installed.name.clone(),
            uid: installed.uid.clone(),
            since: installed.since,
            form,
            terminating,
            deprecation: deprecation(version, &gvk),
            columns: columns(version),
            scale: scale(version),
            conversion: conversion.clone(),
            source: Arc::clone(&source),
            version: version.name.clone(),
            storage: storage.clone(),
        };
        installed.kinds.push(Arc::new(kind(spec, &names, version, gvk, &storage, definition)));
    }
    installed.source = Some(source);
    Ok(installed)
}

/// Returns an unused value for [`Definition::form`].
fn next_form() -> u32 {
    /// Smaller numbers belong to built-in kinds.
    static NEXT: AtomicU32 = AtomicU32::new(1 << 8);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn kind(
    spec: &Spec,
    names: &Names,
    version: &SpecVersion,
    gvk: GroupVersionKind,
    storage: &str,
    definition: Definition,
) -> Kind {
    let subresources = version.subresources.as_ref();
    let has_status = subresources.is_some_and(|subresources| subresources.status.is_some());
    let verbs = || SUBRESOURCE_VERBS.map(str::to_owned).to_vec();
    let mut served_subresources = Vec::new();
    if has_status {
        served_subresources.push(Subresource { name: "status".to_owned(), gvk: gvk.clone(), verbs: verbs() });
    }
    if definition.scale.is_some() {
        let gvk = GroupVersionKind::new("autoscaling", "v1", "Scale");
        served_subresources.push(Subresource { name: "scale".to_owned(), gvk, verbs: verbs() });
    }
    let namespaced = spec.scope != "Cluster";
    let generic: &[&str] = if namespaced { &["metadata.name", "metadata.namespace"] } else { &["metadata.name"] };
    let mut fields: Vec<SelectableField> = generic.iter().map(|label| SelectableField::plain(label)).collect();
    fields.extend(version.selectable_fields.iter().map(|field| {
        let label = field.json_path.strip_prefix('.').unwrap_or(&field.json_path);
        SelectableField { label: label.to_owned(), paths: vec![field_names(&field.json_path)], absent: String::new() }
    }));
    Kind {
        list_kind: names.list_kind.clone(),
        plural: names.plural.clone(),
        singular: names.singular.clone(),
        short_names: names.short_names.clone(),
        categories: names.categories.clone(),
        namespaced,
        verbs: VERBS.map(str::to_owned).to_vec(),
        subresources: served_subresources,
        collection: format!("{}/{}", spec.group, names.plural),
        storage: GroupVersion::new(&*spec.group, storage),
        storage_hash: None,
        custom: true,
        fields,
        unknown_field: UnknownField::NotSupported,
        rules: Rules {
            name: NameRule::Dns1123Subdomain,
            unconditional_update: false,
            create_on_update: false,
            generation: true,
            status: has_status,
            delete_returns_object: false,
            graceful: false,
            propagation: Propagation::Background,
        },
        definition: Some(Arc::new(definition)),
        gvk,
    }
}

fn deprecation(version: &SpecVersion, gvk: &GroupVersionKind) -> Option<String> {
    version.deprecated.then(|| match &version.deprecation_warning {
        Some(warning) => warning.clone(),
        None => format!("{} {} is deprecated", gvk.group_version(), gvk.kind),
    })
}

/// Returns the columns up to the first invalid one.
fn columns(version: &SpecVersion) -> Vec<Column> {
    if version.additional_printer_columns.is_empty() {
        return vec![Column::age()];
    }
    version.additional_printer_columns.iter().map_while(Column::new).collect()
}

fn scale(version: &SpecVersion) -> Option<Scale> {
    let scale = version.subresources.as_ref()?.scale.as_ref()?;
    Some(Scale {
        spec_replicas: field_names(&scale.spec_replicas_path),
        status_replicas: field_names(&scale.status_replicas_path),
        selector: scale.label_selector_path.as_deref().filter(|path| !path.is_empty()).map(field_names),
    })
}

/// Splits a simple path into field names: `.spec.replicas`, `.spec.m['a.b']`.
fn field_names(path: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = path.strip_prefix('.').unwrap_or(path);
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix("['")
            && let Some(end) = inside.find("']")
        {
            names.push(inside[..end].to_owned());
            rest = inside[end + 2..].trim_start_matches('.');
            continue;
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        if end == 0 && rest.starts_with('[') {
            names.push(rest.to_owned());
            break;
        }
        names.push(rest[..end].to_owned());
        rest = rest[end..].trim_start_matches('.');
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(established: bool) -> Bytes {
        let status = if established { "True" } else { "False" };
        Bytes::from(
            json!({
                "metadata": {"name": "things.example.com", "uid": "u"},
                "spec": {"group": "example.com", "scope": "Namespaced", "names": {},
                    "versions": [
                        {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": {
                            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                         "selectableFields": [{"jsonPath": ".spec.color"}],
                         "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                            "properties": {"color": {"type": "string", "default": "blue"}}}}}}},
                        {"name": "v2", "served": false, "storage": false}]},
                "status": {"acceptedNames": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList",
                    "shortNames": ["th"]}, "conditions": [{"type": "Established", "status": status}]},
            })
            .to_string(),
        )
    }

    #[test]
    fn a_definition_adds_a_kind_for_each_served_version() {
        let none = install(&stored(false), Revision(3), None).unwrap();
        assert!(none.kinds.is_empty());
        let installed = install(&stored(true), Revision(4), Some(&none)).unwrap();
        assert!(installed.differs(&none));
        let [kind] = installed.kinds.as_slice() else { panic!("one kind") };
        assert_eq!(kind.gvk, GroupVersionKind::new("example.com", "v1", "Thing"));
        assert_eq!(kind.collection, "example.com/things");
        assert!(kind.custom && kind.rules.status && kind.subresource("scale").is_some());
        assert!(kind.selectable("spec.color").is_some());
        let definition = kind.definition.as_ref().unwrap();
        assert!(definition.version().schema.property("spec").is_some());
        assert!(definition.version_named("v2").is_some() && definition.version_named("v3").is_none());
        assert_eq!(definition.open_api_schema().unwrap()["type"], "object");
    }

    #[test]
    fn what_stays_the_same_is_kept() {
        let first = install(&stored(true), Revision(4), None).unwrap();
        let again = install(&stored(true), Revision(9), Some(&first)).unwrap();
        assert!(!again.differs(&first));
        let (a, b) = (first.kinds[0].definition.as_ref().unwrap(), again.kinds[0].definition.as_ref().unwrap());
        assert_eq!((a.form, a.since), (b.form, b.since));
        assert!(std::ptr::eq(a.version(), b.version()), "compiled once");
    }

    #[test]
    fn names_of_simple_paths() {
        assert_eq!(field_names(".spec.replicas"), ["spec", "replicas"]);
        assert_eq!(field_names(".metadata.annotations['a.b/c']"), ["metadata", "annotations", "a.b/c"]);
    }
}
