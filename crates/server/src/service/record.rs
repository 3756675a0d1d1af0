//! What is known of a request when it ends.

use std::sync::Arc;

use access::identity::User;
use machinery::Revision;
use registry::admission::trace::Trace;
use registry::{Annotations, Warnings};

use super::places::InFlight;
use crate::audit::Arrival;
use crate::metrics::RequestSeries;
use crate::observation::WriteRecord;
use crate::request::impersonation;

/// Facts collected while a request is handled, for its `Warning` headers, its metrics and its log line.
#[derive(Default)]
pub(super) struct RequestRecord {
    /// The user that was authenticated.
    pub(super) user: Option<Arc<User>>,
    /// The user on whose behalf it acts.
    pub(super) impersonation: Option<impersonation::Impersonation>,
    /// The response is a refusal that a browser must not take for another type.
    pub(super) no_sniff: bool,
    /// The connection ends after the response: HTTP/2 without credentials costs more than it may.
    pub(super) closes: bool,
    /// The connection is closed instead of sending the response.
    pub(super) loses_answer: bool,
    /// The faults of a lab that hit it.
    pub(super) faults: Vec<String>,
    /// The record of a write, with a lab.
    pub(super) write: Option<Arc<dyn WriteRecord>>,
    /// Reads are answered as of this revision, by a lab.
    pub(super) as_of: Option<Revision>,
    /// The answer is sent at this speed, by a lab.
    pub(super) bytes_per_second: Option<u64>,
    pub(super) in_flight: InFlight,
    /// The steps of admission, if they are traced.
    pub(super) trace: Option<Arc<Trace>>,
    pub(super) series: Option<Arc<RequestSeries>>,
    pub(super) warnings: Warnings,
    pub(super) annotations: Annotations,
    /// Only with an audit log.
    pub(super) audit: Option<Box<Arrival>>,
}
