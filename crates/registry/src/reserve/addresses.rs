//! Service addresses and node ports: each belongs to one service at a time.
//!
//! What is taken is read from the services themselves; what is being handed out in this process is held beside it until
//! the write is through, so that two creates at once never get the same.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use machinery::json::{Value, json};
use machinery::{FieldError, Status};
use parking_lot::Mutex;
use rand::Rng;

use crate::meta;
use crate::registry::{Registry, Settings};
use crate::request::Target;
use crate::view;
use crate::write::Written;

/// What has been handed out and is not yet seen in a stored service.
pub(crate) struct Allocation {
    pending: Mutex<Pending>,
    first: u32,
    addresses: u32,
}

#[derive(Default)]
struct Pending {
    addresses: HashSet<u32>,
    ports: HashSet<u16>,
}

impl Allocation {
    pub(crate) fn new(settings: &Settings) -> Self {
        let addresses = 1_u32 << (32 - u32::from(settings.service_range_bits));
        Allocation { pending: Mutex::default(), first: u32::from(settings.service_range), addresses }
    }
}

impl Registry {
    /// Gives a service the addresses and ports it needs and does not have. `old` is the stored one on update.
    pub(crate) fn allocate(&self, target: &Target, service: &mut Value, old: Option<&Value>) -> Result<(), Status> {
        if target.kind.collection != "core/services" {
            return Ok(());
        }
        let name = meta::name(service).to_owned();
        let invalid = |error: FieldError| Status::invalid(&target.kind.group_kind(), &name, &[error]);
        let kind = service["spec"]["type"].as_str().unwrap_or("ClusterIP").to_owned();
        let taken = self.taken_by_services();
        let mut pending = self.allocation.pending.lock();
        if kind == "ExternalName" {
            return Ok(());
        }
        set_families(service);
        let said = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
        let had = old.and_then(|old| old["spec"]["clusterIP"].as_str()).unwrap_or_default();
        if said.is_empty() && !had.is_empty() && had != "None" {
            // A client that leaves it out keeps what it has.
            service["spec"]["clusterIP"] = json!(had);
            service["spec"]["clusterIPs"] = old.map(|old| old["spec"]["clusterIPs"].clone()).unwrap_or_default();
        } else if said.is_empty() {
            let address = self
                .free_address(&taken, &mut pending)
                .ok_or_else(|| Status::internal("failed to allocate a serviceIP: range is full"))?;
            service["spec"]["clusterIP"] = json!(address.to_string());
            service["spec"]["clusterIPs"] = json!([address.to_string()]);
        } else if said == "None" {
            service["spec"]["clusterIPs"] = json!(["None"]);
        } else if said != had {
            let path = "spec.clusterIPs";
            let Ok(address) = said.parse::<Ipv4Addr>() else { return Ok(()) };
            let number = u32::from(address);
            let listed = json!([said]);
            if number.wrapping_sub(self.allocation.first) >= self.allocation.addresses {
                let why =
                    format!("failed to allocate IP {said}: the provided network does not match the current range");
                return Err(invalid(FieldError::invalid(path, listed, why)));
            }
            if taken.addresses.contains(&number) || !pending.addresses.insert(number) {
                let why = format!("failed to allocate IP {said}: provided IP is already allocated");
                return Err(invalid(FieldError::invalid(path, listed, why)));
            }
            service["spec"]["clusterIPs"] = listed;
        }
        if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
            self.allocate_ports(service, old, &taken, &mut pending).map_err(invalid)?;
        }
        Ok(())
    }

    fn allocate_ports(
        &self,
        service: &mut Value,
        old: Option<&Value>,
        taken: &Pending,
        pending: &mut Pending,
    ) -> Result<(), FieldError> {
        let wants_ports =
            service["spec"]["type"] == "NodePort" || service["spec"]["allocateLoadBalancerNodePorts"] != json!(false);
        let mine: HashSet<u16> = old.map(ports_of).unwrap_or_default();
        let mut given: Vec<(u16, Value)> = Vec::new();
        let ports = service["spec"]["ports"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let mut done = Vec::with_capacity(ports.len());
        for (at, mut port) in ports.into_iter().enumerate() {
            match port["nodePort"].as_u64().and_then(|number| u16::try_from(number).ok()).filter(|number| *number != 0)
            {
                Some(number) => {
                    // One number may serve two protocols of the same service.
                    let shared =
                        given.iter().any(|(other, protocol)| *other == number && *protocol != port["protocol"]);
                    let free = mine.contains(&number)
                        || shared
                        || (!taken.ports.contains(&number) && pending.ports.insert(number));
                    if !free || !self.settings.node_ports.contains(&number) {
                        let path = format!("spec.ports[{at}].nodePort");
                        let why = if free {
                            let range = &self.settings.node_ports;
                            format!(
                                "provided port is not in the valid range. The range of valid ports is {}-{}",
                                range.start(),
                                range.end()
                            )
                        } else {
                            "provided port is already allocated".to_owned()
                        };
                        done.push(port);
                        service["spec"]["ports"] = json!(done);
                        return Err(FieldError::invalid(path, json!(number), why));
                    }
                    given.push((number, port["protocol"].clone()));
                }
                None if wants_ports => {
                    if let Some(number) = self.free_port(taken, pending) {
                        port["nodePort"] = json!(number);
                        given.push((number, port["protocol"].clone()));
                    }
                }
                None => {}
            }
            done.push(port);
        }
        service["spec"]["ports"] = json!(done);
        Ok(())
    }

    /// What must be there before a service is validated: the address under both its names, and the port that a local
    /// load balancer is asked for its health on.
    pub(crate) fn prepare_addresses(&self, target: &Target, service: &mut Value, old: Option<&Value>) {
        if target.kind.collection != "core/services" {
            return;
        }
        if let Some(address) = service["spec"]["clusterIP"].as_str().filter(|address| !address.is_empty())
            && service["spec"]["clusterIPs"].as_array().is_none_or(Vec::is_empty)
        {
            service["spec"]["clusterIPs"] = json!([address]);
        }
        let local = service["spec"]["externalTrafficPolicy"] == "Local" && service["spec"]["type"] == "LoadBalancer";
        if !local || service["spec"]["healthCheckNodePort"].as_u64().unwrap_or_default() != 0 {
            return;
        }
        let had = old.and_then(|old| old["spec"]["healthCheckNodePort"].as_u64()).unwrap_or_default();
        let port = if had != 0 {
            Some(had)
        } else {
            let taken = self.taken_by_services();
            self.free_port(&taken, &mut self.allocation.pending.lock()).map(u64::from)
        };
        if let Some(port) = port {
            service["spec"]["healthCheckNodePort"] = json!(port);
        }
    }

    /// Lets go of what was handed out for a write that did not happen, or whose object is gone.
    pub(crate) fn release(&self, target: &Target, service: &Value) {
        if target.kind.collection != "core/services" {
            return;
        }
        let mut pending = self.allocation.pending.lock();
        if let Some(address) = address_of(service) {
            pending.addresses.remove(&address);
        }
        for port in ports_of(service) {
            pending.ports.remove(&port);
        }
    }

    /// A written service speaks for itself: what it holds need not be held beside it.
    pub(crate) fn forget_allocations(&self, target: &Target, written: &Written) {
        if target.kind.collection != "core/services" {
            return;
        }
        match written {
            Written::Kept(item) => {
                if let Ok(service) = view::parse(item) {
                    self.release(target, &service);
                }
            }
            Written::Removed(service) | Written::Imagined(service) => self.release(target, service),
        }
    }

    fn taken_by_services(&self) -> Pending {
        let collection = self.cache.collection("core/services");
        let snapshot = self.cache.snapshot(&collection);
        let mut taken = Pending::default();
        for service in snapshot.scan(collection.name(), None, None).filter_map(|item| view::parse(item).ok()) {
            taken.addresses.extend(address_of(&service));
            taken.ports.extend(ports_of(&service));
        }
        taken
    }

    fn free_address(&self, taken: &Pending, pending: &mut Pending) -> Option<Ipv4Addr> {
        let (first, count) = (self.allocation.first, self.allocation.addresses);
        // The network itself, its broadcast address and the first one (the API server's) are not given out.
        let usable = count.checked_sub(3)?;
        let start = rand::rng().random_range(0..usable);
        let number = (0..usable)
            .map(|step| first + 2 + (start + step) % usable)
            .find(|number| !taken.addresses.contains(number) && !pending.addresses.contains(number))?;
        pending.addresses.insert(number);
        Some(Ipv4Addr::from(number))
    }

    fn free_port(&self, taken: &Pending, pending: &mut Pending) -> Option<u16> {
        let (first, last) = (*self.settings.node_ports.start(), *self.settings.node_ports.end());
        let count = u32::from(last) - u32::from(first) + 1;
        let start = rand::rng().random_range(0..count);
        let number = (0..count)
            .filter_map(|step| u16::try_from(u32::from(first) + (start + step) % count).ok())
            .find(|number| !taken.ports.contains(number) && !pending.ports.contains(number))?;
        pending.ports.insert(number);
        Some(number)
    }
}

/// Only IPv4 is given out. A headless service without a selector may be anything, since its addresses are not ours.
fn set_families(service: &mut Value) {
    let spec = &mut service["spec"];
    let free = spec["clusterIP"] == "None" && spec["selector"].as_object().is_none_or(|selector| selector.is_empty());
    let unsaid = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty) || value == "";
    let free = free && unsaid(&spec["ipFamilyPolicy"]) && unsaid(&spec["ipFamilies"]);
    if unsaid(&spec["ipFamilyPolicy"]) {
        spec["ipFamilyPolicy"] = json!(if free { "RequireDualStack" } else { "SingleStack" });
    }
    if unsaid(&spec["ipFamilies"]) {
        spec["ipFamilies"] = if free { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) };
    }
}

fn address_of(service: &Value) -> Option<u32> {
    service["spec"]["clusterIP"].as_str()?.parse::<Ipv4Addr>().ok().map(u32::from)
}

fn ports_of(service: &Value) -> HashSet<u16> {
    let listed = service["spec"]["ports"].as_array().into_iter().flatten().map(|port| &port["nodePort"]);
    let numbers = listed.chain(std::iter::once(&service["spec"]["healthCheckNodePort"]));
    numbers.filter_map(|number| u16::try_from(number.as_u64()?).ok()).filter(|number| *number != 0).collect()
}
