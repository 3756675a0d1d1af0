//! The error of a command: one sentence for the user, and an optional hint.

use std::fmt;

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    pub sentence: String,
    pub hint: Option<String>,
}

impl Failure {
    pub fn new(sentence: impl fmt::Display) -> Self {
        Failure { sentence: sentence.to_string(), hint: None }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}
