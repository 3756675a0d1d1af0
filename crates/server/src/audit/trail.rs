//! The events of one request, from its arrival to its response.
//!
//! A trail that is dropped before its end writes the last event: the client has disconnected, or a watch has ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use access::identity::User;
use bytes::{Buf as _, Bytes};
use http::header::CONTENT_TYPE;
use machinery::Status;
use machinery::json::Value;
use registry::{Annotations, AuditLevel};

use super::aside::{aside, is_large, is_large_object};
use super::event::{Event, Head, Line, Response};
use super::policy::Coverage;
use super::stage::Stage;
use super::{Auditor, Sending};
use crate::request::reply::{self, Reply};

/// Bytes of an object in an event; a larger one is left out.
const OBJECT_BYTES_MAX: usize = 10 << 20;
const TRUNCATED: &str = "audit.k8s.io/truncated";
/// Requests that take longer have their durations in annotations.
const SLOW: Duration = Duration::from_millis(500);

/// The events of one request.
pub(crate) struct Trail {
    auditor: Arc<Auditor>,
    coverage: Coverage,
    head: Head,
    annotations: Annotations,
    is_long_running: bool,
    began: Instant,
    impersonated: Option<Arc<User>>,
    constraint: String,
    response: Option<Response>,
    request_object: Option<Value>,
    response_object: Option<Vec<Bytes>>,
    /// One of the objects is large.
    is_large: bool,
    /// The last event was written.
    has_ended: bool,
}

impl Trail {
    pub(super) fn new(
        auditor: Arc<Auditor>,
        coverage: Coverage,
        head: Head,
        annotations: Annotations,
        is_long_running: bool,
        began: Instant,
    ) -> Self {
        Trail {
            auditor,
            coverage,
            head,
            annotations,
            is_long_running,
            began,
            impersonated: None,
            constraint: String::new(),
            response: None,
            request_object: None,
            response_object: None,
            is_large: false,
            has_ended: false,
        }
    }

    /// Writes the first event. An error is the response to a request that may not go on without it.
    pub(crate) async fn begin(&mut self, uri: &http::Uri) -> Result<(), Reply> {
        if self.emit(Stage::RequestReceived).await {
            return Ok(());
        }
        self.auditor.metrics.rejected();
        self.has_ended = true;
        Err(reply::undecided(uri, "failed to store audit event"))
    }

    pub(crate) fn impersonate(&mut self, user: &Arc<User>, constraint: &str) {
        self.impersonated = Some(Arc::clone(user));
        constraint.clone_into(&mut self.constraint);
    }

    /// Takes the response of a request. `status` is the error that it was made from, if any.
    pub(crate) fn respond(&mut self, reply: &Reply, status: Option<Status>) {
        let status = status.or_else(|| self.annotations.status());
        let sent = self.annotations.sent();
        if let Some(object) = &mut self.head.object {
            for (held, sent) in [
                (&mut object.namespace, sent.namespace),
                (&mut object.name, sent.name),
                (&mut object.uid, sent.uid),
                (&mut object.resource_version, sent.resource_version),
            ] {
                if held.is_empty() {
                    *held = sent;
                }
            }
            self.request_object = sent.object.map(|object| self.coverage.shown(object));
            self.is_large = self.request_object.as_ref().is_some_and(is_large_object);
            if self.coverage.level == AuditLevel::RequestResponse {
                let answer = response_object(reply, status.as_ref(), &self.annotations);
                let is_large_answer = answer.as_deref().is_some_and(is_large);
                self.is_large |= is_large_answer;
                self.response_object =
                    answer.and_then(|slices| aside(is_large_answer, || self.coverage.shown_slices(slices)));
                if self.response_object.as_ref().is_some_and(|slices| length(slices) > OBJECT_BYTES_MAX) {
                    self.response_object = None;
                    self.annotations.set(TRUNCATED, "true");
                }
            }
        }
        self.response = Some(Response { code: reply.status().as_u16(), status });
    }

    /// Writes the event of a request that was refused before its user was known.
    pub(crate) async fn end_without_user(mut self: Box<Self>) {
        self.has_ended = true;
        self.emit(Stage::ResponseStarted).await;
    }

    /// Writes the events of a response whose body is not a stream.
    pub(crate) async fn end(mut self: Box<Self>) {
        if self.is_long_running {
            self.emit(Stage::ResponseStarted).await;
        }
        self.has_ended = true;
        self.note_latency();
        self.emit(Stage::ResponseComplete).await;
    }

    /// Writes the event of a response whose body is a stream. The last event is written when the trail is dropped.
    pub(crate) async fn start(&mut self) {
        self.emit(Stage::ResponseStarted).await;
    }

    /// Writes the event of a handler that panicked.
    pub(crate) async fn panic(mut self: Box<Self>, why: &str) {
        let mut status = Status::internal("");
        status.message = format!("APIServer panic'd: {why}");
        status.details = None;
        self.response = Some(Response { code: 500, status: Some(status) });
        self.has_ended = true;
        self.emit(Stage::Panic).await;
    }

    /// Writes an event, unless its stage is left out. Returns whether the request may go on.
    async fn emit(&self, stage: Stage) -> bool {
        if self.coverage.omit_stages.has(stage) {
            return true;
        }
        let sending = aside(self.is_large, || self.send(stage));
        if sending.pending.is_empty() { !sending.refused } else { self.auditor.settle(sending).await }
    }

    fn send(&self, stage: Stage) -> Sending {
        let stage_time = match stage {
            Stage::RequestReceived => self.head.received,
            _ => self.auditor.clock.now(),
        };
        let mut annotations = self.annotations.get();
        let event = |with_objects: bool, annotations: &_| -> Line {
            let has_objects = with_objects && stage != Stage::RequestReceived;
            Event {
                level: self.coverage.level,
                stage,
                head: &self.head,
                impersonated: self.impersonated.as_deref(),
                constraint: &self.constraint,
                response: self.response.as_ref(),
                request_object: self.request_object.as_ref().filter(|_| has_objects),
                response_object: self.response_object.as_deref().filter(|_| has_objects),
                stage_time,
                annotations,
            }
            .line()
        };
        let line = event(true, &annotations);
        self.auditor.send(&line, &mut || {
            annotations.insert(TRUNCATED.to_owned(), "true".to_owned());
            event(false, &annotations)
        })
    }

    fn note_latency(&self) {
        let total = self.began.elapsed();
        if total > SLOW {
            self.annotations.set("apiserver.latency.k8s.io/total", go_duration(total));
        }
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        if self.response.is_none() {
            let mut status = Status::internal("");
            status.outcome = machinery::status::Outcome::Success;
            (status.reason, status.details) = (None, None);
            "Connection closed early".clone_into(&mut status.message);
            self.response = Some(Response { code: 200, status: Some(status) });
            if self.is_long_running && !self.coverage.omit_stages.has(Stage::ResponseStarted) {
                self.send_detached(Stage::ResponseStarted);
            }
        }
        if !self.is_long_running {
            self.note_latency();
        }
        if !self.coverage.omit_stages.has(Stage::ResponseComplete) {
            self.send_detached(Stage::ResponseComplete);
        }
    }
}

impl Trail {
    /// Sends an event without a request that could wait for it.
    fn send_detached(&self, stage: Stage) {
        let sending = self.send(stage);
        if sending.pending.is_empty() {
            return;
        }
        let auditor = Arc::clone(&self.auditor);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { auditor.settle(sending).await });
        }
    }
}

impl Coverage {
    /// An object as events show it.
    fn shown(&self, mut object: Value) -> Value {
        if self.omit_managed_fields {
            remove_managed_fields(&mut object);
        }
        object
    }

    fn shown_slices(&self, slices: Vec<Bytes>) -> Option<Vec<Bytes>> {
        if !self.omit_managed_fields || length(&slices) > OBJECT_BYTES_MAX {
            return Some(slices);
        }
        let object = machinery::json::from_slice(&slices.concat()).ok()?;
        Some(vec![machinery::json::to_string(&self.shown(object)).into()])
    }
}

fn length(slices: &[Bytes]) -> usize {
    slices.iter().map(Bytes::len).sum()
}

/// The answer as JSON on one line.
fn response_object(reply: &Reply, status: Option<&Status>, annotations: &Annotations) -> Option<Vec<Bytes>> {
    if let Some(status) = status {
        return Some(vec![status.to_json().into()]);
    }
    let slices = annotations.take_answer().or_else(|| {
        let is_json = reply.headers().get(CONTENT_TYPE) == Some(&reply::JSON);
        let mut chunk = reply.body().whole_chunk().filter(|_| is_json)?.clone();
        let mut slices = Vec::new();
        while chunk.has_remaining() {
            slices.push(chunk.pop()?);
        }
        Some(slices)
    });
    slices.map(|mut slices| {
        if let Some(last) = slices.last_mut()
            && last.ends_with(b"\n")
        {
            last.truncate(last.len() - 1);
        }
        slices
    })
}

/// Removes the managed fields of an object, of the items of a list, and of the objects in a table.
fn remove_managed_fields(object: &mut Value) {
    let mut remove = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.shift_remove("managedFields");
        }
    };
    remove(object);
    if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
        items.iter_mut().for_each(&mut remove);
    }
    if let Some(rows) = object.get_mut("rows").and_then(Value::as_array_mut) {
        rows.iter_mut().filter_map(|row| row.get_mut("object")).for_each(&mut remove);
    }
}

/// A duration as Go prints it: `1.234567891s`, `1m0.5s`.
fn go_duration(duration: Duration) -> String {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    let fraction = match format!("{nanos:09}").trim_end_matches('0') {
        "" => String::new(),
        digits => format!(".{digits}"),
    };
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0) => format!("{}ms", f64::from(nanos) / 1e6),
        (0, 0, seconds) => format!("{seconds}{fraction}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}{fraction}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::json::json;

    #[test]
    fn aud_30_durations_are_printed_as_go_prints_them() {
        for (millis, expected) in
            [(501, "501ms"), (1_500, "1.5s"), (2_000, "2s"), (61_250, "1m1.25s"), (3_600_000, "1h0m0s")]
        {
            assert_eq!(go_duration(Duration::from_millis(millis)), expected);
        }
        assert_eq!(go_duration(Duration::from_nanos(1_000_000_007)), "1.000000007s");
    }

    #[test]
    fn aud_6_managed_fields_are_left_out_of_objects_lists_and_tables() {
        let object = || json!({"metadata": {"name": "a", "managedFields": [{}]}});
        let clean = json!({"metadata": {"name": "a"}});
        for (mut given, expected) in [
            (object(), clean.clone()),
            (json!({"items": [object(), object()]}), json!({"items": [clean, clean]})),
            (
                json!({"rows": [{"object": object()}, {"object": null}]}),
                json!({"rows": [{"object": clean}, {"object": null}]}),
            ),
            (json!([1]), json!([1])),
        ] {
            remove_managed_fields(&mut given);
            assert_eq!(given, expected);
        }
    }
}
