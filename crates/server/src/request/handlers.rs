//! Handlers of authorized requests: one module for each verb, and one for paths other than resources.
//!
//! - [`get`], [`list`], [`watch`]: reading; [`create`], [`update`], [`patch`], [`delete`], [`delete_collection`]: writing
//! - [`recheck`]: watches whose right is checked while they run
//! - [`node`]: subresources that the node of a pod serves
//! - [`review`]: kinds that are computed from the user and never stored
//! - [`usage`]: what nodes and pods use
//! - [`token`]: a token for a service account
//! - [`plain`]: health, version, metrics, discovery, OpenAPI

mod create;
mod delete;
mod delete_collection;
mod get;
mod list;
mod node;
mod patch;
mod plain;
mod recheck;
mod review;
mod token;
mod update;
mod usage;
mod watch;

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http::{Extensions, HeaderMap, Method, Version, header};
use machinery::labels::{Requirement, Selector};
use machinery::options::ListOptions;
use machinery::query::Query;
use machinery::{Revision, Status, media};
use registry::admission::trace::Trace;
use registry::{
    Annotations, Body, Context, Encoding, Form, ListView, Outcome, Registry, Segments, Shape, Target, View, Warnings,
};
use tokio::time::Instant;

use crate::limits::Slot;
use crate::observation::WriteRecord;
use crate::request::negotiation::Negotiated;
use crate::request::operation::Operation;
use crate::request::reply::{self, Reply};
use crate::request::routing::{ResourceRoute, Route};
use crate::request::waiting::WritePlaces;
use crate::service::Inner;
use crate::wire::chunk::Chunk;
use crate::wire::peer::Peer;
use access::identity::User;

/// Bytes that a form other than the stored one is expected to have for each stored byte, until it is rendered.
const RENDERED_PER_STORED: usize = 2;
/// Time after which a request looks again whether other responses were sent.
const UNSENT_RETRY: Duration = Duration::from_millis(20);

/// The encoding in which audit events show objects.
const PLAIN_JSON: Encoding = Encoding::Json { pretty: false };

/// A request, as handlers see it.
#[derive(Clone)]
pub(crate) struct Call<'a> {
    pub(crate) server: &'a Inner,
    /// Whose objects the request is about: those of the cluster, or those of the lab.
    pub(crate) registry: &'a Arc<Registry>,
    pub(crate) method: &'a Method,
    /// The path as it was sent.
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) query: &'a Query,
    pub(crate) user: &'a Arc<User>,
    pub(crate) peer: &'a Peer,
    pub(crate) warnings: &'a Warnings,
    pub(crate) annotations: &'a Annotations,
    pub(crate) version: Version,
    /// The record of a write, with a lab.
    pub(crate) write: Option<Arc<dyn WriteRecord>>,
    /// A read is answered as of this revision, by a lab.
    pub(crate) as_of: Option<Revision>,
    /// The places of a write, which it leaves while it waits for a webhook.
    pub(crate) place: Option<Arc<WritePlaces>>,
    /// The steps of admission, if they are traced.
    pub(crate) trace: Option<Arc<Trace>>,
}

/// Handles an authorized request.
pub(crate) async fn answer(
    call: &Call<'_>,
    route: Route,
    body: Bytes,
    extensions: Extensions,
) -> Result<Reply, Status> {
    let route = match route {
        Route::Resource(route) => route,
        Route::Refused(status) => return Err(status),
        other => return plain::answer(call, other).await,
    };
    if let Some(text) = registry::deprecation(&route.target.kind) {
        call.warnings.push(text);
        call.annotations.set("k8s.io/deprecated", "true");
    }
    if registry::kinds::usage::is_measured(&route.target.kind) {
        return Box::pin(usage::answer(call, &route)).await;
    }
    match route.operation {
        Operation::Get | Operation::GetScale => get::answer(call, &route).await,
        Operation::List => list::answer(call, &route).await,
        // Boxed: its state is larger than that of the reads, which are the common case.
        Operation::Watch => Box::pin(watch::answer(call, &route, extensions)).await,
        Operation::Create
        | Operation::Bind
        | Operation::Evict
        | Operation::RequestToken
        | Operation::Lab
        | Operation::Review(_) => Box::pin(create::answer(call, &route, body)).await,
        Operation::Update | Operation::UpdateScale => Box::pin(update::answer(call, &route, body)).await,
        Operation::Patch | Operation::PatchScale => Box::pin(patch::answer(call, &route, body)).await,
        Operation::Delete => Box::pin(delete::answer(call, &route, body)).await,
        Operation::DeleteCollection => Box::pin(delete_collection::answer(call, &route, body)).await,
        Operation::Node => Box::pin(node::answer(call, &route, extensions)).await,
    }
}

/// The scope label of metrics: `resource`, `namespace` or `cluster`.
pub(crate) fn scope(target: &Target) -> &'static str {
    match (&target.name, &target.namespace) {
        (Some(_), _) => "resource",
        (None, Some(_)) => "namespace",
        (None, None) => "cluster",
    }
}

impl Call<'_> {
    fn negotiate(&self, route: &ResourceRoute) -> Result<Negotiated, Status> {
        let is_watch = route.operation == Operation::Watch;
        crate::request::negotiation::negotiate(
            self.headers,
            self.query,
            &route.target.kind,
            route.is_collection,
            is_watch,
        )
    }

    fn content_type(&self) -> Option<&str> {
        self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok())
    }

    /// The object of a POST or PUT.
    fn object(&self, bytes: Bytes) -> Result<Body, Status> {
        let media = media::body_type(self.content_type())?;
        Ok(Body { bytes, media })
    }

    /// The name under which the user's share of limits is counted; none for members of `system:masters`, who may take all.
    pub(crate) fn share(&self) -> Option<&str> {
        (!self.user.is_master()).then_some(self.user.name.as_str())
    }

    /// Runs work on the pool for heavy requests.
    async fn heavy<T, F>(&self, bytes: usize, work: F) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        self.server.heavy.run(self.share(), bytes, work).await
    }

    fn has_long_query(&self) -> bool {
        let bytes: usize = self.query.pairs().iter().map(|(name, value)| name.len() + value.len()).sum();
        bytes >= self.server.limits.heavy_query_bytes_min
    }

    /// The options of a list or a watch. A long selector is parsed on the pool.
    async fn list_options(&self) -> Result<ListOptions, Status> {
        if !self.has_long_query() {
            return ListOptions::from_query(self.query);
        }
        let query = self.query.clone();
        let bytes = self.server.limits.heavy_query_bytes_min;
        self.heavy(bytes, async move { ListOptions::from_query(&query).map(without_repeated_terms) }).await
    }

    /// Returns whether a list is so long, or its selectors are, that it runs on the pool.
    fn is_long_list(&self, target: &Target, options: &ListOptions) -> bool {
        let objects = self.registry.cache().collection(&target.kind.collection).len();
        let terms = 1 + options.label_selector.requirements().len() + options.field_selector.requirements().len();
        objects.saturating_mul(terms) >= self.server.limits.heavy_checks_min
    }

    /// Charges bytes that are rendered for this request until they are sent. Waits for a while when too many are unsent.
    async fn charge_unsent(&self, bytes: usize) -> Result<Slot, Status> {
        let budget = &self.server.metrics.unsent_bytes;
        let until = Instant::now() + self.server.limits.unsent_wait;
        // One response alone is always allowed, however large it is.
        let bytes = bytes.min(self.server.limits.unsent_bytes_max / 2);
        loop {
            let slot = match self.share() {
                Some(user) => budget.take_for(user, bytes),
                None => budget.take_many(bytes),
            };
            if let Some(slot) = slot {
                return Ok(slot);
            }
            if Instant::now() >= until {
                self.server.metrics.refused(budget.name());
                let why = "too many bytes of responses are rendered and not read, please try again later";
                return Err(Status::too_many_requests(why, 1));
            }
            tokio::time::sleep(UNSENT_RETRY).await;
        }
    }

    /// The context of a write: user, user agent, warnings.
    fn context(&self) -> Context {
        let agent = self.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        Context {
            user: Arc::clone(self.user),
            user_agent: agent.unwrap_or_default().to_owned(),
            warnings: self.warnings.clone(),
            annotations: self.annotations.clone(),
            explains: self.server.traces.explains(),
            trace: self.trace.clone(),
            place: self.place.clone().map(|place| place as _),
            writes: self.write.clone().map(|write| write as _),
            ..Context::default()
        }
    }

    /// Bounds a write by less time than its request: a client that gives up and tries again must not meet its first write.
    async fn within_write_limit<T>(&self, write: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        tokio::time::timeout(self.server.limits.write_timeout, write).await.unwrap_or_else(|_| {
            Err(Status::timeout("request did not complete within requested timeout - context deadline exceeded"))
        })
    }

    async fn show(&self, code: u16, view: View, target: &Target, asked: &Negotiated) -> Result<Reply, Status> {
        if !matches!(view, View::Status(_)) {
            asked.fits_object(&target.kind)?;
            if matches!(asked.form.shape, Shape::Table { .. }) && !view.has_metadata() {
                return Err(Status::not_acceptable_because(format!(
                    "the resource {} does not support being converted to a Table",
                    target.kind.group_resource()
                )));
            }
        }
        let (form, now) = (asked.form, self.server.clock.now());
        if self.annotations.are_kept() {
            self.keep_answer(&view, &form);
        }
        let stored_bytes = match &view {
            View::Stored { item, .. } if form != Form::default() => item.len(),
            _ => 0,
        };
        if stored_bytes >= self.server.limits.heavy_bytes_min {
            return Box::pin(self.render_heavy(code, form, stored_bytes, move || view.render(&form, now))).await;
        }
        Ok(reply::rendered(code, form.encoding, view.render(&form, now)?))
    }

    async fn show_outcome(&self, outcome: Outcome, target: &Target, asked: &Negotiated) -> Result<Reply, Status> {
        self.show(outcome.code, outcome.view, target, asked).await
    }

    async fn show_list(&self, list: ListView, asked: &Negotiated) -> Result<Reply, Status> {
        asked.fits_list(&list.kind)?;
        let (form, now) = (asked.form, self.server.clock.now());
        let limits = &self.server.limits;
        if self.annotations.keep_answers() && form.encoding != PLAIN_JSON {
            let form = Form { encoding: PLAIN_JSON, ..form };
            self.annotations.keep_answer(list.render(&form, now)?.0);
        }
        // The plain form shares the stored bytes; the cost of any other one grows with their number.
        if form == Form::default() {
            if list.items.len() >= limits.heavy_checks_min {
                return Box::pin(self.share_heavy(form, list)).await;
            }
            return Ok(reply::rendered(200, form.encoding, list.render(&form, now)?));
        }
        let stored_bytes: usize = list.items.iter().map(|item| item.len()).sum();
        if stored_bytes >= limits.heavy_bytes_min {
            return Box::pin(self.render_heavy(200, form, stored_bytes, move || list.render(&form, now))).await;
        }
        Ok(reply::rendered(200, form.encoding, list.render(&form, now)?))
    }

    /// Keeps an answer for the audit event, where its bytes are not what the event shows.
    fn keep_answer(&self, view: &View, form: &Form) {
        if let View::Status(status) = view {
            self.annotations.keep_status(status);
        } else if self.annotations.keep_answers() && form.encoding != PLAIN_JSON {
            let form = Form { encoding: PLAIN_JSON, ..*form };
            if let Ok(segments) = view.render(&form, self.server.clock.now()) {
                self.annotations.keep_answer(segments.0);
            }
        }
    }

    /// Renders a large response on the pool, and charges it until it is sent.
    async fn render_heavy(
        &self,
        code: u16,
        form: Form,
        stored_bytes: usize,
        render: impl FnOnce() -> Result<Segments, Status> + Send + 'static,
    ) -> Result<Reply, Status> {
        let mut charged = self.charge_unsent(stored_bytes.saturating_mul(RENDERED_PER_STORED)).await?;
        let segments = self.heavy(stored_bytes, async move { render() }).await?;
        let mut chunk = Chunk::from(segments.0);
        charged.set(chunk.remaining() + chunk.overhead());
        chunk.keep(charged);
        Ok(reply::rendered_chunk(code, form.encoding, chunk))
    }

    /// Renders a long list in the plain form on the pool, and charges what its bytes do not share with the cache.
    async fn share_heavy(&self, form: Form, list: ListView) -> Result<Reply, Status> {
        let mut charged = self.charge_unsent(list.items.len() * size_of::<Bytes>()).await?;
        let (bytes, now) = (self.server.limits.heavy_bytes_min, self.server.clock.now());
        let mut chunk = self.heavy(bytes, async move { Ok(Chunk::from(list.render(&form, now)?.0)) }).await?;
        charged.set(chunk.overhead());
        chunk.keep(charged);
        Ok(reply::rendered_chunk(200, form.encoding, chunk))
    }
}

/// Drops label requirements that occur more than once: they cost memory and time, and select nothing else.
fn without_repeated_terms(mut options: ListOptions) -> ListOptions {
    let all = options.label_selector.requirements();
    let mut seen = HashSet::with_capacity(all.len());
    let unique: Vec<Requirement> = all.iter().filter(|term| seen.insert(*term)).cloned().collect();
    if unique.len() < all.len() {
        options.label_selector = Selector::new(unique);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_terms_of_a_selector_are_dropped() {
        let options = |terms: &str| {
            let query = Query::parse(&format!("labelSelector={terms}"));
            without_repeated_terms(ListOptions::from_query(&query).unwrap()).label_selector.to_string()
        };
        assert_eq!(options(&["!z"; 1000].join(",")), "!z");
        assert_eq!(options("b,a!%3D1,b,a!%3D2,a!%3D1"), "a!=1,a!=2,b");
        assert_eq!(options("a,b"), "a,b");
    }
}
