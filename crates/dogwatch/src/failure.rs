//! The error of a command: one sentence for the user, and an optional hint.

use std::fmt;

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    pub sentence: String,
    pub hint: Option<String>,
    /// Whether the command line, or a file that it names, is wrong: exit code 2 in place of 1.
    pub is_usage: bool,
    /// The exit code of a result that has one of its own.
    pub code: Option<u8>,
}

impl Failure {
    pub fn new(sentence: impl fmt::Display) -> Self {
        Failure { sentence: sentence.to_string(), hint: None, is_usage: false, code: None }
    }

    /// A wrong flag, or a file of a flag that cannot be used.
    pub fn usage(sentence: impl fmt::Display) -> Self {
        Failure { is_usage: true, ..Failure::new(sentence) }
    }

    /// A result that has an exit code of its own.
    pub fn with_code(code: u8, sentence: impl fmt::Display) -> Self {
        Failure { code: Some(code), ..Failure::new(sentence) }
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
