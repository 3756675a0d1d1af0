//! Filters of lists and watches.

use machinery::{fields, labels};

use crate::item::Item;
use crate::spec::Spec;

/// Conditions on namespace, name, labels and fields, all of which must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    namespace: Option<Box<str>>,
    labels: Option<labels::Selector>,
    terms: Vec<Term>,
}

/// One requirement of a field selector, with its field resolved to a slot of the item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub slot: Slot,
    pub equal: bool,
    pub value: Box<str>,
}

/// The place of a field's value in an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    Name,
    Namespace,
    /// Index into [`Item::fields`].
    Field(usize),
}

impl Filter {
    /// `namespace` is the one of the request's path. The caller has refused fields that the collection does not have.
    #[must_use]
    pub fn new(
        namespace: Option<&str>,
        labels: Option<labels::Selector>,
        fields: Option<&fields::Selector>,
        spec: &Spec,
    ) -> Self {
        let terms = fields
            .into_iter()
            .flat_map(fields::Selector::requirements)
            .filter_map(|requirement| {
                let slot = match requirement.field.as_str() {
                    "metadata.name" => Slot::Name,
                    "metadata.namespace" => Slot::Namespace,
                    field => Slot::Field(spec.slot(field)?),
                };
                let equal = requirement.operator == fields::Operator::Equals;
                Some(Term { slot, equal, value: requirement.value.as_str().into() })
            })
            .collect();
        let labels = labels.filter(|selector| !selector.is_everything());
        Filter { namespace: namespace.map(Into::into), labels, terms }
    }

    #[must_use]
    pub fn admits(&self, item: &Item) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == item.namespace())
            && self.terms.iter().all(|term| {
                let value = match term.slot {
                    Slot::Name => item.name(),
                    Slot::Namespace => item.namespace(),
                    Slot::Field(at) => item.fields().get(at).map_or("", |value| value),
                };
                (value == &*term.value) == term.equal
            })
            && self.labels.as_ref().is_none_or(|selector| selector.matches(|key| item.label(key)))
    }

    /// True if every object of the collection, or of the namespace, matches.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.terms.is_empty() && self.labels.is_none()
    }

    /// The namespace of all matching objects, if there is only one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref().or_else(|| self.equal_to(Slot::Namespace))
    }

    /// The name of all matching objects, if there is only one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.equal_to(Slot::Name)
    }

    fn equal_to(&self, slot: Slot) -> Option<&str> {
        self.terms.iter().find(|term| term.slot == slot && term.equal).map(|term| &*term.value)
    }

    /// A field of the object that must be equal to a value.
    pub(crate) fn equal_field(&self) -> Option<(usize, &str)> {
        self.terms.iter().find_map(|term| match term.slot {
            Slot::Field(at) if term.equal => Some((at, &*term.value)),
            _ => None,
        })
    }

    /// A label that must be equal to a value.
    pub(crate) fn equal_label(&self) -> Option<(&str, &str)> {
        self.labels.as_ref()?.equalities().next()
    }
}
