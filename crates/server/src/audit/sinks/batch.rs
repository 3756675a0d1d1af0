//! A buffer in front of a destination: requests do not wait, and events are delivered together.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::log::Log;
use super::{Delivery, Sink};
use crate::audit::event::Line;
use crate::audit::metrics::AuditMetrics;

/// Bytes of buffered events, whatever their number: one event may have megabytes.
const BUFFER_BYTES_MAX: usize = 64 << 20;
/// Time that a stopping server waits until the events of a buffer are delivered.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Takes several events at once.
pub trait Target: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    fn deliver(&self, lines: Vec<Line>) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>>;

    /// Stops waiting before another attempt: the server stops.
    fn hurry(&self) {}

    /// Called after the last delivery.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}

impl Target for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    fn deliver(&self, lines: Vec<Line>) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        let text: Vec<u8> = lines.iter().flat_map(|line| line.0.iter().copied()).collect();
        Box::pin(std::future::ready(self.write(&text).map_err(|error| error.to_string())))
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Sink::close(self)
    }
}

/// Sizes and times of a buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchSettings {
    /// Events that are buffered; more are dropped.
    pub buffer_events_max: usize,
    /// Events that are delivered together.
    pub events_max: usize,
    /// Bytes that are delivered together, unless one event alone has more.
    pub bytes_max: usize,
    /// Longest time that an event waits for others.
    pub wait: Duration,
    /// Deliveries a second, and how many of them may be at once after a pause; none is no limit.
    pub rate: Option<(f64, usize)>,
}

impl BatchSettings {
    /// For a log: events are written as they come.
    #[must_use]
    pub fn log() -> Self {
        BatchSettings {
            buffer_events_max: 10_000,
            events_max: 1,
            bytes_max: 10 << 20,
            wait: Duration::ZERO,
            rate: None,
        }
    }

    /// For a webhook.
    #[must_use]
    pub fn webhook() -> Self {
        BatchSettings {
            buffer_events_max: 10_000,
            events_max: 400,
            bytes_max: 10 << 20,
            wait: Duration::from_secs(30),
            rate: Some((10.0, 15)),
        }
    }
}

/// A buffered sink.
pub struct Batch {
    name: &'static str,
    buffer: mpsc::Sender<Line>,
    buffered_bytes: Arc<AtomicUsize>,
    stopping: Arc<Notify>,
    worker: Mutex<Option<JoinHandle<()>>>,
    metrics: Arc<AuditMetrics>,
}

impl Batch {
    /// Starts a buffer. Must be called on a runtime.
    #[must_use]
    pub fn start(target: Arc<dyn Target>, settings: BatchSettings, metrics: Arc<AuditMetrics>) -> Self {
        let (buffer, events) = mpsc::channel(settings.buffer_events_max.max(1));
        let (buffered_bytes, stopping) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
        let name = target.name();
        let worker = Worker {
            target,
            settings,
            events,
            buffered_bytes: Arc::clone(&buffered_bytes),
            stopping: Arc::clone(&stopping),
            metrics: Arc::clone(&metrics),
            sent_at: VecDeque::new(),
        };
        let worker = Mutex::new(Some(tokio::spawn(worker.run())));
        Batch { name, buffer, buffered_bytes, stopping, worker, metrics }
    }
}

impl Sink for Batch {
    fn name(&self) -> &'static str {
        self.name
    }

    fn send(&self, line: &Line) -> Delivery {
        let bytes = line.0.len();
        let before = self.buffered_bytes.fetch_add(bytes, Ordering::AcqRel);
        if before + bytes <= BUFFER_BYTES_MAX && self.buffer.try_send(line.clone()).is_ok() {
            return Delivery::Done;
        }
        self.buffered_bytes.fetch_sub(bytes, Ordering::AcqRel);
        Delivery::Lost("the buffer is full".to_owned())
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let Some(mut worker) = self.worker.lock().take() else { return };
            self.stopping.notify_one();
            if tokio::time::timeout(CLOSE_TIMEOUT, &mut worker).await.is_err() {
                worker.abort();
                let left = self.buffer.max_capacity() - self.buffer.capacity();
                self.metrics.lost(self.name, left.max(1) as u64, "the server stopped before they were delivered");
            }
        })
    }
}

struct Worker {
    target: Arc<dyn Target>,
    settings: BatchSettings,
    events: mpsc::Receiver<Line>,
    buffered_bytes: Arc<AtomicUsize>,
    stopping: Arc<Notify>,
    metrics: Arc<AuditMetrics>,
    /// Times of the last deliveries, for the rate.
    sent_at: VecDeque<Instant>,
}

impl Worker {
    async fn run(mut self) {
        let mut deliveries = JoinSet::new();
        let mut is_stopping = false;
        // The first event of the next batch, where it did not fit into the last one.
        let mut first: Option<Line> = None;
        loop {
            let mut batch: Vec<Line> = first.take().into_iter().collect();
            let mut bytes: usize = batch.iter().map(|line| line.0.len()).sum();
            let until = Instant::now() + self.settings.wait;
            while batch.len() < self.settings.events_max {
                let next = if is_stopping {
                    self.events.try_recv().ok()
                } else {
                    tokio::select! {
                        biased;
                        event = self.events.recv() => event,
                        () = self.stopping.notified() => {
                            is_stopping = true;
                            self.target.hurry();
                            continue;
                        }
                        () = tokio::time::sleep_until(until), if !batch.is_empty() => None,
                    }
                };
                let Some(line) = next else { break };
                if !batch.is_empty() && bytes + line.0.len() > self.settings.bytes_max {
                    first = Some(line);
                    break;
                }
                bytes += line.0.len();
                batch.push(line);
            }
            if batch.is_empty() {
                // Nothing is left, and nothing more can come: the senders are gone or the server stops.
                break;
            }
            if !is_stopping {
                self.wait_for_rate().await;
            }
            self.deliver(batch, bytes, &mut deliveries).await;
        }
        while deliveries.join_next().await.is_some() {}
        self.target.close().await;
    }

    /// Delivers a batch; with a rate, without waiting for those before.
    async fn deliver(&self, batch: Vec<Line>, bytes: usize, deliveries: &mut JoinSet<()>) {
        let (target, metrics, buffered) =
            (Arc::clone(&self.target), Arc::clone(&self.metrics), Arc::clone(&self.buffered_bytes));
        let delivery = async move {
            let events = batch.len() as u64;
            if let Err(why) = target.deliver(batch).await {
                metrics.lost(target.name(), events, &why);
            }
            buffered.fetch_sub(bytes, Ordering::AcqRel);
        };
        match self.settings.rate {
            None => delivery.await,
            Some((_, burst)) => {
                while deliveries.len() >= burst.max(1) {
                    deliveries.join_next().await;
                }
                deliveries.spawn(delivery);
            }
        }
    }

    /// Waits until one more delivery is within the rate: the last `burst` deliveries took at least their share of time.
    async fn wait_for_rate(&mut self) {
        let Some((per_second, burst)) = self.settings.rate else { return };
        if self.sent_at.len() >= burst.max(1)
            && let Some(oldest) = self.sent_at.pop_front()
        {
            let share = Duration::from_secs_f64(burst.max(1) as f64 / per_second.max(0.001));
            tokio::time::sleep_until(oldest + share).await;
        }
        self.sent_at.push_back(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Remembers the sizes of the batches it gets.
    #[derive(Default)]
    struct Batches {
        sizes: Mutex<Vec<usize>>,
        closed: AtomicUsize,
    }

    impl Target for Batches {
        fn name(&self) -> &'static str {
            "test"
        }

        fn deliver(&self, lines: Vec<Line>) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
            self.sizes.lock().push(lines.len());
            Box::pin(std::future::ready(Ok(())))
        }

        fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            self.closed.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready(()))
        }
    }

    fn line() -> Line {
        Line("{}\n".into())
    }

    #[tokio::test(start_paused = true)]
    async fn aud_39_events_are_delivered_by_number_and_by_time() {
        let target = Arc::new(Batches::default());
        let settings = BatchSettings { events_max: 3, ..BatchSettings::webhook() };
        let batch = Batch::start(Arc::clone(&target) as _, settings, Arc::default());
        for _ in 0..7 {
            assert!(matches!(batch.send(&line()), Delivery::Done));
        }
        tokio::time::sleep(Duration::from_secs(29)).await;
        assert_eq!(*target.sizes.lock(), [3, 3], "the last one waits for others");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(*target.sizes.lock(), [3, 3, 1]);
        let _ = batch.send(&line());
        batch.close().await;
        assert_eq!((target.sizes.lock().len(), target.closed.load(Ordering::Relaxed)), (4, 1), "nothing is lost");
    }

    #[tokio::test(start_paused = true)]
    async fn aud_39_deliveries_keep_to_their_rate() {
        let target = Arc::new(Batches::default());
        let settings = BatchSettings { events_max: 1, rate: Some((10.0, 5)), ..BatchSettings::webhook() };
        let batch = Batch::start(Arc::clone(&target) as _, settings, Arc::default());
        for _ in 0..100 {
            let _ = batch.send(&line());
        }
        tokio::time::sleep(Duration::from_millis(990)).await;
        let first_second = target.sizes.lock().len();
        assert!((10..=15).contains(&first_second), "ten a second and a burst of five, not {first_second}");
    }

    #[tokio::test]
    async fn aud_37_a_full_buffer_drops_and_counts() {
        let metrics = Arc::<AuditMetrics>::default();
        let settings = BatchSettings { buffer_events_max: 2, ..BatchSettings::webhook() };
        let batch = Batch::start(Arc::new(Batches::default()), settings, Arc::clone(&metrics));
        let lost = (0..5).filter(|_| matches!(batch.send(&line()), Delivery::Lost(_))).count();
        assert_eq!(lost, 3, "the worker has not run yet");
        let large = Line(vec![b' '; BUFFER_BYTES_MAX + 1].into());
        tokio::task::yield_now().await;
        assert!(matches!(batch.send(&large), Delivery::Lost(_)));
    }
}
