//! Labels and fields of objects that this process is about to write.
//!
//! The cache parses labels and selectable fields out of the bytes that the log delivers. The writer of those bytes has the
//! parsed object and can extract them without parsing. It registers them before the write, and the feed uses them if the
//! very same bytes arrive. A store that delivers copies (etcd) never does that, and the bytes are parsed as usual.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use machinery::json::Value;
use machinery::peek::{Peeked, peek_value};
use parking_lot::Mutex;

use crate::item::Item;
use crate::spec::Spec;

/// The writes in progress, by the address of their bytes.
#[derive(Debug, Default)]
pub(crate) struct PendingWrites(Mutex<HashMap<usize, Known>>);

/// Labels and fields of one object.
#[derive(Debug)]
struct Known {
    /// Held so that the address is not reused while the write is registered.
    stored: Bytes,
    spec: Arc<Spec>,
    peeked: Peeked,
}

/// A registered write. Dropping it removes the registration.
#[derive(Debug)]
pub struct PendingWrite {
    all: Arc<PendingWrites>,
    address: Option<usize>,
}

impl PendingWrites {
    /// Registers `stored`, the encoding of `object`, as about to be written. `before` is the previous value with its item in
    /// the cache, whose fields are reused where they cannot have changed.
    pub(crate) fn register(
        self: &Arc<Self>,
        stored: &Bytes,
        object: &Value,
        before: Option<(&Value, &Item)>,
        spec: Arc<Spec>,
    ) -> PendingWrite {
        let peeked = match before {
            None => peek_value(object, spec.paths(), |_| true),
            Some((before, item)) => {
                // Not `metadata`: its labels are not among the fields.
                let is_same = |name: &str| match (object.get(name), before.get(name)) {
                    (Some(now), Some(before)) => name != "metadata" && now.is_same(before),
                    _ => false,
                };
                let kept = spec.fields_within(is_same);
                peek_value(object, spec.paths(), |name| !kept.members.contains(&name)).map(|mut peeked| {
                    for (slot, field) in kept.fields {
                        peeked.values[slot] = item.fields().get(field).cloned();
                    }
                    peeked
                })
            }
        };
        let address = peeked.map(|peeked| {
            let address = stored.as_ptr() as usize;
            self.0.lock().insert(address, Known { stored: stored.clone(), spec, peeked });
            address
        });
        PendingWrite { all: Arc::clone(self), address }
    }

    /// Takes the labels and fields of these bytes, if they are registered and `spec` has not changed since.
    pub(crate) fn take(&self, stored: &Bytes, spec: &Arc<Spec>) -> Option<Peeked> {
        let known = self.0.lock().remove(&(stored.as_ptr() as usize))?;
        (known.stored.len() == stored.len() && Arc::ptr_eq(&known.spec, spec)).then_some(known.peeked)
    }
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        if let Some(address) = self.address {
            self.all.0.lock().remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;
    use crate::spec::FieldSpec;

    #[test]
    fn only_the_very_same_bytes_are_found_and_only_while_they_are_written() {
        let all = Arc::new(PendingWrites::default());
        let spec = Arc::new(Spec::default());
        let object = json!({"metadata": {"labels": {"a": "1"}}});
        let stored = Bytes::from(object.to_string());
        let copy = Bytes::copy_from_slice(&stored);
        let pending = all.register(&stored, &object, None, Arc::clone(&spec));
        assert!(all.take(&copy, &spec).is_none());
        let known = all.take(&stored, &spec).expect("it is registered");
        assert_eq!(known.labels, [("a".into(), "1".into())]);
        assert!(all.take(&stored, &spec).is_none(), "taken once");
        drop(pending);

        let pending = all.register(&stored, &object, None, Arc::clone(&spec));
        assert!(all.take(&stored, &Arc::new(Spec::default())).is_none(), "other fields can be selected on now");
        drop(pending);
        drop(all.register(&stored, &object, None, Arc::clone(&spec)));
        assert!(all.take(&stored, &spec).is_none(), "the write is over");
    }

    #[test]
    fn unchanged_fields_are_taken_from_the_item_of_before() {
        let field = |label: &str, paths: &[&str], absent: &str| FieldSpec {
            label: label.to_owned(),
            paths: paths.iter().map(|path| path.split('.').map(str::to_owned).collect()).collect(),
            absent: absent.to_owned(),
        };
        let fields = vec![
            field("node", &["spec.node"], ""),
            field("policy", &["spec.policy"], "Always"),
            field("either", &["spec.either", "status.either"], "none"),
            field("phase", &["status.phase"], ""),
        ];
        let spec = Arc::new(Spec::new(fields));
        let before = json!({"kind": "K", "apiVersion": "v1", "metadata": {"name": "a", "labels": {"a": "1"}},
            "spec": {"node": "n1", "other": 1}, "status": {"phase": "Pending"}});
        let text = before.to_string();
        let key = store::Key::new("pods/default/a").unwrap();
        let item = Item::new(key, machinery::Revision(1), text.as_bytes(), &spec).unwrap();
        let changes: [fn(&mut Value); 5] = [
            |object| object["metadata"]["labels"]["a"] = json!("2"),
            |object| object["spec"]["node"] = json!("n2"),
            |object| object["status"]["phase"] = json!("Running"),
            |object| object["status"]["either"] = json!("status"),
            |object| object["spec"] = json!(null),
        ];
        let all = Arc::new(PendingWrites::default());
        for change in changes {
            let mut now = before.clone();
            change(&mut now);
            let stored = Bytes::from(now.to_string());
            let _pending = all.register(&stored, &now, Some((&before, &item)), Arc::clone(&spec));
            let known = all.take(&stored, &spec).expect("it is registered");
            let read = machinery::peek::peek(&stored, spec.paths()).unwrap();
            assert_eq!((known.labels, spec.values(known.values)), (read.labels, spec.values(read.values)), "{now}");
        }
    }
}
