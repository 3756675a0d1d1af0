//! Reading and writing the Lease.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, PostParams};

use crate::Error;

/// The content of a Lease.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseRecord {
    /// The leader; empty if there is none.
    pub holder: String,
    /// Time that others must wait after a renewal.
    pub duration_seconds: i32,
    /// Time at which the holder began to lead.
    pub acquired: Option<Timestamp>,
    /// Time of its last renewal.
    pub renewed: Option<Timestamp>,
    /// Number of changes of the holder.
    pub transitions: i32,
    /// The strategy of an election that the server coordinates.
    pub strategy: Option<String>,
    /// The candidate that should lead instead, in an election that the server coordinates.
    pub preferred_holder: Option<String>,
}

impl LeaseRecord {
    /// Reads the spec of a Lease.
    pub fn from_spec(spec: &LeaseSpec) -> Self {
        Self {
            holder: spec.holder_identity.clone().unwrap_or_default(),
            duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
            acquired: spec.acquire_time.as_ref().map(|time| time.0),
            renewed: spec.renew_time.as_ref().map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or_default(),
            strategy: spec.strategy.clone(),
            preferred_holder: spec.preferred_holder.clone(),
        }
    }

    /// The spec of a Lease with this content.
    pub fn to_spec(&self) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: Some(self.duration_seconds),
            acquire_time: self.acquired.map(MicroTime),
            renew_time: self.renewed.map(MicroTime),
            lease_transitions: Some(self.transitions),
            strategy: self.strategy.clone(),
            preferred_holder: self.preferred_holder.clone(),
        }
    }

    pub(super) fn duration(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.duration_seconds).unwrap_or(0))
    }
}

/// A record as it was read or written, with the object around it.
#[derive(Debug, Clone)]
pub struct Held {
    /// Its content.
    pub record: LeaseRecord,
    /// The Lease; its version guards the next write.
    pub lease: Lease,
}

/// Storage of the record.
pub trait LeaseLock: Send + Sync + 'static {
    /// Reads the record; `None` if it does not exist.
    fn get(&self) -> BoxFuture<'_, Result<Option<Held>, Error>>;
    /// Creates the record.
    fn create(&self, record: LeaseRecord) -> BoxFuture<'_, Result<Held, Error>>;
    /// Writes the record, if it has not changed since `held`.
    fn update(&self, held: Held, record: LeaseRecord) -> BoxFuture<'_, Result<Held, Error>>;
}

/// A Lease of an API server.
pub struct ApiLease {
    api: Api<Lease>,
    name: String,
}

impl ApiLease {
    /// The Lease of this name.
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned() }
    }
}

fn held(lease: Lease) -> Held {
    Held { record: lease.spec.as_ref().map(LeaseRecord::from_spec).unwrap_or_default(), lease }
}

impl LeaseLock for ApiLease {
    fn get(&self) -> BoxFuture<'_, Result<Option<Held>, Error>> {
        async move { Ok(self.api.get_opt(&self.name).await?.map(held)) }.boxed()
    }

    fn create(&self, record: LeaseRecord) -> BoxFuture<'_, Result<Held, Error>> {
        async move {
            let mut lease = Lease { spec: Some(record.to_spec()), ..Lease::default() };
            lease.metadata.name = Some(self.name.clone());
            Ok(held(self.api.create(&PostParams::default(), &lease).await?))
        }
        .boxed()
    }

    fn update(&self, before: Held, record: LeaseRecord) -> BoxFuture<'_, Result<Held, Error>> {
        async move {
            let lease = Lease { spec: Some(record.to_spec()), ..before.lease };
            Ok(held(self.api.replace(&self.name, &PostParams::default(), &lease).await?))
        }
        .boxed()
    }
}
