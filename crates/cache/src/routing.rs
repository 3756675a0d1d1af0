//! The routing table: finds the watchers that a change may concern without testing the others.
//!
//! Each watcher is in exactly one bucket, by its most selective equality: a name, a field (`spec.nodeName=x`), a label
//! (`app=x`), a namespace, or none. A change visits the buckets of the values of its old and new object; a thousand
//! watchers of other nodes cost it nothing.

use std::collections::HashMap;
use std::sync::Arc;

use crate::event::Event;
use crate::filter::Filter;
use crate::item::Item;
use crate::watcher::Mailbox;

type Bucket = Vec<Arc<Mailbox>>;

/// The watchers of one collection.
#[derive(Debug, Default)]
pub struct Routes {
    everything: Bucket,
    by_namespace: HashMap<Box<str>, Bucket>,
    by_name: HashMap<Box<str>, Bucket>,
    by_label: HashMap<Box<str>, HashMap<Box<str>, Bucket>>,
    /// Indexed by the field's slot.
    by_field: Vec<HashMap<Box<str>, Bucket>>,
    count: usize,
}

impl Routes {
    pub(crate) fn insert(&mut self, mailbox: Arc<Mailbox>) {
        self.count += 1;
        self.bucket(mailbox.filter()).push(Arc::clone(&mailbox));
    }

    pub(crate) fn remove(&mut self, mailbox: &Arc<Mailbox>) {
        let bucket = self.bucket(mailbox.filter());
        let Some(at) = bucket.iter().position(|other| Arc::ptr_eq(other, mailbox)) else { return };
        bucket.swap_remove(at);
        let empty = bucket.is_empty();
        self.count -= 1;
        if empty {
            self.drop_bucket(mailbox.filter());
        }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Removes and returns every watcher.
    pub(crate) fn drain(&mut self) -> Vec<Arc<Mailbox>> {
        let routes = std::mem::take(self);
        let labels = routes.by_label.into_values().flat_map(HashMap::into_values);
        let fields = routes.by_field.into_iter().flat_map(HashMap::into_values);
        let named = routes.by_name.into_values().chain(routes.by_namespace.into_values());
        std::iter::once(routes.everything).chain(named).chain(labels).chain(fields).flatten().collect()
    }

    /// Calls `each` once for every watcher that the event may concern.
    pub(crate) fn candidates(&self, event: &Event, mut each: impl FnMut(&Arc<Mailbox>)) {
        if self.count == 0 {
            return;
        }
        let (new, old) = (event.current(), event.previous());
        let Some(any) = new.or(old) else { return };
        let mut visit = |bucket: Option<&Bucket>| bucket.into_iter().flatten().for_each(&mut each);
        visit(Some(&self.everything));
        if !self.by_namespace.is_empty() {
            visit(self.by_namespace.get(any.namespace()));
        }
        if !self.by_name.is_empty() {
            visit(self.by_name.get(any.name()));
        }
        for (slot, buckets) in self.by_field.iter().enumerate().filter(|(_, buckets)| !buckets.is_empty()) {
            let value = |item: &Arc<Item>| item.fields().get(slot).cloned();
            let (new, old) = (new.and_then(value), old.and_then(value));
            visit(new.as_ref().and_then(|value| buckets.get(value)));
            if old != new {
                visit(old.as_ref().and_then(|value| buckets.get(value)));
            }
        }
        if !self.by_label.is_empty() {
            for (key, value) in new.into_iter().flat_map(|item| item.labels()) {
                visit(self.by_label.get(key).and_then(|values| values.get(value)));
            }
            for (key, value) in old.into_iter().flat_map(|item| item.labels()) {
                if new.and_then(|item| item.label(key)) != Some(value) {
                    visit(self.by_label.get(key).and_then(|values| values.get(value)));
                }
            }
        }
    }

    fn bucket(&mut self, filter: &Filter) -> &mut Bucket {
        if let Some(name) = filter.name() {
            self.by_name.entry(name.into()).or_default()
        } else if let Some((slot, value)) = filter.equal_field() {
            if self.by_field.len() <= slot {
                self.by_field.resize_with(slot + 1, HashMap::new);
            }
            self.by_field[slot].entry(value.into()).or_default()
        } else if let Some((key, value)) = filter.equal_label() {
            self.by_label.entry(key.into()).or_default().entry(value.into()).or_default()
        } else if let Some(namespace) = filter.namespace() {
            self.by_namespace.entry(namespace.into()).or_default()
        } else {
            &mut self.everything
        }
    }

    /// Removes an empty bucket, so that past names take no memory.
    fn drop_bucket(&mut self, filter: &Filter) {
        if let Some(name) = filter.name() {
            self.by_name.remove(name);
        } else if let Some((slot, value)) = filter.equal_field() {
            self.by_field[slot].remove(value);
        } else if let Some((key, value)) = filter.equal_label() {
            if let Some(values) = self.by_label.get_mut(key) {
                values.remove(value);
                if values.is_empty() {
                    self.by_label.remove(key);
                }
            }
        } else if let Some(namespace) = filter.namespace() {
            self.by_namespace.remove(namespace);
        }
    }
}
