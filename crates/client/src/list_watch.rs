//! `ListerWatcher`: the source of objects. Two functions, and an implementation of them on `kube`'s client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};
use futures::{FutureExt, TryStreamExt};
use http::header;
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use kube::core::Status;
use kube::{Client, Resource};

use crate::wire::{Params, list_items, watch_items};
use crate::{Error, RawObject, ResourceVersion};

/// One element of a watch.
#[derive(Debug, Clone)]
pub enum WatchItem {
    /// The object is new to this watch.
    Added(RawObject),
    /// The object changed.
    Modified(RawObject),
    /// The object is gone; this is its last state, with the version of the deletion.
    Deleted(RawObject),
    /// Nothing changed up to this version.
    Bookmark(Bookmark),
    /// The server ends the watch for this reason.
    Error(Error),
    /// An event of a type this client does not know.
    Unknown {
        /// Its type.
        kind: String,
        /// The version of its object.
        version: ResourceVersion,
    },
}

/// A version without a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bookmark {
    /// The watch has delivered everything up to here.
    pub version: ResourceVersion,
    /// The initial state of a streaming list is complete.
    pub initial_events_end: bool,
}

/// One element of a list answer: its items, then its end.
#[derive(Debug, Clone)]
pub enum ListItem {
    /// An item.
    Object(RawObject),
    /// No more items.
    End(ListEnd),
}

/// The metadata of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEnd {
    /// The point in history that the list shows.
    pub version: ResourceVersion,
    /// Position of the next page, if there is one.
    pub continue_token: Option<String>,
}

/// The response to a list, item by item. Dropping it ends the request.
pub type ListStream = BoxStream<'static, Result<ListItem, Error>>;
/// The response to a watch. Dropping it ends the request.
pub type WatchStream = BoxStream<'static, Result<WatchItem, Error>>;

/// The kind that a source is expected to deliver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedKind {
    /// `group/version`, or `version`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
}

/// Lists and watches one set of objects.
///
/// `list` returns one page and never pages by itself (LW-2). Selectors and namespace belong to the implementation: it applies
/// them to both verbs, after the caller has set its own fields (LW-1).
pub trait ListerWatcher: Send + Sync + 'static {
    /// Opens a list request.
    fn list(&self, params: Params) -> BoxFuture<'_, Result<ListStream, Error>>;
    /// Opens a watch request.
    fn watch(&self, params: Params) -> BoxFuture<'_, Result<WatchStream, Error>>;
    /// False if the source cannot stream its initial state; then it is never requested (LW-4).
    fn supports_streaming_list(&self) -> bool {
        true
    }
    /// The kind of the objects, if the source knows it. Others are skipped.
    fn expected_kind(&self) -> Option<ExpectedKind> {
        None
    }
}

/// Changes the parameters of every request of a source.
pub type Tweak = Arc<dyn Fn(&mut Params) + Send + Sync>;

/// The objects of one resource of an API server, optionally of one namespace, optionally selected.
///
/// ```no_run
/// use client::list_watch::ApiListWatch;
/// use k8s_openapi::api::core::v1::Pod;
///
/// # fn source(client: kube::Client) -> ApiListWatch {
/// ApiListWatch::namespaced::<Pod>(client, "default").labels("app=web").fields("spec.nodeName=node-1")
/// # }
/// ```
#[derive(Clone)]
pub struct ApiListWatch {
    client: Client,
    path: String,
    expected: ExpectedKind,
    metadata_only: bool,
    /// Log warnings of the server at warn level.
    warns: bool,
    tweaks: Vec<Tweak>,
}

impl ApiListWatch {
    /// All objects of a kind whose names are known at compile time.
    pub fn all<K: Resource<DynamicType = ()>>(client: Client) -> Self {
        Self::new::<K>(client, &(), None)
    }

    /// The objects of such a kind in one namespace.
    pub fn namespaced<K: Resource<DynamicType = ()>>(client: Client, namespace: &str) -> Self {
        Self::new::<K>(client, &(), Some(namespace))
    }

    /// The objects of any kind, for dynamic ones with its description.
    pub fn new<K: Resource>(client: Client, dt: &K::DynamicType, namespace: Option<&str>) -> Self {
        let metadata_only = K::metadata_api();
        let expected = if metadata_only {
            ExpectedKind { api_version: "meta.k8s.io/v1".into(), kind: "PartialObjectMetadata".into() }
        } else {
            ExpectedKind { api_version: K::api_version(dt).into_owned(), kind: K::kind(dt).into_owned() }
        };
        Self { client, path: K::url_path(dt, namespace), expected, metadata_only, warns: true, tweaks: Vec::new() }
    }

    /// Only objects with such labels.
    pub fn labels(self, selector: impl Into<String>) -> Self {
        let selector = selector.into();
        self.tweak(move |params| params.label_selector = Some(selector.clone()))
    }

    /// Only objects with such fields.
    pub fn fields(self, selector: impl Into<String>) -> Self {
        let selector = selector.into();
        self.tweak(move |params| params.field_selector = Some(selector.clone()))
    }

    /// Logs warnings of the server at debug level only: for programs that use a deprecated kind deliberately.
    pub fn without_warnings(mut self) -> Self {
        self.warns = false;
        self
    }

    /// Changes every request just before it is sent.
    pub fn tweak(self, tweak: impl Fn(&mut Params) + Send + Sync + 'static) -> Self {
        self.tweak_with(Arc::new(tweak))
    }

    pub(crate) fn tweak_with(mut self, tweak: Tweak) -> Self {
        self.tweaks.push(tweak);
        self
    }

    async fn open(&self, mut params: Params) -> Result<BoxStream<'static, Result<bytes::Bytes, Error>>, Error> {
        for tweak in &self.tweaks {
            tweak(&mut params);
        }
        let uri = format!("{}?{}", self.path, params.to_query());
        let request = http::Request::get(&uri)
            .header(header::ACCEPT, self.accept(params.watch))
            // Events of a compressed watch would wait in the buffer of the decompressor; see K-9 for lists.
            .header(header::ACCEPT_ENCODING, "identity")
            .body(Body::empty())
            .map_err(|e| Error::Config(format!("cannot build the request {uri}: {e}")))?;
        let response = self.client.send(request).await?;
        for warning in response.headers().get_all(header::WARNING) {
            let warning = String::from_utf8_lossy(warning.as_bytes());
            match self.warns {
                true => tracing::warn!(path = %self.path, %warning, "the server warns"),
                false => tracing::debug!(path = %self.path, %warning, "the server warns"),
            }
        }
        if !response.status().is_success() {
            return Err(failure(response).await);
        }
        let body = response.into_body().into_data_stream().map_err(|e| Error::from_transport(&e));
        Ok(body.boxed())
    }

    fn accept(&self, watch: bool) -> &'static str {
        match (self.metadata_only, watch) {
            (false, _) => "application/json",
            (true, true) => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            (true, false) => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        }
    }
}

impl fmt::Debug for ApiListWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiListWatch({})", self.path)
    }
}

/// Longest body of a failure that is read as a Status.
const FAILURE_BYTES_MAX: usize = 1 << 20;

/// The error of a failed response: its Status if it has one, otherwise one derived from the code (K-4).
async fn failure(response: http::Response<Body>) -> Error {
    let code = response.status().as_u16();
    let retry_after = response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok())
        .map(Duration::from_secs);
    let body = Limited::new(response.into_body(), FAILURE_BYTES_MAX).collect().await;
    let bytes = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let status =
        serde_json::from_slice::<Status>(&bytes).ok().filter(|s| !s.message.is_empty() || !s.reason.is_empty());
    let status = status.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        let message =
            if text.is_empty() { format!("HTTP {code} without a message") } else { text.chars().take(300).collect() };
        Status::failure(&message, reason_of(code)).with_code(code)
    });
    Error::from_answer(code, retry_after, status)
}

fn reason_of(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 => "Conflict",
        410 => "Gone",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    }
}

impl ListerWatcher for ApiListWatch {
    fn list(&self, params: Params) -> BoxFuture<'_, Result<ListStream, Error>> {
        async move { Ok(list_items(self.open(params).await?)) }.boxed()
    }

    fn watch(&self, params: Params) -> BoxFuture<'_, Result<WatchStream, Error>> {
        async move { Ok(watch_items(self.open(Params { watch: true, ..params }).await?)) }.boxed()
    }

    fn expected_kind(&self) -> Option<ExpectedKind> {
        Some(self.expected.clone())
    }
}
