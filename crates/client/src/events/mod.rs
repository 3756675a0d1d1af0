//! Event recorders: a record for people of what a controller did, with bounds on its volume.
//!
//! - `core`: the recorder of `core/v1` Events
//! - `correlate`: combining, counting and dropping of similar events
//! - `series`: the recorder of `events.k8s.io/v1` Events
//! - `sink`: the destination of events, and its retries
//!
//! Recording never blocks and never fails: events wait in a bounded queue, and one that does not fit is dropped and
//! counted.

mod core;
mod correlate;
mod series;
mod sink;
#[cfg(test)]
mod tests;

pub use core::{EventRecorder, EventType, EventWriter};
pub use series::{InvalidEvent, NewEvent, SeriesRecorder, SeriesWriter};
pub use sink::{ApiEvents, EventSink};

/// Capacity of the queue between recorders and writer.
const QUEUE: usize = 1000;

/// The namespace of an event about an object: cluster-scoped objects have theirs in `default`.
fn namespace_of(object: &k8s_openapi::api::core::v1::ObjectReference) -> String {
    object.namespace.clone().filter(|ns| !ns.is_empty()).unwrap_or_else(|| "default".to_owned())
}

/// `<object>.<nanoseconds in hex>`: unique enough, and sorted by time. An object whose name cannot be part of a name gives
/// the time and a random number.
fn event_name(object: &str, now: jiff::Timestamp) -> String {
    let nanos = now.as_nanosecond();
    let valid = !object.is_empty()
        && object.len() <= 200
        && object.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.');
    if valid { format!("{object}.{nanos:x}") } else { format!("event.{nanos:x}.{:016x}", rand::random::<u64>()) }
}
