//! Specs of pods that were sent before, and what became of them.
//!
//! Pods come in crowds: those of a replica set, a job or a load test are sent with the same spec, letter for letter. What can
//! be said of a spec without the pod around it is worked out when the text comes a second time, and found again afterwards:
//!
//! ```text
//! text of a spec ──► in the form of the wire, with defaults; what its maker owns of it     (a `Template`)
//!                ──► admitted as last time? then valid, without warnings, and this text     (a `Settled`)
//! ```
//!
//! Admission looks at other objects and always runs; only if it leaves the spec as it did before is the rest spared. Nothing
//! here is ever decided by a hash: texts are compared.

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

/// The part of a pod that is remembered.
const MEMBER: &str = "spec";

/// Larger specs are not remembered, smaller ones cost little to work out.
const TEXT_MAX: usize = 16 * 1024;
const TEXT_MIN: usize = 64;

/// How much text is remembered before the older half is forgotten. With what was made of it a template takes about ten
/// times its text.
const ROOM: usize = 256 * 1024;

/// How many texts that came once are told from new ones.
const ONCE: usize = 1024;

/// All that is remembered.
pub(crate) struct Templates {
    hasher: RandomState,
    memory: Mutex<Memory>,
}

struct Memory {
    /// Hashes of texts, by their last bits: most texts come once, and that is all that is kept of them.
    once: Box<[u64]>,
    /// By the hash of their text. Those that are used while they are old become young again; the others go when there is no
    /// room.
    young: HashMap<u64, Arc<Template>>,
    old: HashMap<u64, Arc<Template>>,
    /// Bytes of text among the young.
    held: usize,
}

/// A spec that came more than once.
pub(crate) struct Template {
    text: Box<[u8]>,
    /// `{"spec": …}` in the form of the wire, with its defaults.
    wire: Value,
    /// What a maker owns of the spec, as it stands in `fieldsV1`.
    owned: Box<str>,
    settled: OnceLock<Settled>,
}

/// What became of a spec in a pod that was stored.
struct Settled {
    /// As admission left it.
    admitted: Value,
    /// As it was stored, with its text.
    stored: Value,
}

/// What is known of the spec of a new pod.
#[derive(Default)]
pub(crate) enum Origin {
    /// Nothing: it is new, or not a text that is remembered.
    #[default]
    New,
    /// The text came before and is worth remembering.
    Again {
        text: Box<[u8]>,
        hash: u64,
    },
    Known(Arc<Template>),
}

impl Origin {
    pub(crate) fn template(&self) -> Option<&Arc<Template>> {
        match self {
            Origin::Known(template) => Some(template),
            _ => None,
        }
    }
}

impl Default for Templates {
    fn default() -> Self {
        let memory = Memory { once: [0; ONCE].into(), young: HashMap::new(), old: HashMap::new(), held: 0 };
        Templates { hasher: RandomState::default(), memory: Mutex::new(memory) }
    }
}

impl Templates {
    /// Looks for the spec of a body, and says where in the body it stands.
    pub(crate) fn recall(&self, body: &[u8]) -> (Origin, std::ops::Range<usize>) {
        let Some(place) = scan::member_range(body, MEMBER).filter(|place| (TEXT_MIN..=TEXT_MAX).contains(&place.len()))
        else {
            return (Origin::New, 0..0);
        };
        let text = &body[place.clone()];
        let hash = self.hasher.hash_one(text);
        let mut memory = self.memory.lock();
        let origin = match memory.find(hash) {
            Some(template) if *template.text == *text => Origin::Known(template),
            Some(_) => Origin::New,
            None if memory.came_before(hash) => Origin::Again { text: text.into(), hash },
            None => Origin::New,
        };
        (origin, place)
    }

    /// Remembers a spec that came again. `pod` has its defaults, and says who owns what.
    pub(crate) fn remember(&self, text: Box<[u8]>, hash: u64, ty: &Type, pod: &Value) {
        let Some(template) = Template::of(text, ty, pod) else { return };
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
        if self.held + template.text.len() > ROOM {
            self.old = std::mem::take(&mut self.young);
            self.held = 0;
        }
        self.held += template.text.len();
        if let Some(before) = self.young.insert(hash, template) {
            self.held -= before.text.len();
        }
    }

    /// Whether the text of a hash came before, which it has from now on.
    fn came_before(&mut self, hash: u64) -> bool {
        let slot = &mut self.once[hash as usize % ONCE];
        std::mem::replace(slot, hash) == hash
    }
}

impl Template {
    fn of(text: Box<[u8]>, ty: &Type, pod: &Value) -> Option<Self> {
        let [manager] = pod["metadata"]["managedFields"].as_array()?.as_slice() else { return None };
        let Value::Raw(fields) = &manager["fieldsV1"] else { return None };
        let owned = scan::member_range(fields.as_bytes(), "f:spec").map(|place| &fields[place])?.into();
        let mut wire = Value::Object([(MEMBER, pod[MEMBER].clone())].into_iter().collect::<Map>());
        schema::decode::normalise(ty, &mut wire).ok()?;
        wire.as_object_mut()?.retain(|name, _| name == MEMBER);
        Some(Template { text, wire, owned, settled: OnceLock::new() })
    }

    /// The spec for whoever reads a body in which it stands.
    pub(crate) fn in_body(&self, place: std::ops::Range<usize>) -> KnownMember<'_> {
        KnownMember { name: MEMBER, from: place.start, to: place.end, of: &self.wire }
    }

    /// The spec for whoever writes down what its maker owns.
    pub(crate) fn owned(&self) -> Known<'_> {
        Known { member: MEMBER, of: &self.wire, fields: &self.owned }
    }

    /// An object with the spec as it is before admission.
    pub(crate) fn wire(&self) -> &Value {
        &self.wire
    }

    /// If admission left the spec of a pod as it did before: puts the spec there in the form that was stored. It is valid
    /// then, and there is nothing to warn about.
    pub(crate) fn put_settled(&self, pod: &mut Value) -> bool {
        let Some(settled) = self.settled.get().filter(|settled| pod.get(MEMBER) == Some(&settled.admitted)) else {
            return false;
        };
        pod[MEMBER] = settled.stored.clone();
        true
    }

    /// The spec as admission left it, if what becomes of it shall be noted.
    pub(crate) fn unsettled(&self, pod: &Value) -> Option<Value> {
        self.settled.get().is_none().then(|| pod[MEMBER].clone())
    }

    /// Notes what became of a spec: it was valid, nothing was to be warned about, and this is the pod in the form of the store.
    /// The first time counts: where admission adds something else to each pod, another would not be found again either.
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
        if let (Origin::Again { text, hash }, _) = templates.recall(body) {
            templates.memory.lock().keep(hash, template(&text));
        }
    }

    fn is_known(templates: &Templates, body: &[u8]) -> bool {
        templates.recall(body).0.template().is_some()
    }

    #[test]
    fn a_spec_is_known_from_the_third_time_on() {
        let templates = Templates::default();
        let (origin, place) = templates.recall(&body(1));
        assert!(matches!(origin, Origin::New));
        assert!(body(1)[place].starts_with(br#"{"nodeName""#));
        remember(&templates, &body(1));
        assert!(is_known(&templates, &body(1)));
        assert!(!is_known(&templates, &body(2)));
    }

    #[test]
    fn what_is_not_used_is_forgotten_when_there_is_no_room() {
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
        assert!(held <= 2 * ROOM, "{held}");
    }

    #[test]
    fn bodies_without_a_spec_worth_remembering_are_new_every_time() {
        let templates = Templates::default();
        let large = json!({"spec": {"nodeName": "n".repeat(TEXT_MAX)}}).to_string();
        let twice = format!(r#"{{"spec":{0},"spec":{0}}}"#, json!({"nodeName": "n".repeat(100)}));
        for body in ["", "{}", "[1]", r#"{"spec":{}}"#, &large, &twice, r#"{"spec":{"nodeName":"#] {
            for _ in 0..3 {
                assert!(matches!(templates.recall(body.as_bytes()), (Origin::New, _)), "{body:.40}");
            }
        }
    }
}
