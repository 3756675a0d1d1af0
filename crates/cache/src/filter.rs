//! Filters of lists and watches.
//!
//! A selector may have as many terms as fit into a request, and is compared with every object of a list. Terms on one field are
//! therefore grouped when a filter is made, as label selectors group those on one label: the cost for an object does not depend
//! on the number of terms.

use machinery::{fields, labels};

use crate::item::Item;
use crate::spec::Spec;

/// Conditions on namespace, name, labels and fields, all of which must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    namespace: Option<Box<str>>,
    labels: Option<labels::Selector>,
    /// Values that fields must have, each term once.
    terms: Vec<Term>,
    /// Values that fields must not have, sorted, by field.
    refused: Vec<(Slot, Vec<Box<str>>)>,
}

/// A value that a field must have, with the field resolved to a slot of the item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term {
    pub slot: Slot,
    pub value: Box<str>,
}

/// The place of a field's value in an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    Name,
    Namespace,
    /// Index into [`Item::fields`].
    Field(usize),
}

impl Slot {
    fn value(self, item: &Item) -> &str {
        match self {
            Slot::Name => item.name(),
            Slot::Namespace => item.namespace(),
            Slot::Field(at) => item.fields().get(at).map_or("", |value| value),
        }
    }
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
        let (mut terms, mut unequal): (Vec<Term>, Vec<Term>) = (Vec::new(), Vec::new());
        for requirement in fields.into_iter().flat_map(fields::Selector::requirements) {
            let slot = match requirement.field.as_str() {
                "metadata.name" => Slot::Name,
                "metadata.namespace" => Slot::Namespace,
                field => match spec.slot(field) {
                    Some(at) => Slot::Field(at),
                    None => continue,
                },
            };
            let term = Term { slot, value: requirement.value.as_str().into() };
            if requirement.operator == fields::Operator::Equals { &mut terms } else { &mut unequal }.push(term);
        }
        terms.sort_unstable();
        terms.dedup();
        unequal.sort_unstable();
        unequal.dedup();
        let mut refused: Vec<(Slot, Vec<Box<str>>)> = Vec::new();
        for Term { slot, value } in unequal {
            match refused.last_mut() {
                Some((known, values)) if *known == slot => values.push(value),
                _ => refused.push((slot, vec![value])),
            }
        }
        let labels = labels.filter(|selector| !selector.is_everything());
        Filter { namespace: namespace.map(Into::into), labels, terms, refused }
    }

    #[must_use]
    pub fn admits(&self, item: &Item) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == item.namespace())
            // Of several values for one field an object has at most one, so that this ends at the second.
            && self.terms.iter().all(|term| term.slot.value(item) == &*term.value)
            && self.refused.iter().all(|(slot, values)| {
                let value = slot.value(item);
                values.binary_search_by(|refused| (**refused).cmp(value)).is_err()
            })
            && self.labels.as_ref().is_none_or(|selector| selector.matches_sorted(item.labels()))
    }

    /// True if every object of the collection, or of the namespace, matches.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.terms.is_empty() && self.refused.is_empty() && self.labels.is_none()
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
        self.terms.iter().find(|term| term.slot == slot).map(|term| &*term.value)
    }

    /// A field of the object that must be equal to a value.
    pub(crate) fn equal_field(&self) -> Option<(usize, &str)> {
        self.terms.iter().find_map(|term| match term.slot {
            Slot::Field(at) => Some((at, &*term.value)),
            _ => None,
        })
    }

    /// A label that must be equal to a value.
    pub(crate) fn equal_label(&self) -> Option<(&str, &str)> {
        self.labels.as_ref()?.equalities().next()
    }
}

#[cfg(test)]
mod tests {
    use machinery::Revision;
    use store::Key;

    use super::*;

    fn item() -> Item {
        let stored = br#"{"kind":"K","apiVersion":"v1","metadata":{"name":"a"}}"#;
        let key = Key::new("core/things/default/a").expect("a key");
        Item::new(key, Revision(1), stored, &Spec::default()).expect("an object")
    }

    #[test]
    fn field_terms_are_grouped_by_field() {
        let text: Vec<String> = (0..1000).map(|name| format!("metadata.name!=n{name}")).collect();
        let fields = fields::Selector::parse(&text.join(",")).expect("a selector");
        let filter = Filter::new(None, None, Some(&fields), &Spec::default());
        assert_eq!((filter.terms.len(), filter.refused.len()), (0, 1));
        assert!(filter.admits(&item()) && !filter.is_open());
        let named = |text: &str| {
            let fields = fields::Selector::parse(text).expect("a selector");
            Filter::new(None, None, Some(&fields), &Spec::default())
        };
        assert!(!named("metadata.name!=b,metadata.name!=a").admits(&item()));
        assert!(named("metadata.name=a,metadata.name=a").admits(&item()));
        assert!(!named("metadata.name=a,metadata.name=b").admits(&item()));
    }
}
