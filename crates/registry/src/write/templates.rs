//! Specs of pods that were sent before, and what was computed from them.
//!
//! The pods of a replica set, a job or a load test are sent with the same spec, letter for letter. What follows from a spec
//! without the pod around it is computed when the text is sent a second time, and found again afterwards:
//!
//! ```text
//! text of a spec ──► in the form of the wire, with defaults; what its creator owns of it   (a `Template`)
//!                ──► admitted as last time? then valid, without warnings, and this text     (a `Settled`)
//! ```
//!
//! Admission looks at other objects and always runs; only if it leaves the spec as it did before is the rest skipped. No
//! decision depends on a hash alone: texts are compared.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::{Arc, OnceLock};

use foldhash::quality::RandomState;
use machinery::json::{Map, Value};
use machinery::scan;
use parking_lot::Mutex;
use schema::decode::KnownMember;
use schema::facts::Type;
use schema::managed::Known;

/// The member of a pod that is remembered.
const MEMBER: &str = "spec";

/// Larger specs are not remembered; smaller ones cost little to compute.
const TEXT_MAX: usize = 16 * 1024;
const TEXT_MIN: usize = 64;

/// Bytes of text that are remembered before the older half is dropped. A template takes about ten times its text.
const TEXT_BYTES_MAX: usize = 256 * 1024;

/// Texts seen once that are distinguished from new ones.
const SEEN_ONCE_SLOTS: usize = 1024;

/// The specs that are remembered.
pub(crate) struct Templates {
    hasher: RandomState,
    memory: Mutex<Memory>,
}

struct Memory {
    /// Hashes of texts seen once, by their last bits: most texts are sent once, and this is all that is kept of them.
    seen_once: Box<[u64]>,
    /// By the hash of their text. Old ones that are used become young again; the others are dropped when the young are full.
    young: HashMap<u64, Arc<Template>>,
    old: HashMap<u64, Arc<Template>>,
    /// Bytes of text among the young.
    young_bytes: usize,
}

/// A spec that was sent more than once.
pub(crate) struct Template {
    text: Box<[u8]>,
    /// `{"spec": …}` in the form of the wire, with its defaults.
    wire: Value,
    /// What a creator owns of the spec, as `fieldsV1` has it.
    owned: Box<str>,
    settled: OnceLock<Settled>,
}

/// A spec in a pod that was stored.
struct Settled {
    /// As admission left it.
    admitted: Value,
    /// As it was stored, with its text.
    stored: Value,
}

/// What is remembered of the spec in a body.
pub(crate) enum Recalled {
    /// It is new, or not worth remembering.
    Nothing,
    /// The text was seen once and is worth remembering now.
    SeenTwice {
        text: Box<[u8]>,
        hash: u64,
    },
    Template(Arc<Template>),
}

impl Default for Templates {
    fn default() -> Self {
        let memory = Memory {
            seen_once: [0; SEEN_ONCE_SLOTS].into(),
            young: HashMap::new(),
            old: HashMap::new(),
            young_bytes: 0,
        };
        Templates { hasher: RandomState::default(), memory: Mutex::new(memory) }
    }
}

impl Templates {
    /// Looks up the spec of a body; also returns its range in the body.
    pub(crate) fn recall(&self, body: &[u8]) -> (Recalled, std::ops::Range<usize>) {
        let Some(range) = scan::member_range(body, MEMBER).filter(|range| (TEXT_MIN..=TEXT_MAX).contains(&range.len()))
        else {
            return (Recalled::Nothing, 0..0);
        };
        let text = &body[range.clone()];
        let hash = self.hasher.hash_one(text);
        let mut memory = self.memory.lock();
        let recalled = match memory.find(hash) {
            Some(template) if *template.text == *text => Recalled::Template(template),
            Some(_) => Recalled::Nothing,
            None if memory.mark_seen(hash) => Recalled::SeenTwice { text: text.into(), hash },
            None => Recalled::Nothing,
        };
        (recalled, range)
    }

    /// Remembers a spec that was sent twice. `pod` has its defaults and its managed fields.
    pub(crate) fn remember(&self, text: Box<[u8]>, hash: u64, ty: &Type, pod: &Value) {
        let Some(template) = Template::new(text, ty, pod) else { return };
        self.memory.lock().keep(hash, Arc::new(template));
    }
}

impl Memory {
    fn find(&mut self, hash: u64) -> Option<Arc<Template>> {
        if let Some(template) = self.young.get(&hash) {
            return Some(Arc::clone(template));
        }
        let template = self.old.remove(&hash)?;
        self.keep(hash, Arc::clone(&template));
        Some(template)
    }

    fn keep(&mut self, hash: u64, template: Arc<Template>) {
        if self.young_bytes + template.text.len() > TEXT_BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += template.text.len();
        if let Some(before) = self.young.insert(hash, template) {
            self.young_bytes -= before.text.len();
        }
    }

    /// Notes the hash of a text; true if it was noted before.
    fn mark_seen(&mut self, hash: u64) -> bool {
        let slot = &mut self.seen_once[hash as usize % SEEN_ONCE_SLOTS];
        std::mem::replace(slot, hash) == hash
    }
}

impl Template {
    fn new(text: Box<[u8]>, ty: &Type, pod: &Value) -> Option<Self> {
        let [manager] = pod["metadata"]["managedFields"].as_array()?.as_slice() else { return None };
        let Value::Raw(fields) = &manager["fieldsV1"] else { return None };
        let owned = scan::member_range(fields.as_bytes(), "f:spec").map(|range| &fields[range])?.into();
        let mut wire = Value::Object([(MEMBER, pod[MEMBER].clone())].into_iter().collect::<Map>());
        schema::decode::normalise(ty, &mut wire, None).ok()?;
        wire.as_object_mut()?.retain(|name, _| name == MEMBER);
        Some(Template { text, wire, owned, settled: OnceLock::new() })
    }

    /// The spec as a known member of a body, at this range.
    pub(crate) fn in_body(&self, range: std::ops::Range<usize>) -> KnownMember<'_> {
        KnownMember { name: MEMBER, from: range.start, to: range.end, of: &self.wire }
    }

    /// The spec as a member whose owner is known.
    pub(crate) fn owned(&self) -> Known<'_> {
        Known { member: MEMBER, of: &self.wire, fields: &self.owned }
    }

    /// An object with the spec as it is before admission.
    pub(crate) fn wire(&self) -> &Value {
        &self.wire
    }

    /// If admission left the spec of a pod as it did before, replaces it by the form that was stored: valid, and without
    /// warnings.
    pub(crate) fn put_settled(&self, pod: &mut Value) -> bool {
        let Some(settled) = self.settled.get().filter(|settled| pod.get(MEMBER) == Some(&settled.admitted)) else {
            return false;
        };
        pod[MEMBER] = settled.stored.clone();
        true
    }

    /// The spec as admission left it, if none is settled yet.
    pub(crate) fn unsettled(&self, pod: &Value) -> Option<Value> {
        self.settled.get().is_none().then(|| pod[MEMBER].clone())
    }

    /// Remembers the stored form of a valid spec without warnings. Only the first is kept: where admission adds something else
    /// to each pod, another would not be found again either.
    pub(crate) fn settle(&self, admitted: Value, pod: &Value) {
        if schema::validation::spec_stands_alone(&admitted) {
            let stored = pod[MEMBER].clone().keeping_text();
            let _ = self.settled.set(Settled { admitted, stored });
        }
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    fn body(spec: usize) -> Vec<u8> {
        json!({"kind": "Pod", "spec": {"nodeName": format!("{spec:0>100}")}}).to_string().into_bytes()
    }

    fn template(text: &[u8]) -> Arc<Template> {
        let (text, settled) = (text.into(), OnceLock::new());
        Arc::new(Template { text, wire: json!({"spec": {}}), owned: "{}".into(), settled })
    }

    fn remember(templates: &Templates, body: &[u8]) {
        if let (Recalled::SeenTwice { text, hash }, _) = templates.recall(body) {
            templates.memory.lock().keep(hash, template(&text));
        }
    }

    fn is_known(templates: &Templates, body: &[u8]) -> bool {
        matches!(templates.recall(body).0, Recalled::Template(_))
    }

    #[test]
    fn a_spec_is_known_from_the_third_time_on() {
        let templates = Templates::default();
        let (recalled, range) = templates.recall(&body(1));
        assert!(matches!(recalled, Recalled::Nothing));
        assert!(body(1)[range].starts_with(br#"{"nodeName""#));
        remember(&templates, &body(1));
        assert!(is_known(&templates, &body(1)));
        assert!(!is_known(&templates, &body(2)));
    }

    #[test]
    fn unused_templates_are_dropped_when_there_are_too_many() {
        let templates = Templates::default();
        let learn = |number: usize| {
            remember(&templates, &body(number));
            remember(&templates, &body(number));
        };
        for number in 0..20_000 {
            learn(number);
            if number % 100 == 0 {
                learn(1_000_000);
                assert!(is_known(&templates, &body(1_000_000)), "after {number} others");
            }
        }
        assert!(is_known(&templates, &body(19_999)));
        assert!(!is_known(&templates, &body(1)));
        let memory = templates.memory.lock();
        let held = memory.young.values().chain(memory.old.values()).map(|template| template.text.len()).sum::<usize>();
        assert!(held <= 2 * TEXT_BYTES_MAX, "{held}");
    }

    #[test]
    fn bodies_without_a_spec_worth_remembering_are_new_every_time() {
        let templates = Templates::default();
        let large = json!({"spec": {"nodeName": "n".repeat(TEXT_MAX)}}).to_string();
        let twice = format!(r#"{{"spec":{0},"spec":{0}}}"#, json!({"nodeName": "n".repeat(100)}));
        for body in ["", "{}", "[1]", r#"{"spec":{}}"#, &large, &twice, r#"{"spec":{"nodeName":"#] {
            for _ in 0..3 {
                assert!(matches!(templates.recall(body.as_bytes()), (Recalled::Nothing, _)), "{body:.40}");
            }
        }
    }
}
