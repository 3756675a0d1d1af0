//! Rows of another server's lab, which a replay of its changes shows again.

use std::collections::HashMap;
use std::sync::Arc;

use cache::Event;
use jiff::Timestamp;
use machinery::Revision;
use machinery::json::Value;

use super::Recorder;
use super::changes::{Change, Writer};
use super::clients::shortened;
use super::requests::{self, Request};

/// Who made which revision, and the requests, as a lab showed them.
#[derive(Debug, Default)]
pub struct Rows {
    writers: HashMap<u64, Value>,
    requests: Vec<(String, Value)>,
}

impl Rows {
    /// Adds the status of a Request or of a Change by its name.
    pub fn add(&mut self, is_request: bool, name: &str, status: Value) {
        if is_request {
            self.requests.push((name.to_owned(), status));
        } else if let Some(revision) = status["revision"].as_u64() {
            self.writers.insert(revision, status);
        }
    }
}

impl Recorder {
    /// Shows these requests, and these writers when their changes come.
    pub(crate) fn restore(&self, rows: Arc<Rows>) {
        let mut requests = self.requests.lock();
        let mut last = 0;
        for (name, status) in &rows.requests {
            let text = |member: &str| status[member].as_str().unwrap_or_default();
            let client = self.clients.lock().find(text("user"), text("userAgent"));
            let Some(mut row) = Request::restored(name, status, client) else { continue };
            row.sequence = self.next_sequence();
            last = last.max(row.number);
            requests.push(row, None);
        }
        // Numbers go on from the recorded ones.
        self.number.fetch_max(last, std::sync::atomic::Ordering::Relaxed);
        drop(requests);
        let _ = self.restored.set(rows);
    }

    /// A change with the time and the writer that were recorded for its revision; as of now without them.
    pub(super) fn change_of(&self, event: &Arc<Event>, now: Timestamp) -> Change {
        let recorded = self.restored.get().and_then(|rows| rows.writers.get(&event.revision().0));
        let time = recorded.and_then(|status| status["time"].as_str()?.parse().ok());
        let mut change = Change::new(event, self.next_sequence(), time.unwrap_or(now));
        change.writer = recorded.and_then(|status| self.writer_of(status));
        change
    }

    fn writer_of(&self, status: &Value) -> Option<Arc<Writer>> {
        let request = requests::number(status["request"].as_str()?)?;
        let text = |member: &str| status[member].as_str().unwrap_or_default();
        Some(Arc::new(Writer {
            client: self.clients.lock().find(text("user"), text("userAgent")),
            manager: shortened(text("manager")).into(),
            request,
            after: Revision(status["after"].as_u64().unwrap_or_default()),
        }))
    }
}
