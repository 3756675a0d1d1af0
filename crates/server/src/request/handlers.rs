//! Handlers of authorized requests: one module for each verb, and one for paths other than resources.
//!
//! - [`get`], [`list`], [`watch`]: reading; [`create`], [`update`], [`patch`], [`delete`], [`delete_collection`]: writing
//! - [`node`]: subresources that the node of a pod serves
//! - [`review`]: kinds that are computed from the user and never stored
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
mod review;
mod token;
mod update;
mod watch;

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::{Extensions, HeaderMap, Method, header};
use machinery::query::Query;
use machinery::{Status, media};
use registry::{Body, Context, Form, ListView, Outcome, Shape, Target, UserInfo, View, Warnings};

use crate::identity::User;
use crate::request::negotiation::Negotiated;
use crate::request::operation::Operation;
use crate::request::reply::{self, Reply};
use crate::request::routing::{ResourceRoute, Route};
use crate::service::Inner;
use crate::wire::body::{BodyError, RequestBody};
use crate::wire::peer::Peer;

/// Lists with more items than this are converted on a blocking thread.
const ITEMS_INLINE_MAX: usize = 200;

/// A request, as handlers see it.
pub(crate) struct Call<'a> {
    pub(crate) server: &'a Inner,
    pub(crate) method: &'a Method,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) query: &'a Query,
    pub(crate) user: &'a Arc<User>,
    pub(crate) peer: &'a Peer,
    pub(crate) warnings: &'a Warnings,
}

/// Handles an authorized request.
pub(crate) async fn answer(
    call: &Call<'_>,
    route: Route,
    body: RequestBody,
    extensions: Extensions,
) -> Result<Reply, Status> {
    let route = match route {
        Route::Resource(route) => route,
        Route::Refused(status) => return Err(status),
        other => return plain::answer(call, other).await,
    };
    if let Some(text) = registry::deprecation(&route.target.kind) {
        call.warnings.push(text);
    }
    match route.operation {
        Operation::Get | Operation::GetScale => get::answer(call, &route).await,
        Operation::List => list::answer(call, &route).await,
        // Boxed: its state is larger than that of the reads, which are the common case.
        Operation::Watch => Box::pin(watch::answer(call, &route, extensions)).await,
        Operation::Create | Operation::Bind | Operation::Evict | Operation::RequestToken | Operation::Review(_) => {
            Box::pin(create::answer(call, &route, body)).await
        }
        Operation::Update | Operation::UpdateScale => Box::pin(update::answer(call, &route, body)).await,
        Operation::Patch | Operation::PatchScale => Box::pin(patch::answer(call, &route, body)).await,
        Operation::Delete => Box::pin(delete::answer(call, &route, body)).await,
        Operation::DeleteCollection => Box::pin(delete_collection::answer(call, &route, body)).await,
        Operation::Node => Box::pin(node::answer(call, &route)).await,
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

    /// Reads the body of a request, up to the limit.
    async fn read(&self, body: RequestBody) -> Result<Bytes, Status> {
        let max = self.server.limits.body_bytes_max;
        match body.read(max).await {
            Ok(bytes) => Ok(bytes),
            Err(BodyError::TooLarge) => {
                self.server.metrics.refused("body_bytes_max");
                Err(Status::request_entity_too_large(format_args!("limit is {max}")))
            }
            Err(BodyError::Broken(why)) => Err(Status::bad_request(why)),
        }
    }

    /// Reads the object of a POST or PUT.
    async fn read_object(&self, body: RequestBody) -> Result<Body, Status> {
        let media = media::body_type(self.content_type())?;
        Ok(Body { bytes: self.read(body).await?, media })
    }

    /// The context of a write: user, user agent, warnings.
    fn context(&self) -> Context {
        let User { name, uid, groups, extra } = User::clone(self.user);
        let agent = self.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        Context {
            user: UserInfo { name, uid, groups, extra },
            user_agent: agent.unwrap_or_default().to_owned(),
            warnings: self.warnings.clone(),
        }
    }

    /// Bounds a write by less time than its request: a client that gives up and tries again must not meet its first write.
    async fn within_write_limit<T>(&self, write: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        tokio::time::timeout(self.server.limits.write_timeout, write).await.unwrap_or_else(|_| {
            Err(Status::timeout("request did not complete within requested timeout - context deadline exceeded"))
        })
    }

    fn show(&self, code: u16, view: &View, target: &Target, asked: &Negotiated) -> Result<Reply, Status> {
        if !matches!(view, View::Status(_)) {
            asked.fits_object(&target.kind)?;
            if matches!(asked.form.shape, Shape::Table { .. }) && !view.has_metadata() {
                return Err(Status::not_acceptable_because(format!(
                    "the resource {} does not support being converted to a Table",
                    target.kind.group_resource()
                )));
            }
        }
        let segments = view.render(&asked.form, self.server.clock.now())?;
        Ok(reply::rendered(code, asked.form.encoding, segments))
    }

    fn show_outcome(&self, outcome: &Outcome, target: &Target, asked: &Negotiated) -> Result<Reply, Status> {
        self.show(outcome.code, &outcome.view, target, asked)
    }

    async fn show_list(&self, list: ListView, asked: &Negotiated) -> Result<Reply, Status> {
        asked.fits_list(&list.kind)?;
        let (form, now) = (asked.form, self.server.clock.now());
        // The plain form shares the stored bytes; the cost of any other one grows with the list.
        let segments = if form == Form::default() || list.items.len() <= ITEMS_INLINE_MAX {
            list.render(&form, now)?
        } else {
            tokio::task::spawn_blocking(move || list.render(&form, now))
                .await
                .map_err(|_| Status::internal("showing the list failed"))??
        };
        Ok(reply::rendered(200, form.encoding, segments))
    }
}
