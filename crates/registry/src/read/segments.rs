//! The bytes of an answer as slices of shared buffers, so that rendering an object never copies it.

use bytes::Bytes;
use machinery::json::Value;
use serde::Serialize;

/// Pieces that are sent one after another.
#[derive(Clone, Debug, Default)]
pub struct Segments(pub Vec<Bytes>);

impl Segments {
    #[must_use]
    pub fn one(bytes: impl Into<Bytes>) -> Self {
        Segments(vec![bytes.into()])
    }

    /// A value as JSON and a newline.
    pub fn json(value: &impl Serialize) -> Self {
        let mut text = serde_json::to_vec(value).expect("a JSON value serialises into memory");
        text.push(b'\n');
        Segments::one(text)
    }

    #[must_use]
    pub fn pretty(value: &Value) -> Self {
        let mut text = serde_json::to_vec_pretty(value).expect("a JSON value serialises into memory");
        text.push(b'\n');
        Segments::one(text)
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.0.push(bytes);
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everything in one buffer. Copies unless there is only one piece.
    #[must_use]
    pub fn concat(&self) -> Bytes {
        match self.0.as_slice() {
            [one] => one.clone(),
            many => many.concat().into(),
        }
    }
}
