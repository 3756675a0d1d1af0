//! The certificate by which aggregated servers recognise this server as their front proxy: an authority of its own, so that no other
//! client certificate of the cluster lets its holder name users in headers.
//!
//! | file | content | renewed |
//! |---|---|---|
//! | `front-proxy-ca.crt`, `front-proxy-ca.key` | ECDSA P-256, ten years | never: aggregated servers trust it |
//! | `front-proxy-client.crt`, `front-proxy-client.key` | CN `front-proxy-client` | when it has less than a third of its life left |

use std::path::Path;

use jiff::Timestamp;

use super::{Leaf, is_usable, issuer, make_authority, make_client, read_leaf, write_leaf};
use crate::error::CertError;

/// The common name of the authority.
const AUTHORITY_NAME: &str = "dogwatch-front-proxy-ca";
/// The common name of the client certificate.
pub const CLIENT_NAME: &str = "front-proxy-client";

/// The authority of front proxies, and this server's certificate.
#[derive(Clone, Debug)]
pub struct FrontProxyClient {
    pub ca_pem: String,
    pub client: Leaf,
}

impl FrontProxyClient {
    /// Reads the files of the directory, which exists, and generates those that are missing or near their expiry.
    pub fn open(dir: &Path, now: Timestamp) -> Result<Self, CertError> {
        let ca = match read_leaf(dir, "front-proxy-ca")? {
            Some(ca) => ca,
            None => write_leaf(dir, "front-proxy-ca", make_authority(AUTHORITY_NAME, now)?)?,
        };
        let client = match read_leaf(dir, "front-proxy-client")? {
            Some(leaf) if is_usable(&leaf, &ca, now) => leaf,
            _ => write_leaf(dir, "front-proxy-client", make_client(&issuer(&ca)?, CLIENT_NAME, &[], now)?)?,
        };
        Ok(FrontProxyClient { ca_pem: ca.cert_pem, client })
    }

    /// As [`FrontProxyClient::open`], without files.
    pub fn in_memory(now: Timestamp) -> Result<Self, CertError> {
        let ca = make_authority(AUTHORITY_NAME, now)?;
        let client = make_client(&issuer(&ca)?, CLIENT_NAME, &[], now)?;
        Ok(FrontProxyClient { ca_pem: ca.cert_pem, client })
    }
}

#[cfg(test)]
mod tests {
    use machinery::clock::Clock;

    use super::super::days_later;
    use super::*;

    #[test]
    fn agg_6_the_authority_stays_and_the_certificate_is_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let now = Clock::system().now();
        let first = FrontProxyClient::open(dir.path(), now).unwrap();
        let again = FrontProxyClient::open(dir.path(), now).unwrap();
        assert_eq!(first.client.cert_pem, again.client.cert_pem);
        let later = FrontProxyClient::open(dir.path(), days_later(now, 360)).unwrap();
        assert_eq!(first.ca_pem, later.ca_pem);
        assert_ne!(first.client.cert_pem, later.client.cert_pem);
    }
}
