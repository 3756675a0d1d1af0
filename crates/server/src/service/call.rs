//! A request from its arrival to its response: whatever happens on its path becomes a response, a panic included.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures::FutureExt as _;
use http::{HeaderName, HeaderValue, Method, Request, Version, header};
use machinery::Status;
use machinery::query::Query;
use registry::Annotations;

use super::Server;
use super::record::RequestRecord;
use super::respond::Refusal;
use crate::audit::Ending;
use crate::disturbance::LostAnswer;
use crate::metrics::RequestLabels;
use crate::request::negotiation::{accept_header, pretty};
use crate::request::reply::{self, Reply};
use crate::request::warnings;
use crate::wire::body::{RequestBody, ResponseBody};
use crate::wire::peer::Peer;
use crate::worlds::MAIN;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, private");

impl Server {
    /// Responds to one request, of this world or another one.
    pub async fn call(&self, mut request: Request<RequestBody>, peer: Arc<Peer>) -> Reply {
        match self.world_of(&mut request) {
            Some(world) => world.respond_to(request, peer).await,
            None => self.respond_to(request, peer).await,
        }
    }

    async fn respond_to(&self, request: Request<RequestBody>, peer: Arc<Peer>) -> Reply {
        let inner = &self.0;
        let began = Instant::now();
        let (mut parts, mut body) = request.into_parts();
        let audit_id = parts.headers.get(AUDIT_ID).cloned().unwrap_or_else(audit_id);
        let mut record = RequestRecord::default();
        if let Some(auditor) = inner.auditor.get() {
            record.annotations = Annotations::recording();
            if *inner.world != *MAIN {
                record.annotations.set("lab.dogwatch.dev/world", inner.world.to_string());
            }
            record.audit = Some(auditor.arrival(&audit_id, began));
        }
        let mut resource = None;
        let response = self.respond(&mut parts, &mut body, &peer, &mut record, &mut resource);
        let response = AssertUnwindSafe(response).catch_unwind().await;
        let mut ending = Ending::Replied;
        let mut reply = match response {
            Ok(Ok(reply)) => reply,
            Ok(Err(Refusal::Reply(reply))) => *reply,
            Ok(Err(Refusal::Status(status))) => {
                let query = Query::parse(parts.uri.query().unwrap_or_default());
                let reply = reply::status(&status, accept_header(&parts.headers), pretty(&parts.headers, &query));
                ending = Ending::Refused(status);
                reply
            }
            Err(panic) => {
                inner.metrics.panics.fetch_add(1, Ordering::Relaxed);
                let why = panic
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_default();
                tracing::error!(method = %parts.method, path = parts.uri.path(), why, "request handler panicked");
                ending = Ending::Panicked(why);
                reply::status(&Status::internal("the request made the server panic; see its log"), None, false)
            }
        };
        if record.closes {
            reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if record.no_sniff {
            reply.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, reply::NOSNIFF);
        }
        warnings::add(reply.headers_mut(), &record.warnings.take());
        if let Some(trace) = record.trace.take() {
            inner.traces.end(&trace, &parts, &audit_id, &mut reply, &record.annotations);
        }
        if let Some(audit) = record.audit.take() {
            audit.end(&mut reply, ending).await;
        }
        reply = inner.compress(reply, &parts).await;
        if !body.is_read() && parts.version != Version::HTTP_2 && !reply.body().is_watch() {
            inner.finish_body(&mut body, &parts, &mut reply).await;
        }
        // Kept until the response is sent: a client that does not read its responses gets no more of them.
        reply.body_mut().set_place(record.in_flight.place.take());
        let headers = reply.headers_mut();
        if let Some(flow) = &record.in_flight.flow {
            flow.add_headers(headers);
        }
        if !headers.contains_key(header::CACHE_CONTROL) {
            headers.insert(header::CACHE_CONTROL, NO_CACHE);
        }
        headers.insert(AUDIT_ID, audit_id);
        let took = began.elapsed();
        let series = record
            .series
            .take()
            .unwrap_or_else(|| inner.metrics.request(&RequestLabels { verb: "other", ..RequestLabels::default() }));
        series.observe(reply.status().as_u16(), took, reply.body().whole_len());
        tracing::debug!(
            method = %parts.method,
            uri = %parts.uri,
            code = reply.status().as_u16(),
            ms = took.as_secs_f64() * 1e3,
            user = record.user.as_ref().map_or("", |user| user.name.as_str()),
            as_user = record.impersonation.as_ref().map_or("", |granted| granted.user.name.as_str()),
            agent = parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default(),
            "request"
        );
        if let Some(lab) = inner.lab.get() {
            lab.record(&parts, resource.as_ref(), &reply, &mut record, took);
        }
        if let Some(speed) = record.bytes_per_second {
            reply.body_mut().slow_down(speed);
        }
        if record.loses_answer {
            reply.extensions_mut().insert(LostAnswer);
        }
        if parts.method == Method::HEAD {
            *reply.body_mut() = ResponseBody::empty();
        }
        reply
    }
}

fn audit_id() -> HeaderValue {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    HeaderValue::from_str(uuid::Uuid::new_v4().hyphenated().encode_lower(&mut text))
        .unwrap_or(HeaderValue::from_static(""))
}
