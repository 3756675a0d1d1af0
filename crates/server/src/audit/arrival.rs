//! A request between its arrival and its response, on a server with an audit log.

use std::sync::Arc;
use std::time::Instant;

use access::authorizer::Decision;
use access::identity::User;
use http::HeaderValue;
use http::request::Parts;
use jiff::Timestamp;
use machinery::Status;
use registry::{Annotations, AuditLevel};

use super::event::{self, Head, HeadParts, ObjectRef};
use super::trail::Trail;
use super::{Auditor, is_long_running};
use crate::request::reply::Reply;
use crate::request::request_info::RequestInfo;
use crate::streams::UntilClosed;
use crate::wire::peer::Peer;

/// A request that has arrived. Its trail begins when its user is known.
pub(crate) struct Arrival {
    pub(super) auditor: Arc<Auditor>,
    pub(super) id: HeaderValue,
    pub(super) began: Instant,
    pub(super) received: Timestamp,
    pub(super) trail: Option<Box<Trail>>,
    /// Whether the request was authenticated.
    pub(super) has_user: bool,
}

/// How the handling of a request ended.
pub(crate) enum Ending {
    Replied,
    Refused(Status),
    Panicked(String),
}

impl Arrival {
    /// Begins the trail, if the policy records the request, and sets the level of its annotations. Without a user the request
    /// was refused before it had one.
    pub(crate) fn open(
        &mut self,
        parts: &Parts,
        info: &RequestInfo<'_>,
        peer: &Peer,
        user: Option<&Arc<User>>,
        annotations: &mut Annotations,
    ) {
        let (verb, what) = (info.verb(), info.what());
        let coverage = self.auditor.policy.coverage(user.map(|user| &**user), &verb, &what);
        self.auditor.metrics.level(coverage.level);
        if coverage.level == AuditLevel::None {
            *annotations = Annotations::default();
            return;
        }
        annotations.set_level(coverage.level);
        let object = info.resource.as_ref().map(|resource| {
            let about = resource.attributes();
            ObjectRef {
                resource: about.resource.to_owned(),
                namespace: about.namespace.to_owned(),
                name: about.name.to_owned(),
                group: about.group.to_owned(),
                version: about.version.to_owned(),
                subresource: about.subresource.to_owned(),
                ..ObjectRef::default()
            }
        });
        let uri = parts.uri.path_and_query().map_or("/", |uri| uri.as_str());
        let head = Head::new(HeadParts {
            audit_id: &String::from_utf8_lossy(self.id.as_bytes()),
            uri,
            verb: &verb,
            user: user.map(|user| &**user),
            source_ips: &event::source_ips(&parts.headers, peer.address.map(|address| address.ip())),
            user_agent: &event::user_agent(&parts.headers),
            object,
            received: self.received,
        });
        let auditor = Arc::clone(&self.auditor);
        let trail = Trail::new(auditor, coverage, head, annotations.clone(), is_long_running(info), self.began);
        self.trail = Some(Box::new(trail));
        self.has_user = user.is_some();
    }

    /// Writes the first event. An error is the response to a request that may not go on without it.
    pub(crate) async fn begin(&mut self, uri: &http::Uri) -> Result<(), Reply> {
        match &mut self.trail {
            // A request that is refused before it has a user has only an event of its response.
            Some(trail) if self.has_user => trail.begin(uri).await,
            _ => Ok(()),
        }
    }

    pub(crate) fn impersonate(&mut self, user: &Arc<User>, constraint: &str) {
        if let Some(trail) = &mut self.trail {
            trail.impersonate(user, constraint);
        }
    }

    /// Writes the events of the response. The trail of a watch is kept by its body, and ends with it.
    pub(crate) async fn end(self, reply: &mut Reply, ending: Ending) {
        let Some(mut trail) = self.trail else { return };
        let status = match ending {
            Ending::Panicked(why) => return trail.panic(&why).await,
            Ending::Refused(status) => Some(status),
            Ending::Replied => None,
        };
        trail.respond(reply, status);
        if let Some(connection) = reply.extensions().get::<UntilClosed>() {
            trail.start().await;
            connection.keep(trail);
        } else if reply.body().is_watch() {
            trail.start().await;
            let body = std::mem::take(reply.body_mut());
            *reply.body_mut() = body.holding(trail);
        } else if self.has_user {
            trail.end().await;
        } else {
            trail.end_without_user().await;
        }
    }
}

/// Sets the annotations of an authorizer's decision.
pub(crate) fn note_decision(annotations: &Annotations, decision: &Decision) {
    let word = if decision.allowed { "allow" } else { "forbid" };
    annotations.set("authorization.k8s.io/decision", word);
    annotations.set("authorization.k8s.io/reason", &*decision.reason);
}
