//! Options of the etcd engine.

use std::fmt;
use std::time::Duration;

use machinery::clock::Clock;

use crate::contract::VALUE_BYTES_MAX;
use crate::error::OpenError;
use crate::retention::Retention;

/// Options of an [`EtcdStore`](super::EtcdStore).
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// Addresses of members: `http://10.0.0.1:2379`, `https://…`, or `host:port`. One that answers is enough.
    pub endpoints: Vec<String>,
    /// Prefix of every key of this store in etcd. Servers that share a prefix share a store.
    pub prefix: String,
    pub credentials: Option<EtcdCredentials>,
    /// Required for `https` endpoints.
    pub tls: Option<EtcdTls>,
    /// The largest value accepted. etcd itself refuses more than its `--max-request-bytes`, 1.5 MiB unless raised.
    pub value_bytes_max: usize,
    /// History to keep; see [`compactor`](super::compactor) for the limits of a global revision.
    pub retention: Retention,
    /// Takes part in compaction. At most one of the servers that share a prefix compacts at a time.
    pub compaction: bool,
    /// The time that compaction records, for retention by age.
    pub clock: Clock,
    /// Time limit of a call over all its attempts.
    pub request_timeout: Duration,
    /// Time limit of one connection attempt.
    pub connect_timeout: Duration,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        EtcdOptions {
            endpoints: Vec::new(),
            prefix: "/registry/".to_owned(),
            credentials: None,
            tls: None,
            value_bytes_max: VALUE_BYTES_MAX,
            retention: Retention::default(),
            compaction: true,
            clock: Clock::system(),
            request_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(2),
        }
    }
}

impl EtcdOptions {
    /// The defaults, with these members.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Self {
        EtcdOptions { endpoints: endpoints.into_iter().map(Into::into).collect(), ..EtcdOptions::default() }
    }

    /// The prefix as used in etcd: always ends with a slash.
    pub(super) fn key_prefix(&self) -> String {
        if self.prefix.ends_with('/') { self.prefix.clone() } else { format!("{}/", self.prefix) }
    }

    /// The endpoints as URLs with a scheme.
    pub(super) fn urls(&self) -> Result<Vec<String>, OpenError> {
        let mut urls = Vec::with_capacity(self.endpoints.len());
        for endpoint in &self.endpoints {
            let endpoint = endpoint.trim();
            let refuse =
                |reason: &str| OpenError::Inaccessible { path: endpoint.to_owned(), reason: reason.to_owned() };
            let url = match endpoint.split_once("://") {
                Some(("http", _)) if self.tls.is_some() => {
                    return Err(refuse("TLS is configured but the endpoint begins with http://; use https://"));
                }
                Some(("https", _)) if self.tls.is_none() => {
                    return Err(refuse("an https endpoint needs the certificate of the authority that signed it"));
                }
                Some((scheme @ ("http" | "https"), host)) => format!("{scheme}://{}", host.trim_end_matches('/')),
                Some(_) => return Err(refuse("an etcd endpoint begins with http:// or https://")),
                None if self.tls.is_some() => format!("https://{endpoint}"),
                None => format!("http://{endpoint}"),
            };
            match url.parse::<http::Uri>() {
                Ok(uri) if uri.host().is_some_and(|host| !host.is_empty()) => urls.push(url),
                _ => return Err(refuse("this is not an address; write it as http://host:2379")),
            }
        }
        if urls.is_empty() {
            return Err(OpenError::Inaccessible { path: "etcd".to_owned(), reason: "no endpoint is given".to_owned() });
        }
        Ok(urls)
    }
}

/// A user of etcd. The role needs read and write on the prefix; a backup needs the role `root`.
#[derive(Clone)]
pub struct EtcdCredentials {
    pub username: String,
    pub password: String,
}

impl fmt::Debug for EtcdCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdCredentials({}, password hidden)", self.username)
    }
}

/// Certificates, each as PEM.
#[derive(Clone)]
pub struct EtcdTls {
    /// Certificate of the authority that signed the members' certificates.
    pub ca: Vec<u8>,
    /// The client's certificate and key, if etcd requires them.
    pub identity: Option<EtcdIdentity>,
    /// The name in the members' certificates, if it is not the host of the endpoint.
    pub domain: Option<String>,
}

/// A client certificate and its key, each as PEM.
#[derive(Clone)]
pub struct EtcdIdentity {
    pub cert: Vec<u8>,
    pub key: Vec<u8>,
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTls")
            .field("identity", &self.identity.as_ref().map(|_| "hidden"))
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_get_a_scheme() {
        let urls = EtcdOptions::new(["127.0.0.1:2379", "http://b:2379/"]).urls().unwrap();
        assert_eq!(urls, ["http://127.0.0.1:2379", "http://b:2379"]);
    }

    #[test]
    fn unusable_endpoints_are_refused_with_a_sentence() {
        for (endpoint, word) in
            [("https://a:2379", "authority"), ("ftp://a", "begins with"), ("http://", "address"), ("a b", "address")]
        {
            let refused = EtcdOptions::new([endpoint]).urls().unwrap_err().to_string();
            assert!(refused.contains(word), "{endpoint}: {refused}");
        }
        assert!(EtcdOptions::default().urls().unwrap_err().to_string().contains("no endpoint"));
    }

    #[test]
    fn a_prefix_ends_with_a_slash() {
        let options = EtcdOptions { prefix: "/team".to_owned(), ..EtcdOptions::default() };
        assert_eq!(options.key_prefix(), "/team/");
    }

    #[test]
    fn secrets_are_not_printed() {
        let options = EtcdOptions {
            credentials: Some(EtcdCredentials { username: "u".to_owned(), password: "hunter2".to_owned() }),
            ..EtcdOptions::default()
        };
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
