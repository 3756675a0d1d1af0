//! The behaviour suite on a fork of a memory engine that has had objects and a history.

use bytes::Bytes;
use store::memory::MemoryStore;
use store::suite::Fixture;
use store::{Key, Store as _};

async fn fixture() -> Fixture {
    let origin = MemoryStore::default();
    for number in 0..100 {
        let key = Key::new(format!("core/pods/old/{number}")).expect("well formed");
        let created = origin.create(key.clone(), Bytes::from_static(b"x")).await.expect("free");
        origin.delete(key, created).await.expect("current");
    }
    let before = origin.current_revision().await.expect("readable");
    origin.create(Key::new("core/pods/later/1").expect("well formed"), Bytes::new()).await.expect("free");
    origin.compact(before).await.expect("retained");
    let fork = origin.fork_at(Some(before)).expect("retained");
    // The origin goes on, and is not to be seen.
    origin.create(Key::new("core/pods/a/1").expect("well formed"), Bytes::new()).await.expect("free");
    Fixture::new(fork).keeping(origin)
}

store::behaviour_suite!(fixture);
