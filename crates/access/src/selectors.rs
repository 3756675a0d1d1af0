//! The selectors of a list, watch or deletecollection, as attributes of the request.
//!
//! A request carries them as text. They are parsed when an authorizer looks at them, which most never do.

use std::borrow::Cow;

use machinery::{fields, labels};

/// The selectors of a request. The default has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selectors<'a> {
    pub labels: LabelTerms<'a>,
    pub fields: FieldTerms<'a>,
}

/// A label selector: not parsed yet, or the terms that a review names.
#[derive(Clone, Copy, Debug, Default)]
pub enum LabelTerms<'a> {
    #[default]
    None,
    Text(&'a str),
    Terms(&'a [labels::Requirement]),
}

/// A field selector: not parsed yet, or the terms that a review names.
#[derive(Clone, Copy, Debug, Default)]
pub enum FieldTerms<'a> {
    #[default]
    None,
    Text(&'a str),
    Terms(&'a [fields::Requirement]),
}

impl<'a> LabelTerms<'a> {
    /// The terms. A text that cannot be parsed has none: its request is refused later.
    #[must_use]
    pub fn requirements(self) -> Cow<'a, [labels::Requirement]> {
        match self {
            LabelTerms::None => Cow::Borrowed(&[]),
            LabelTerms::Terms(terms) => Cow::Borrowed(terms),
            LabelTerms::Text(text) => Cow::Owned(
                labels::Selector::parse(text).map(|parsed| parsed.requirements().to_vec()).unwrap_or_default(),
            ),
        }
    }
}

impl<'a> FieldTerms<'a> {
    /// The terms. A text that cannot be parsed has none: its request is refused later.
    #[must_use]
    pub fn requirements(self) -> Cow<'a, [fields::Requirement]> {
        match self {
            FieldTerms::None => Cow::Borrowed(&[]),
            FieldTerms::Terms(terms) => Cow::Borrowed(terms),
            FieldTerms::Text(text) => Cow::Owned(
                fields::Selector::parse(text).map(|parsed| parsed.requirements().to_vec()).unwrap_or_default(),
            ),
        }
    }

    /// Whether a term requires exactly this value of a field.
    #[must_use]
    pub fn require(self, field: &str, value: &str) -> bool {
        self.requirements()
            .iter()
            .any(|term| term.operator == fields::Operator::Equals && term.field == field && term.value == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn az_21_texts_are_parsed_when_asked_and_bad_ones_have_no_terms() {
        let terms = FieldTerms::Text("spec.nodeName=n,metadata.name!=x");
        assert_eq!(terms.requirements().len(), 2);
        assert!(terms.require("spec.nodeName", "n"));
        assert!(!terms.require("spec.nodeName", "m"));
        assert!(!terms.require("metadata.name", "x"));
        assert!(FieldTerms::Text("spec.nodeName").requirements().is_empty());
        assert!(LabelTerms::Text("a in (").requirements().is_empty());
        assert_eq!(LabelTerms::Text("a in (b,c),!d").requirements().len(), 2);
        assert!(LabelTerms::None.requirements().is_empty());
        assert!(!FieldTerms::None.require("spec.nodeName", "n"));
    }
}
