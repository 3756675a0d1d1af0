//! The set that a relist builds: objects that did not change are taken from the old set, so that the two together need
//! little more memory than one. In place, changed objects are sent to the target at once, so that they do not exist twice
//! either.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::machine::Decoder;
use super::{ReflectorMetrics, Target};
use crate::pager::PageSink;
use crate::queue::{Delta, Replacement, Staged};
use crate::{Key, RawObject, ResourceVersion, Stored};

pub(super) struct Staging<K: ?Sized> {
    items: BTreeMap<Key, Staged<K>>,
    decoder: Arc<Decoder<K>>,
    target: Arc<dyn Target<K>>,
    metrics: Arc<ReflectorMetrics>,
    /// Take unchanged objects from the target. Not after the history went back: one version may then be two different
    /// states.
    keep_unchanged: bool,
    /// Send changed objects to the target as they arrive.
    in_place: bool,
    /// The newest version among those.
    newest_sent: Option<ResourceVersion>,
}

impl<K: Stored + ?Sized> Staging<K> {
    pub(super) fn new(
        decoder: Arc<Decoder<K>>,
        target: Arc<dyn Target<K>>,
        metrics: Arc<ReflectorMetrics>,
        keep_unchanged: bool,
        in_place: bool,
    ) -> Self {
        Self { items: BTreeMap::new(), decoder, target, metrics, keep_unchanged, in_place, newest_sent: None }
    }

    pub(super) async fn insert(&mut self, raw: RawObject) {
        self.metrics.bytes.add(raw.body.len() as u64);
        if !self.decoder.is_expected(&raw) {
            return;
        }
        let key = raw.key.clone();
        let known = self.target.known(&key);
        if self.keep_unchanged
            && let Some(known) = &known
            && is_state(&**known, &raw)
        {
            self.metrics.kept.inc();
            self.items.insert(key, Staged::Object(known.clone()));
            return;
        }
        let goes_ahead = self.in_place && is_newer(known.as_deref(), &raw);
        drop(known);
        let version = raw.version.clone();
        match self.decoder.decode(raw) {
            Ok(Some(object)) if goes_ahead => {
                self.items.insert(key, Staged::Ahead);
                if self.newest_sent.as_ref().is_none_or(|newest| newest.is_before(&version)) {
                    self.newest_sent = Some(version);
                }
                if let Err(error) = self.target.apply(Delta::Ahead(object)).await {
                    tracing::warn!(%error, "the target refused a change");
                }
            }
            Ok(Some(object)) => {
                self.items.insert(key, Staged::Object(object));
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

    /// The newest version that was sent to the target before the set was whole.
    pub(super) fn newest_sent(&self) -> Option<&ResourceVersion> {
        self.newest_sent.as_ref()
    }

    /// The set was accepted: it is no longer ahead of anything.
    pub(super) fn forget_sent(&mut self) {
        self.newest_sent = None;
    }

    /// Returns the set.
    pub(super) fn finish(&mut self, version: ResourceVersion, history_reset: bool) -> Replacement<K> {
        Replacement { items: std::mem::take(&mut self.items), version, history_reset }
    }
}

impl<K: Stored + ?Sized> PageSink for Staging<K> {
    fn item(&mut self, item: RawObject) -> impl Future<Output = ()> + Send {
        self.insert(item)
    }
    fn restart(&mut self) {
        self.items.clear();
    }
}

/// True if the stored object is exactly the state on the wire.
pub(super) fn is_state<K: Stored + ?Sized>(known: &K, raw: &RawObject) -> bool {
    raw.version.is_comparable() && known.version() == raw.version && known.uid() == raw.uid
}

/// True if the state on the wire can only be later than the stored one.
fn is_newer<K: Stored + ?Sized>(known: Option<&K>, raw: &RawObject) -> bool {
    raw.version.is_comparable() && known.is_none_or(|known| known.version().is_before(&raw.version))
}
