//! What a writer of this process knows of an object before the cache sees it.
//!
//! The cache reads labels and selectable fields out of the text that comes down the log. Whoever made that text had the
//! object in hand, where they are found without reading anything; it says so before the write, and the feed takes that if
//! the very same bytes arrive. From a store that sends copies (etcd) they never do, and the text is read as always.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use machinery::json::Value;
use machinery::peek::{Peeked, peek_value};
use parking_lot::Mutex;

use crate::item::Item;
use crate::spec::Spec;

/// Objects on their way to the store, by where their bytes are.
#[derive(Debug, Default)]
pub(crate) struct Foretold(Mutex<HashMap<usize, Known>>);

#[derive(Debug)]
struct Known {
    /// Held, so that no other bytes can come to stand in the same place.
    stored: Bytes,
    spec: Arc<Spec>,
    peeked: Peeked,
}

/// A write under way. What was said of it is forgotten when it is over.
#[derive(Debug)]
pub struct Foretelling {
    all: Arc<Foretold>,
    at: Option<usize>,
}

impl Foretold {
    /// `stored` is about to be written and is the text of `object`. It follows `before`: a value, and what the cache holds
    /// of it with the same selectable fields.
    pub(crate) fn tell(
        self: &Arc<Self>,
        stored: &Bytes,
        object: &Value,
        before: Option<(&Value, &Item)>,
        spec: Arc<Spec>,
    ) -> Foretelling {
        let peeked = match before {
            None => peek_value(object, spec.paths(), |_| true),
            Some((before, item)) => {
                // Labels are not among the fields.
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
        let at = peeked.map(|peeked| {
            let at = stored.as_ptr() as usize;
            self.0.lock().insert(at, Known { stored: stored.clone(), spec, peeked });
            at
        });
        Foretelling { all: Arc::clone(self), at }
    }

    /// What is known of these bytes, if they are the ones that were told of and can still be selected on in the same way.
    pub(crate) fn of(&self, stored: &Bytes, spec: &Arc<Spec>) -> Option<Peeked> {
        let known = self.0.lock().remove(&(stored.as_ptr() as usize))?;
        (known.stored.len() == stored.len() && Arc::ptr_eq(&known.spec, spec)).then_some(known.peeked)
    }
}

impl Drop for Foretelling {
    fn drop(&mut self) {
        if let Some(at) = self.at {
            self.all.0.lock().remove(&at);
        }
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;
    use crate::spec::FieldSpec;

    #[test]
    fn only_the_very_same_bytes_are_known_and_only_for_as_long_as_they_are_written() {
        let all = Arc::new(Foretold::default());
        let spec = Arc::new(Spec::default());
        let object = json!({"metadata": {"labels": {"a": "1"}}});
        let stored = Bytes::from(object.to_string());
        let copy = Bytes::copy_from_slice(&stored);
        let telling = all.tell(&stored, &object, None, Arc::clone(&spec));
        assert!(all.of(&copy, &spec).is_none());
        let known = all.of(&stored, &spec).expect("it was told");
        assert_eq!(known.labels, [("a".into(), "1".into())]);
        assert!(all.of(&stored, &spec).is_none(), "taken once");
        drop(telling);

        let telling = all.tell(&stored, &object, None, Arc::clone(&spec));
        assert!(all.of(&stored, &Arc::new(Spec::default())).is_none(), "other fields can be selected on now");
        drop(telling);
        drop(all.tell(&stored, &object, None, Arc::clone(&spec)));
        assert!(all.of(&stored, &spec).is_none(), "the write is over");
    }

    #[test]
    fn what_is_the_same_as_before_is_taken_from_there() {
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
        let all = Arc::new(Foretold::default());
        for change in changes {
            let mut now = before.clone();
            change(&mut now);
            let stored = Bytes::from(now.to_string());
            let _telling = all.tell(&stored, &now, Some((&before, &item)), Arc::clone(&spec));
            let known = all.of(&stored, &spec).expect("it was told");
            let read = machinery::peek::peek(&stored, spec.paths()).unwrap();
            assert_eq!((known.labels, spec.values(known.values)), (read.labels, spec.values(read.values)), "{now}");
        }
    }
}
