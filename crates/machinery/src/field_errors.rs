//! The errors of one object, with a bound on their text.

use std::ops::{Deref, DerefMut};

use crate::field_error::{BadValue, FieldError, TEXT_BYTES_MAX};
use crate::json::Value;

/// The errors of one object. All are counted; once their text exceeds what a response shows, further ones have none. A body can
/// have a million errors, each below a key as long as a path may be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors {
    list: Vec<FieldError>,
    bytes: usize,
}

impl Errors {
    #[must_use]
    pub const fn new() -> Self {
        Errors { list: Vec::new(), bytes: 0 }
    }

    pub fn push(&mut self, error: FieldError) {
        self.push_with(|| error);
    }

    /// Adds an error that is only made if its text is kept.
    pub fn push_with(&mut self, error: impl FnOnce() -> FieldError) {
        if self.bytes > TEXT_BYTES_MAX {
            self.list.push(FieldError::internal(String::new(), String::new()));
            return;
        }
        let error = error();
        self.bytes += text_bytes(&error);
        self.list.push(error);
    }

    /// Moves all errors of `other` here.
    pub fn append(&mut self, other: &mut Errors) {
        other.bytes = 0;
        self.extend(other.list.drain(..));
    }

    #[must_use]
    pub fn into_vec(self) -> Vec<FieldError> {
        self.list
    }
}

/// At most the length of the error's text.
fn text_bytes(error: &FieldError) -> usize {
    let value = match &error.bad_value {
        BadValue::Omitted => 0,
        BadValue::Text(text) => text.len(),
        BadValue::Shown(Value::String(text)) => text.len(),
        BadValue::Shown(Value::Array(items)) => items.len(),
        BadValue::Shown(Value::Object(members)) => members.len(),
        BadValue::Shown(_) => 0,
    };
    error.field.len() + error.detail.len() + value
}

impl Deref for Errors {
    type Target = [FieldError];

    fn deref(&self) -> &[FieldError] {
        &self.list
    }
}

impl DerefMut for Errors {
    fn deref_mut(&mut self) -> &mut [FieldError] {
        &mut self.list
    }
}

impl Extend<FieldError> for Errors {
    fn extend<I: IntoIterator<Item = FieldError>>(&mut self, errors: I) {
        errors.into_iter().for_each(|error| self.push(error));
    }
}

impl FromIterator<FieldError> for Errors {
    fn from_iter<I: IntoIterator<Item = FieldError>>(errors: I) -> Self {
        let mut found = Errors::new();
        found.extend(errors);
        found
    }
}

impl From<Vec<FieldError>> for Errors {
    fn from(errors: Vec<FieldError>) -> Self {
        errors.into_iter().collect()
    }
}

impl IntoIterator for Errors {
    type Item = FieldError;
    type IntoIter = std::vec::IntoIter<FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field_error::join;

    #[test]
    fn errors_beyond_the_text_of_a_response_are_only_counted() {
        let mut errors = Errors::new();
        let made = std::cell::Cell::new(0);
        for n in 0..10_000 {
            errors.push_with(|| {
                made.set(made.get() + 1);
                FieldError::invalid("f".repeat(1000), format!("value {n}"), "no")
            });
        }
        assert!(made.get() < 1100, "{}", made.get());
        assert_eq!(errors.len(), 10_000);
        let text = join(&errors);
        assert!(text.len() < 2 * TEXT_BYTES_MAX);
        let shown = text.matches("Invalid value").count();
        assert!(text.ends_with(&format!("and {} more errors]", 10_000 - shown)), "{}", &text[text.len() - 100..]);
        assert!(!text.contains("Internal error"));
    }
}
