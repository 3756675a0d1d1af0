//! The serving certificate of webhooks behind Services, issued for them: their server needs no certificate of its own, and their
//! configurations no `caBundle`.
//!
//! | file | content | renewed |
//! |---|---|---|
//! | `ca.crt`, `ca.key` | ECDSA P-256, ten years | never |
//! | `tls.crt`, `tls.key` | for the names of the Services, `localhost` and the loopback addresses | when it lacks a name, is from another CA, or has less than a third of its life left |

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use jiff::Timestamp;

use super::{covers, is_usable, issuer, make_authority, make_serving, read_leaf, write_leaf};
use crate::error::CertError;

/// Reads the files of a directory and generates those that are missing. Returns the authority's certificate as PEM.
pub fn open(dir: &Path, services: impl Iterator<Item = String>, now: Timestamp) -> Result<String, CertError> {
    fs::create_dir_all(dir).map_err(|error| CertError::file(dir, error))?;
    let local = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let names: BTreeSet<String> = services.chain(local).collect();
    let ca = match read_leaf(dir, "ca")? {
        Some(ca) => ca,
        None => write_leaf(dir, "ca", make_authority("dogwatch-webhook-ca", now)?)?,
    };
    match read_leaf(dir, "tls")? {
        Some(leaf) if covers(&leaf, &names) && is_usable(&leaf, &ca, now) => {}
        _ => drop(write_leaf(dir, "tls", make_serving(&issuer(&ca)?, &names, now)?)?),
    }
    Ok(ca.cert_pem)
}

#[cfg(test)]
mod tests {
    use machinery::clock::Clock;

    use super::*;

    #[test]
    fn bd_6_a_certificate_is_kept_until_it_lacks_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let (dir, now) = (dir.path().join("certs"), Clock::system().now());
        let open = |names: &[&str]| open(&dir, names.iter().map(|name| (*name).to_owned()), now).unwrap();
        let leaf = || read_leaf(&dir, "tls").unwrap().expect("a certificate").cert_pem;
        let authority = open(&["a.n.svc"]);
        let first = leaf();
        assert_eq!((open(&["a.n.svc"]), leaf()), (authority.clone(), first.clone()));
        assert_eq!(open(&["a.n.svc", "b.n.svc"]), authority, "what clients trust stays");
        assert_ne!(leaf(), first);
    }
}
