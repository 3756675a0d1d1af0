//! Which objects a reader asked for.

use machinery::{fields, labels};

use crate::item::Item;
use crate::spec::Spec;

/// Namespace, name, labels and fields, all of which must fit.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    namespace: Option<Box<str>>,
    labels: Option<labels::Selector>,
    terms: Vec<Term>,
}

/// One requirement of a field selector, its field resolved to a place in the item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub slot: Slot,
    pub equal: bool,
    pub value: Box<str>,
}

/// Where a field's value is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    Name,
    Namespace,
    /// Index into [`Item::fields`].
    Field(usize),
}

impl Filter {
    /// `namespace` is the one of the request's path. A field the collection does not know must have been refused before.
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

    /// Whether everything of the collection (or of the namespace) is wanted.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.terms.is_empty() && self.labels.is_none()
    }

    /// The namespace that all admitted objects are in, if there is one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref().or_else(|| self.equal_to(Slot::Namespace))
    }

    /// The name that all admitted objects have, if there is one.
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
