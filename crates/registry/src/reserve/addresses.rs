//! Cluster addresses and node ports of services.
//!
//! Two things take an address or a port: a stored service, as the cache shows it (whichever server wrote it), and a write
//! under way that has reserved it. Both are counted in one place, so that a number passes from the second to the first without
//! ever being free in between: see [`Addresses::hold_until_visible`].

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use cache::{Collection, Collections, Event, Item, Observer};
use machinery::json::{Value, json};
use machinery::{FieldError, Revision, Status};
use parking_lot::Mutex;
use rand::Rng;
use store::Key;

use crate::collections::SERVICES;
use crate::read::view;
use crate::settings::Settings;

/// The addresses and ports of a cluster and who holds them.
pub(crate) struct Addresses {
    /// The network of the services, and how many addresses it has.
    first: u32,
    count: u32,
    node_ports: RangeInclusive<u16>,
    state: Mutex<State>,
}

/// What one service, or one write under way, holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    addresses: Vec<u32>,
    ports: Vec<u16>,
}

#[derive(Default)]
struct State {
    /// How many hold an address or port. More than one only where two servers gave out the same in the same moment.
    addresses: HashMap<u32, usize>,
    ports: HashMap<u16, usize>,
    /// What each service in the cache holds.
    stored: HashMap<Key, Held>,
    /// Acknowledged writes that the cache has not shown yet.
    acknowledged: Vec<(Revision, Held)>,
    /// The last revision that the cache has shown of a service.
    visible: Revision,
}

/// Why an address or port cannot be given out.
pub(crate) enum AllocationError {
    Invalid(FieldError),
    Full(&'static str),
    /// The addresses that are in use are not all known.
    Unknown(Status),
}

impl From<FieldError> for AllocationError {
    fn from(error: FieldError) -> Self {
        AllocationError::Invalid(error)
    }
}

impl Held {
    pub(crate) fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.ports.is_empty()
    }

    fn of_service(service: &Value) -> Self {
        Held { addresses: address_of(service).into_iter().collect(), ports: ports_of(service) }
    }

    fn of_item(item: &Item) -> Self {
        view::parse(item).map(|service| Held::of_service(&service)).unwrap_or_default()
    }
}

impl State {
    fn hold(&mut self, held: &Held) {
        held.addresses.iter().for_each(|address| *self.addresses.entry(*address).or_default() += 1);
        held.ports.iter().for_each(|port| *self.ports.entry(*port).or_default() += 1);
    }

    fn release(&mut self, held: &Held) {
        held.addresses.iter().for_each(|address| decrement(&mut self.addresses, *address));
        held.ports.iter().for_each(|port| decrement(&mut self.ports, *port));
    }

    fn set_stored(&mut self, key: &Key, held: Option<Held>) {
        // Held first, then released: what a service keeps is taken all the time.
        if let Some(held) = &held {
            self.hold(held);
        }
        let before = match held {
            Some(held) => self.stored.insert(key.clone(), held),
            None => self.stored.remove(key),
        };
        if let Some(before) = before {
            self.release(&before);
        }
    }

    /// Releases what writes up to `revision` reserved: the services themselves hold it now.
    fn release_visible(&mut self, revision: Revision) {
        self.visible = self.visible.max(revision);
        let acknowledged = std::mem::take(&mut self.acknowledged);
        for (at, held) in acknowledged {
            if at <= revision {
                self.release(&held);
            } else {
                self.acknowledged.push((at, held));
            }
        }
    }

    fn take_address(&mut self, address: u32, held: &mut Held) -> bool {
        let free = !self.addresses.contains_key(&address);
        if free {
            self.addresses.insert(address, 1);
            held.addresses.push(address);
        }
        free
    }

    fn take_port(&mut self, port: u16, held: &mut Held) -> bool {
        let free = !self.ports.contains_key(&port);
        if free {
            self.ports.insert(port, 1);
            held.ports.push(port);
        }
        free
    }
}

fn decrement<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

impl Addresses {
    pub(crate) fn new(settings: &Settings) -> Self {
        Addresses {
            first: u32::from(settings.service_range),
            count: 1_u32 << (32 - u32::from(settings.service_range_bits)),
            node_ports: settings.node_ports.clone(),
            state: Mutex::default(),
        }
    }

    /// Fills in what must be there before a service is validated: the address under both its names, and the port on which
    /// a local load balancer checks health.
    pub(super) fn prepare(&self, held: &mut Held, service: &mut Value, old: Option<&Value>) {
        if let Some(address) = service["spec"]["clusterIP"].as_str().filter(|address| !address.is_empty())
            && service["spec"]["clusterIPs"].as_array().is_none_or(Vec::is_empty)
        {
            service["spec"]["clusterIPs"] = json!([address]);
        }
        let local = service["spec"]["externalTrafficPolicy"] == "Local" && service["spec"]["type"] == "LoadBalancer";
        if !local || service["spec"]["healthCheckNodePort"].as_u64().unwrap_or_default() != 0 {
            return;
        }
        let before = old.and_then(|old| old["spec"]["healthCheckNodePort"].as_u64()).unwrap_or_default();
        let port = if before != 0 { Some(before) } else { self.draw_port(held).map(u64::from) };
        if let Some(port) = port {
            service["spec"]["healthCheckNodePort"] = json!(port);
        }
    }

    /// Reserves the addresses and ports that a valid service needs and does not have. `old` is the stored one on update.
    pub(super) fn allocate(
        &self,
        held: &mut Held,
        service: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), AllocationError> {
        let kind = service["spec"]["type"].as_str().unwrap_or("ClusterIP").to_owned();
        if kind == "ExternalName" {
            return Ok(());
        }
        set_families(service);
        if !self.allocate_address(held, service, old)? {
            return Ok(());
        }
        if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
            self.allocate_ports(held, service, old)?;
        }
        Ok(())
    }

    /// False for an address of a family that is not given out here: then there is nothing to reserve at all.
    fn allocate_address(
        &self,
        held: &mut Held,
        service: &mut Value,
        old: Option<&Value>,
    ) -> Result<bool, AllocationError> {
        let wanted = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
        let before = old.and_then(|old| old["spec"]["clusterIP"].as_str()).unwrap_or_default();
        if wanted.is_empty() && !before.is_empty() && before != "None" {
            // A client that leaves it out keeps what it has.
            service["spec"]["clusterIP"] = json!(before);
            service["spec"]["clusterIPs"] = old.map(|old| old["spec"]["clusterIPs"].clone()).unwrap_or_default();
        } else if wanted.is_empty() {
            let full = AllocationError::Full("failed to allocate a serviceIP: range is full");
            let address = self.draw_address(held).ok_or(full)?;
            service["spec"]["clusterIP"] = json!(address.to_string());
            service["spec"]["clusterIPs"] = json!([address.to_string()]);
        } else if wanted == "None" {
            service["spec"]["clusterIPs"] = json!(["None"]);
        } else if wanted != before {
            let Ok(address) = wanted.parse::<Ipv4Addr>() else { return Ok(false) };
            let number = u32::from(address);
            let listed = json!([wanted]);
            let why = if number.wrapping_sub(self.first) >= self.count {
                Some("the provided network does not match the current range")
            } else if !self.state.lock().take_address(number, held) {
                Some("provided IP is already allocated")
            } else {
                None
            };
            if let Some(why) = why {
                let why = format!("failed to allocate IP {wanted}: {why}");
                return Err(FieldError::invalid("spec.clusterIPs", listed, why).into());
            }
            service["spec"]["clusterIPs"] = listed;
        }
        Ok(true)
    }

    fn allocate_ports(&self, held: &mut Held, service: &mut Value, old: Option<&Value>) -> Result<(), FieldError> {
        let wants_ports =
            service["spec"]["type"] == "NodePort" || service["spec"]["allocateLoadBalancerNodePorts"] != json!(false);
        let own: HashSet<u16> = old.map(ports_of).unwrap_or_default().into_iter().collect();
        // By number, with its protocols.
        let mut given: HashMap<u16, HashSet<Value>> = HashMap::new();
        let mut is_full = false;
        let count = service["spec"]["ports"].as_array().map_or(0, Vec::len);
        for at in 0..count {
            let port = &mut service["spec"]["ports"][at];
            let wanted = port["nodePort"].as_i64().unwrap_or(0);
            let Ok(wanted) = u16::try_from(wanted) else {
                return Err(self.port_out_of_range(at, wanted));
            };
            let number = match Some(wanted) {
                Some(number) if number != 0 => {
                    // One number may serve two protocols of the same service.
                    let shared = given
                        .get(&number)
                        .is_some_and(|protocols| protocols.len() > 1 || !protocols.contains(&port["protocol"]));
                    let free = own.contains(&number) || shared || self.state.lock().take_port(number, held);
                    if free && !self.node_ports.contains(&number) {
                        return Err(self.port_out_of_range(at, number.into()));
                    }
                    if !free {
                        let why = "provided port is already allocated";
                        return Err(FieldError::invalid(format!("spec.ports[{at}].nodePort"), json!(number), why));
                    }
                    Some(number)
                }
                _ if wants_ports && !is_full => {
                    let drawn = self.draw_port(held);
                    is_full = drawn.is_none();
                    drawn
                }
                _ => None,
            };
            if let Some(number) = number {
                port["nodePort"] = json!(number);
                given.entry(number).or_default().insert(port["protocol"].clone());
            }
        }
        Ok(())
    }

    fn port_out_of_range(&self, at: usize, number: i64) -> FieldError {
        let (first, last) = (self.node_ports.start(), self.node_ports.end());
        let why = format!("provided port is not in the valid range. The range of valid ports is {first}-{last}");
        FieldError::invalid(format!("spec.ports[{at}].nodePort"), number, why)
    }

    fn draw_address(&self, held: &mut Held) -> Option<Ipv4Addr> {
        // The network itself, its broadcast address and the first one (the API server's) are not given out.
        let usable = self.count.checked_sub(3)?;
        let start = rand::rng().random_range(0..usable);
        let mut state = self.state.lock();
        let mut candidates = (0..usable).map(|step| self.first + 2 + (start + step) % usable);
        candidates.find(|address| state.take_address(*address, held)).map(Ipv4Addr::from)
    }

    fn draw_port(&self, held: &mut Held) -> Option<u16> {
        let (first, last) = (u32::from(*self.node_ports.start()), u32::from(*self.node_ports.end()));
        let count = (last + 1).checked_sub(first).filter(|count| *count > 0)?;
        let start = rand::rng().random_range(0..count);
        let mut state = self.state.lock();
        let mut candidates = (0..count).filter_map(|step| u16::try_from(first + (start + step) % count).ok());
        candidates.find(|port| state.take_port(*port, held))
    }

    /// Releases what a write reserved that was not made.
    pub(super) fn release(&self, held: &Held) {
        if !held.is_empty() {
            self.state.lock().release(held);
        }
    }

    /// Keeps what a write reserved that was acknowledged at `revision`, until the cache shows it.
    pub(super) fn hold_until_visible(&self, held: Held, revision: Revision) {
        if held.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        if revision <= state.visible {
            state.release(&held);
        } else {
            state.acknowledged.push((revision, held));
        }
    }
}

impl Observer for Addresses {
    fn observes(&self, collection: &str) -> bool {
        collection == SERVICES
    }

    fn loaded(&self, _: &Collections, collection: &Collection, revision: Revision) {
        let objects = collection.objects();
        let items = objects.scan(SERVICES, None, None);
        let found: HashMap<Key, Held> = items.map(|item| (item.key().clone(), Held::of_item(item))).collect();
        let mut state = self.state.lock();
        let gone: Vec<Key> = state.stored.keys().filter(|key| !found.contains_key(*key)).cloned().collect();
        gone.iter().for_each(|key| state.set_stored(key, None));
        found.into_iter().for_each(|(key, held)| state.set_stored(&key, Some(held)));
        state.release_visible(revision);
    }

    fn changed(&self, _: &Collections, changes: &[Arc<Event>]) {
        // Read before the lock: writers of services wait for it.
        let changes: Vec<_> =
            changes.iter().map(|event| (event, event.current().map(|item| Held::of_item(item)))).collect();
        let mut state = self.state.lock();
        for (event, held) in changes {
            state.set_stored(event.key(), held);
            state.release_visible(event.revision());
        }
    }
}

/// Only IPv4 is given out. A headless service without a selector may be of both families, since its addresses are not ours.
fn set_families(service: &mut Value) {
    let spec = &mut service["spec"];
    let free = spec["clusterIP"] == "None" && spec["selector"].as_object().is_none_or(|selector| selector.is_empty());
    let unset = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty) || value == "";
    if unset(&spec["ipFamilyPolicy"]) {
        spec["ipFamilyPolicy"] = json!(if free { "RequireDualStack" } else { "SingleStack" });
    }
    // The family of an address that is not ours is refused, not taken over.
    let foreign = spec["clusterIP"].as_str().is_some_and(|address| address.contains(':'));
    if unset(&spec["ipFamilies"]) && !foreign {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    // A service without selector and address may have both families in any cluster.
    let families = spec["ipFamilies"].as_array().map_or(&[][..], Vec::as_slice);
    if free && families.len() == 1 && spec["ipFamilyPolicy"] != "SingleStack" {
        let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
        spec["ipFamilies"] = json!([families[0], other]);
    }
}

fn address_of(service: &Value) -> Option<u32> {
    service["spec"]["clusterIP"].as_str()?.parse::<Ipv4Addr>().ok().map(u32::from)
}

/// The node ports of a service, each once.
fn ports_of(service: &Value) -> Vec<u16> {
    let listed = service["spec"]["ports"].as_array().into_iter().flatten().map(|port| &port["nodePort"]);
    let numbers = listed.chain(std::iter::once(&service["spec"]["healthCheckNodePort"]));
    let mut ports: Vec<u16> = numbers.filter_map(|number| u16::try_from(number.as_u64()?).ok()).collect();
    ports.retain(|port| *port != 0);
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> Addresses {
        Addresses::new(&Settings { node_ports: 30_000..=30_001, ..Settings::default() })
    }

    fn balanced() -> Value {
        json!({"spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]}})
    }

    #[test]
    fn what_a_write_reserved_is_free_only_once_its_service_holds_it() {
        let (addresses, key) = (addresses(), Key::new("core/services/default/s").unwrap());
        let (mut held, mut service) = (Held::default(), balanced());
        addresses.prepare(&mut held, &mut service, None);
        assert!(addresses.allocate(&mut held, &mut service, None).is_ok());
        assert_eq!((held.addresses.len(), held.ports.len()), (1, 2));
        assert_eq!(addresses.draw_port(&mut Held::default()), None);

        addresses.hold_until_visible(held.clone(), Revision(7));
        let mut state = addresses.state.lock();
        state.release_visible(Revision(6));
        assert_eq!(state.acknowledged.len(), 1);
        state.set_stored(&key, Some(Held::of_service(&service)));
        state.release_visible(Revision(7));
        assert!(state.acknowledged.is_empty() && state.ports.values().all(|count| *count == 1));
        state.set_stored(&key, None);
        assert!(state.addresses.is_empty() && state.ports.is_empty());
        drop(state);

        // The cache may be faster than the answer of the store.
        let mut held = Held::default();
        assert!(addresses.draw_port(&mut held).is_some());
        addresses.hold_until_visible(held, Revision(7));
        assert!(addresses.state.lock().ports.is_empty());
    }

    #[test]
    fn a_refused_service_releases_what_it_had_reserved_by_then() {
        let addresses = addresses();
        for _ in 0..5 {
            let (mut held, mut service) = (Held::default(), balanced());
            addresses.prepare(&mut held, &mut service, None);
            service["spec"]["clusterIP"] = json!("192.168.0.1");
            assert!(addresses.allocate(&mut held, &mut service, None).is_err());
            addresses.release(&held);
        }
        assert!(addresses.state.lock().ports.is_empty());
    }
}
