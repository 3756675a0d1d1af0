//! Captures the log of the current thread, for tests of what is logged and at which level.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Subscriber, subscriber};
pub use tracing::{Level, Metadata};

/// One log event.
#[derive(Debug, Clone)]
pub struct LogLine {
    pub level: Level,
    /// The module that logged it.
    pub target: String,
    /// The message, then the fields as ` name=value`.
    pub text: String,
}

/// Records all log events of the current thread until it is dropped. With a runtime of one thread those are the events of all
/// tasks.
pub struct LogCapture {
    lines: Arc<Mutex<Vec<LogLine>>>,
    _default: subscriber::DefaultGuard,
}

impl LogCapture {
    /// Begins to record.
    #[must_use]
    pub fn start() -> Self {
        let lines = Arc::<Mutex<Vec<LogLine>>>::default();
        let default = subscriber::set_default(Recorder { lines: lines.clone() });
        Self { lines, _default: default }
    }

    /// Returns the lines of a crate or module so far, and forgets them.
    pub fn take(&self, target: &str) -> Vec<LogLine> {
        let lines = std::mem::take(&mut *self.lines.lock());
        lines.into_iter().filter(|line| line.target.starts_with(target)).collect()
    }
}

struct Recorder {
    lines: Arc<Mutex<Vec<LogLine>>>,
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let (level, target) = (*event.metadata().level(), event.metadata().target().to_owned());
        self.lines.lock().push(LogLine { level, target, text: text.message + &text.fields });
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_recorded_with_level_message_and_fields() {
        let capture = LogCapture::start();
        tracing::warn!(answer = 42, "a message");
        tracing::debug!(target: "elsewhere", "not ours");
        let lines = capture.take("testkit");
        assert_eq!(lines.len(), 1);
        assert_eq!((lines[0].level, lines[0].text.as_str()), (Level::WARN, "a message answer=42"));
        assert!(capture.take("").is_empty(), "taken lines are forgotten");
    }
}
