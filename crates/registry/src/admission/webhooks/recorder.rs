//! Writes every review that is sent and its answer to a file, one JSON object a line, for golden tests of webhooks.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use machinery::json::{self, Map, Value, json};
use parking_lot::Mutex;

/// A file of reviews.
#[derive(Debug)]
pub struct Recorder(Mutex<File>);

impl Recorder {
    /// Appends to a file; only its owner can read it, since reviews have secrets in them.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path).map(|file| Recorder(Mutex::new(file)))
    }

    pub(super) fn record(&self, configuration: &str, webhook: &str, review: &[u8], answer: Result<&[u8], String>) {
        let text = |bytes: &[u8]| json::from_slice(bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(bytes)));
        let mut line = Map::new();
        line.insert("configuration", json!(configuration));
        line.insert("webhook", json!(webhook));
        line.insert("review", text(review));
        match answer {
            Ok(answer) => line.insert("answer", text(answer)),
            Err(failure) => line.insert("failure", json!(failure)),
        };
        let mut line = json::to_string(&Value::Object(line));
        line.push('\n');
        if let Err(error) = self.0.lock().write_all(line.as_bytes()) {
            tracing::error!(%error, "a review cannot be recorded");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bd_12_reviews_and_answers_are_lines_of_json() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reviews");
        let recorder = Recorder::open(&path).unwrap();
        recorder.record("c", "w", br#"{"a":1}"#, Ok(br#"{"b":2}"#));
        recorder.record("c", "w", br#"{"a":2}"#, Err("refused".to_owned()));
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], r#"{"configuration":"c","webhook":"w","review":{"a":1},"answer":{"b":2}}"#);
        assert_eq!(lines[1], r#"{"configuration":"c","webhook":"w","review":{"a":2},"failure":"refused"}"#);
    }
}
