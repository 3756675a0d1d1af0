//! Events with large objects are made beside the threads that poll connections: an object of some megabytes takes many
//! milliseconds to write, and to parse if its managed fields are left out.

use bytes::Bytes;
use machinery::json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Bytes of an object from which on it is large.
const LARGE_BYTES_MIN: usize = 32 * 1024;
/// What a value takes besides its text.
const VALUE_BYTES: usize = 4;

/// Runs work on this thread. If it is about a large object, the other tasks of the thread are moved to another one before.
pub(super) fn aside<T>(is_large: bool, work: impl FnOnce() -> T) -> T {
    let has_others = || Handle::try_current().is_ok_and(|own| own.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_large && has_others() { tokio::task::block_in_place(work) } else { work() }
}

/// Whether the bytes of an answer are many.
pub(super) fn is_large(slices: &[Bytes]) -> bool {
    slices.iter().map(Bytes::len).sum::<usize>() >= LARGE_BYTES_MIN
}

/// Whether an object would be many bytes. Looks at no more of it than it needs.
pub(super) fn is_large_object(object: &Value) -> bool {
    fn fits(value: &Value, left: &mut usize) -> bool {
        let own = VALUE_BYTES + value.as_str().map_or(0, str::len);
        let Some(rest) = left.checked_sub(own) else { return false };
        *left = rest;
        match value {
            Value::Array(items) => items.iter().all(|item| fits(item, left)),
            Value::Object(members) => members.iter().all(|(name, value)| {
                *left = left.saturating_sub(name.len());
                fits(value, left)
            }),
            _ => true,
        }
    }
    !fits(object, &mut { LARGE_BYTES_MIN })
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn large_objects_are_found_by_their_texts_and_by_their_number() {
        let long = "x".repeat(LARGE_BYTES_MIN);
        for large in [json!(long), json!({"a": {"b": [long]}}), json!({long.clone(): 1}), json!(vec![1; 10_000])] {
            assert!(is_large_object(&large));
        }
        assert!(!is_large_object(&json!({"metadata": {"name": "a"}, "data": {"k": "v".repeat(1000)}})));
        assert!(is_large(&[Bytes::from(vec![0; 20_000]), Bytes::from(vec![0; 20_000])]) && !is_large(&[Bytes::new()]));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_run_while_a_large_event_is_made() {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let event = tokio::spawn(async move { aside(true, || held.recv().is_ok()) });
        // There is one worker: this task would wait for ever behind the event.
        tokio::spawn(async move { release.send(()).is_ok() }).await.unwrap();
        assert!(event.await.unwrap());
    }
}
