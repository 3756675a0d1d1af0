//! Traces of admission: what each plugin, policy and webhook did with a write, kept for the last writes.
//!
//! A write is traced if the server traces all, or if it has the header `Dogwatch-Trace-Admission` and comes from a member of
//! `system:masters`; the header of others is ignored. The trace of a write is served under its Audit-Id at `/debug/admission/ID`, and is an annotation of its audit event at the levels that record objects.

use std::collections::VecDeque;
use std::sync::Arc;

use access::identity::User;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method};
use machinery::json::{self, Value, json};
use parking_lot::Mutex;
use registry::Annotations;
use registry::admission::trace::Trace;

use crate::request::reply::Reply;

/// The header of a write that is to be traced.
pub(crate) const TRACE: HeaderName = HeaderName::from_static("dogwatch-trace-admission");
/// The header of an answer with the number of steps in the trace of its request.
pub(crate) const STEPS: HeaderName = HeaderName::from_static("dogwatch-admission-steps");
/// The audit annotation with the trace.
const ANNOTATION: &str = "admission.dogwatch.dev/trace";

/// Traces that are kept where only requested ones are made.
const REQUESTED_MAX: usize = 32;
/// Longest trace that becomes an audit annotation, in bytes.
const ANNOTATION_MAX: usize = 64 * 1024;
/// Bytes of all traces that are kept; the oldest are dropped.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// The last traces.
#[derive(Debug)]
pub(crate) struct AdmissionTraces {
    /// Whether every write is traced.
    all: bool,
    kept_max: usize,
    explains: bool,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    traces: VecDeque<(String, Arc<str>)>,
    bytes: usize,
}

impl AdmissionTraces {
    /// Keeps the traces of the last writes; with zero only of those that request it.
    pub(crate) fn new(last: usize, explains: bool) -> Self {
        let kept_max = if last == 0 { REQUESTED_MAX } else { last };
        AdmissionTraces { all: last > 0, kept_max, explains, kept: Mutex::default() }
    }

    /// None yet, kept by the same rules.
    pub(crate) fn beside(&self) -> Self {
        AdmissionTraces { all: self.all, kept_max: self.kept_max, explains: self.explains, kept: Mutex::default() }
    }

    /// Whether refusals name everything that is known of them.
    pub(crate) fn explains(&self) -> bool {
        self.explains
    }

    /// The trace of a request that is about to be handled, if it is to be traced. `users` are the one that acts and the one
    /// that it acts as: a trace costs time and memory, and takes the place of another, so that a master must want it.
    pub(crate) fn begin(&self, parts: &Parts, users: &[&User]) -> Option<Arc<Trace>> {
        // Connections to pods begin with a GET.
        let may_write = parts.method != Method::GET || parts.uri.path().starts_with("/api/v1/");
        let is_requested = || parts.headers.contains_key(TRACE) && users.iter().any(|user| user.is_master());
        (may_write && (self.all || is_requested())).then(Arc::default)
    }

    /// Keeps the trace of a request that has been handled.
    pub(crate) fn end(
        &self,
        trace: &Trace,
        parts: &Parts,
        audit_id: &HeaderValue,
        reply: &mut Reply,
        annotations: &Annotations,
    ) {
        let steps = trace.to_value();
        let count = steps.as_array().map_or(0, Vec::len);
        if count == 0 {
            return;
        }
        reply.headers_mut().insert(STEPS, HeaderValue::from(count));
        // A trace has values of the object, such as those of a secret.
        if annotations.keep_objects() {
            let text = json::to_string(&steps);
            if text.len() <= ANNOTATION_MAX {
                annotations.set(ANNOTATION, text);
            }
        }
        let id = String::from_utf8_lossy(audit_id.as_bytes()).into_owned();
        let document = json!({
            "auditID": id,
            "method": parts.method.as_str(),
            "path": parts.uri.to_string(),
            "code": reply.status().as_u16(),
            "steps": steps,
        });
        self.keep(id, json::to_string(&document).into());
    }

    fn keep(&self, id: String, document: Arc<str>) {
        let mut kept = self.kept.lock();
        kept.bytes += document.len();
        kept.traces.push_back((id, document));
        while kept.traces.len() > self.kept_max || kept.bytes > BYTES_MAX {
            match kept.traces.pop_front() {
                Some((_, dropped)) => kept.bytes -= dropped.len(),
                None => break,
            }
        }
    }

    /// The trace of a request by its Audit-Id; the newest of several.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<str>> {
        let kept = self.kept.lock();
        kept.traces.iter().rev().find(|(known, _)| known == id).map(|(_, document)| Arc::clone(document))
    }

    /// The Audit-Ids of all traces that are kept, the newest last.
    pub(crate) fn list(&self) -> Value {
        self.kept.lock().traces.iter().map(|(id, _)| json!(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use registry::AuditLevel;
    use registry::admission::trace::{Phase, Step, Verdict};

    use super::*;

    #[test]
    fn bd_4_the_last_traces_are_kept() {
        let traces = AdmissionTraces::new(2, false);
        for id in ["a", "b", "c"] {
            traces.keep(id.to_owned(), format!("trace of {id}").into());
        }
        assert!(traces.find("a").is_none());
        assert_eq!(traces.find("b").as_deref(), Some("trace of b"));
        assert_eq!(traces.list(), json!(["b", "c"]));
        traces.keep("large".to_owned(), "x".repeat(BYTES_MAX).into());
        assert_eq!(traces.list(), json!(["large"]), "older ones make room");
    }

    #[test]
    fn bd_4_only_writes_are_traced_and_only_on_request() {
        let parts = |method: &str, traced: bool| {
            let mut request = http::Request::builder().method(method).uri("/apis/apps/v1/deployments");
            if traced {
                request = request.header(TRACE, "1");
            }
            request.body(()).unwrap().into_parts().0
        };
        let requested = AdmissionTraces::new(0, false);
        let master = &User { groups: vec![access::identity::MASTERS.to_owned()], ..User::default() };
        assert!(requested.begin(&parts("POST", true), &[master]).is_some());
        assert!(requested.begin(&parts("POST", false), &[master]).is_none());
        assert!(requested.begin(&parts("GET", true), &[master]).is_none());
        let other = &User::default();
        assert!(requested.begin(&parts("POST", true), &[other]).is_none());
        assert!(requested.begin(&parts("POST", true), &[master, other]).is_some(), "a master acts as another user");
        assert!(AdmissionTraces::new(5, false).begin(&parts("PUT", false), &[other]).is_some());
    }

    #[test]
    fn bd_4_an_audit_event_has_the_trace_only_where_it_has_objects() {
        let trace = Trace::default();
        trace.push(Step {
            phase: Phase::Mutate,
            round: 1,
            kind: "webhook",
            name: "h.example.com".to_owned(),
            of: String::new(),
            verdict: Verdict::Admitted,
            duration: std::time::Duration::ZERO,
            patch: json!([{"op": "add", "path": "/data/password", "value": "c2VjcmV0"}]),
            about: Value::Null,
        });
        let parts = http::Request::post("/api/v1/namespaces/default/secrets").body(()).unwrap().into_parts().0;
        for (level, is_annotated) in
            [(AuditLevel::Metadata, false), (AuditLevel::Request, true), (AuditLevel::RequestResponse, true)]
        {
            let annotations = Annotations::recording();
            annotations.set_level(level);
            let mut reply = crate::request::reply::text(201, "");
            let traces = AdmissionTraces::new(1, false);
            traces.end(&trace, &parts, &HeaderValue::from_static("id"), &mut reply, &annotations);
            assert_eq!(annotations.get().contains_key(ANNOTATION), is_annotated, "{level:?}");
            assert!(traces.find("id").is_some(), "{level:?}");
        }
    }
}
