//! What is seen of a server: the seam by which a lab records requests, writes and watches.
//!
//! Without a lab nothing here is called. The server says what happened; what is kept of it is the recorder's affair.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use machinery::Revision;
use registry::{Frames, WatchScope, WriteObserver};

use crate::disturbance::Disturbed;
use crate::request::request_info::ResourceInfo;

/// Records what a server does. Called on the path of every request, so it returns at once.
pub trait Recorder: Send + Sync {
    /// A write begins.
    fn write_begins(&self, user: &str, agent: &str, field_manager: &str) -> Arc<dyn WriteRecord>;

    /// A request was answered.
    fn answered(&self, request: Answered<'_>);

    /// A watch was opened.
    fn watch_opened(&self, watch: Opened) -> Arc<dyn WatchRecord>;
}

/// A write under way: learns of each revision that it makes.
pub trait WriteRecord: WriteObserver {
    /// The body that the client sent.
    fn set_body(&self, body: &Bytes);

    /// The number of the request, the revisions that it made, and its body.
    fn written(&self) -> Written;
}

/// What a write did.
#[derive(Clone, Default)]
pub struct Written {
    pub number: u64,
    pub revisions: Vec<Revision>,
    pub body: Bytes,
}

/// A request that was answered.
pub struct Answered<'a> {
    /// None for a path that is no resource.
    pub resource: Option<&'a ResourceInfo>,
    pub method: &'a str,
    pub path: &'a str,
    /// Empty if the request was not authenticated.
    pub user: &'a str,
    pub agent: &'a str,
    pub code: u16,
    pub took: Duration,
    /// Bytes of the body of the answer; none for a watch.
    pub bytes: Option<usize>,
    /// The faults that hit it.
    pub faults: Vec<String>,
    /// None for a read.
    pub write: Option<Arc<dyn WriteRecord>>,
}

/// A watch that was opened.
pub struct Opened {
    pub request: Disturbed,
    pub labels: String,
    pub fields: String,
    /// `http/1.1`, `h2`, `websocket` or `in-process`.
    pub protocol: &'static str,
    /// The collection and filter of the watch, and the revision that it begins after.
    pub scope: Option<(WatchScope, Revision)>,
}

/// A watch that is open.
pub trait WatchRecord: Send + Sync {
    /// These events were handed to the connection.
    fn sent(&self, frames: &Frames);

    /// Whether the watch is to end.
    fn is_cut(&self) -> bool;

    fn closed(&self);
}

/// Says that a watch is closed when it is dropped.
pub(crate) struct OpenWatchRecord(pub(crate) Arc<dyn WatchRecord>);

impl Drop for OpenWatchRecord {
    fn drop(&mut self) {
        self.0.closed();
    }
}
