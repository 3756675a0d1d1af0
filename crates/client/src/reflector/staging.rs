//! The set that a relist builds: objects that did not change are taken from the old set, so that the two together
//! cost little more than one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::machine::Decoder;
use super::{ReflectorMetrics, Target};
use crate::pager::PageSink;
use crate::queue::{Replacement, Staged};
use crate::{Key, Object, RawObject, ResourceVersion};

pub(super) struct Staging<'a, K> {
    items: BTreeMap<Key, Staged<K>>,
    decoder: &'a Decoder<K>,
    target: &'a dyn Target<K>,
    metrics: &'a ReflectorMetrics,
    /// Take unchanged objects from the target. Not after the history went back: a version may then stand for two
    /// different states.
    keep_unchanged: bool,
}

impl<'a, K: Object> Staging<'a, K> {
    pub(super) fn new(
        decoder: &'a Decoder<K>,
        target: &'a dyn Target<K>,
        metrics: &'a ReflectorMetrics,
        keep_unchanged: bool,
    ) -> Self {
        Self { items: BTreeMap::new(), decoder, target, metrics, keep_unchanged }
    }

    pub(super) fn insert(&mut self, raw: RawObject) {
        self.metrics.bytes.add(raw.body.len() as u64);
        if !self.decoder.is_expected(&raw) {
            return;
        }
        let key = raw.key.clone();
        if self.keep_unchanged
            && let Some(known) = self.target.known(&key)
            && is_state(&*known, &raw)
        {
            self.metrics.kept.inc();
            self.items.insert(key, Staged::Object(known));
            return;
        }
        match self.decoder.decode(raw) {
            Ok(Some(object)) => {
                self.items.insert(key, Staged::Object(Arc::new(object)));
            }
            Ok(None) => {
                self.items.remove(&key);
            }
            Err(undecodable) => {
                self.items.insert(key, Staged::Undecodable(undecodable));
            }
        }
    }

    pub(super) fn remove(&mut self, raw: &RawObject) {
        self.items.remove(&raw.key);
    }

    pub(super) fn finish(self, version: ResourceVersion, history_reset: bool) -> Replacement<K> {
        Replacement { items: self.items, version, history_reset }
    }
}

impl<K: Object> PageSink for Staging<'_, K> {
    fn item(&mut self, item: RawObject) {
        self.insert(item);
    }
    fn restart(&mut self) {
        self.items.clear();
    }
}

/// True if the stored object is exactly the state on the wire.
pub(super) fn is_state<K: Object>(known: &K, raw: &RawObject) -> bool {
    raw.version.is_comparable() && known.state_version() == raw.version && known.incarnation() == raw.uid
}
