//! The clients of a server: each a user with a program, kept once however many requests they send.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use machinery::Revision;

/// Clients that are known at most. Then they are forgotten; their rows keep them.
const CLIENTS_MAX: usize = 1024;
/// Bytes of a name that are kept.
const NAME_BYTES_MAX: usize = 256;

/// A user with a program.
#[derive(Debug, Default)]
pub(crate) struct Client {
    pub(crate) user: Box<str>,
    pub(crate) agent: Box<str>,
    /// The newest revision that any watch of the client has been sent.
    delivered: AtomicU64,
}

impl Client {
    pub(crate) fn delivered(&self) -> Revision {
        Revision(self.delivered.load(Ordering::Relaxed))
    }

    pub(crate) fn note_delivered(&self, revision: Revision) {
        self.delivered.fetch_max(revision.0, Ordering::Relaxed);
    }
}

/// All clients that were seen, by program.
#[derive(Default)]
pub(crate) struct Clients {
    by_agent: HashMap<Box<str>, Vec<Arc<Client>>, RandomState>,
    count: usize,
}

impl Clients {
    /// The client with this user and program.
    pub(crate) fn find(&mut self, user: &str, agent: &str) -> Arc<Client> {
        let (user, agent) = (shortened(user), shortened(agent));
        if let Some(known) = self.by_agent.get(agent).and_then(|all| all.iter().find(|client| *client.user == *user)) {
            return Arc::clone(known);
        }
        if self.count >= CLIENTS_MAX {
            self.by_agent.clear();
            self.count = 0;
        }
        self.count += 1;
        let client = Arc::new(Client { user: user.into(), agent: agent.into(), ..Client::default() });
        self.by_agent.entry(agent.into()).or_default().push(Arc::clone(&client));
        client
    }
}

/// The text up to a length that may be kept of it.
pub(crate) fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(NAME_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_kept_once_and_their_number_is_bounded() {
        let mut clients = Clients::default();
        let first = clients.find("alice", "kubectl");
        first.note_delivered(Revision(7));
        assert!(Arc::ptr_eq(&first, &clients.find("alice", "kubectl")));
        assert!(!Arc::ptr_eq(&first, &clients.find("bob", "kubectl")));
        for number in 0..2 * CLIENTS_MAX {
            clients.find("alice", &format!("{number}{}", "x".repeat(1000)));
        }
        assert!(clients.count <= CLIENTS_MAX && clients.by_agent.len() <= CLIENTS_MAX);
        assert!(clients.by_agent.keys().all(|agent| agent.len() <= NAME_BYTES_MAX));
        assert_eq!(first.delivered(), Revision(7));
    }
}
