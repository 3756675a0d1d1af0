//! Connections that are kept after use, by address, server name and TLS configuration.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::connect::Connection;
use crate::endpoint::Endpoint;

/// Time in which a connection must be ready for its next request; it is ready at once unless its last request is still being
/// written.
const READY_WAIT: Duration = Duration::from_millis(20);

/// What connections have in common that may serve the same requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    address: String,
    server_name: String,
    /// None for plain HTTP.
    tls: Option<[u8; 32]>,
}

impl Key {
    pub(crate) fn of(endpoint: &Endpoint) -> Self {
        let secure = endpoint.is_secure();
        Key {
            address: endpoint.address(),
            server_name: if secure { endpoint.server_name() } else { String::new() },
            tls: secure.then_some(endpoint.tls.key),
        }
    }
}

/// Idle connections.
pub(crate) struct Pool {
    idle: Mutex<Idle>,
    idle_timeout: Duration,
    /// Connections of one key that are kept.
    per_key_max: usize,
    /// Connections that are kept in all.
    total_max: usize,
}

#[derive(Default)]
struct Idle {
    by_key: HashMap<Key, Vec<(Connection, Instant)>>,
    count: usize,
}

impl Pool {
    pub(crate) fn new(idle_timeout: Duration, per_key_max: usize, total_max: usize) -> Arc<Self> {
        Arc::new(Pool { idle: Mutex::default(), idle_timeout, per_key_max, total_max })
    }

    /// Takes the connection that was used last, if one is ready.
    pub(crate) async fn take(&self, key: &Key) -> Option<Connection> {
        loop {
            let mut connection = self.pop(key)?;
            if connection.sender.is_closed() {
                continue;
            }
            if let Ok(Ok(())) = tokio::time::timeout(READY_WAIT, connection.sender.ready()).await {
                return Some(connection);
            }
        }
    }

    fn pop(&self, key: &Key) -> Option<Connection> {
        let mut idle = self.idle.lock();
        let connections = idle.by_key.get_mut(key)?;
        let popped = connections.pop();
        if connections.is_empty() {
            idle.by_key.remove(key);
        }
        let (connection, since) = popped?;
        idle.count -= 1;
        (since.elapsed() < self.idle_timeout).then_some(connection)
    }

    /// Keeps a connection whose answer was read to its end.
    pub(crate) fn put(&self, key: Key, connection: Connection) {
        if connection.sender.is_closed() {
            return;
        }
        let mut idle = self.idle.lock();
        let Idle { by_key, count } = &mut *idle;
        if *count >= self.total_max {
            by_key.retain(|_, connections| {
                connections.retain(|(connection, since)| {
                    !connection.sender.is_closed() && since.elapsed() < self.idle_timeout
                });
                !connections.is_empty()
            });
            *count = by_key.values().map(Vec::len).sum();
        }
        if *count >= self.total_max {
            return;
        }
        let connections = by_key.entry(key).or_default();
        let before = connections.len();
        connections.retain(|(connection, since)| !connection.sender.is_closed() && since.elapsed() < self.idle_timeout);
        if connections.len() < self.per_key_max {
            connections.push((connection, Instant::now()));
        }
        *count = *count + connections.len() - before;
    }
}
