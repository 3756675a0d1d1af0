//! A watch whose right is checked again while it runs. It ends with a 403 when its user has lost the right.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use access::authorizer::{Attributes, Authorizer, ResourceAttributes, What, forbidden};
use access::identity::User;
use access::selectors::{FieldTerms, LabelTerms, Selectors};
use machinery::Status;
use registry::{Frames, WatchView};

use crate::wire::body::EventSource;

/// Time between two checks of a watch.
const INTERVAL: Duration = Duration::from_secs(1);

/// The attributes of a watch, for as long as it runs.
pub(super) struct WatchRequest {
    pub(super) user: Arc<User>,
    pub(super) group: String,
    pub(super) version: String,
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
}

impl WatchRequest {
    fn attributes(&self) -> Attributes<'_> {
        let selectors = Selectors {
            labels: self.labels.as_deref().map_or(LabelTerms::None, LabelTerms::Text),
            fields: self.fields.as_deref().map_or(FieldTerms::None, FieldTerms::Text),
        };
        let about = ResourceAttributes {
            group: &self.group,
            version: &self.version,
            resource: &self.resource,
            subresource: "",
            namespace: &self.namespace,
            name: &self.name,
            selectors,
        };
        Attributes { user: &self.user, verb: "watch", what: What::Resource(about) }
    }

    /// Returns once the user may no longer watch.
    async fn refusal(self, authorizer: Arc<dyn Authorizer>) -> Status {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let attributes = self.attributes();
            let decision = authorizer.authorize(&attributes).get().await;
            // An authorizer that failed has not taken the right away.
            if !decision.allowed && decision.error.is_empty() {
                return forbidden(&attributes, &decision);
            }
        }
    }
}

/// The events of a watch until its user loses the right to it.
pub(super) struct Rechecked {
    view: WatchView,
    refusal: Option<Pin<Box<dyn Future<Output = Status> + Send>>>,
}

impl Rechecked {
    pub(super) fn new(view: WatchView, request: WatchRequest, authorizer: Arc<dyn Authorizer>) -> Self {
        Rechecked { view, refusal: Some(Box::pin(request.refusal(authorizer))) }
    }
}

impl EventSource for Rechecked {
    fn poll_frames(&mut self, cx: &mut Context<'_>, bytes_max: usize) -> Poll<Option<Frames>> {
        if let Some(refusal) = &mut self.refusal
            && let Poll::Ready(status) = refusal.as_mut().poll(cx)
        {
            self.view.end_with(status);
            self.refusal = None;
        }
        self.view.poll_frames(cx, bytes_max)
    }

    fn end_with(&mut self, status: Status) {
        self.refusal = None;
        self.view.end_with(status);
    }
}
