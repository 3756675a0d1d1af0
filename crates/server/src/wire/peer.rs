//! The other end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use access::identity::User;
use jiff::Timestamp;

use crate::request::authentication::authorities::Presented;

/// The client of a connection; the same for all its requests.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// None for a call in the same process.
    pub address: Option<SocketAddr>,
    /// The address that the client connected to; discovery returns it.
    pub local: Option<SocketAddr>,
    pub certificate: Option<ClientCertificate>,
}

/// The identity that comes with a connection.
#[derive(Clone, Debug)]
pub enum ClientCertificate {
    /// A caller in the same process.
    InProcess(Arc<User>),
    /// A certificate of a TLS handshake, which each request verifies: one that is not good gets a 401 instead of a broken
    /// connection.
    Presented(Arc<Presented>),
}

impl Peer {
    /// A caller in the same process, authenticated as this user.
    #[must_use]
    pub fn in_process(user: User) -> Self {
        Peer { certificate: Some(ClientCertificate::InProcess(Arc::new(user))), ..Peer::default() }
    }

    /// The user of the connection if it is known to be good now.
    #[inline]
    pub(crate) fn known_user(&self, now: Timestamp) -> Option<&Arc<User>> {
        match &self.certificate {
            Some(ClientCertificate::Presented(presented)) => presented.known_user(now),
            Some(ClientCertificate::InProcess(user)) => Some(user),
            None => None,
        }
    }

    /// The user of the connection's certificate, or the reason why it is refused.
    pub fn user(&self, now: Timestamp) -> Result<Option<Arc<User>>, String> {
        match &self.certificate {
            Some(ClientCertificate::Presented(presented)) => presented.user(now),
            Some(ClientCertificate::InProcess(user)) => Ok(Some(Arc::clone(user))),
            None => Ok(None),
        }
    }
}
