//! The other end of a connection, as far as requests need to know it.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::identity::User;

/// What the connection says about who asks. One for all requests of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// None for a call in the same process.
    pub address: Option<SocketAddr>,
    /// Where the connection arrived; shown in discovery.
    pub local: Option<SocketAddr>,
    pub certificate: Option<ClientCertificate>,
}

/// A client certificate that came with the TLS handshake.
#[derive(Clone, Debug)]
pub enum ClientCertificate {
    /// Signed by our authority, for client authentication, and it names a user.
    Verified(Arc<User>),
    /// Anything else: whoever shows it is told 401, not cut off without a word.
    Refused,
}

impl Peer {
    /// A caller in the same process that speaks as this user.
    #[must_use]
    pub fn in_process(user: User) -> Self {
        Peer { certificate: Some(ClientCertificate::Verified(Arc::new(user))), ..Peer::default() }
    }
}
