//! One served kind, as data. Built-in kinds ship with the binary; a CustomResourceDefinition adds one at run time.

use std::borrow::Cow;
use std::sync::Arc;

use machinery::json::Value;
use machinery::{GroupResource, GroupVersion, GroupVersionKind};

use crate::custom::Definition;

/// A resource in one version: everything the generic code needs to serve it.
#[derive(Clone, Debug)]
pub struct Kind {
    pub gvk: GroupVersionKind,
    pub list_kind: String,
    /// The name in paths: `pods`.
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// As discovery lists them, sorted.
    pub verbs: Vec<String>,
    pub subresources: Vec<Subresource>,
    /// Where its objects live in the store: `apps/deployments`. Versions of one resource share it.
    pub collection: String,
    /// The version its objects are stored in. Equal to `gvk.version` (and group) for all but a few.
    pub storage: GroupVersion,
    /// The version that discovery's `storageVersionHash` speaks of, where it is not `storage`.
    pub storage_hash: Option<GroupVersion>,
    /// Custom resources show kind and apiVersion in list items, are never strategic-merged, and speak no protobuf.
    pub custom: bool,
    pub fields: Vec<SelectableField>,
    pub unknown_field: UnknownField,
    pub rules: Rules,
    /// What a custom kind has from its CustomResourceDefinition.
    pub definition: Option<Arc<Definition>>,
}

/// A subresource as discovery shows it.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// `status`, `scale`, `binding`, …
    pub name: String,
    /// The kind it speaks: the parent's own, or another one such as `autoscaling/v1` Scale.
    pub gvk: GroupVersionKind,
    pub verbs: Vec<String>,
}

/// A field that `fieldSelector` may name.
#[derive(Clone, Debug)]
pub struct SelectableField {
    /// `status.phase`
    pub label: String,
    /// Where its value stands in the stored object; several are tried in order until one is there and not empty.
    pub paths: Vec<Vec<String>>,
    /// What it is when no path gives a value: `""`, `"false"`, …
    pub absent: String,
}

/// How the refusal of an unknown field selector reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "each is named after the words of its message")]
pub enum UnknownField {
    /// `"<k>" is not a known field selector: only "metadata.name", "metadata.namespace"`
    NotKnown,
    /// `field label not supported: <k>`
    NotSupported,
    /// `field label "<k>" not supported for <Kind>`
    NotSupportedForKind,
    /// `field label not supported for <gvk>: <k>`
    NotSupportedForGvk,
}

/// What generic code must know beyond the shape.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub name: NameRule,
    /// PUT without a resourceVersion means "last write wins"; otherwise 422.
    pub unconditional_update: bool,
    /// PUT of a missing object creates it.
    pub create_on_update: bool,
    /// metadata.generation starts at 1 and rises with the spec.
    pub generation: bool,
    /// Has a status that only the status subresource may write.
    pub status: bool,
    /// DELETE answers with the object instead of a Status.
    pub delete_returns_object: bool,
    /// Deleted with a grace period (pods).
    pub graceful: bool,
    pub propagation: Propagation,
}

/// What a name must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    Dns1123Subdomain,
    Dns1123Label,
    /// Only what a path segment needs.
    PathSegment,
    /// A subdomain of at most 52 characters at creation (CronJob).
    CronJob,
    /// Checked by the kind's own validation.
    Own,
}

/// What happens to dependents when a delete does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Orphan,
    /// The kind takes no part in garbage collection (Event).
    Unsupported,
}

impl Rules {
    /// What holds for a kind of which nothing special is known.
    pub const PLAIN: Rules = Rules {
        name: NameRule::Dns1123Subdomain,
        unconditional_update: true,
        create_on_update: false,
        generation: false,
        status: false,
        delete_returns_object: false,
        graceful: false,
        propagation: Propagation::Background,
    };
}

impl SelectableField {
    /// A field whose label is also its path.
    #[must_use]
    pub fn plain(label: &str) -> Self {
        let path = label.split('.').map(str::to_owned).collect();
        SelectableField { label: label.to_owned(), paths: vec![path], absent: String::new() }
    }

    /// What selectors compare with, read from a stored object. Numbers and booleans read as JSON writes them.
    #[must_use]
    pub fn value<'a>(&'a self, object: &'a Value) -> Cow<'a, str> {
        for path in &self.paths {
            let found = path.iter().try_fold(object, |at, segment| match at {
                Value::Object(map) => map.get(segment),
                Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
                _ => None,
            });
            match found {
                Some(Value::String(text)) if !text.is_empty() => return Cow::Borrowed(text),
                Some(Value::Bool(truth)) => return Cow::Borrowed(if *truth { "true" } else { "false" }),
                Some(Value::Number(number)) => return Cow::Owned(number.to_string()),
                _ => {}
            }
        }
        Cow::Borrowed(&self.absent)
    }
}

impl Kind {
    #[must_use]
    pub fn group_version(&self) -> GroupVersion {
        self.gvk.group_version()
    }

    /// `pods`, `deployments.apps`: how messages name it.
    #[must_use]
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&*self.gvk.group, &*self.plural)
    }

    /// `Pod`, `Deployment.apps`: how Invalid messages name it.
    #[must_use]
    pub fn group_kind(&self) -> GroupResource {
        GroupResource::new(&*self.gvk.group, &*self.gvk.kind)
    }

    #[must_use]
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// Whether objects of it are kept: reviews and bindings are only ever created.
    #[must_use]
    pub fn stored(&self) -> bool {
        self.custom || self.allows("create") && self.allows("get")
    }

    /// The refusal of a field selector that names a field it may not.
    #[must_use]
    pub fn unknown_field_message(&self, label: &str) -> String {
        match self.unknown_field {
            UnknownField::NotKnown => {
                format!(r#""{label}" is not a known field selector: only "metadata.name", "metadata.namespace""#)
            }
            UnknownField::NotSupported => format!("field label not supported: {label}"),
            UnknownField::NotSupportedForKind => {
                format!(r#"field label "{label}" not supported for {}"#, self.gvk.kind)
            }
            UnknownField::NotSupportedForGvk => format!("field label not supported for {}: {label}", self.gvk),
        }
    }

    #[must_use]
    pub fn selectable(&self, label: &str) -> Option<&SelectableField> {
        self.fields.iter().find(|field| field.label == label)
    }

    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }
}
