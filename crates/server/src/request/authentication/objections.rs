//! The reasons why credentials were refused, joined as the reference joins them.

/// Reasons in the order in which they were found; equal ones once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objections(Vec<String>);

/// Every token is first compared with one that only the reference itself has, which objects with this text.
pub(crate) const INVALID_TOKEN: &str = "invalid bearer token";

impl Objections {
    pub fn push(&mut self, reason: impl Into<String>) {
        let reason = reason.into();
        if !self.0.contains(&reason) {
            self.0.push(reason);
        }
    }

    pub(crate) fn append(&mut self, others: Objections) {
        others.0.into_iter().for_each(|reason| self.push(reason));
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A single reason, or `[a, b]`.
    #[must_use]
    pub fn joined(&self) -> String {
        match self.0.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        }
    }
}

impl From<String> for Objections {
    fn from(reason: String) -> Self {
        Objections(vec![reason])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn au_10_equal_reasons_are_named_once() {
        let mut objections = Objections::default();
        objections.push("a");
        objections.push("a");
        assert_eq!(objections.joined(), "a");
        objections.append(Objections::from("b".to_owned()));
        objections.push("a");
        assert_eq!(objections.joined(), "[a, b]");
    }
}
