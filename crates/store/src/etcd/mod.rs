//! The distributed engine: an etcd cluster over its gRPC API, shared by any number of servers.
//!
//! - [`options`]: endpoints, credentials, retention
//! - `cluster`: the members of a cluster: connections, login, failover; `fault`: whether a failed call may have had an effect
//! - `keyspace`: layout of the keys; `messages`: etcd's messages by field number
//! - `read`, `write`, `watch`: the calls of the contract
//! - [`compactor`]: removal of history, by one server at a time
//! - `timeline`: detection of an etcd that was wiped or restored
//! - `backup`: a snapshot of etcd as a file
//! - `testing`: real etcd processes for tests
//!
//! It differs from the other engines because one etcd may serve many clients: its revision also counts changes outside the
//! prefix, its history is compacted for all keys at once, and a write whose answer is lost is
//! [`Unknown`](crate::WriteError::Unknown).

mod backup;
mod cluster;
pub mod compactor;
mod fault;
mod keyspace;
mod messages;
pub mod options;
mod read;
#[cfg(feature = "suite")]
pub mod testing;
mod timeline;
mod watch;
mod write;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use machinery::Revision;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

pub use options::{EtcdCredentials, EtcdIdentity, EtcdOptions, EtcdTls};

use crate::contract::{Changes, HealthCheck, ListQuery, Stats, Store, StoreFuture};
use crate::entry::{Entry, Snapshot};
use crate::error::{EngineError, OpenError, ReadError, WatchError, WriteError};
use crate::key::{Key, Prefix};
use cluster::Cluster;
use compactor::Compactor;
use fault::Fault;
use keyspace::{Keyspace, number};
use timeline::Timeline;

/// The checks of this engine.
const REACHABLE: &str = "etcd";
const TIMELINE: &str = "etcd-revision";

/// Longest wait of a health check for etcd.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// A store in an etcd cluster.
pub struct EtcdStore {
    cluster: Arc<Cluster>,
    keyspace: Keyspace,
    value_bytes_max: usize,
    /// The highest compaction known to this process. Other servers may have compacted further.
    floor: Arc<AtomicU64>,
    timeline: Arc<Timeline>,
    compactor: Mutex<Option<JoinHandle<()>>>,
}

impl EtcdStore {
    /// Logs in and verifies that the cluster answers with a majority.
    ///
    /// Boxed, so that the gRPC client is compiled in this crate and not where the future is polled.
    pub fn connect(options: EtcdOptions) -> StoreFuture<'static, Result<Self, OpenError>> {
        Box::pin(Self::open(options))
    }

    async fn open(options: EtcdOptions) -> Result<Self, OpenError> {
        let cluster = Cluster::new(&options)?;
        let store = EtcdStore {
            cluster: cluster.clone(),
            keyspace: Keyspace::new(options.key_prefix()),
            value_bytes_max: options.value_bytes_max,
            floor: Arc::default(),
            timeline: Arc::default(),
            compactor: Mutex::new(None),
        };
        store.first_contact().await.map_err(|fault| match fault {
            Fault::Refused(reason) | Fault::OtherCluster(reason) | Fault::Token(reason) => {
                OpenError::Inaccessible { path: cluster.urls(), reason }
            }
            Fault::Corrupt(reason) => OpenError::Corrupt { path: cluster.urls(), reason },
            fault => OpenError::Unreachable { endpoint: cluster.urls(), reason: fault.to_string() },
        })?;
        if options.compaction {
            let (keyspace, floor) = (store.keyspace.clone(), store.floor.clone());
            let compactor = Compactor::new(cluster, keyspace, options.retention, options.clock, floor);
            *store.compactor.lock() = Some(tokio::spawn(compactor.run()));
        }
        Ok(store)
    }

    async fn first_contact(&self) -> Result<(), Fault> {
        let key = self.keyspace.progress_record();
        let request = messages::RangeRequest { key, count_only: true, ..Default::default() };
        self.cluster.range(request).await.map(|_| ())
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        // The compactor and every watch end by themselves once the cluster is closed.
        self.cluster.close();
    }
}

impl Store for EtcdStore {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Result<Option<Entry>, ReadError>> {
        Box::pin(self.read(key))
    }

    /// Reads pages of one revision. `remaining` is etcd's count of keys, so it includes foreign keys below the prefix.
    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<Snapshot, ReadError>> {
        Box::pin(self.read_list(query))
    }

    fn create(&self, key: Key, value: Bytes) -> StoreFuture<'_, Result<Revision, WriteError>> {
        Box::pin(self.write_new(key, value))
    }

    fn update(&self, key: Key, value: Bytes, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        Box::pin(self.write_over(key, value, expected))
    }

    fn delete(&self, key: Key, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        Box::pin(self.remove(key, expected))
    }

    fn watch(&self, prefix: Prefix, after: Revision) -> StoreFuture<'_, Result<Changes, WatchError>> {
        Box::pin(self.start_watch(prefix, after))
    }

    fn compact(&self, at: Revision) -> StoreFuture<'_, Result<(), ReadError>> {
        Box::pin(async move {
            if at.is_zero() {
                return Ok(());
            }
            match self.cluster.compact(number(at)).await {
                Ok(()) => {
                    self.floor.fetch_max(at.0, Ordering::Relaxed);
                    Ok(())
                }
                Err(fault) => Err(self.read_error(fault, at).await),
            }
        })
    }

    fn current_revision(&self) -> StoreFuture<'_, Result<Revision, ReadError>> {
        Box::pin(self.read_revision())
    }

    /// The same for every prefix: etcd compacts all keys at once.
    fn oldest_revision<'a>(&'a self, _prefix: &'a Prefix) -> StoreFuture<'a, Result<Revision, ReadError>> {
        Box::pin(self.read_oldest())
    }

    /// Writes etcd's own snapshot of the whole cluster, as `etcdctl snapshot save` does; `etcdutl snapshot restore` reads it.
    fn backup<'a>(&'a self, to: &'a Path) -> StoreFuture<'a, Result<(), EngineError>> {
        Box::pin(self.save_snapshot(to))
    }

    /// etcd has no statistics for a prefix. Exact: objects, revision, disk. `object_bytes` is measured on the first few
    /// hundred objects and scaled up; `history` is the number of revisions kept, of any client; `history_bytes` is the size
    /// of the database beyond the objects.
    fn stats(&self) -> StoreFuture<'_, Result<Stats, ReadError>> {
        Box::pin(self.read_stats())
    }

    /// Two checks: etcd answers, and it has not gone back.
    fn health(&self) -> StoreFuture<'_, Vec<HealthCheck>> {
        Box::pin(async move {
            let answered = tokio::time::timeout(HEALTH_TIMEOUT, self.position(0)).await;
            let reachable = match answered {
                Ok(Ok(_)) => HealthCheck::passed(REACHABLE),
                // The first cluster that answered is the one for the life of the process.
                Ok(Err(Fault::OtherCluster(reason))) => HealthCheck::failed(REACHABLE, reason, true),
                Ok(Err(fault)) => HealthCheck::failed(REACHABLE, fault.to_string(), false),
                Err(_) => {
                    let reason = format!("{} did not answer within {HEALTH_TIMEOUT:.1?}", self.cluster.urls());
                    HealthCheck::failed(REACHABLE, reason, false)
                }
            };
            let timeline = match self.timeline.check() {
                Ok(()) => HealthCheck::passed(TIMELINE),
                Err(fault) => HealthCheck::failed(TIMELINE, fault.to_string(), true),
            };
            vec![reachable, timeline]
        })
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.cluster.close();
            let compactor = self.compactor.lock().take();
            if let Some(compactor) = compactor {
                // It ends at once. A panic would have been logged.
                let _ = compactor.await;
            }
        })
    }
}
