//! The parts of a request: target, body, options, user.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use access::User;
use bytes::Bytes;
use cache::Item;
use machinery::media::{MediaType, PatchType};
use machinery::{GroupResource, Revision, Status};
use parking_lot::Mutex;
use schema::kind::Kind;
use tokio::time::Instant;

use crate::admission::trace::Trace;
use crate::audit::Annotations;

/// The kind, namespace, object and subresource that a path names.
#[derive(Clone, Debug)]
pub struct Target {
    pub kind: Arc<Kind>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

impl Target {
    pub(crate) fn gr(&self) -> GroupResource {
        self.kind.group_resource()
    }

    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// One object of a kind.
    pub(crate) fn of_item(kind: &Arc<Kind>, item: &Item) -> Target {
        Target {
            kind: Arc::clone(kind),
            namespace: Some(item.namespace().to_owned()).filter(|namespace| !namespace.is_empty()),
            name: Some(item.name().to_owned()),
            subresource: None,
        }
    }

    /// The same object without its subresource.
    pub(crate) fn parent(&self) -> Target {
        Target { subresource: None, ..self.clone() }
    }
}

/// A write: what is written, with which options, by whom.
#[derive(Debug)]
pub struct WriteRequest<'a, O> {
    pub target: &'a Target,
    pub options: &'a O,
    pub ctx: &'a Context,
}

impl<O> Clone for WriteRequest<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for WriteRequest<'_, O> {}

/// The body of a POST or PUT.
#[derive(Clone, Debug)]
pub struct Body {
    pub bytes: Bytes,
    pub media: MediaType,
}

/// The body of a PATCH.
#[derive(Clone, Debug)]
pub struct PatchBody {
    pub bytes: Bytes,
    pub kind: PatchType,
}

/// The user of a request, and where its warnings and audit annotations are collected.
#[derive(Clone, Debug, Default)]
pub struct Context {
    pub user: Arc<User>,
    pub user_agent: String,
    /// Texts of `Warning` headers, sent whether the write succeeds or not.
    pub warnings: Warnings,
    pub annotations: Annotations,
    /// Whether a refusal names everything that is known of it: further refusals, and the step that set a refused field.
    pub explains: bool,
    /// Steps of admission are noted here, if the request is traced.
    pub trace: Option<Arc<Trace>>,
    /// The place among the requests that are handled at the same time, left while a webhook is awaited.
    pub place: Option<Arc<dyn Place>>,
    pub webhooks: WebhookTime,
    /// Follows the revisions that the request makes.
    pub writes: Option<Arc<dyn WriteObserver>>,
}

/// Follows the writes of a request.
pub trait WriteObserver: fmt::Debug + Send + Sync {
    /// The request made this revision, which readers see by now.
    fn committed(&self, revision: Revision);
}

/// The time that the webhooks of a request have together; it begins with the first that is called.
#[derive(Clone, Debug, Default)]
pub struct WebhookTime(OnceLock<Instant>);

/// The place of a request among those that are handled at the same time.
pub trait Place: fmt::Debug + Send + Sync {
    /// Leaves the place to other requests for as long as the request waits for a webhook. Fails if too many wait.
    fn leave(&self) -> Result<Box<dyn Waiting>, Status>;
}

/// A request that waits for a webhook; dropped when it no longer does.
pub trait Waiting: Send + Sync {}

/// Time that all webhooks of a request have together.
const WEBHOOKS_TIMEOUT: Duration = Duration::from_secs(34);

/// Warnings that are collected while a request is handled.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Collected>>);

#[derive(Debug, Default)]
struct Collected {
    texts: Vec<String>,
    /// The same texts: each is sent once, and there may be one for each item of a long list.
    known: HashSet<String>,
}

impl Warnings {
    pub fn push(&self, text: impl Into<String>) {
        let (mut collected, text) = (self.0.lock(), text.into());
        if collected.known.insert(text.clone()) {
            collected.texts.push(text);
        }
    }

    /// Takes the warnings that were collected.
    #[must_use]
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock()).texts
    }
}

impl Context {
    /// Notes that the request made a revision.
    pub(crate) fn committed(&self, revision: Revision) {
        if let Some(writes) = &self.writes {
            writes.committed(revision);
        }
    }

    /// The time that is left for webhooks.
    pub(crate) fn webhook_time_left(&self) -> Duration {
        let until = self.webhooks.0.get_or_init(|| Instant::now() + WEBHOOKS_TIMEOUT);
        until.saturating_duration_since(Instant::now())
    }

    /// Leaves the place of the request while a webhook is awaited.
    pub(crate) fn leave_place(&self) -> Result<Option<Box<dyn Waiting>>, Status> {
        self.place.as_ref().map(|place| place.leave()).transpose()
    }

    /// The field manager of a write: the one it names, else the program in its user agent.
    pub(crate) fn manager(&self, field_manager: &str) -> String {
        schema::managed::manager(field_manager, &self.user_agent)
    }
}
