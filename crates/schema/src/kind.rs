//! A served kind as data. Built-in kinds are part of the binary; a CustomResourceDefinition adds kinds at run time.

use std::borrow::Cow;
use std::sync::Arc;

use machinery::json::Value;
use machinery::{GroupResource, GroupVersion, GroupVersionKind};

use crate::custom::Definition;

/// A resource in one version.
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
    /// Sorted, in the order of discovery.
    pub verbs: Vec<String>,
    pub subresources: Vec<Subresource>,
    /// The collection in the store: `apps/deployments`. All versions of a resource share it.
    pub collection: String,
    /// The version that objects are stored in. Equal to `gvk.version` (and group) for most kinds.
    pub storage: GroupVersion,
    /// The version of `storageVersionHash` in discovery, if it is not `storage`.
    pub storage_hash: Option<GroupVersion>,
    /// Custom resources have kind and apiVersion in list items, no strategic merge, and no protobuf.
    pub custom: bool,
    pub fields: Vec<SelectableField>,
    pub unknown_field: UnknownField,
    pub rules: Rules,
    /// The CustomResourceDefinition of a custom kind.
    pub definition: Option<Arc<Definition>>,
}

/// A subresource in discovery.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// `status`, `scale`, `binding`, …
    pub name: String,
    /// The kind of its objects: that of the parent, or another one such as `autoscaling/v1` Scale.
    pub gvk: GroupVersionKind,
    pub verbs: Vec<String>,
}

/// A field that `fieldSelector` supports.
#[derive(Clone, Debug)]
pub struct SelectableField {
    /// `status.phase`
    pub label: String,
    /// Paths of the value in the stored object; the first that is present and not empty counts.
    pub paths: Vec<Vec<String>>,
    /// The value if no path has one: `""`, `"false"`, …
    pub absent: String,
}

/// The error text for an unknown field selector.
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

/// Behaviour of the verbs for a kind.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub name: NameRule,
    /// PUT without a resourceVersion means "last write wins"; otherwise 422.
    pub unconditional_update: bool,
    /// PUT of a missing object creates it.
    pub create_on_update: bool,
    /// metadata.generation starts at 1 and rises with the spec.
    pub generation: bool,
    /// The kind has a status that only the status subresource may write.
    pub status: bool,
    /// DELETE returns the object instead of a Status.
    pub delete_returns_object: bool,
    /// Objects are deleted with a grace period (pods).
    pub graceful: bool,
    pub propagation: Propagation,
}

/// The rule for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    Dns1123Subdomain,
    Dns1123Label,
    /// Any valid path segment.
    PathSegment,
    /// A subdomain of at most 52 characters at creation (CronJob).
    CronJob,
    /// Checked by the kind's own validation.
    Own,
}

/// The default propagation policy of deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Orphan,
    /// The kind takes no part in garbage collection (Event).
    Unsupported,
}

impl Rules {
    /// Returns the rules of a kind without special behaviour.
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
    /// Returns a field whose label is also its path.
    #[must_use]
    pub fn plain(label: &str) -> Self {
        let path = label.split('.').map(str::to_owned).collect();
        SelectableField { label: label.to_owned(), paths: vec![path], absent: String::new() }
    }

    /// Returns the value of a stored object that selectors compare. Numbers and booleans are in JSON notation.
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

    /// Returns the name in messages: `pods`, `deployments.apps`.
    #[must_use]
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&*self.gvk.group, &*self.plural)
    }

    /// Returns the name in Invalid messages: `Pod`, `Deployment.apps`.
    #[must_use]
    pub fn group_kind(&self) -> GroupResource {
        GroupResource::new(&*self.gvk.group, &*self.gvk.kind)
    }

    #[must_use]
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// Reports whether objects are stored: reviews and bindings can only be created.
    #[must_use]
    pub fn stored(&self) -> bool {
        self.custom || self.allows("create") && self.allows("get")
    }

    /// Returns the error text for an unsupported field in a field selector.
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
