//! Whether aggregated servers can be used: one task for each, which checks again when something changed, and now and then.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use machinery::json::Value;
use outbound::{Answer, Endpoint, Request};
use parking_lot::Mutex;
use registry::api_services::RemoteService;
use registry::api_services::availability::Availability;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::documents::{self, VersionDocument};
use super::proxy::remote_headers;
use super::{Aggregator, Unresolved};
use crate::services::{annotated, has_reachable, port_name};

/// Time of one discovery request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests of one check; one that succeeds is enough.
const ATTEMPTS: usize = 5;
/// Time between checks of a server that can be used.
const INTERVAL: Duration = Duration::from_secs(30);
/// First wait after a failed check; each further one is twice as long, up to [`INTERVAL`].
const RETRY_MIN: Duration = Duration::from_millis(250);
/// Checks at the same time.
const CHECKS_MAX: usize = 32;
/// The user of checks, a member of `system:masters`.
const USER: &str = "system:kube-aggregator";

pub(super) async fn run(aggregator: Arc<Aggregator>) {
    let Some(mut changes) = aggregator.registry.upgrade().map(|registry| registry.api_services().changes()) else {
        return;
    };
    changes.mark_changed();
    let permits = Arc::new(Semaphore::new(CHECKS_MAX));
    let followed: Arc<Mutex<HashSet<String>>> = Arc::default();
    let mut tasks = JoinSet::new();
    while changes.changed().await.is_ok() {
        while tasks.try_join_next().is_some() {}
        let Some(remotes) = aggregator.remotes() else { continue };
        for remote in remotes.iter() {
            if !followed.lock().insert(remote.uid.clone()) {
                continue;
            }
            let (aggregator, permits, followed) =
                (Arc::clone(&aggregator), Arc::clone(&permits), Arc::clone(&followed));
            let uid = remote.uid.clone();
            tasks.spawn(async move {
                follow(&aggregator, &uid, &permits).await;
                followed.lock().remove(&uid);
            });
        }
    }
}

/// Checks one server until its APIService is gone.
async fn follow(aggregator: &Aggregator, uid: &str, permits: &Semaphore) {
    let Some(mut changes) = aggregator.registry.upgrade().map(|registry| registry.api_services().changes()) else {
        return;
    };
    let mut retry = RETRY_MIN;
    let mut name = String::new();
    loop {
        changes.mark_unchanged();
        let remote = aggregator.remotes().and_then(|all| all.iter().find(|remote| remote.uid == uid).cloned());
        let Some(remote) = remote else { return aggregator.forget(&name) };
        name.clone_from(&remote.name);
        let (availability, document) = {
            let Ok(_permit) = permits.acquire().await else { return };
            aggregator.check(&remote).await
        };
        if let Some(document) = document {
            aggregator.keep(&remote.name, document);
        }
        let Some(registry) = aggregator.registry.upgrade() else { return };
        let written = registry.write_availability(&remote.name, &remote.uid, &availability).await;
        drop(registry);
        if let Err(status) = &written {
            tracing::debug!(name = remote.name, %status, "the condition of an APIService was not written");
        }
        let wait = if availability.available && written.is_ok() {
            retry = RETRY_MIN;
            INTERVAL
        } else {
            let wait = retry;
            retry = (retry * 2).min(INTERVAL);
            wait
        };
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(wait) => {}
        }
    }
}

fn failing(reason: &'static str, message: String) -> Availability {
    Availability { available: false, reason, message: message.into() }
}

impl Aggregator {
    /// Keeps what a server serves. Documents that did not change stay the same ones, so that nothing is merged again.
    fn keep(&self, name: &str, document: VersionDocument) {
        let mut documents = self.documents.write();
        if documents.get(name) != Some(&document) {
            Arc::make_mut(&mut documents).insert(name.to_owned(), document);
        }
    }

    /// Drops the documents of servers that are gone.
    fn forget(&self, name: &str) {
        let mut documents = self.documents.write();
        if documents.contains_key(name) {
            Arc::make_mut(&mut documents).remove(name);
        }
    }

    async fn check(&self, remote: &RemoteService) -> (Availability, Option<VersionDocument>) {
        if let Some(failure) = self.check_service(remote) {
            return (failure, None);
        }
        match self.discover(remote).await {
            Err(why) => (failing("FailedDiscoveryCheck", why), None),
            Ok(document) => {
                let passed = Availability { available: true, reason: "Passed", message: "all checks passed".into() };
                (passed, document)
            }
        }
    }

    /// Looks at the Service; none if it can be called.
    fn check_service(&self, remote: &RemoteService) -> Option<Availability> {
        let (namespace, name) = (&remote.namespace, &remote.service);
        if remote.url.is_some() || self.services.given(namespace, name, remote.port).is_some() {
            return None;
        }
        let quoted = machinery::go_text::quote(namespace);
        let service = match self.services.service(namespace, name) {
            Ok(Some(service)) => service,
            Ok(None) => return Some(failing("ServiceNotFound", format!("service/{name} in {quoted} is not present"))),
            Err(why) => {
                let message = format!("service/{name} in {quoted} cannot be checked due to: {why}");
                return Some(failing("ServiceAccessError", message));
            }
        };
        if annotated(&service).is_some() || !matches!(service["spec"]["type"].as_str(), None | Some("ClusterIP")) {
            return None;
        }
        let port = remote.port;
        let Some(port_name) = port_name(&service, port) else {
            let message = format!("service/{name} in {quoted} is not listening on port {port}");
            return Some(failing("ServicePortError", message));
        };
        let slices = self.services.slices(namespace, name).unwrap_or_default();
        // Slices of simulated pods lead nowhere.
        let slices: Vec<&Value> = slices.iter().filter(|slice| has_reachable(slice)).collect();
        if slices.is_empty() {
            let message = format!("cannot find endpointslices for service/{name} in {quoted}");
            return Some(failing("EndpointsNotFound", message));
        }
        if !slices.iter().any(|slice| has_endpoint(slice, &port_name)) {
            let port_name = machinery::go_text::quote(&port_name);
            let message =
                format!("endpointslices for service/{name} in {quoted} have no addresses with port name {port_name}");
            return Some(failing("MissingEndpoints", message));
        }
        None
    }

    /// Asks the server for its discovery; an error is the message of the condition.
    async fn discover(&self, remote: &RemoteService) -> Result<Option<VersionDocument>, String> {
        let (endpoint, address) = self.endpoint(remote).map_err(|error| match error {
            Unresolved::Address(why) | Unresolved::Configuration(why) => why,
        })?;
        let path = match remote.group.as_str() {
            "" => format!("/api/{}", remote.version),
            group => format!("/apis/{group}/{}", remote.version),
        };
        // Most checks succeed at once; only a failing server is asked more often.
        let first = self.ask(&endpoint, &address, &path).await;
        let answer = match first {
            Ok(answer) => answer,
            Err(why) => {
                let mut others: FuturesUnordered<_> =
                    (1..ATTEMPTS).map(|_| self.ask(&endpoint, &address, &path)).collect();
                let mut found = Err(why);
                while let Some(result) = others.next().await {
                    found = result;
                    if found.is_ok() {
                        break;
                    }
                }
                found?
            }
        };
        let groups = endpoint.with_path("/apis").ok();
        let aggregated = match groups {
            Some(endpoint) if !remote.group.is_empty() => {
                let mut request = Request::get().timeout(REQUEST_TIMEOUT);
                remote_headers(&mut request.headers, USER, "", &[crate::certs::ADMIN_GROUP.to_owned()], &[])?;
                request.headers.insert(http::header::ACCEPT, documents::ACCEPT);
                self.client.send(&endpoint, request).await.ok()
            }
            _ => None,
        };
        let aggregated = aggregated.and_then(|answer| VersionDocument::aggregated(&answer, remote));
        Ok(aggregated.or_else(|| VersionDocument::plain(&answer.body)))
    }

    async fn ask(&self, endpoint: &Endpoint, address: &str, path: &str) -> Result<Answer, String> {
        let url = format!("https://{address}{path}");
        let failed = |why: String| format!("failing or missing response from {url}: {why}");
        let endpoint = endpoint.with_path(path).map_err(|error| failed(error.to_string()))?;
        let mut request = Request::get().timeout(REQUEST_TIMEOUT);
        remote_headers(&mut request.headers, USER, "", &[crate::certs::ADMIN_GROUP.to_owned()], &[]).map_err(failed)?;
        let answer = self
            .client
            .send(&endpoint, request)
            .await
            .map_err(|error| failed(format!("Get {}: {}", machinery::go_text::quote(&url), error.why())))?;
        if !answer.status.is_success() {
            return Err(failed(format!("bad status from {url}: {}", answer.status.as_u16())));
        }
        Ok(answer)
    }
}

/// Whether a slice has a ready endpoint, and the port.
fn has_endpoint(slice: &Value, port_name: &str) -> bool {
    let list = |member: &str| slice[member].as_array().into_iter().flat_map(|items| items.iter());
    list("endpoints").any(|endpoint| endpoint["conditions"]["ready"] != false)
        && list("ports").any(|port| port["name"].as_str().unwrap_or_default() == port_name && !port["port"].is_null())
}
