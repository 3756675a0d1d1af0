//! The rules of the event recorders, one test each, on virtual time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use k8s_openapi::api::events::v1::Event as SeriesEvent;
use kube::Resource;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::Error;
use crate::scripted::{failure, refused};

/// Stores the events; first returns the scripted failures.
struct Memory<E> {
    created: Mutex<Vec<E>>,
    patched: Mutex<Vec<(String, Value)>>,
    failures: Mutex<VecDeque<Error>>,
    calls: Mutex<Vec<Instant>>,
}

impl<E> Memory<E> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            created: Mutex::default(),
            patched: Mutex::default(),
            failures: Mutex::default(),
            calls: Mutex::default(),
        })
    }
}

impl<E> EventSink<E> for Memory<E>
where
    E: Resource<DynamicType = ()> + Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    fn create(&self, _namespace: String, event: E) -> BoxFuture<'_, Result<E, Error>> {
        self.calls.lock().push(Instant::now());
        let result = match self.failures.lock().pop_front() {
            Some(error) => Err(error),
            None => {
                self.created.lock().push(event.clone());
                Ok(event)
            }
        };
        futures::future::ready(result).boxed()
    }

    fn patch(&self, _namespace: String, _: E, name: String, patch: Value) -> BoxFuture<'_, Result<E, Error>> {
        self.calls.lock().push(Instant::now());
        let result = match self.failures.lock().pop_front() {
            Some(error) => Err(error),
            None => {
                let found =
                    self.created.lock().iter().find(|e| e.meta().name.as_deref() == Some(name.as_str())).cloned();
                let mut object = serde_json::to_value(found.unwrap_or_default()).unwrap();
                for (field, value) in patch.as_object().unwrap() {
                    object[field] = value.clone();
                }
                self.patched.lock().push((name, patch));
                Ok(serde_json::from_value(object).unwrap())
            }
        };
        futures::future::ready(result).boxed()
    }
}

fn pod(name: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".into()),
        name: Some(name.into()),
        namespace: Some("n".into()),
        ..ObjectReference::default()
    }
}

fn recorder(sink: &Arc<Memory<Event>>) -> EventRecorder {
    let (recorder, writer) = EventRecorder::new(sink.clone(), "scheduler", "host-1");
    tokio::spawn(writer.run(CancellationToken::new()));
    recorder
}

async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn ev_01_events_are_named_placed_and_never_block() {
    let sink = Memory::new();
    let events = recorder(&sink);
    events.record(&pod("p"), EventType::Warning, "Failed", "no");
    let node = ObjectReference { kind: Some("Node".into()), name: Some("n1".into()), ..ObjectReference::default() };
    events.record(&node, EventType::Normal, "Ready", "yes");
    let odd = ObjectReference { name: Some("Not_A_Name".into()), ..ObjectReference::default() };
    events.record(&odd, EventType::Normal, "Odd", "name");
    settle().await;
    let created = sink.created.lock().clone();
    let name = created[0].metadata.name.clone().unwrap();
    assert!(name.starts_with("p.") && u64::from_str_radix(&name[2..], 16).is_ok(), "{name}");
    assert_eq!(created[0].metadata.namespace.as_deref(), Some("n"));
    assert_eq!(created[1].metadata.namespace.as_deref(), Some("default"));
    assert!(created[2].metadata.name.as_deref().unwrap().starts_with("event."));
    assert_eq!(created[0].reporting_component.as_deref(), Some("scheduler"));
    assert_eq!(created[0].reporting_instance.as_deref(), Some("host-1"));
    assert_eq!(created[0].source.as_ref().unwrap().component.as_deref(), Some("scheduler"));

    let (full, _writer_that_does_not_run) = EventRecorder::new(Memory::new(), "c", "h");
    for n in 0..1005 {
        full.record(&pod(&format!("p{n}")), EventType::Normal, "R", "m");
    }
    assert_eq!(full.dropped(), 5);
}

#[tokio::test(start_paused = true)]
async fn ev_01_the_times_of_an_event_are_those_of_the_recorders_clock() {
    let at = jiff::Timestamp::from_second(1_700_000_000).unwrap();
    let clock = machinery::Clock::from_fn(move || at);
    let sink = Memory::new();
    recorder(&sink).with_clock(clock.clone()).record(&pod("p"), EventType::Normal, "R", "m");
    settle().await;
    let event = sink.created.lock().remove(0);
    assert_eq!(event.first_timestamp.map(|time| time.0), Some(at));
    assert_eq!(event.last_timestamp.map(|time| time.0), Some(at));
    assert_eq!(event.metadata.name, Some(format!("p.{:x}", at.as_nanosecond())));

    let sink = Memory::<SeriesEvent>::new();
    let (events, writer) = SeriesRecorder::new(sink.clone(), "c", "c-1");
    tokio::spawn(writer.run(CancellationToken::new()));
    let (events, p) = (events.with_clock(clock), pod("p"));
    for _ in 0..2 {
        events.record(&new_event(&p, "note")).unwrap();
    }
    settle().await;
    assert_eq!(sink.created.lock()[0].event_time.as_ref().map(|time| time.0), Some(at));
    let series = &sink.patched.lock()[0].1["series"];
    assert_eq!(series["lastObservedTime"], "2023-11-14T22:13:20.000000Z");
}

#[tokio::test(start_paused = true)]
async fn ev_02_combine_then_count_then_drop() {
    // Twenty different messages: nine alone, eleven as one, which is counted; the budget of 25 allows them all.
    let sink = Memory::new();
    let events = recorder(&sink);
    for n in 0..20 {
        events.record(&pod("p"), EventType::Normal, "Pulled", &format!("image {n}"));
        settle().await;
    }
    assert_eq!(sink.created.lock().len(), 10);
    assert_eq!(sink.patched.lock().len(), 10);
    assert_eq!(sink.patched.lock().last().unwrap().1["count"], 11);
}

#[tokio::test(start_paused = true)]
async fn ev_03_the_tenth_different_message_is_combined_within_its_window() {
    let sink = Memory::new();
    let events = recorder(&sink);
    for n in 0..10 {
        events.record(&pod("p"), EventType::Normal, "Pulled", &format!("image {n}"));
        sleep(Duration::from_secs(599)).await;
    }
    let last = sink.created.lock().last().unwrap().message.clone().unwrap();
    assert_eq!(last, "(combined from similar events): image 9", "the window slides with each event");
    sleep(Duration::from_secs(601)).await;
    events.record(&pod("p"), EventType::Normal, "Pulled", "image x");
    settle().await;
    assert_eq!(sink.created.lock().last().unwrap().message.as_deref(), Some("image x"));
}

#[tokio::test(start_paused = true)]
async fn ev_04_an_equal_event_patches_the_first_and_a_lost_one_is_created_again() {
    let sink = Memory::new();
    let events = recorder(&sink);
    for _ in 0..3 {
        events.record(&pod("p"), EventType::Normal, "Pulled", "image");
        settle().await;
    }
    let first = sink.created.lock()[0].metadata.name.clone().unwrap();
    let patched = sink.patched.lock().clone();
    assert_eq!((patched[0].0.as_str(), &patched[0].1["count"]), (first.as_str(), &2.into()));
    assert!(patched[0].1["lastTimestamp"].is_string() && patched[0].1["message"] == "image");
    sink.failures.lock().push_back(failure(404, "NotFound"));
    events.record(&pod("p"), EventType::Normal, "Pulled", "image");
    settle().await;
    assert_eq!(sink.created.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn ev_05_a_flood_is_dropped_silently() {
    let sink = Memory::new();
    let events = recorder(&sink);
    for n in 0..40 {
        events.record(&pod("p"), EventType::Normal, &format!("Reason{n}"), "m");
    }
    events.record(&pod("other"), EventType::Normal, "R", "m");
    events.record(&pod("p"), EventType::Warning, "R", "m");
    settle().await;
    assert_eq!(sink.created.lock().len(), 27, "25, and one each for another object and another type");
    sleep(Duration::from_secs(300)).await;
    for n in 100..102 {
        events.record(&pod("p"), EventType::Normal, &format!("Reason{n}"), "m");
    }
    settle().await;
    assert_eq!(sink.created.lock().len(), 28, "one more every five minutes");
}

#[tokio::test(start_paused = true)]
async fn ev_06_refusals_are_not_repeated_and_lost_connections_are() {
    let sink = Memory::new();
    let events = recorder(&sink);
    sink.failures.lock().push_back(failure(403, "Forbidden"));
    events.record(&pod("p"), EventType::Normal, "A", "m");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(sink.calls.lock().len(), 1);

    sink.calls.lock().clear();
    sink.failures.lock().extend((0..20).map(|_| refused()));
    events.record(&pod("p"), EventType::Normal, "B", "m");
    sleep(Duration::from_secs(600)).await;
    let calls = sink.calls.lock().clone();
    assert_eq!(calls.len(), 12);
    assert!(calls[1] - calls[0] <= Duration::from_secs(10), "the first wait is random");
    assert!(calls.windows(2).skip(1).all(|pair| (pair[1] - pair[0]).as_secs() == 10));
    sink.failures.lock().clear();
    events.record(&pod("p"), EventType::Normal, "C", "m");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(sink.created.lock().len(), 1, "and the next event is written");
}

fn new_event<'a>(regarding: &'a ObjectReference, note: &'a str) -> NewEvent<'a> {
    NewEvent { regarding, related: None, kind: EventType::Normal, reason: "Scheduled", action: "Binding", note }
}

#[tokio::test(start_paused = true)]
async fn ev_07_repetitions_become_a_series_that_is_written_now_and_then() {
    let sink = Memory::<SeriesEvent>::new();
    let (events, writer) = SeriesRecorder::new(sink.clone(), "c", "c-1");
    tokio::spawn(writer.run(CancellationToken::new()));
    let p = pod("p");
    for n in 0..5 {
        events.record(&new_event(&p, &format!("note {n}"))).unwrap();
        settle().await;
    }
    assert_eq!(sink.created.lock().len(), 1, "the note does not count");
    assert_eq!(sink.patched.lock().len(), 1, "the second made it a series, the others are counted in memory");
    assert_eq!(sink.patched.lock()[0].1["series"]["count"], 2);
    // Kept alive, it is written after half an hour.
    for _ in 0..31 {
        sleep(Duration::from_secs(60)).await;
        events.record(&new_event(&p, "again")).unwrap();
        settle().await;
    }
    assert_eq!(sink.patched.lock().len(), 2);
    // Quiet for six minutes, it ends with its last count.
    sleep(Duration::from_secs(13 * 60)).await;
    assert_eq!(sink.patched.lock().len(), 3);
    assert_eq!(sink.patched.lock()[2].1["series"]["count"], 36);
    events.record(&new_event(&p, "new")).unwrap();
    settle().await;
    assert_eq!(sink.created.lock().len(), 2, "and the next is an event of its own");
}

#[tokio::test(start_paused = true)]
async fn ev_07_a_single_event_is_forgotten_after_six_minutes() {
    for (minutes, events_created) in [(5, 1), (13, 2)] {
        let sink = Memory::<SeriesEvent>::new();
        let (events, writer) = SeriesRecorder::new(sink.clone(), "c", "c-1");
        tokio::spawn(writer.run(CancellationToken::new()));
        let p = pod("p");
        events.record(&new_event(&p, "first")).unwrap();
        sleep(Duration::from_secs(minutes * 60)).await;
        events.record(&new_event(&p, "second")).unwrap();
        settle().await;
        assert_eq!(sink.created.lock().len(), events_created, "after {minutes} minutes");
        assert_eq!(sink.patched.lock().len(), 2 - events_created, "after {minutes} minutes");
    }
}

#[tokio::test(start_paused = true)]
async fn ev_08_what_the_server_would_refuse_is_refused_here() {
    let sink = Memory::<SeriesEvent>::new();
    let (events, writer) = SeriesRecorder::new(sink.clone(), "c", "c-1");
    tokio::spawn(writer.run(CancellationToken::new()));
    let p = pod("p");
    assert!(events.record(&NewEvent { reason: "", ..new_event(&p, "x") }).is_err());
    assert!(events.record(&NewEvent { action: "", ..new_event(&p, "x") }).is_err());
    let long = "ä".repeat(1000);
    events.record(&new_event(&p, &long)).unwrap();
    settle().await;
    let note = sink.created.lock()[0].note.clone().unwrap();
    assert!(note.len() <= 1024 && long.starts_with(&note), "cut between characters: {}", note.len());
}

#[tokio::test(start_paused = true)]
async fn repetitions_of_only_so_many_events_are_recognised() {
    let sink = Memory::<SeriesEvent>::new();
    let (events, writer) = SeriesRecorder::new(sink.clone(), "c", "c-1");
    tokio::spawn(writer.run(CancellationToken::new()));
    let count = super::series::KNOWN_MAX.get() + 1;
    for n in 0..count {
        events.record(&new_event(&pod(&format!("p{n}")), "first")).unwrap();
        settle().await;
    }
    for (pod_name, created) in [("p1", count), ("p0", count + 1)] {
        events.record(&new_event(&pod(pod_name), "again")).unwrap();
        settle().await;
        assert_eq!(sink.created.lock().len(), created, "{pod_name}");
    }
}
