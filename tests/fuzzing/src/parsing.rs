//! URLs and headers.

use std::time::Duration;

use http::Method;
use machinery::accept::{self, Endpoint};
use machinery::continue_token::ContinueToken;
use machinery::media;
use machinery::options::{CreateOptions, DeleteOptions, GetOptions, ListOptions, PatchOptions, UpdateOptions};
use machinery::query::Query;
use machinery::{fields, labels};
use server::request_info::RequestInfo;
use server::{deadline, routing};

/// Headers and queries are valid text before they are parsed.
fn text(data: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(data)
}

pub fn label_selector(data: &[u8]) {
    let text = text(data);
    let Ok(selector) = labels::Selector::parse(&text) else { return };
    selector.matches(|key| (key.len() % 2 == 0).then_some("5"));
    selector.equalities().for_each(drop);
    // Its text form parses to the same selector.
    let shown = selector.to_string();
    let again = labels::Selector::parse(&shown).unwrap_or_else(|e| panic!("{text:?} is shown as {shown:?}: {e}"));
    assert_eq!(again.to_string(), shown, "{text:?}");
}

pub fn field_selector(data: &[u8]) {
    let text = text(data);
    let Ok(selector) = fields::Selector::parse(&text) else { return };
    selector.matches(|field| (field.len() % 2 == 0).then_some("x"));
    let shown = selector.to_string();
    let again = fields::Selector::parse(&shown).unwrap_or_else(|e| panic!("{text:?} is shown as {shown:?}: {e}"));
    assert_eq!(again.to_string(), shown, "{text:?}");
}

/// All options of a query, and the values derived from them.
pub fn query(data: &[u8]) {
    let query = Query::parse(&text(data));
    if let Ok(options) = ListOptions::from_query(&query) {
        let _ = options.list_mode();
        let _ = options.watch_start();
        let _ = options.page_size();
        let _ = options.wants_initial_bookmark();
    }
    if let Ok(options) = GetOptions::from_query(&query) {
        let _ = options.mode();
    }
    let _ = CreateOptions::from_query(&query);
    let _ = UpdateOptions::from_query(&query);
    let _ = PatchOptions::from_query(&query, true);
    let _ = PatchOptions::from_query(&query, false);
    let _ = DeleteOptions::from_query(&query);
    let max = Duration::from_secs(60);
    if let Ok(time) = deadline::request_timeout(&query, max) {
        assert!(time <= max, "no request exceeds the limit of the server");
    }
}

pub fn continue_token(data: &[u8]) {
    let text = text(data);
    let Ok(token) = ContinueToken::decode(&text) else { return };
    for token in [token.at_latest(), token] {
        let again = ContinueToken::decode(&token.encode()).expect("our own token can be decoded");
        assert_eq!(again.encode(), token.encode());
    }
}

pub fn accept(data: &[u8]) {
    let text = text(data);
    for bits in 0..32_u8 {
        let bit = |n: u8| bits >> n & 1 == 1;
        let endpoint = Endpoint {
            is_routed: bit(0),
            is_collection: bit(1),
            is_watch: bit(2),
            has_protobuf: bit(3),
            has_table: bit(4),
        };
        let _ = accept::negotiate(Some(&text), &endpoint);
    }
    let _ = accept::error_media(Some(&text));
    let _ = accept::negotiate_discovery(Some(&text));
    let _ = media::body_type(Some(&text));
    let _ = media::patch_type(Some(&text), false);
    let _ = media::patch_type(Some(&text), true);
}

/// A path and its query, for every method.
pub fn path(data: &[u8]) {
    let text = text(data);
    let (path, query) = text.split_once('?').unwrap_or((&text, ""));
    let query = Query::parse(query);
    for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD] {
        let Ok(info) = RequestInfo::new(&method, path, &query) else { continue };
        let _ = info.what();
        let _ = info.verb();
        let _ = routing::route(&info, schema::kinds::builtin());
    }
}
