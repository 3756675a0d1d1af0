//! A source for unit tests: responses are scripted, requests are recorded with their (virtual) times.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::list_watch::{Bookmark, ExpectedKind, ListEnd, ListItem, ListStream, ListerWatcher, WatchItem, WatchStream};
use crate::wire::Params;
use crate::{Error, RawObject, TransportKind};

/// One step of a scripted watch.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Item(WatchItem),
    Fail(Error),
    Wait(Duration),
    /// Stay open and silent.
    Hang,
}

type ListAnswer = Result<(Vec<RawObject>, &'static str, Option<&'static str>), Error>;

#[derive(Default)]
struct Script {
    lists: VecDeque<ListAnswer>,
    watches: VecDeque<Result<Vec<Step>, Error>>,
    asked: Vec<(Params, Instant)>,
}

#[derive(Clone)]
pub(crate) struct ScriptedSource {
    script: Arc<Mutex<Script>>,
    changed: Arc<Notify>,
    streaming: bool,
    expected: Option<ExpectedKind>,
}

impl ScriptedSource {
    /// A source that can stream its initial state.
    pub(crate) fn new() -> Self {
        Self { script: Arc::default(), changed: Arc::default(), streaming: true, expected: None }
    }

    /// A source that has to be listed.
    pub(crate) fn listing() -> Self {
        Self { streaming: false, ..Self::new() }
    }

    /// The same with a kind that its objects should have.
    pub(crate) fn expecting(self, api_version: &str, kind: &str) -> Self {
        Self { expected: Some(ExpectedKind { api_version: api_version.into(), kind: kind.into() }), ..self }
    }

    pub(crate) fn on_list(&self, answer: ListAnswer) {
        self.script.lock().lists.push_back(answer);
    }

    pub(crate) fn on_watch(&self, answer: Result<Vec<Step>, Error>) {
        self.script.lock().watches.push_back(answer);
    }

    pub(crate) fn requests(&self) -> Vec<Params> {
        self.script.lock().asked.iter().map(|(params, _)| params.clone()).collect()
    }

    pub(crate) fn request_times(&self) -> Vec<Instant> {
        self.script.lock().asked.iter().map(|(_, at)| *at).collect()
    }

    /// Waits until `n` requests were made.
    pub(crate) async fn wait_for_requests(&self, n: usize) {
        loop {
            let changed = self.changed.notified();
            if self.script.lock().asked.len() >= n {
                return;
            }
            changed.await;
        }
    }

    fn record(&self, params: Params) {
        self.script.lock().asked.push((params, Instant::now()));
        self.changed.notify_waiters();
    }
}

impl ListerWatcher for ScriptedSource {
    fn list(&self, params: Params) -> BoxFuture<'_, Result<ListStream, Error>> {
        self.record(params);
        async move {
            let answer = self.script.lock().lists.pop_front();
            let Some(answer) = answer else { return std::future::pending().await };
            let (objects, version, token) = answer?;
            let end = ListEnd { version: version.into(), continue_token: token.map(Into::into) };
            let items = objects.into_iter().map(ListItem::Object).chain([ListItem::End(end)]);
            Ok(stream::iter(items.map(Ok).collect::<Vec<_>>()).boxed())
        }
        .boxed()
    }

    fn watch(&self, params: Params) -> BoxFuture<'_, Result<WatchStream, Error>> {
        self.record(params);
        async move {
            let answer = self.script.lock().watches.pop_front();
            let Some(answer) = answer else { return std::future::pending().await };
            let steps = answer?;
            let steps = stream::iter(steps).filter_map(|step| async move {
                match step {
                    Step::Item(item) => Some(Ok(item)),
                    Step::Fail(error) => Some(Err(error)),
                    Step::Wait(duration) => {
                        tokio::time::sleep(duration).await;
                        None
                    }
                    Step::Hang => std::future::pending().await,
                }
            });
            Ok(steps.boxed())
        }
        .boxed()
    }

    fn supports_streaming_list(&self) -> bool {
        self.streaming
    }

    fn expected_kind(&self) -> Option<ExpectedKind> {
        self.expected.clone()
    }
}

/// An object from `[namespace/]name@version[#uid]`; the uid defaults to the name.
pub(crate) fn object(text: &str) -> RawObject {
    let (text, uid) = text.split_once('#').map_or((text, None), |(text, uid)| (text, Some(uid)));
    let (key, version) = text.split_once('@').expect("an object is written name@version");
    let (namespace, name) = key.split_once('/').map_or((None, key), |(ns, name)| (Some(ns), name));
    let mut metadata = json!({"name": name, "resourceVersion": version, "uid": uid.unwrap_or(name)});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    raw(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"v": version}}))
}

pub(crate) fn raw(value: serde_json::Value) -> RawObject {
    RawObject::from_json(Bytes::from(value.to_string())).expect("test objects have metadata")
}

pub(crate) fn items(texts: &[&str]) -> Vec<RawObject> {
    texts.iter().map(|text| object(text)).collect()
}

pub(crate) fn added(text: &str) -> Step {
    Step::Item(WatchItem::Added(object(text)))
}

pub(crate) fn modified(text: &str) -> Step {
    Step::Item(WatchItem::Modified(object(text)))
}

pub(crate) fn deleted(text: &str) -> Step {
    Step::Item(WatchItem::Deleted(object(text)))
}

pub(crate) fn bookmark(version: &str) -> Step {
    Step::Item(WatchItem::Bookmark(Bookmark { version: version.into(), initial_events_end: false }))
}

/// The bookmark that ends the initial state.
pub(crate) fn end(version: &str) -> Step {
    Step::Item(WatchItem::Bookmark(Bookmark { version: version.into(), initial_events_end: true }))
}

pub(crate) fn in_stream(error: Error) -> Step {
    Step::Item(WatchItem::Error(error))
}

pub(crate) fn failure(code: u16, reason: &str) -> Error {
    let status = serde_json::from_value(json!({"code": code, "reason": reason, "message": reason})).expect("a status");
    Error::from_answer(code, None, status)
}

pub(crate) fn gone() -> Error {
    failure(410, "Expired")
}

pub(crate) fn too_large() -> Error {
    let status = serde_json::from_value(
        json!({"code": 504, "reason": "Timeout", "message": "Too large resource version: 9, current: 5"}),
    );
    Error::from_answer(504, None, status.expect("a status"))
}

pub(crate) fn busy(seconds: u32) -> Error {
    let status = serde_json::from_value(
        json!({"code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": seconds}}),
    );
    Error::from_answer(429, None, status.expect("a status"))
}

pub(crate) fn refused() -> Error {
    Error::Transport { kind: TransportKind::Refused, message: "refused".into() }
}
