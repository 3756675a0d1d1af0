//! Reads a whole list, page by page.

use std::future::Future;
use std::time::Duration;

use futures::StreamExt;

use crate::list_watch::{ListEnd, ListItem, ListerWatcher};
use crate::wire::Params;
use crate::{Error, RawObject, ResourceVersion, TransportKind};

/// The page size that client-go uses.
pub const PAGE_LIMIT: u32 = 500;

/// Receives the items of a list.
pub trait PageSink {
    /// Receives one item, in page order. The list waits for the future.
    fn item(&mut self, item: RawObject) -> impl Future<Output = ()> + Send;
    /// Forgets all items so far: the list starts again.
    fn restart(&mut self);
}

impl PageSink for Vec<RawObject> {
    fn item(&mut self, item: RawObject) -> impl Future<Output = ()> + Send {
        self.push(item);
        std::future::ready(())
    }
    fn restart(&mut self) {
        self.clear();
    }
}

/// A complete list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The version of the first page (LW-6).
    pub version: ResourceVersion,
    /// True if it had more than one page.
    pub paginated: bool,
}

/// Lists everything, page by page if `params.limit` is set.
///
/// A 410 on a later page means that the history behind the continue token is gone: one full list without pages follows,
/// with the original version (LW-7). A 410 on the first page is returned. If nothing arrives for `idle_limit`, the list fails.
pub async fn list_all(
    source: &dyn ListerWatcher,
    params: Params,
    idle_limit: Duration,
    sink: &mut (impl PageSink + Send),
) -> Result<Listed, Error> {
    let first = list_page(source, params.clone(), idle_limit, sink).await?;
    let version = first.version;
    let mut token = first.continue_token;
    let paginated = token.is_some();
    while let Some(continue_token) = token {
        let next =
            Params { continue_token: Some(continue_token), version: None, version_match: None, ..params.clone() };
        match list_page(source, next, idle_limit, sink).await {
            Ok(page) => token = page.continue_token,
            Err(error) if error.is_expired() => {
                sink.restart();
                let whole = Params { limit: None, continue_token: None, ..params };
                let page = list_page(source, whole, idle_limit, sink).await?;
                return Ok(Listed { version: page.version, paginated: true });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Listed { version, paginated })
}

async fn list_page(
    source: &dyn ListerWatcher,
    params: Params,
    idle_limit: Duration,
    sink: &mut (impl PageSink + Send),
) -> Result<ListEnd, Error> {
    let mut items = within(idle_limit, source.list(params)).await??;
    while let Some(item) = within(idle_limit, items.next()).await? {
        match item? {
            ListItem::Object(object) => sink.item(object).await,
            ListItem::End(end) => return Ok(end),
        }
    }
    Err(Error::Decode { what: "the list", message: "it ended without its metadata".into() })
}

async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, Error> {
    tokio::time::timeout(limit, work).await.map_err(|_| Error::Transport {
        kind: TransportKind::Timeout,
        message: format!("nothing of the list arrived for {limit:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{ScriptedSource, gone, items};
    use crate::wire::VersionMatch;

    const IDLE: Duration = Duration::from_secs(30);

    fn paged() -> Params {
        let version_match = Some(VersionMatch::NotOlderThan);
        Params { limit: Some(PAGE_LIMIT), version: Some("0".into()), version_match, ..Params::default() }
    }

    #[tokio::test]
    async fn lw_05_following_pages_carry_the_token_and_no_version() {
        let source = ScriptedSource::new();
        source.on_list(Ok((items(&["a@1"]), "10", Some("t1"))));
        source.on_list(Ok((items(&["b@2"]), "11", Some("t2"))));
        source.on_list(Ok((items(&["c@3"]), "12", None)));
        let mut all = Vec::new();
        let listed = list_all(&source, paged(), IDLE, &mut all).await.unwrap();
        let asked = source.requests();
        assert_eq!(asked[0], paged(), "the first page is what the caller requested");
        for (request, token) in asked[1..].iter().zip(["t1", "t2"]) {
            assert_eq!(request.continue_token.as_deref(), Some(token));
            assert_eq!((request.limit, &request.version, &request.version_match), (Some(500), &None, &None));
        }
        assert!(listed.paginated);
    }

    #[tokio::test]
    async fn lw_06_the_version_is_the_first_pages_and_items_keep_their_order() {
        let source = ScriptedSource::new();
        source.on_list(Ok((items(&["a@1", "b@2"]), "10", Some("t"))));
        source.on_list(Ok((items(&["c@3"]), "99", None)));
        let mut all = Vec::new();
        let listed = list_all(&source, paged(), IDLE, &mut all).await.unwrap();
        assert_eq!(listed.version.as_str(), "10");
        let names: Vec<&str> = all.iter().map(|o| o.key.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[tokio::test]
    async fn lw_07_an_expired_page_leads_to_one_unpaged_list() {
        let source = ScriptedSource::new();
        source.on_list(Ok((items(&["old@1"]), "10", Some("t"))));
        source.on_list(Err(gone()));
        source.on_list(Ok((items(&["a@1", "b@2"]), "20", None)));
        let mut all = Vec::new();
        let listed = list_all(&source, paged(), IDLE, &mut all).await.unwrap();
        let last = source.requests().pop().unwrap();
        assert_eq!(last, Params { limit: None, ..paged() }, "no pages, the original version and match");
        assert_eq!((listed.version.as_str(), all.len()), ("20", 2), "the items before the failure are forgotten");
    }

    #[tokio::test]
    async fn lw_07_there_is_no_second_retry() {
        let source = ScriptedSource::new();
        source.on_list(Ok((items(&["old@1"]), "10", Some("t"))));
        source.on_list(Err(gone()));
        source.on_list(Err(gone()));
        let error = list_all(&source, paged(), IDLE, &mut Vec::new()).await.unwrap_err();
        assert!(error.is_expired());
        assert_eq!(source.requests().len(), 3);
    }

    #[tokio::test]
    async fn lw_07_an_expired_first_page_is_returned() {
        let source = ScriptedSource::new();
        source.on_list(Err(gone()));
        let error = list_all(&source, paged(), IDLE, &mut Vec::new()).await.unwrap_err();
        assert!(error.is_expired());
        assert_eq!(source.requests().len(), 1);
    }

    #[tokio::test]
    async fn lw_08_a_single_answer_is_not_paginated() {
        let source = ScriptedSource::new();
        source.on_list(Ok((items(&["a@1"]), "10", None)));
        assert!(!list_all(&source, paged(), IDLE, &mut Vec::new()).await.unwrap().paginated);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_is_never_answered_is_given_up() {
        let error = list_all(&ScriptedSource::new(), paged(), IDLE, &mut Vec::new()).await.unwrap_err();
        assert!(matches!(error, Error::Transport { kind: TransportKind::Timeout, .. }), "{error}");
    }
}
