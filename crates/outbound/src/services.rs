//! Addresses of Services: the trait that finds one, and addresses that were given at start.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

/// Finds the address of a port of a Service.
pub trait ServiceResolver: fmt::Debug + Send + Sync {
    /// Returns `host:port` to connect to. The error has the words of the reference: `service "s" not found`,
    /// `no service port 443 found for service "s"`, `no endpoints available for service "s"`.
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<String, String>;
}

/// Addresses of Services that were given at start, for services that have no pods behind them.
#[derive(Clone, Debug, Default)]
pub struct ServiceAddresses {
    /// By namespace, name and port; no port means every port.
    addresses: HashMap<(String, String, Option<u16>), String>,
}

impl ServiceAddresses {
    /// Adds a mapping `namespace/name[:port]=host:port`.
    pub fn add(&mut self, mapping: &str) -> Result<(), String> {
        let malformed = || format!("{mapping:?} is not of the form namespace/name[:port]=host:port");
        let (service, address) = mapping.split_once('=').ok_or_else(malformed)?;
        let (namespace, name) = service.trim().split_once('/').ok_or_else(malformed)?;
        let (name, port) = match name.split_once(':') {
            None => (name, None),
            Some((name, port)) => (name, Some(port.parse().map_err(|_| malformed())?)),
        };
        let address = address.trim();
        if namespace.is_empty() || name.is_empty() || !is_address(address) {
            return Err(malformed());
        }
        self.addresses.insert((namespace.to_owned(), name.to_owned(), port), address.to_owned());
        Ok(())
    }

    /// Adds the mappings of a file: one on each line; empty lines and those that begin with `#` are ignored.
    pub fn add_file(&mut self, path: &Path) -> Result<(), String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            self.add(line).map_err(|why| format!("{}:{}: {why}", path.display(), at + 1))?;
        }
        Ok(())
    }

    /// The names under which the certificates of these Services are verified.
    pub fn server_names(&self) -> impl Iterator<Item = String> {
        self.addresses.keys().map(|(namespace, name, _)| format!("{name}.{namespace}.svc"))
    }

    /// The address of a port of a Service, if one was given.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str, port: u16) -> Option<&str> {
        if self.addresses.is_empty() {
            return None;
        }
        let mut key = (namespace.to_owned(), name.to_owned(), Some(port));
        if let Some(address) = self.addresses.get(&key) {
            return Some(address);
        }
        key.2 = None;
        self.addresses.get(&key).map(String::as_str)
    }
}

/// Whether a text is `host:port`.
#[must_use]
pub fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let host_is_fine = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok()),
            None => !host.is_empty() && !host.contains([':', '/', ' ', '@']),
        };
        host_is_fine && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bd_6_an_address_is_given_for_one_port_or_all() {
        let mut addresses = ServiceAddresses::default();
        addresses.add("shop/hook=127.0.0.1:9443").unwrap();
        addresses.add("shop/hook:8443=[::1]:9444").unwrap();
        assert_eq!(addresses.get("shop", "hook", 443), Some("127.0.0.1:9443"));
        assert_eq!(addresses.get("shop", "hook", 8443), Some("[::1]:9444"));
        assert_eq!(addresses.get("shop", "other", 443), None);
        for bad in ["", "shop=a:1", "shop/hook", "/hook=a:1", "shop/=a:1", "a/b:x=c:1", "a/b=c", "a/b=c:0", "a/b=::1:5"]
        {
            assert!(addresses.add(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bd_6_a_bad_line_of_a_file_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# hooks\n\nshop/hook=127.0.0.1:9443\nnonsense\n").unwrap();
        let mut addresses = ServiceAddresses::default();
        let error = addresses.add_file(file.path()).unwrap_err();
        assert!(error.contains(":4: \"nonsense\" is not of the form"), "{error}");
        assert!(addresses.add_file(Path::new("/nowhere/f")).unwrap_err().starts_with("/nowhere/f: "));
    }
}
