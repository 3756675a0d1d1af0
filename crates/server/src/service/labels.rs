//! The metric labels of a request.

use http::Method;
use machinery::query::Query;

use crate::metrics::RequestLabels;
use crate::request::handlers;
use crate::request::request_info::RequestInfo;
use crate::request::routing::{ResourceRoute, Route};

/// Returns the labels. They name only served kinds and paths, so that a client cannot invent labels.
pub(super) fn request_labels<'a>(info: &'a RequestInfo<'_>, route: &'a Route, query: &Query) -> RequestLabels<'a> {
    let dry_run = if query.get("dryRun").is_some() { "All" } else { "" };
    match route {
        Route::Resource(ResourceRoute { verb, target, .. }) => RequestLabels {
            verb: verb.metric(),
            group: &target.kind.gvk.group,
            version: &target.kind.gvk.version,
            resource: &target.kind.plural,
            subresource: target.subresource.as_deref().unwrap_or_default(),
            scope: handlers::scope(target),
            dry_run: if verb.writes() { dry_run } else { "" },
        },
        other => {
            let subresource = match other {
                Route::Health(endpoint, _) => endpoint,
                Route::Version => "version",
                Route::Issuer | Route::IssuerKeys => "openid",
                Route::Metrics => "metrics",
                Route::OpenApiV2 | Route::OpenApiV3(_) => "openapi",
                Route::CoreVersions
                | Route::Groups
                | Route::Group(_)
                | Route::AggregatedGroup(_)
                | Route::Resources(..) => "discovery",
                _ => "",
            };
            let verb = if *info.method == Method::GET { "GET" } else { "other" };
            RequestLabels { verb, subresource, ..RequestLabels::default() }
        }
    }
}
