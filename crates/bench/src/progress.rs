//! The progress of a measurement: a bar on a terminal, nothing elsewhere.

use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar; removed when its last clone is dropped.
#[derive(Clone)]
pub(crate) struct Progress {
    bar: Arc<Bar>,
}

struct Bar(ProgressBar);

impl Progress {
    /// Low, since drawing takes processor time from the measurement.
    const REDRAWS_PER_S: u8 = 4;

    pub(crate) fn new(what: &str, total: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(Self::REDRAWS_PER_S));
        if let Ok(style) = ProgressStyle::with_template("{msg:32} [{bar:40}] {pos}/{len} {elapsed}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(500));
        Progress { bar: Arc::new(Bar(bar)) }
    }

    pub(crate) fn add(&self, done: u64) {
        self.bar.0.inc(done);
    }

    pub(crate) fn set(&self, done: u64) {
        self.bar.0.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
