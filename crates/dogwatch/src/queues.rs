//! The work queues of the controllers, as the server shows them to those who wait until all work is done.

use std::time::Duration;

use clock::WorldClock;
use controllers::KeyState;
use server::queues::{BusyKey, BusyQueue};

/// Keys of a queue that are named.
const KEYS_MAX: usize = 10;

pub(crate) struct ControllerQueues {
    pub(crate) queues: controllers::Queues,
    /// The time by which delays end.
    pub(crate) clock: WorldClock,
}

impl server::queues::Queues for ControllerQueues {
    fn busy(&self, within: Duration) -> Vec<BusyQueue> {
        let due_in = |moment| self.clock.wait_for(moment).filter(|wait| *wait <= within);
        let mut busy = Vec::new();
        for (name, figures) in self.queues.figures(KEYS_MAX) {
            if figures.queued == 0 && figures.working == 0 && figures.next_due.and_then(due_in).is_none() {
                continue;
            }
            let shown = |(key, state): (String, KeyState)| match state {
                KeyState::Working => Some(BusyKey { key, state: "working", due_in: None }),
                KeyState::Queued => Some(BusyKey { key, state: "queued", due_in: None }),
                KeyState::Delayed(moment) => {
                    let due_in = due_in(moment)?;
                    Some(BusyKey { key, state: "delayed", due_in: Some(due_in) })
                }
            };
            let keys = figures.keys.into_iter().filter_map(shown).collect();
            let (queued, working) = (figures.queued, figures.working);
            busy.push(BusyQueue { controller: name.to_string(), queued, working, keys });
        }
        busy
    }
}
