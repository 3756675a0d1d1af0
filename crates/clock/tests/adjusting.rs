//! What those who wait notice when a clock is stopped, moved or run faster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clock::{Mode, Stop, WorldClock};
use jiff::Timestamp;

const HOUR: Duration = Duration::from_secs(3600);

fn stopped_at(text: &str) -> WorldClock {
    let clock = WorldClock::adjustable();
    clock.set(Mode::Stopped, Some(text.parse().unwrap())).unwrap();
    clock
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Lets the tasks that can run do so.
async fn turns() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_stopped_clock_shows_the_same_time() {
    let clock = stopped_at("2200-01-01T00:00:00Z");
    let (copy, reading) = (clock.clone(), clock.reading());
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(copy.now(), time("2200-01-01T00:00:00Z"));
    assert_eq!(reading.now(), copy.now());
    assert_eq!(copy.instant(), clock.instant());
    assert_eq!(copy.mode(), Mode::Stopped);
}

#[tokio::test]
async fn an_advance_ends_the_waits_that_are_due_and_no_other() {
    let clock = stopped_at("2200-01-01T00:00:00Z");
    let (short, long) = (clock.named("short"), clock.named("long"));
    let short = tokio::spawn(async move { short.sleep(HOUR).await });
    let long = tokio::spawn(async move { long.sleep(3 * HOUR).await });
    turns().await;
    assert_eq!(clock.next_due().unwrap().at, time("2200-01-01T01:00:00Z"));

    let advance = clock.advance(2 * HOUR, &()).await;

    assert!(advance.all_begun);
    assert_eq!(advance.stops, [Stop { at: time("2200-01-01T01:00:00Z"), who: "short".into() }]);
    assert_eq!(clock.now(), time("2200-01-01T02:00:00Z"));
    short.await.unwrap();
    assert!(!long.is_finished());
    assert_eq!(clock.next_due().unwrap().at, time("2200-01-01T03:00:00Z"));
    long.abort();
}

#[tokio::test]
async fn an_interval_ticks_at_every_moment_on_the_way() {
    let clock = stopped_at("2200-01-01T00:00:00Z");
    let (ticks, counted) = (Arc::new(AtomicUsize::new(0)), clock.clone());
    let count = Arc::clone(&ticks);
    let task = tokio::spawn(async move {
        let mut interval = counted.interval(Duration::from_secs(10));
        loop {
            interval.tick().await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    turns().await;
    assert_eq!(ticks.load(Ordering::Relaxed), 1);
    let advance = clock.advance(Duration::from_secs(60), &()).await;
    turns().await;
    assert_eq!(ticks.load(Ordering::Relaxed), 7, "{advance:?}");
    task.abort();
}

#[tokio::test]
async fn the_next_moment_is_one_that_a_task_waits_for() {
    let clock = stopped_at("2200-01-01T00:00:00Z");
    assert_eq!(clock.until_next(), None, "no task waits");
    let waiting = clock.clone();
    let task = tokio::spawn(async move { waiting.sleep(Duration::from_secs(7)).await });
    turns().await;
    assert_eq!(clock.until_next(), Some(Duration::from_secs(7)));
    assert_eq!(clock.advance(Duration::from_secs(7), &()).await.stops.len(), 1);
    assert_eq!(clock.now(), time("2200-01-01T00:00:07Z"));
    task.await.unwrap();
}

#[tokio::test]
async fn a_wait_that_is_given_up_is_forgotten() {
    let clock = stopped_at("2200-01-01T00:00:00Z");
    let waiting = clock.clone();
    let task = tokio::spawn(async move { waiting.sleep(HOUR).await });
    turns().await;
    task.abort();
    let _ = task.await;
    assert_eq!(clock.next_due(), None);
}

#[tokio::test]
async fn a_fast_clock_ends_waits_early() {
    let clock = WorldClock::adjustable();
    let waiting = clock.clone();
    let task = tokio::spawn(async move { waiting.sleep(1000 * HOUR).await });
    turns().await;
    clock.set(Mode::Scaled(1e9), None).unwrap();
    task.await.unwrap();
}

#[tokio::test]
async fn a_clock_never_goes_back() {
    let clock = stopped_at("2200-01-01T00:00:00Z");
    let refused = clock.set(Mode::Stopped, Some(time("2199-12-31T00:00:00Z"))).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the clock shows 2200-01-01T00:00:00Z and cannot be set back to 2199-12-31T00:00:00Z"
    );
    assert!(clock.set(Mode::Real, None).is_err(), "the machine's time is before 2200");
    assert_eq!(clock.mode(), Mode::Stopped);
    clock.set(Mode::Scaled(1.0), None).unwrap();
    assert!(clock.now() >= time("2200-01-01T00:00:00Z"));
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_the_machine_follows_tokio() {
    let clock = WorldClock::system();
    let before = clock.instant();
    clock.sleep(HOUR).await;
    assert_eq!(clock.instant().duration_since(before), HOUR);
    assert!(clock.advance(HOUR, &()).await.stops.is_empty());
    assert_eq!(clock.next_due(), None);
}
