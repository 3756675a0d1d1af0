//! How large each measurement is.

use crate::wire::Protocol;

/// Defaults are those of the performance budget; `quick` is for a look.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Objects that are there when lists and informers are measured.
    pub objects: u64,
    /// Gets and patches.
    pub requests: u64,
    /// Connections that send requests.
    pub callers: usize,
    /// Bytes of an object as the server gives it.
    pub size: usize,
    /// Different specs among the pods, which are sent in turns.
    pub specs: u64,
    /// Requests a second for latencies; half of what the server managed when none is said.
    pub rate: Option<f64>,
    pub lists: u64,
    pub fanouts: Vec<Fanout>,
    /// Watchers of everything but `fanout`.
    pub watchers: usize,
    /// Of `slow-watchers`: those that stop reading.
    pub slow: usize,
    /// Of `relist-storm` and `watchlist`.
    pub informers: usize,
    /// How long events are written.
    pub seconds: f64,
    pub starts: usize,
    /// Of `scale`.
    pub nodes: u32,
    pub pods: u32,
    /// Of `crds`.
    pub definitions: u64,
    pub store: StoreSizes,
}

/// One measurement of `fanout`.
#[derive(Clone, Debug, Default)]
pub struct Fanout {
    pub watchers: usize,
    /// Writes a second.
    pub rate: f64,
    /// One for each watcher when none is said.
    pub connections: Option<usize>,
    pub protocol: Protocol,
    pub label_selector: Option<String>,
    pub field_selector: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct StoreSizes {
    pub puts: usize,
    pub rounds: usize,
    pub objects: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        let fanout = |watchers, rate, protocol| Fanout { watchers, rate, protocol, ..Fanout::default() };
        Sizes {
            objects: 10_000,
            requests: 20_000,
            callers: 8,
            size: 3_500,
            specs: crate::pod::NODES,
            rate: None,
            lists: 20,
            fanouts: vec![
                fanout(1_000, 20.0, Protocol::Http1),
                fanout(1_000, 20.0, Protocol::Http2),
                Fanout { connections: Some(10), ..fanout(1_000, 20.0, Protocol::Http2) },
                Fanout { label_selector: Some("bench=load".to_owned()), ..fanout(1_000, 20.0, Protocol::Http1) },
                fanout(100, 300.0, Protocol::Http1),
            ],
            watchers: 1_000,
            slow: 50,
            informers: 50,
            seconds: 10.0,
            starts: 5,
            nodes: 100,
            pods: 1_000,
            definitions: 100,
            store: StoreSizes { puts: 40_000, rounds: 3, objects: 150_000 },
        }
    }
}

impl Sizes {
    /// Everything within five minutes on two cores.
    #[must_use]
    pub fn quick() -> Self {
        let full = Sizes::default();
        let fanouts =
            full.fanouts.iter().cloned().map(|fanout| Fanout { watchers: fanout.watchers.min(300), ..fanout });
        Sizes {
            objects: 3_000,
            requests: 6_000,
            lists: 10,
            fanouts: fanouts.collect(),
            watchers: 300,
            slow: 20,
            informers: 20,
            seconds: 4.0,
            starts: 3,
            nodes: 20,
            pods: 200,
            definitions: 30,
            store: StoreSizes { puts: 8_000, rounds: 1, objects: 20_000 },
            ..full
        }
    }
}
