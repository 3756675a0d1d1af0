//! Shared helpers: waiting for conditions, and writes with retries.

use std::fmt::Debug;
use std::time::Duration;

use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// Long enough for the slowest machine; nothing waits for it in a run that passes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until an object satisfies a condition and returns it.
///
/// # Panics
/// If it does not within [`PATIENCE`].
pub(crate) async fn until<K>(api: &Api<K>, name: &str, what: &str, condition: impl Fn(&K) -> bool) -> K
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let now = api.get_opt(name).await.expect("the server answers");
        if let Some(object) = now.as_ref().filter(|object| condition(object)) {
            return object.clone();
        }
        assert!(tokio::time::Instant::now() < deadline, "{name} is not {what}: {now:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until an object is deleted.
///
/// # Panics
/// If it is not within [`PATIENCE`].
pub(crate) async fn until_gone<K>(api: &Api<K>, name: &str)
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while let Some(object) = api.get_opt(name).await.expect("the server answers") {
        assert!(tokio::time::Instant::now() < deadline, "{name} is still there: {object:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
