//! The behaviour suite on a real etcd, and what only this engine does.

use std::time::Duration;

use store::contract::VALUE_BYTES_MAX;
use store::etcd::testing::EtcdServer;
use store::etcd::{EtcdOptions, EtcdStore};
use store::suite::Fixture;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

/// One etcd for all checks. They take turns: some compare etcd's revision, which counts for everybody.
static SERVER: OnceCell<EtcdServer> = OnceCell::const_new();
static TURN: Semaphore = Semaphore::const_new(1);

async fn server() -> (&'static EtcdServer, SemaphorePermit<'static>) {
    let turn = TURN.acquire().await.expect("nobody closes it");
    let request_bytes = format!("--max-request-bytes={}", VALUE_BYTES_MAX + 1024 * 1024);
    // Nothing here kills it, so it need not sync.
    let arguments = [request_bytes.as_str(), "--unsafe-no-fsync"];
    (SERVER.get_or_init(|| EtcdServer::start(&arguments)).await, turn)
}

/// Options with a prefix nobody else uses.
fn options(server: &EtcdServer) -> EtcdOptions {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let prefix = format!("/check-{}/", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    EtcdOptions {
        prefix,
        compaction: false,
        request_timeout: Duration::from_secs(30),
        ..EtcdOptions::new([&server.url])
    }
}

async fn fixture() -> Fixture {
    let (server, turn) = server().await;
    let store = EtcdStore::connect(options(server)).await.expect("etcd answers");
    Fixture::new(store).keeping(turn)
}

store::behaviour_suite!(fixture);
