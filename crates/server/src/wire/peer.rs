//! The other end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use access::identity::User;

/// The client of a connection; the same for all its requests.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// None for a call in the same process.
    pub address: Option<SocketAddr>,
    /// The address that the client connected to; discovery returns it.
    pub local: Option<SocketAddr>,
    pub certificate: Option<ClientCertificate>,
}

/// The client certificate of a TLS handshake.
#[derive(Clone, Debug)]
pub enum ClientCertificate {
    /// Signed by our authority, for client authentication, and it names a user.
    Verified(Arc<User>),
    /// Any other certificate: requests get a 401 instead of a broken connection.
    Refused,
}

impl Peer {
    /// A caller in the same process, authenticated as this user.
    #[must_use]
    pub fn in_process(user: User) -> Self {
        Peer { certificate: Some(ClientCertificate::Verified(Arc::new(user))), ..Peer::default() }
    }
}
