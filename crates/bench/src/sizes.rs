//! The sizes of measurements.

use crate::wire::Protocol;

/// The defaults are those of the performance budget; `quick` is for a short check.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Number of objects during measurements of lists and informers.
    pub objects: u64,
    /// Number of gets and patches.
    pub requests: u64,
    /// Number of connections that send requests.
    pub callers: usize,
    /// Bytes of an object as the server sends it.
    pub size: usize,
    /// Number of different specs among the pods, sent in turn.
    pub specs: u64,
    /// Requests per second for latencies; `None`: half of the measured throughput.
    pub rate: Option<f64>,
    pub lists: u64,
    pub fanouts: Vec<Fanout>,
    /// Number of watchers, except in `fanout`.
    pub watchers: usize,
    /// Number of watchers that stop reading, in `slow-watchers`.
    pub slow: usize,
    /// Number of informers in `relist-storm` and `watchlist`.
    pub informers: usize,
    /// Duration of the writes.
    pub seconds: f64,
    pub starts: usize,
    /// Number of nodes and pods in `scale`.
    pub nodes: u32,
    pub pods: u32,
    /// Number of definitions in `crds`.
    pub definitions: u64,
    /// Number of worlds of each kind in `worlds`.
    pub worlds: u64,
    pub store: StoreSizes,
}

/// One measurement of `fanout`.
#[derive(Clone, Debug, Default)]
pub struct Fanout {
    pub watchers: usize,
    /// Writes per second.
    pub rate: f64,
    /// `None`: one for each watcher.
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
            worlds: 200,
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
            worlds: 50,
            store: StoreSizes { puts: 8_000, rounds: 1, objects: 20_000 },
            ..full
        }
    }
}
