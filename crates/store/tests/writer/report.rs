//! Reports of the writing process: one line of output for each acknowledgement.

use std::fmt;
use std::str::FromStr;

/// One acknowledged write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    pub(crate) revision: u64,
    pub(crate) key: String,
    /// `None` is a delete.
    pub(crate) tag: Option<u64>,
}

impl fmt::Display for Acknowledged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tag {
            Some(tag) => write!(f, "put {} {} {tag:x}", self.revision, self.key),
            None => write!(f, "delete {} {}", self.revision, self.key),
        }
    }
}

impl FromStr for Acknowledged {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |text: &str, radix| u64::from_str_radix(text, radix).map_err(|error| format!("{line:?}: {error}"));
        let (revision, key, tag) = match words.as_slice() {
            ["put", revision, key, tag] => (revision, key, Some(number(tag, 16)?)),
            ["delete", revision, key] => (revision, key, None),
            _ => return Err(format!("{line:?} is not a report")),
        };
        Ok(Acknowledged { revision: number(revision, 10)?, key: (*key).to_owned(), tag })
    }
}
