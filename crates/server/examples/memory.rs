//! A server on a store in memory, for any client: `cargo run --example memory -- KUBECONFIG [TOKEN]`.
//!
//! Shows how the parts are put together; `dogwatch up` does the same with a store on disk.

use std::sync::Arc;

use access::authorizer::AuthenticatedOnly;
use access::identity::User;
use machinery::clock::Clock;
use server::authentication::Authenticator;
use server::authentication::anonymous::Anonymous;
use server::certs::{self, Pki};
use server::kubeconfig::{Credential, kubeconfig};
use server::limits::Limits;
use server::tls::Tls;
use server::{Config, Server, listener, shutdown};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("the path of the kubeconfig to write is missing")?;
    let token = arguments.next();

    let store = Arc::new(store::memory::MemoryStore::new(store::Retention::default()));
    let registry = registry::Registry::start(store, registry::Settings::default()).await?;
    let mut authenticator = Authenticator { anonymous: Anonymous::allowed(true), ..Authenticator::default() };
    if let Some(token) = &token {
        let groups = vec!["system:masters".to_owned()];
        authenticator.tokens.add(token, User { name: "admin".to_owned(), groups, ..User::default() });
    }
    let limits = Limits::default();
    let server_metrics = Arc::new(server::metrics::Metrics::new(&limits));
    let server = Server::new(
        registry,
        Config {
            limits,
            authenticator,
            authorizer: Arc::new(AuthenticatedOnly),
            inspection: Default::default(),
            metrics: prometheus_client::registry::Registry::default(),
            server_metrics,
            traced_writes: 0,
            explain_refusals: false,
            clock: Clock::system(),
            certificates_clock: Clock::system(),
        },
    );

    let pki = Pki::in_memory(&[], Clock::system().now())?;
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("https://{}", socket.local_addr()?);
    let credential = token.as_deref().map_or(Credential::Certificate(&pki.admin), Credential::Token);
    certs::write_private(file.as_ref(), kubeconfig(&url, Some(&pki.ca_pem), credential).as_bytes())?;
    println!("{url}");

    let (trigger, stop) = shutdown::channel();
    let (limits, metrics) = (Arc::clone(server.limits()), Arc::clone(server.metrics()));
    let running = tokio::spawn(listener::run(socket, Some(Tls::new(&pki)?), server, limits, metrics, stop));
    tokio::signal::ctrl_c().await?;
    trigger.drain();
    running.await?;
    Ok(())
}
