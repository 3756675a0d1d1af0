//! Paths other than resources: health, version, metrics, discovery, OpenAPI, the index.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method};
use machinery::json::json;
use machinery::media::MediaType;
use machinery::{GroupResource, Status};
use registry::admission::webhooks::faults::Fault;
use registry::discovery;

use crate::fairness::dump::Dump;
use crate::request::authentication::accounts::discovery as issuer;
use crate::request::discovery::{encoded, merged_groups, plain};
use crate::request::handlers::Call;
use crate::request::health::{self, Check};
use crate::request::reply::{self, Reply};
use crate::request::routing::{Route, index};
use crate::request::version;
use access::identity::UNAUTHENTICATED;

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

const KEY_SET: HeaderValue = HeaderValue::from_static("application/jwk-set+json");
const PUBLIC: HeaderValue = HeaderValue::from_static("public, max-age=3600");

/// Longest time that a health check waits for the store.
const STORE_CHECK_MAX: Duration = Duration::from_secs(5);

/// What others need to verify tokens of service accounts.
fn issuer(call: &Call<'_>, route: &Route) -> Reply {
    let host = call.peer.local.map(|local| local.to_string()).unwrap_or_default();
    let found = call.server.authenticator.accounts.as_ref().and_then(|tokens| match route {
        Route::IssuerKeys => Some((KEY_SET, issuer::key_set(tokens)?)),
        _ => Some((reply::JSON, issuer::document(tokens, &host)?)),
    });
    let Some((content_type, body)) = found else { return reply::page_not_found() };
    let mut reply = reply::whole(200, content_type, body.to_string().into_bytes());
    reply.headers_mut().insert(http::header::CACHE_CONTROL, PUBLIC);
    reply
}

/// Sets the fault of a webhook (PUT with `?fault=`), or removes it (DELETE).
fn faults(call: &Call<'_>, webhook: Option<&str>) -> Result<(), Status> {
    let faults = call.server.registry.webhook_faults();
    match (call.method, webhook) {
        (&Method::GET, None) => Ok(()),
        (&Method::PUT, Some(webhook)) => {
            let fault = Fault::parse(call.query.get("fault").unwrap_or_default()).map_err(Status::bad_request)?;
            faults.set(webhook, fault).map_err(Status::bad_request)
        }
        (&Method::DELETE, Some(webhook)) => {
            faults.remove(webhook);
            Ok(())
        }
        _ => Err(Status::router_method_not_allowed()),
    }
}

pub(super) async fn answer(call: &Call<'_>, route: Route) -> Result<Reply, Status> {
    let server = call.server;
    let kinds = server.registry.kinds();
    let (headers, query) = (call.headers, call.query);
    match route {
        Route::Index => encoded(&json!({"paths": index(&kinds)}), MediaType::Json, headers, query),
        Route::Version => {
            let mut text = serde_json::to_vec_pretty(&version::body()).map_err(Status::internal)?;
            text.push(b'\n');
            Ok(reply::whole(200, reply::JSON, text))
        }
        Route::Issuer | Route::IssuerKeys => Ok(issuer(call, &route)),
        // They show the rights of others.
        Route::Access | Route::AccessRoles if !call.user.is_master() => Err(Status::forbidden(
            &GroupResource::default(),
            "",
            "only members of system:masters see the rights of others",
        )),
        Route::Access => {
            let explained = server.inspection.explain(&*server.authorizer, query).await?;
            encoded(&explained, MediaType::Json, headers, query)
        }
        Route::AccessRoles => encoded(&server.inspection.least_roles(query)?, MediaType::Json, headers, query),
        Route::Fairness(name) => Ok(match Dump::parse(&name) {
            Some(dump) => {
                let text = server.fairness.dump(dump, server.clock.now());
                reply::whole(200, reply::TEXT, text.into_bytes())
            }
            None => reply::page_not_found(),
        }),
        // They show objects of others.
        Route::AdmissionTraces | Route::AdmissionTrace(_) | Route::AdmissionFaults(_) if !call.user.is_master() => Err(
            Status::forbidden(&GroupResource::default(), "", "only members of system:masters see traces of admission"),
        ),
        Route::AdmissionFaults(name) => {
            faults(call, name.as_deref())?;
            encoded(&server.registry.webhook_faults().list(), MediaType::Json, headers, query)
        }
        Route::AdmissionTraces => encoded(&server.traces.list(), MediaType::Json, headers, query),
        Route::AdmissionTrace(id) => match server.traces.find(&id) {
            Some(document) => Ok(reply::whole(200, reply::JSON, document.as_bytes().to_vec())),
            None => Err(Status::not_found(&GroupResource::new("", "traces"), &id)),
        },
        Route::Metrics => {
            // Takes milliseconds with hundreds of kinds. Not on the pool for heavy requests: those who look at a server that
            // has too many of them must not wait for them.
            let is_served = |group: &str, version: &str, plural: &str| kinds.get(group, version, plural).is_some();
            server.metrics.retain_resources(is_served);
            let registry = Arc::clone(&server.metrics_registry);
            let encode = move || {
                let mut text = String::new();
                prometheus_client::encoding::text::encode(&mut text, &registry).map(|()| text)
            };
            let text =
                tokio::task::spawn_blocking(encode).await.map_err(Status::internal)?.map_err(Status::internal)?;
            Ok(reply::whole(200, OPEN_METRICS, text.into_bytes()))
        }
        Route::Health(endpoint, check) => {
            let checks = checks(call, endpoint).await;
            let report = match check {
                None => {
                    // Reasons name files and objects: not for strangers.
                    let reasons = query.get("verbose").is_some() && !call.user.in_group(UNAUTHENTICATED);
                    let report = health::report(endpoint, &checks, query, reasons);
                    if reasons { health::with_warnings(report, &server.registry.damage()) } else { report }
                }
                Some(name) => match health::single(&name, &checks) {
                    Some(report) => report,
                    None => return Ok(reply::page_not_found()),
                },
            };
            Ok(reply::text(report.code, report.text))
        }
        Route::CoreVersions => {
            let address = call.peer.local.map(|address| address.to_string()).unwrap_or_default();
            server.discovery.core_versions(&kinds, &address, headers, query)
        }
        Route::Groups => match server.merged_discovery(&kinds) {
            None => server.discovery.groups(&kinds, headers, query),
            Some(merged) => merged_groups(&merged, headers, query),
        },
        Route::Group(name) => plain(discovery::group(&kinds, &name), headers, query),
        Route::AggregatedGroup(group) => plain(Some(group), headers, query),
        Route::Resources(group, version) => plain(discovery::resources(&kinds, &group, &version), headers, query),
        Route::OpenApiV2 => Ok(server.openapi.v2(&kinds, headers).await),
        Route::OpenApiV3(path) => Ok(server.openapi.v3(&kinds, path, headers, query, server.clock.now()).await),
        Route::PageNotFound | Route::Resource(_) => Ok(reply::page_not_found()),
        Route::Refused(status) => Err(status),
    }
}

/// The checks of an endpoint. `livez` has only those of the store that a restart would help; `readyz` also fails while the
/// server stops.
async fn checks(call: &Call<'_>, endpoint: &str) -> Vec<Check> {
    let registry = &call.server.registry;
    let store = tokio::time::timeout(STORE_CHECK_MAX, registry.store().health()).await;
    let store = match store {
        Ok(checks) => checks.into_iter().map(|check| (check.name.to_owned(), check.problem)).collect(),
        // The readiness check `store` fails then as well.
        Err(_) => Vec::new(),
    };
    let mut checks: Vec<Check> = Vec::new();
    if endpoint == "livez" {
        checks.push(("ping".to_owned(), Ok(())));
        checks.extend(store.into_iter().map(|(name, problem)| {
            let fatal = problem.filter(|problem| problem.needs_restart);
            (name, fatal.map_or(Ok(()), |problem| Err(problem.reason)))
        }));
        return checks;
    }
    match tokio::time::timeout(STORE_CHECK_MAX, registry.ready()).await {
        Ok(ready) => checks.extend(ready),
        Err(_) => {
            checks.push(("ping".to_owned(), Ok(())));
            checks.push(("store".to_owned(), Err(format!("no answer within {} s", STORE_CHECK_MAX.as_secs()))));
        }
    }
    checks
        .extend(store.into_iter().map(|(name, problem)| (name, problem.map_or(Ok(()), |problem| Err(problem.reason)))));
    if endpoint == "readyz" {
        let stopping = call.server.drain.has_begun();
        checks.push(("shutdown".to_owned(), if stopping { Err("the server is stopping".to_owned()) } else { Ok(()) }));
    }
    checks
}
