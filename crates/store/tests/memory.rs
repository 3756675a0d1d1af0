//! The behaviour suite on the memory engine.

use store::memory::MemoryStore;
use store::suite::Fixture;

async fn fixture() -> Fixture {
    Fixture::new(MemoryStore::default())
}

store::behaviour_suite!(fixture);
