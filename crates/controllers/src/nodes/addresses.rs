//! The addresses of pods: a pool a node, from the node's own range (NA-12).

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// The addresses of one range. Its first and last address are never handed out.
#[derive(Debug)]
pub(super) struct Pool {
    first: u32,
    last: u32,
    next: u32,
    taken: BTreeSet<u32>,
}

impl Pool {
    /// The pool of `10.0.0.0/24`; none if that is no IPv4 range with room for pods.
    pub(super) fn of(range: &str) -> Option<Self> {
        let (address, bits) = range.split_once('/')?;
        let (address, bits): (Ipv4Addr, u32) = (address.parse().ok()?, bits.parse().ok()?);
        if !(1..=30).contains(&bits) {
            return None;
        }
        let size = 1u32 << (32 - bits);
        let base = u32::from(address) & !(size - 1);
        Some(Self { first: base + 1, last: base + size - 2, next: base + 1, taken: BTreeSet::new() })
    }

    /// A free address; none when all are taken. A released address is reused as late as possible.
    pub(super) fn take(&mut self) -> Option<Ipv4Addr> {
        let count = self.last - self.first + 1;
        if u32::try_from(self.taken.len()).is_ok_and(|taken| taken >= count) {
            return None;
        }
        let mut candidate = self.next;
        while self.taken.contains(&candidate) {
            candidate = if candidate == self.last { self.first } else { candidate + 1 };
        }
        self.next = if candidate == self.last { self.first } else { candidate + 1 };
        self.taken.insert(candidate);
        Some(candidate.into())
    }

    /// A pod has this address already: after a restart that is known before any is handed out.
    pub(super) fn reserve(&mut self, address: Ipv4Addr) {
        let address = u32::from(address);
        if (self.first..=self.last).contains(&address) {
            self.taken.insert(address);
        }
    }

    pub(super) fn give_back(&mut self, address: Ipv4Addr) {
        self.taken.remove(&u32::from(address));
    }
}

/// The range that the ranges of nodes are taken from: `10.128.0.0/9`.
const PODS: u32 = u32::from_be_bytes([10, 128, 0, 0]);
const PODS_SIZE: u64 = 1 << 23;
/// The range of the nodes' own addresses: `172.16.0.0/12`.
const NODES: u32 = u32::from_be_bytes([172, 16, 0, 0]);
const NODES_SIZE: u32 = 1 << 20;

/// The range of the node with this number, for this many pods; none once all ranges are taken.
pub(super) fn range_of(number: usize, pods: i64) -> Option<String> {
    let wanted = u64::try_from(pods.clamp(1, 1 << 20)).ok()? + 2;
    let size = wanted.next_power_of_two().max(256);
    let from = u64::try_from(number).ok()?.checked_mul(size)?;
    if from + size > PODS_SIZE {
        return None;
    }
    let base = Ipv4Addr::from(PODS + u32::try_from(from).ok()?);
    Some(format!("{base}/{}", 32 - size.trailing_zeros()))
}

/// The address of the node with this number.
pub(super) fn node_address(number: usize) -> Ipv4Addr {
    let number = u32::try_from(number % (NODES_SIZE as usize - 2)).unwrap_or_default();
    Ipv4Addr::from(NODES + 1 + number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn na_12_neither_the_network_nor_the_broadcast_address_is_handed_out() {
        let mut pool = Pool::of("10.1.2.0/30").unwrap();
        let taken: Vec<String> = std::iter::from_fn(|| pool.take()).map(|address| address.to_string()).collect();
        assert_eq!(taken, ["10.1.2.1", "10.1.2.2"], "and then there are none: it does not run past its end");
        pool.give_back("10.1.2.1".parse().unwrap());
        assert_eq!(pool.take(), "10.1.2.1".parse().ok());
    }

    #[test]
    fn na_12_addresses_in_use_are_known_before_any_is_handed_out() {
        let mut pool = Pool::of("10.1.2.7/24").unwrap();
        pool.reserve("10.1.2.1".parse().unwrap());
        pool.reserve("10.9.9.9".parse().unwrap());
        assert_eq!(pool.take(), "10.1.2.2".parse().ok());
    }

    #[test]
    fn na_12_an_address_that_was_given_back_rests() {
        let mut pool = Pool::of("10.1.2.0/24").unwrap();
        let first = pool.take().unwrap();
        pool.give_back(first);
        assert_ne!(pool.take(), Some(first));
    }

    #[test]
    fn ranges_do_not_meet() {
        assert_eq!(range_of(0, 110).as_deref(), Some("10.128.0.0/24"));
        assert_eq!(range_of(257, 110).as_deref(), Some("10.129.1.0/24"));
        assert_eq!(range_of(1, 1000).as_deref(), Some("10.128.4.0/22"));
        assert_eq!(range_of(40_000, 110), None, "all ranges are given");
        assert!(Pool::of("fd00::/64").is_none() && Pool::of("10.0.0.0/31").is_none() && Pool::of("x").is_none());
        assert_eq!(node_address(0), Ipv4Addr::new(172, 16, 0, 1));
    }
}
