//! Which connections a fault refuses.

use std::net::IpAddr;

use machinery::glob;
use server::disturbance::ConnectionNote;

use super::spec::RefuseConnections;

/// A connection with this server name is never refused or cut, so that a fault can always be removed.
pub const SERVER_NAME: &str = "lab.dogwatch.dev";

impl RefuseConnections {
    pub(super) fn matches(&self, connection: &ConnectionNote) -> bool {
        connection.server_name != SERVER_NAME
            && (self.sources.is_empty() || self.sources.iter().any(|range| has(range, connection.source)))
            && (self.server_names.is_empty()
                || self.server_names.iter().any(|pattern| glob::fits(pattern, &connection.server_name)))
    }
}

/// Whether an address is in a range, which may be a single address. The schema has checked the text.
fn has(range: &str, address: IpAddr) -> bool {
    let (first, bits) = match range.split_once('/') {
        None => (range, None),
        Some((first, bits)) => (first, bits.parse::<u32>().ok()),
    };
    let Ok(first) = first.parse::<IpAddr>() else { return false };
    match (first, address) {
        (IpAddr::V4(first), IpAddr::V4(address)) => {
            let ignored = 32_u32.saturating_sub(bits.unwrap_or(32));
            (first.to_bits() ^ address.to_bits()).checked_shr(ignored).unwrap_or(0) == 0
        }
        (IpAddr::V6(first), IpAddr::V6(address)) => {
            let ignored = 128_u32.saturating_sub(bits.unwrap_or(128));
            (first.to_bits() ^ address.to_bits()).checked_shr(ignored).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flt_12_sources_and_server_names_both_decide() {
        let connection =
            |source: &str, name: &str| ConnectionNote { source: source.parse().unwrap(), server_name: name.to_owned() };
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let refuses = |sources: &[&str], names: &[&str], source: &str, name: &str| {
            let effect = RefuseConnections { sources: texts(sources), server_names: texts(names), cut_existing: false };
            effect.matches(&connection(source, name))
        };
        assert!(refuses(&["10.0.0.0/8"], &[], "10.9.9.9", ""));
        assert!(!refuses(&["10.0.0.0/8"], &[], "11.0.0.1", ""));
        assert!(refuses(&["127.0.0.1", "::1"], &[], "::1", "localhost"));
        assert!(!refuses(&["127.0.0.1"], &[], "127.0.0.2", ""));
        assert!(refuses(&["0.0.0.0/0"], &[], "1.2.3.4", "") && refuses(&["fd00::/8"], &[], "fd12::1", ""));
        assert!(!refuses(&["0.0.0.0/0"], &[], "::1", ""));
        assert!(refuses(&[], &["*.example.org"], "1.2.3.4", "api.example.org"));
        assert!(!refuses(&["10.0.0.0/8"], &["api"], "10.0.0.1", "other"));
        assert!(refuses(&[], &[], "1.2.3.4", ""));
    }

    #[test]
    fn flt_12_lab_4_one_name_is_never_refused() {
        let all = RefuseConnections { server_names: vec!["*".to_owned()], ..RefuseConnections::default() };
        let note = |name: &str| ConnectionNote { source: [127, 0, 0, 1].into(), server_name: name.to_owned() };
        assert!(all.matches(&note("localhost")) && !all.matches(&note(SERVER_NAME)));
    }
}
