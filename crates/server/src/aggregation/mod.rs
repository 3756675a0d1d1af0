//! Aggregation: group versions that another server serves behind a Service, registered by an APIService.
//!
//! - `check` finds out whether such a server can be used, and writes the condition
//! - `proxy` passes requests on to it
//! - `documents` is what it serves, as its own discovery describes it
//! - `discovery` merges that into this server's discovery
//!
//! Without such an APIService a request costs one load of a pointer more.

mod check;
mod discovery;
mod documents;
mod proxy;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use outbound::{Client, ClientLimits, Endpoint, Identity, Roots, ServiceResolver as _, TlsOptions};
use parking_lot::{Mutex, RwLock};
use registry::Registry;
use registry::api_services::{RemoteService, RemoteServices};

use crate::certs::front_proxy::FrontProxyClient;
use crate::request::request_info::segments;
use crate::services::{Services, url_address};

pub(crate) use discovery::MergedDiscovery;
use documents::VersionDocument;
pub(crate) use proxy::Passed;

/// Largest discovery document of an aggregated server.
const DOCUMENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Passes requests to aggregated servers.
pub struct Aggregator {
    registry: Weak<Registry>,
    client: Client,
    services: Arc<Services>,
    identity: Option<Identity>,
    /// What servers serve, by the name of the APIService, as of their last check.
    documents: RwLock<Arc<Documents>>,
    merged: Mutex<Option<Arc<MergedDiscovery>>>,
}

/// Discovery documents by the name of the APIService.
type Documents = HashMap<String, VersionDocument>;

/// Why a server cannot be called.
enum Unresolved {
    /// Its Service has no address.
    Address(String),
    /// Its certificates cannot be read.
    Configuration(String),
}

impl Aggregator {
    #[must_use]
    pub fn new(
        registry: &Arc<Registry>,
        services: &Arc<Services>,
        front_proxy: Option<&FrontProxyClient>,
    ) -> Arc<Self> {
        let limits = ClientLimits { answer_bytes_max: DOCUMENT_BYTES_MAX, ..ClientLimits::default() };
        Arc::new(Aggregator {
            registry: Arc::downgrade(registry),
            client: Client::new(limits),
            services: Arc::clone(services),
            identity: front_proxy.map(|front_proxy| Identity {
                certificate_pem: front_proxy.client.cert_pem.clone().into(),
                key_pem: front_proxy.client.key_pem.clone().into(),
            }),
            documents: RwLock::default(),
            merged: Mutex::default(),
        })
    }

    /// Checks the servers for as long as it is polled, and writes their conditions.
    pub async fn check_servers(self: Arc<Self>) {
        check::run(self).await;
    }

    fn remotes(&self) -> Option<Arc<RemoteServices>> {
        let registry = self.registry.upgrade()?;
        let remotes = registry.api_services().remotes();
        (!remotes.is_empty()).then(|| Arc::clone(&remotes))
    }

    /// The server for a path, if another one serves its group version.
    #[must_use]
    pub fn server_of(&self, path: &str) -> Option<Arc<RemoteService>> {
        let remotes = self.remotes()?;
        let (group, version) = group_version(path)?;
        remotes.get(group, version).cloned()
    }

    /// The endpoint of a server, with the address it was found at.
    fn endpoint(&self, remote: &RemoteService) -> Result<(Endpoint, String), Unresolved> {
        let address = match remote.url.as_deref().and_then(url_address) {
            Some(address) => address,
            None => {
                self.services.resolve(&remote.namespace, &remote.service, remote.port).map_err(Unresolved::Address)?
            }
        };
        let roots = if remote.skip_verification { Roots::Unverified } else { Roots::bundle(remote.ca_bundle.to_vec()) };
        let failed = |error: outbound::Error| Unresolved::Configuration(error.to_string());
        let tls = self
            .client
            .tls(&TlsOptions { roots, identity: self.identity.clone(), server_name: None })
            .map_err(failed)?;
        let url = format!("https://{}.{}.svc:{}", remote.service, remote.namespace, remote.port);
        Ok((Endpoint::new(&url, tls).map_err(failed)?.at(address.clone()), address))
    }
}

/// The group version of a path, by the segments that its authorization was decided on: a path that was authorized as
/// something else must not reach the server.
fn group_version(path: &str) -> Option<(&str, &str)> {
    match segments(path).as_slice() {
        ["apis", "", ..] => None,
        ["apis", group, version, ..] => Some((group, version)),
        ["api", version, ..] => Some(("", version)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agg_6_paths_are_routed_by_the_segments_that_were_authorized() {
        for path in ["/apis/g/v1", "/apis/g/v1/", "/apis/g/v1/things", "//apis/g/v1/things", "/apis/g/v1//things"] {
            assert_eq!(group_version(path), Some(("g", "v1")), "{path}");
        }
        assert_eq!(group_version("/api/v1/pods"), Some(("", "v1")));
        for path in ["/", "/apis", "/apis/g", "/api", "/apis//g/v1/things", "/apis//v1/things", "/version/g/v1"] {
            assert_eq!(group_version(path), None, "{path}");
        }
        // Authorized as the version "" of the group, or of the core group, which no server has.
        assert_eq!(group_version("/apis/g//v1/things"), Some(("g", "")));
        assert_eq!(group_version("/api//v1/pods"), Some(("", "")));
    }
}
