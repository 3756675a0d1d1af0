//! The fields of the kinds: order, types, omission when empty, merging.
//!
//! - [`shape`]: the types themselves, the same for built-in kinds and for kinds known only by a schema
//! - `table`: reads the committed table of the built-in kinds, `types.tsv`, on first use
//! - `internal`: values as the structs inside a Kubernetes server, for refusals that show them so
//! - [`structural`]: builds the type of a custom kind from its schema; [`json_schema`]: the way back, for type checks

pub mod internal;
pub mod json_schema;
pub mod shape;
pub mod structural;
mod table;

use std::sync::{Arc, OnceLock};

use machinery::GroupVersionKind;

pub use shape::{Either, Field, Form, List, Listing, Node, NodeId, Object, Scalar, Shapes, Strategy, Type};

/// The committed table of the built-in kinds.
pub(crate) const TYPES_TABLE: &str = include_str!("types.tsv");

/// The types of the built-in kinds.
pub struct Types {
    shapes: Arc<Shapes>,
    /// Sorted by group, version and kind.
    kinds: Vec<(&'static str, &'static str, &'static str, NodeId)>,
}

impl Types {
    /// Returns the table of this binary, parsed on first use (about a millisecond).
    pub fn get() -> &'static Types {
        static TYPES: OnceLock<Types> = OnceLock::new();
        TYPES.get_or_init(|| {
            let (shapes, kinds) = table::read(TYPES_TABLE);
            Types { shapes: Arc::new(shapes), kinds }
        })
    }

    /// Returns the type of a built-in kind, including lists and options (`PodList`, `DeleteOptions`).
    #[must_use]
    pub fn kind(&self, gvk: &GroupVersionKind) -> Option<Type> {
        let wanted = (&*gvk.group, &*gvk.version, &*gvk.kind);
        let at = self.kinds.binary_search_by(|(g, v, k, _)| (*g, *v, *k).cmp(&wanted)).ok()?;
        Some(Type::new(Arc::clone(&self.shapes), self.kinds[at].3, stored_as_json(&gvk.group)))
    }

    /// Iterates over the kinds of the table.
    pub fn kinds(&self) -> impl Iterator<Item = GroupVersionKind> + '_ {
        self.kinds.iter().map(|(g, v, k, _)| GroupVersionKind::new(*g, *v, *k))
    }

    /// Returns the graph of all built-in types.
    pub(crate) fn shapes(&self) -> &Shapes {
        &self.shapes
    }

    /// Returns the kinds that have this type.
    pub(crate) fn kinds_of(&self, node: NodeId) -> impl Iterator<Item = GroupVersionKind> + '_ {
        let found = self.kinds.iter().filter(move |(.., id)| *id == node);
        found.map(|(g, v, k, _)| GroupVersionKind::new(*g, *v, *k))
    }

    /// Returns the type of `metadata`.
    #[must_use]
    pub fn object_meta(&self) -> Type {
        let partial = self.kind(&GroupVersionKind::new("meta.k8s.io", "v1", "PartialObjectMetadata"));
        let partial = partial.expect("the table has PartialObjectMetadata: a test reads it");
        partial.field("metadata").expect("an object has metadata")
    }
}

/// Reports whether Kubernetes stores the group as JSON. Others are stored as protobuf, which cannot distinguish an
/// empty list from an absent one: an empty list that is always present is read back as null.
fn stored_as_json(group: &str) -> bool {
    matches!(group, "apiextensions.k8s.io" | "apiregistration.k8s.io")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Type {
        Types::get().kind(&GroupVersionKind::new("", "v1", "Pod")).unwrap()
    }

    #[test]
    fn fields_stand_in_the_order_of_the_wire() {
        let pod = pod();
        let Form::Object(object) = &pod.node().form else { panic!("a pod is an object") };
        let names: Vec<_> = object.fields.iter().map(|f| &*f.name).collect();
        assert_eq!(names, ["kind", "apiVersion", "metadata", "spec", "status"]);
    }

    #[test]
    fn lists_know_their_keys() {
        let containers = pod().field("spec").unwrap().field("containers").unwrap();
        let Form::List(list) = &containers.node().form else { panic!("a list") };
        assert!(matches!(&list.listing, Listing::Map(keys) if keys.len() == 1 && keys[0] == "name"));
        let ports = containers.item().unwrap().field("ports").unwrap();
        let Form::List(list) = &ports.node().form else { panic!("a list") };
        assert!(matches!(&list.listing, Listing::Map(keys) if keys.len() == 2 && keys[1] == "protocol"));
        let finalizers = pod().field("metadata").unwrap().field("finalizers").unwrap();
        let Form::List(list) = &finalizers.node().form else { panic!("a list") };
        assert!(matches!(list.listing, Listing::Set));
    }

    #[test]
    fn embedded_structs_have_a_path_in_protobuf() {
        let volumes = pod().field("spec").unwrap().field("volumes").unwrap().item().unwrap();
        let Form::Object(volume) = &volumes.node().form else { panic!("an object") };
        assert_eq!(volume.field("hostPath").unwrap().protobuf[..], [2, 1]);
        assert_eq!(volume.field("name").unwrap().protobuf[..], [1]);
        assert!(volume.field("name").unwrap().preset().is_some());
    }

    #[test]
    fn a_place_may_merge_otherwise_than_its_type() {
        let gvk = GroupVersionKind::new("", "v1", "PersistentVolume");
        let claim = Types::get().kind(&gvk).unwrap().field("spec").unwrap().field("claimRef").unwrap();
        let Form::Object(claim) = &claim.node().form else { panic!("an object") };
        assert!(!claim.atomic, "a volume's claim is granular");
        let gvk = GroupVersionKind::new("", "v1", "Event");
        let involved = Types::get().kind(&gvk).unwrap().field("involvedObject").unwrap();
        let Form::Object(involved) = &involved.node().form else { panic!("an object") };
        assert!(involved.atomic, "other object references are one field");
    }

    #[test]
    fn every_resource_of_the_kind_table_is_known() {
        for name in ["Pod", "PodList", "Status", "DeleteOptions", "Binding", "Node"] {
            assert!(Types::get().kind(&GroupVersionKind::new("", "v1", name)).is_some(), "{name}");
        }
        assert!(Types::get().kind(&GroupVersionKind::new("policy", "v1", "Eviction")).is_some());
        assert!(Types::get().kind(&GroupVersionKind::new("autoscaling", "v1", "Scale")).is_some());
        assert!(Types::get().kind(&GroupVersionKind::new("", "v1", "Nope")).is_none());
        assert!(Types::get().object_meta().field("labels").is_some());
    }
}
