//! The addresses of Services, as far as something listens behind them.
//!
//! There is no service network here: simulated pods do not listen, so the address of a Service leads nowhere. In order, the first
//! that applies:
//!
//! 1. the server itself, for port 443 of `kubernetes` in `default`: callers handle it with [`is_own`] before they ask here
//! 2. an address that was given at start, or in the Service's annotation `dogwatch.dev/endpoint` or `dogwatch.dev/url`
//! 3. the host of a Service of type ExternalName
//! 4. a ready endpoint of its EndpointSlices: of any slice that another program wrote, and of those of our own controller if the
//!    address is one of this host
//!
//! Otherwise a call fails at once, in place of waiting for an address that cannot answer.

use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, OnceLock, Weak};

use machinery::go_text::quote;
use machinery::json::{self, Value};
use outbound::services::is_address;
use outbound::{ServiceAddresses, ServiceResolver};
use registry::Registry;

const SERVICES: &str = "core/services";
const SLICES: &str = "discovery.k8s.io/endpointslices";
/// `host:port` of a Service that has no pods.
const ENDPOINT_ANNOTATION: &str = "dogwatch.dev/endpoint";
/// The same as a URL, also on an APIService.
pub const URL_ANNOTATION: &str = "dogwatch.dev/url";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The controller that writes the slices of a Service from its pods.
const CONTROLLER: &str = "endpointslice-controller.k8s.io";

/// Finds the addresses of Services among the objects of the server.
#[derive(Debug, Default)]
pub struct Services {
    given: ServiceAddresses,
    /// Set once the registry has started; weak, since the registry holds what calls webhooks.
    registry: OnceLock<Weak<Registry>>,
}

/// Whether a Service is the server itself.
#[must_use]
pub fn is_own(namespace: &str, name: &str, port: u16) -> bool {
    namespace == "default" && name == "kubernetes" && port == 443
}

impl Services {
    #[must_use]
    pub fn new(given: ServiceAddresses) -> Self {
        Services { given, registry: OnceLock::new() }
    }

    /// Names the registry whose objects are read.
    pub fn read_from(&self, registry: &Arc<Registry>) {
        let _ = self.registry.set(Arc::downgrade(registry));
    }

    fn registry(&self) -> Result<Arc<Registry>, String> {
        self.registry.get().and_then(Weak::upgrade).ok_or_else(|| "the server is not ready".to_owned())
    }

    /// An address that was given at start.
    #[must_use]
    pub fn given(&self, namespace: &str, name: &str, port: u16) -> Option<&str> {
        self.given.get(namespace, name, port)
    }

    /// A Service, if it exists.
    pub fn service(&self, namespace: &str, name: &str) -> Result<Option<Value>, String> {
        let registry = self.registry()?;
        Ok(object(&registry, SERVICES, namespace, name))
    }

    /// The EndpointSlices of a Service, by name.
    pub fn slices(&self, namespace: &str, name: &str) -> Result<Vec<Value>, String> {
        let registry = self.registry()?;
        let collection = registry.cache().collection(SLICES);
        if collection.is_empty() {
            return Ok(Vec::new());
        }
        let snapshot = registry.cache().snapshot(&collection);
        let slices = snapshot.scan(collection.name(), Some(namespace), None);
        let slices = slices.filter(|item| item.label(SERVICE_NAME) == Some(name));
        Ok(slices.filter_map(|item| json::from_slice(item.encoded().whole()).ok()).collect())
    }
}

impl ServiceResolver for Services {
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<String, String> {
        if let Some(address) = self.given(namespace, name, port) {
            return Ok(address.to_owned());
        }
        let Some(service) = self.service(namespace, name)? else {
            return Err(format!("service {} not found", quote(name)));
        };
        if let Some(address) = annotated(&service) {
            return Ok(address);
        }
        let spec = &service["spec"];
        if spec["type"] == "ExternalName" {
            return Ok(format!("{}:{port}", spec["externalName"].as_str().unwrap_or_default()));
        }
        let Some(port_name) = port_name(&service, port) else {
            return Err(format!("no service port {port} found for service {}", quote(name)));
        };
        let family = spec["ipFamilies"][0].as_str().unwrap_or("IPv4");
        let mut slices = self.slices(namespace, name)?;
        slices.sort_by_key(|slice| slice["addressType"] != family);
        slices
            .iter()
            .find_map(|slice| endpoint(slice, &port_name, is_reachable))
            .ok_or_else(|| format!("no endpoints available for service {}", quote(name)))
    }
}

fn object(registry: &Registry, collection: &str, namespace: &str, name: &str) -> Option<Value> {
    let collection = registry.cache().collection(collection);
    let item = collection.get(&collection.key(Some(namespace), name)?)?;
    json::from_slice(item.encoded().whole()).ok()
}

/// The address in the annotations of a Service.
#[must_use]
pub fn annotated(service: &Value) -> Option<String> {
    let annotations = &service["metadata"]["annotations"];
    if let Some(address) = annotations[ENDPOINT_ANNOTATION].as_str().map(str::trim).filter(|text| is_address(text)) {
        return Some(address.to_owned());
    }
    annotations[URL_ANNOTATION].as_str().and_then(url_address)
}

/// The `host:port` of a URL in an annotation; none if it is not an `https` URL of a host.
#[must_use]
pub fn url_address(url: &str) -> Option<String> {
    let uri: http::Uri = url.trim().parse().ok()?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("https"))?;
    Some(format!("{host}:{}", uri.port_u16().unwrap_or(443))).filter(|address| is_address(address))
}

/// The name of a port of a Service; none if it has no such port.
#[must_use]
pub fn port_name(service: &Value, port: u16) -> Option<String> {
    let ports = service["spec"]["ports"].as_array()?;
    let found = ports.iter().find(|candidate| candidate["port"].as_u64() == Some(u64::from(port)))?;
    Some(found["name"].as_str().unwrap_or_default().to_owned())
}

/// A ready endpoint of a slice that serves a port, of those that are admitted by slice and address.
fn endpoint(slice: &Value, port_name: &str, admits: fn(&Value, &str) -> bool) -> Option<String> {
    let ports = slice["ports"].as_array()?;
    let serving = ports.iter().find(|port| port["name"].as_str().unwrap_or_default() == port_name)?;
    let port = serving["port"].as_u64()?;
    slice["endpoints"].as_array()?.iter().find_map(|endpoint| {
        let address = endpoint["addresses"][0].as_str()?;
        if endpoint["conditions"]["ready"] == false || !admits(slice, address) {
            return None;
        }
        Some(if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") })
    })
}

/// Whether something can listen at one of the endpoints of a slice, ready or not.
#[must_use]
pub fn has_reachable(slice: &Value) -> bool {
    let is_ours = slice["metadata"]["labels"][MANAGED_BY] == CONTROLLER;
    let mut endpoints = slice["endpoints"].as_array().into_iter().flat_map(|endpoints| endpoints.iter());
    !is_ours || endpoints.any(|endpoint| endpoint["addresses"][0].as_str().is_some_and(|ip| is_reachable(slice, ip)))
}

/// Whether an endpoint can be there: the pods of our own controller have addresses that exist only on paper.
fn is_reachable(slice: &Value, address: &str) -> bool {
    if slice["metadata"]["labels"][MANAGED_BY] != CONTROLLER {
        return true;
    }
    // A socket can be bound to the addresses of this host only.
    address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok())
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    fn slice(manager: &str, address: &str, ready: bool) -> Value {
        json!({
            "metadata": {"labels": {MANAGED_BY: manager}},
            "ports": [{"name": "other", "port": 1}, {"name": "https", "port": 9443}],
            "endpoints": [{"addresses": [address], "conditions": {"ready": ready}}],
        })
    }

    #[test]
    fn wh_5_an_endpoint_serves_the_port_of_its_name() {
        let of = |slice: Value, port: &str| endpoint(&slice, port, is_reachable);
        assert_eq!(of(slice("me", "10.0.0.1", true), "https").as_deref(), Some("10.0.0.1:9443"));
        assert_eq!(of(slice("me", "fd00::1", true), "https").as_deref(), Some("[fd00::1]:9443"));
        assert_eq!(of(slice("me", "10.0.0.1", true), ""), None);
        assert_eq!(of(slice("me", "10.0.0.1", false), "https"), None);
    }

    #[test]
    fn wh_5_addresses_of_simulated_pods_do_not_count() {
        let of = |address: &str| endpoint(&slice(CONTROLLER, address, true), "https", is_reachable);
        assert_eq!(of("198.51.100.7"), None);
        assert_eq!(of("127.0.0.1").as_deref(), Some("127.0.0.1:9443"));
        assert_eq!(of("nonsense"), None);
    }

    #[test]
    fn bd_6_ba_11_annotations_name_an_address() {
        let service =
            |annotation: &str, value: &str| annotated(&json!({"metadata": {"annotations": {annotation: value}}}));
        assert_eq!(service(ENDPOINT_ANNOTATION, "127.0.0.1:9443").as_deref(), Some("127.0.0.1:9443"));
        assert_eq!(service(ENDPOINT_ANNOTATION, "nonsense"), None);
        assert_eq!(service(URL_ANNOTATION, "https://127.0.0.1:8443").as_deref(), Some("127.0.0.1:8443"));
        assert_eq!(service(URL_ANNOTATION, "https://host").as_deref(), Some("host:443"));
        assert_eq!(service(URL_ANNOTATION, "http://host"), None);
        assert_eq!(annotated(&json!({})), None);
    }
}
