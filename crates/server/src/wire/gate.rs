//! Connections that a lab refuses or cuts. A server without a lab has no gate, and keeps no table of its connections.

use std::collections::HashMap;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use socket2::{SockRef, Socket};
use tokio::net::TcpStream;

use crate::disturbance::{ConnectionNote, Disturbances};

/// Decides about connections, and knows those that are open.
#[derive(Clone)]
pub(crate) struct Gate {
    disturbances: Arc<dyn Disturbances>,
    open: Arc<Mutex<Open>>,
}

#[derive(Default)]
struct Open {
    connections: HashMap<u64, (ConnectionNote, Socket)>,
    next: u64,
}

/// Keeps a connection in the table for as long as any part of it exists.
pub(crate) struct Place {
    open: Arc<Mutex<Open>>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.lock().connections.remove(&self.number);
    }
}

impl Gate {
    pub(crate) fn new(disturbances: Arc<dyn Disturbances>) -> Self {
        Gate { disturbances, open: Arc::default() }
    }

    /// Whether any connection may be refused now.
    pub(crate) fn is_guarded(&self) -> bool {
        self.disturbances.refuses_connections()
    }

    /// Whether this connection is refused.
    pub(crate) fn refuses(&self, address: SocketAddr, server_name: Option<&str>) -> bool {
        self.disturbances.of_connection(&note(address.ip(), server_name))
    }

    /// Notes an open connection. None if it cannot be cut later, because the process is out of descriptors.
    pub(crate) fn note(&self, stream: &TcpStream, address: SocketAddr, server_name: Option<&str>) -> Option<Place> {
        // The socket may belong to a WebSocket or another protocol by the time it is cut: its second descriptor still reaches it.
        let socket = SockRef::from(stream).try_clone().ok()?;
        let mut open = self.open.lock();
        let number = open.next;
        open.next += 1;
        open.connections.insert(number, (note(address.ip(), server_name), socket));
        Some(Place { open: Arc::clone(&self.open), number })
    }

    /// Cuts open connections whenever a disturbance asks for it.
    pub(crate) async fn cut_connections(self) {
        let mut changes = self.disturbances.changes();
        loop {
            changes.mark_unchanged();
            for number in self.numbers_to_cut() {
                if let Some((_, socket)) = self.open.lock().connections.get(&number) {
                    let _ = socket.shutdown(Shutdown::Both);
                }
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn numbers_to_cut(&self) -> Vec<u64> {
        if !self.is_guarded() {
            return Vec::new();
        }
        let (numbers, notes): (Vec<u64>, Vec<ConnectionNote>) =
            self.open.lock().connections.iter().map(|(number, (note, _))| (*number, note.clone())).unzip();
        self.disturbances.of_open_connections(&notes).into_iter().filter_map(|at| numbers.get(at).copied()).collect()
    }
}

fn note(source: IpAddr, server_name: Option<&str>) -> ConnectionNote {
    ConnectionNote { source: source.to_canonical(), server_name: server_name.unwrap_or_default().to_owned() }
}
