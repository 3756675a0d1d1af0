//! The parameters of a list or watch request.
//!
//! Built here and not with `kube`'s parameter types: those drop `resourceVersion=0` when a limit is set (K-1), refuse
//! watch timeouts of 295 s and more (K-2), and cannot leave the version of a streaming list unset (K-3).

use form_urlencoded::Serializer;

use crate::ResourceVersion;

/// The meaning of a resource version in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionMatch {
    /// That version or a newer one.
    NotOlderThan,
    /// That version and no other.
    Exact,
}

/// The parameters of a list or watch request. The same type for both, so that one modifier can serve both (LW-1).
///
/// ```
/// use client::wire::Params;
///
/// let params = Params { watch: true, version: Some("5".into()), allow_bookmarks: true, ..Params::default() };
/// assert_eq!(params.to_query(), "watch=true&resourceVersion=5&allowWatchBookmarks=true");
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params {
    /// `watch=true`.
    pub watch: bool,
    /// The point in history; `Some("")` is sent as an empty value, which means "most recent".
    pub version: Option<ResourceVersion>,
    /// The meaning of `version`.
    pub version_match: Option<VersionMatch>,
    /// Page size.
    pub limit: Option<u32>,
    /// Position of the next page.
    pub continue_token: Option<String>,
    /// Time after which the server ends the watch.
    pub timeout_seconds: Option<u32>,
    /// Request bookmarks.
    pub allow_bookmarks: bool,
    /// Request the current state as a stream of ADDED events before the changes.
    pub send_initial_events: bool,
    /// Only objects with such labels.
    pub label_selector: Option<String>,
    /// Only objects with such fields.
    pub field_selector: Option<String>,
}

impl Params {
    /// The query string, without a leading `?`.
    pub fn to_query(&self) -> String {
        let mut query = Serializer::new(String::new());
        if self.watch {
            query.append_pair("watch", "true");
        }
        if let Some(version) = &self.version {
            query.append_pair("resourceVersion", version.as_str());
        }
        if let Some(matching) = self.version_match {
            let text = match matching {
                VersionMatch::NotOlderThan => "NotOlderThan",
                VersionMatch::Exact => "Exact",
            };
            query.append_pair("resourceVersionMatch", text);
        }
        if let Some(limit) = self.limit {
            query.append_pair("limit", &limit.to_string());
        }
        if let Some(token) = &self.continue_token {
            query.append_pair("continue", token);
        }
        if let Some(seconds) = self.timeout_seconds {
            query.append_pair("timeoutSeconds", &seconds.to_string());
        }
        if self.allow_bookmarks {
            query.append_pair("allowWatchBookmarks", "true");
        }
        if self.send_initial_events {
            query.append_pair("sendInitialEvents", "true");
        }
        if let Some(selector) = &self.label_selector {
            query.append_pair("labelSelector", selector);
        }
        if let Some(selector) = &self.field_selector {
            query.append_pair("fieldSelector", selector);
        }
        query.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k_01_version_zero_is_sent_together_with_a_limit() {
        let params = Params { version: Some(ResourceVersion::any()), limit: Some(500), ..Params::default() };
        assert_eq!(params.to_query(), "resourceVersion=0&limit=500");
    }

    #[test]
    fn k_02_long_watch_timeouts_are_sent() {
        let params = Params { watch: true, timeout_seconds: Some(599), ..Params::default() };
        assert_eq!(params.to_query(), "watch=true&timeoutSeconds=599");
    }

    #[test]
    fn k_03_streaming_list_with_unset_version() {
        let params = Params {
            watch: true,
            version: Some(ResourceVersion::unset()),
            version_match: Some(VersionMatch::NotOlderThan),
            allow_bookmarks: true,
            send_initial_events: true,
            ..Params::default()
        };
        assert_eq!(
            params.to_query(),
            "watch=true&resourceVersion=&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&sendInitialEvents=true"
        );
    }

    #[test]
    fn selectors_are_escaped() {
        let params = Params { label_selector: Some("a in (x, y)".into()), ..Params::default() };
        assert_eq!(params.to_query(), "labelSelector=a+in+%28x%2C+y%29");
    }
}
