//! The behaviour suite on the embedded engine.

use store::embedded::{EmbeddedOptions, EmbeddedStore};
use store::suite::Fixture;

async fn fixture() -> Fixture {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = EmbeddedStore::open(EmbeddedOptions::new(dir.path())).expect("an empty directory opens");
    Fixture::new(store).keeping(dir)
}

store::behaviour_suite!(fixture);
