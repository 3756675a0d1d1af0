//! Managed fields of a version that a CustomResourceDefinition no longer has.
//!
//! Ownership in such a version cannot be compared with that in another one. The reference refuses to apply, and forgets all
//! owners when the object is written in another way.

use machinery::json::Value;
use schema::kind::Kind;

use crate::meta;

/// Returns the first version among the managed fields of a custom resource that its definition does not have.
pub(crate) fn unknown<'a>(kind: &Kind, object: &'a Value) -> Option<&'a str> {
    let definition = kind.definition.as_ref()?;
    let is_known = |text: &str| {
        text.rsplit_once('/')
            .is_some_and(|(group, version)| group == kind.gvk.group && definition.version_named(version).is_some())
    };
    let entries = object["metadata"]["managedFields"].as_array()?;
    entries.iter().filter_map(|entry| entry["apiVersion"].as_str()).find(|version| !is_known(version))
}

/// Removes all owners if one of them wrote in a version that the definition does not have.
pub(crate) fn forget_unknown(kind: &Kind, object: &mut Value) {
    if unknown(kind, object).is_some() {
        meta::of_mut(object).shift_remove("managedFields");
    }
}
