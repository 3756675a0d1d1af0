//! `Queues`: the queues of a program by name, for those who look at all of them at once.
//!
//! A queue that was dropped or shut down is not listed. A task that keeps its work in a form of its own publishes figures of it.

use std::fmt::Display;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Item, QueueMetrics, Shared, WorkQueue};

/// A list of named queues. Clones are the same list.
#[derive(Clone, Default)]
pub struct Queues(Arc<Mutex<Vec<Named>>>);

struct Named {
    name: Arc<str>,
    queue: Weak<dyn Listed>,
}

/// A queue that can be looked at without its type.
trait Listed: Send + Sync {
    /// The figures now, with so many keys at most. None after the shut-down.
    fn figures(&self, keys_max: usize) -> Option<Figures>;
}

/// What a queue has to do at one moment.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Number of keys in line.
    pub queued: usize,
    /// Number of keys whose delay has not passed.
    pub delayed: usize,
    /// Number of keys in work.
    pub working: usize,
    /// The end of the next delay.
    pub next_due: Option<Instant>,
    /// The time that all unfinished work has taken so far.
    pub unfinished: Duration,
    /// The time that the oldest unfinished work has taken so far.
    pub longest_running: Duration,
    /// Some of the keys: those in work first, then those in line, then delayed ones by their time.
    pub keys: Vec<(String, KeyState)>,
    /// The counters; none of a task that only publishes figures.
    pub metrics: Option<Arc<QueueMetrics>>,
}

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// A worker has it.
    Working,
    /// It is in line.
    Queued,
    /// It comes in line at this moment.
    Delayed(Instant),
}

impl Queues {
    /// Lists a queue under a name, until it is dropped.
    pub fn add<T: Item + Display>(&self, name: &str, queue: &WorkQueue<T>) {
        let queue = Arc::downgrade(&queue.shared);
        self.list(name, queue);
    }

    /// Lists the work of a task that publishes its figures, until the task drops the result.
    #[must_use]
    pub fn publish(&self, name: &str) -> Arc<PublishedFigures> {
        let published = Arc::new(PublishedFigures::default());
        self.list(name, Arc::downgrade(&published) as _);
        published
    }

    fn list(&self, name: &str, queue: Weak<dyn Listed>) {
        let mut listed = self.0.lock();
        listed.retain(|named| named.queue.strong_count() > 0);
        listed.push(Named { name: name.into(), queue });
    }

    /// The figures of all queues in the order of their names, with so many keys of each at most.
    #[must_use]
    pub fn figures(&self, keys_max: usize) -> Vec<(Arc<str>, Figures)> {
        let listed: Vec<(Arc<str>, Arc<dyn Listed>)> =
            self.0.lock().iter().filter_map(|named| Some((named.name.clone(), named.queue.upgrade()?))).collect();
        let figures = listed.into_iter().filter_map(|(name, queue)| Some((name, queue.figures(keys_max)?)));
        let mut figures: Vec<(Arc<str>, Figures)> = figures.collect();
        figures.sort_by(|a, b| a.0.cmp(&b.0));
        figures
    }
}

impl std::fmt::Debug for Queues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.lock().iter().map(|named| &named.name)).finish()
    }
}

impl<T: Item + Display> Listed for Shared<T> {
    fn figures(&self, keys_max: usize) -> Option<Figures> {
        let now = self.clock.instant();
        let mut state = self.state.lock();
        if state.is_shut_down() {
            return None;
        }
        self.metrics.adds.add(state.promote_due(now) as u64);
        let (unfinished, longest_running) = state.running_times(now);
        let keys = state.keys().take(keys_max).map(|(item, state)| (item.to_string(), state)).collect();
        Some(Figures {
            queued: state.depth(),
            delayed: state.delayed(),
            working: state.processing(),
            next_due: state.next_due(),
            unfinished,
            longest_running,
            keys,
            metrics: Some(self.metrics.clone()),
        })
    }
}

/// The figures that a task published last.
#[derive(Debug, Default)]
pub struct PublishedFigures(Mutex<Figures>);

impl PublishedFigures {
    /// Replaces the figures.
    pub fn set(&self, figures: Figures) {
        *self.0.lock() = figures;
    }
}

impl Listed for PublishedFigures {
    fn figures(&self, keys_max: usize) -> Option<Figures> {
        let mut figures = self.0.lock().clone();
        figures.keys.truncate(keys_max);
        Some(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn set_1_every_listed_queue_tells_what_it_has_to_do() {
        let queues = Queues::default();
        let (web, other) = (WorkQueue::new(), WorkQueue::new());
        queues.add("web", &web);
        queues.add("other", &other);
        other.add("x".to_owned());
        web.add("working".to_owned());
        let work = web.get().await.unwrap();
        web.add("queued".to_owned());
        web.add("working".to_owned());
        web.add_after("later".to_owned(), Duration::from_secs(5));
        tokio::time::advance(Duration::from_secs(1)).await;
        let figures = queues.figures(3);
        let names: Vec<&str> = figures.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["other", "web"]);
        let web_figures = &figures[1].1;
        assert_eq!((web_figures.working, web_figures.queued, web_figures.delayed), (1, 1, 1));
        assert_eq!(web_figures.unfinished, Duration::from_secs(1));
        let due = web_figures.next_due.unwrap();
        assert_eq!(due - Instant::now(), Duration::from_secs(4));
        let expected = [
            ("working".to_owned(), KeyState::Working),
            ("queued".to_owned(), KeyState::Queued),
            ("later".to_owned(), KeyState::Delayed(due)),
        ];
        assert_eq!(web_figures.keys, expected);
        drop(work);
        other.shut_down();
        assert_eq!(queues.figures(0).len(), 1, "a queue that is shut down is not listed");
        drop((web, other));
        assert!(queues.figures(0).is_empty());
    }

    #[test]
    fn published_figures_are_listed_while_their_task_lives() {
        let queues = Queues::default();
        let published = queues.publish("nodes");
        published.set(Figures { working: 3, ..Figures::default() });
        assert_eq!(queues.figures(1)[0].1.working, 3);
        drop(published);
        assert!(queues.figures(1).is_empty());
    }
}
