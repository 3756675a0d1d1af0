//! Options of get, list, watch and deletecollection, and the revision that they request (spec 01 §2, §5, §7).

use crate::continue_token::ContinueToken;
use crate::field_error::FieldError;
use crate::query::{Query, parse_u64};
use crate::{Revision, Status, fields, labels};

const EXACT: &str = "Exact";
const NOT_OLDER_THAN: &str = "NotOlderThan";
const MATCH: &str = "resourceVersionMatch";

/// The revision that a list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListMode {
    /// Includes every write that was acknowledged before the request arrived.
    Fresh,
    /// Any revision, as cached; the limit is ignored.
    Any,
    /// At least as new as this.
    NotOlderThan(Revision),
    /// Exactly this one.
    Exact(Revision),
    /// A later page. Its revision is `None` if the client continues at the latest one.
    Continue(ContinueToken),
}

/// The starting point of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// Initial events of the existing objects, at least as new as the request.
    InitialFresh,
    /// Initial events of the existing objects, as cached.
    InitialAny,
    /// Initial events of the existing objects, at least as new as this.
    InitialNotOlderThan(Revision),
    /// No initial events; starts at the newest revision.
    FreshOnly,
    /// No initial events; starts at the cached revision.
    AnyOnly,
    /// All events after this revision.
    After(Revision),
}

/// The age that the object of a get may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetMode {
    Fresh,
    Any,
    NotOlderThan(Revision),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    pub resource_version: String,
}

impl GetOptions {
    pub fn from_query(query: &Query) -> Result<Self, Status> {
        if query.truth("export") == Some(true) {
            return Err(Status::bad_request("the export parameter, deprecated since v1.14, is no longer supported"));
        }
        Ok(GetOptions { resource_version: text(query, "resourceVersion") })
    }

    pub fn mode(&self) -> Result<GetMode, Status> {
        match RequestedRevision::parse(&self.resource_version).map_err(Status::unmapped)? {
            RequestedRevision::Unset => Ok(GetMode::Fresh),
            RequestedRevision::Zero => Ok(GetMode::Any),
            RequestedRevision::At(revision) => Ok(GetMode::NotOlderThan(revision)),
        }
    }
}

/// The options of a list or a watch, as sent and with their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    pub label_selector: labels::Selector,
    pub field_selector: fields::Selector,
    pub watch: bool,
    pub allow_watch_bookmarks: bool,
    pub resource_version: String,
    pub resource_version_match: String,
    pub timeout_seconds: Option<i64>,
    /// Zero or less is no limit.
    pub limit: i64,
    pub continue_token: String,
    pub send_initial_events: Option<bool>,
}

impl ListOptions {
    /// Parses, sets defaults and validates, in the order of the reference.
    pub fn from_query(query: &Query) -> Result<Self, Status> {
        let mut options = Self::decode(query)?;
        options.set_defaults();
        options.validate()?;
        Ok(options)
    }

    /// Parses only. The error is the 400 response.
    pub fn decode(query: &Query) -> Result<Self, Status> {
        let timeout_seconds = query.integer("timeoutSeconds")?;
        let limit = query.integer("limit")?.unwrap_or_default();
        let labels = query.get("labelSelector").unwrap_or_default();
        let fields = query.get("fieldSelector").unwrap_or_default();
        Ok(ListOptions {
            label_selector: labels::Selector::parse(labels).map_err(Status::bad_request)?,
            field_selector: fields::Selector::parse(fields).map_err(Status::bad_request)?,
            watch: query.truth("watch").unwrap_or_default(),
            allow_watch_bookmarks: query.truth("allowWatchBookmarks").unwrap_or_default(),
            resource_version: text(query, "resourceVersion"),
            resource_version_match: text(query, MATCH),
            timeout_seconds,
            limit,
            continue_token: text(query, "continue"),
            send_initial_events: query.truth("sendInitialEvents"),
        })
    }

    /// Sets defaults: a watch without a revision or from 0 has initial events.
    pub fn set_defaults(&mut self) {
        let unsaid = self.send_initial_events.is_none() && self.resource_version_match.is_empty();
        if self.watch && unsaid && matches!(self.resource_version.as_str(), "" | "0") {
            self.send_initial_events = Some(true);
            NOT_OLDER_THAN.clone_into(&mut self.resource_version_match);
        }
    }

    /// Validates; the error is the 422 response for options that contradict each other.
    pub fn validate(&self) -> Result<(), Status> {
        let errors = if self.watch { self.watch_errors() } else { self.list_errors() };
        if errors.is_empty() { Ok(()) } else { Err(Status::list_options_invalid(&errors)) }
    }

    fn list_errors(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let wanted = self.resource_version_match.as_str();
        if !wanted.is_empty() {
            if self.resource_version.is_empty() {
                errors.push(FieldError::forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if !self.continue_token.is_empty() {
                errors.push(match_with_continue());
            }
            if wanted != EXACT && wanted != NOT_OLDER_THAN {
                errors.push(FieldError::not_supported(MATCH, wanted, [EXACT, NOT_OLDER_THAN, ""]));
            }
            if wanted == EXACT && self.resource_version == "0" {
                errors.push(FieldError::forbidden(
                    MATCH,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if self.send_initial_events.is_some() {
            errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        errors
    }

    fn watch_errors(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let wanted = self.resource_version_match.as_str();
        if self.send_initial_events.is_some() && wanted != NOT_OLDER_THAN {
            errors.push(FieldError::forbidden(
                MATCH,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if !wanted.is_empty() {
            if self.send_initial_events.is_none() {
                errors.push(FieldError::forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            if wanted != NOT_OLDER_THAN {
                errors.push(FieldError::not_supported(MATCH, wanted, [NOT_OLDER_THAN]));
            }
            if !self.continue_token.is_empty() {
                errors.push(match_with_continue());
            }
        }
        errors
    }

    /// Returns the revision that the list shows, by the table of spec 01 §5.
    pub fn list_mode(&self) -> Result<ListMode, Status> {
        if !self.continue_token.is_empty() {
            let token = ContinueToken::decode(&self.continue_token)?;
            if !matches!(self.resource_version.as_str(), "" | "0") {
                return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
            }
            return Ok(ListMode::Continue(token));
        }
        let requested = RequestedRevision::parse(&self.resource_version)
            .map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))?;
        Ok(match requested {
            RequestedRevision::Unset => ListMode::Fresh,
            RequestedRevision::Zero => ListMode::Any,
            RequestedRevision::At(revision) => match self.resource_version_match.as_str() {
                EXACT => ListMode::Exact(revision),
                // Before the match parameter existed, a page at N meant exactly N.
                "" if self.limit > 0 => ListMode::Exact(revision),
                _ => ListMode::NotOlderThan(revision),
            },
        })
    }

    /// Returns the number of items of a page; `None` is all. A list at revision 0 is never split.
    #[must_use]
    pub fn page_size(&self) -> Option<usize> {
        let uncut = self.continue_token.is_empty() && self.resource_version == "0";
        if self.limit <= 0 || uncut { None } else { Some(usize::try_from(self.limit).unwrap_or(usize::MAX)) }
    }

    /// Returns the starting point of the watch, by the table of spec 01 §7.2.
    ///
    /// On the legacy paths (`/watch/…`) the options are parsed as those of a list: there are no defaults, and both "" and
    /// "0" mean the cached revision.
    pub fn watch_start(&self) -> Result<WatchStart, Status> {
        let requested = RequestedRevision::parse(&self.resource_version).map_err(Status::unmapped)?;
        Ok(match (requested, self.send_initial_events) {
            (RequestedRevision::Unset, Some(true)) => WatchStart::InitialFresh,
            (RequestedRevision::Zero, Some(true)) | (RequestedRevision::Unset | RequestedRevision::Zero, None) => {
                WatchStart::InitialAny
            }
            (RequestedRevision::At(revision), Some(true)) => WatchStart::InitialNotOlderThan(revision),
            (RequestedRevision::Unset, Some(false)) => WatchStart::FreshOnly,
            (RequestedRevision::Zero, Some(false)) => WatchStart::AnyOnly,
            (RequestedRevision::At(revision), Some(false) | None) => WatchStart::After(revision),
        })
    }

    /// Returns whether a bookmark marks the end of the initial events.
    #[must_use]
    pub fn wants_initial_bookmark(&self) -> bool {
        self.allow_watch_bookmarks && self.send_initial_events == Some(true)
    }
}

fn match_with_continue() -> FieldError {
    FieldError::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided")
}

fn text(query: &Query, name: &str) -> String {
    query.get(name).unwrap_or_default().to_owned()
}

enum RequestedRevision {
    Unset,
    Zero,
    At(Revision),
}

impl RequestedRevision {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(RequestedRevision::Unset);
        }
        match parse_u64(text) {
            Ok(0) => Ok(RequestedRevision::Zero),
            Ok(number) => Ok(RequestedRevision::At(Revision(number))),
            Err(why) => Err(FieldError::invalid("resourceVersion", text, why).to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(query: &str) -> Result<ListOptions, String> {
        ListOptions::from_query(&Query::parse(query)).map_err(|status| {
            assert!(matches!(status.code, 400 | 422));
            status.message
        })
    }

    #[track_caller]
    fn refused(query: &str, want: &str) {
        assert_eq!(options(query).err().as_deref(), Some(want), "{query}");
    }

    #[track_caller]
    fn list_mode(query: &str) -> Result<ListMode, (u16, String)> {
        let options = options(query).unwrap_or_else(|e| panic!("{query}: {e}"));
        options.list_mode().map_err(|status| (status.code, status.message))
    }

    #[track_caller]
    fn watch_start(query: &str) -> Result<WatchStart, (u16, String)> {
        let options = options(query).unwrap_or_else(|e| panic!("{query}: {e}"));
        options.watch_start().map_err(|status| (status.code, status.message))
    }

    #[test]
    fn list_option_validation_rows() {
        let invalid = |text: &str| format!("ListOptions.meta.k8s.io \"\" is invalid: {text}");
        refused(
            "resourceVersionMatch=Exact",
            &invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
        );
        refused(
            "resourceVersionMatch=Exact&resourceVersion=5&continue=x",
            &invalid("resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"),
        );
        refused(
            "resourceVersionMatch=exact&resourceVersion=5",
            &invalid(
                "resourceVersionMatch: Unsupported value: \"exact\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
            ),
        );
        refused(
            "resourceVersionMatch=Exact&resourceVersion=0",
            &invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
        );
        refused(
            "sendInitialEvents=false",
            &invalid("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        );
        refused(
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            &invalid(
                "[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list]",
            ),
        );
    }

    #[test]
    fn watch_option_validation_rows() {
        let invalid = |text: &str| format!("ListOptions.meta.k8s.io \"\" is invalid: {text}");
        refused(
            "watch=1&resourceVersionMatch=NotOlderThan",
            &invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
        );
        refused(
            "watch=1&resourceVersionMatch=Exact&resourceVersion=5",
            &invalid(
                "[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]",
            ),
        );
        refused(
            "watch=1&sendInitialEvents=false",
            &invalid(
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
        );
        refused(
            "watch=1&sendInitialEvents=true&resourceVersionMatch=Nope",
            &invalid(
                "[resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, resourceVersionMatch: Unsupported value: \"Nope\": supported values: \"NotOlderThan\"]",
            ),
        );
        refused(
            "watch=1&continue=abc",
            &invalid("resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"),
        );
        refused("watch=1&limit=abc", "strconv.ParseInt: parsing \"abc\": invalid syntax");
        refused("watch=1&labelSelector=a%3Db%3Dc", "found '=', expected: ',' or 'end of string'");
    }

    #[test]
    fn list_modes_after_the_table() {
        assert_eq!(list_mode(""), Ok(ListMode::Fresh));
        assert_eq!(list_mode("limit=5"), Ok(ListMode::Fresh));
        assert_eq!(list_mode("resourceVersion=0"), Ok(ListMode::Any));
        assert_eq!(list_mode("resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=1"), Ok(ListMode::Any));
        assert_eq!(list_mode("resourceVersion=7"), Ok(ListMode::NotOlderThan(Revision(7))));
        assert_eq!(list_mode("resourceVersion=7&limit=2"), Ok(ListMode::Exact(Revision(7))));
        assert_eq!(
            list_mode("resourceVersion=7&limit=2&resourceVersionMatch=NotOlderThan"),
            Ok(ListMode::NotOlderThan(Revision(7)))
        );
        assert_eq!(list_mode("resourceVersion=7&resourceVersionMatch=Exact"), Ok(ListMode::Exact(Revision(7))));
        let token = ContinueToken::after("a", Revision(9));
        assert_eq!(
            list_mode(&format!("resourceVersion=0&continue={}", token.encode())),
            Ok(ListMode::Continue(token.clone()))
        );
        assert_eq!(
            list_mode(&format!("resourceVersion=3&continue={}", token.encode())),
            Err((400, "specifying resource version is not allowed when using continue".to_owned()))
        );
        assert_eq!(
            list_mode("resourceVersion=abc"),
            Err((400, "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax".to_owned()))
        );
    }

    #[test]
    fn limit_at_revision_zero_does_not_count() {
        let page_size = |query: &str| options(query).map(|options| options.page_size());
        assert_eq!(page_size("limit=2&resourceVersion=0"), Ok(None));
        assert_eq!(page_size("limit=2"), Ok(Some(2)));
        assert_eq!(page_size("limit=-1"), Ok(None));
        assert_eq!(page_size("limit=2&resourceVersion=0&continue=x"), Ok(Some(2)));
    }

    #[test]
    fn watch_starts_after_the_table() {
        assert_eq!(watch_start("watch=1"), Ok(WatchStart::InitialFresh));
        assert_eq!(watch_start("watch=1&resourceVersion=0"), Ok(WatchStart::InitialAny));
        let told = "watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents";
        assert_eq!(watch_start(&format!("{told}=true")), Ok(WatchStart::InitialFresh));
        assert_eq!(watch_start(&format!("{told}=true&resourceVersion=0")), Ok(WatchStart::InitialAny));
        assert_eq!(
            watch_start(&format!("{told}=true&resourceVersion=5")),
            Ok(WatchStart::InitialNotOlderThan(Revision(5)))
        );
        assert_eq!(watch_start(&format!("{told}=false")), Ok(WatchStart::FreshOnly));
        assert_eq!(watch_start(&format!("{told}=false&resourceVersion=0")), Ok(WatchStart::AnyOnly));
        assert_eq!(watch_start(&format!("{told}=false&resourceVersion=5")), Ok(WatchStart::After(Revision(5))));
        assert_eq!(watch_start("watch=1&resourceVersion=5"), Ok(WatchStart::After(Revision(5))));
        assert_eq!(watch_start(""), Ok(WatchStart::InitialAny), "legacy path");
        assert_eq!(watch_start("resourceVersion=5"), Ok(WatchStart::After(Revision(5))), "legacy path");
        assert_eq!(
            watch_start("watch=1&resourceVersion=-1"),
            Err((
                500,
                "resourceVersion: Invalid value: \"-1\": strconv.ParseUint: parsing \"-1\": invalid syntax".to_owned()
            ))
        );
    }

    #[test]
    fn end_bookmark_needs_bookmarks_and_initial_events() {
        let wants = |query: &str| options(query).map(|options| options.wants_initial_bookmark());
        assert_eq!(wants("watch=1&allowWatchBookmarks=true"), Ok(true));
        assert_eq!(wants("watch=1"), Ok(false));
        assert_eq!(wants("watch=1&allowWatchBookmarks=true&resourceVersion=5"), Ok(false));
        assert_eq!(wants("allowWatchBookmarks=true"), Ok(false), "legacy path");
    }

    #[test]
    fn get_options() {
        let get = |query: &str| GetOptions::from_query(&Query::parse(query));
        assert_eq!(get("").and_then(|o| o.mode()), Ok(GetMode::Fresh));
        assert_eq!(get("resourceVersion=0").and_then(|o| o.mode()), Ok(GetMode::Any));
        assert_eq!(get("resourceVersion=4").and_then(|o| o.mode()), Ok(GetMode::NotOlderThan(Revision(4))));
        assert_eq!(get("resourceVersion=abc").and_then(|o| o.mode()).map_err(|s| s.code), Err(500));
        assert_eq!(
            get("exact=true&export=true").map_err(|s| s.message),
            Err("the export parameter, deprecated since v1.14, is no longer supported".to_owned())
        );
    }
}
