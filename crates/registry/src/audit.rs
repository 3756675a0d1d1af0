//! What the audit event of a request needs from its handling: annotations, the object that was sent, the answer.
//!
//! Most requests have none of it: the default keeps nothing and costs a comparison.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use machinery::Status;
use machinery::json::{Value, json};
use parking_lot::Mutex;
use schema::kind::Kind;

use crate::body;
use crate::meta;

/// How much of a request its audit event shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum AuditLevel {
    #[default]
    None,
    /// User, verb, target, result and annotations.
    Metadata,
    /// Also the object that was sent.
    Request,
    /// Also the answer.
    RequestResponse,
}

impl AuditLevel {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            AuditLevel::None => "None",
            AuditLevel::Metadata => "Metadata",
            AuditLevel::Request => "Request",
            AuditLevel::RequestResponse => "RequestResponse",
        }
    }
}

/// Collects annotations and objects for the audit event of a request. Cheap to clone; all clones collect together. Without
/// an audit log nothing is kept.
#[derive(Clone, Debug, Default)]
pub struct Annotations(Option<Arc<Collected>>);

#[derive(Debug, Default)]
struct Collected {
    level: AtomicU8,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    texts: BTreeMap<String, String>,
    sent: Sent,
    status: Option<Status>,
    answer: Option<Vec<Bytes>>,
}

/// The object that a client sent, before admission.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    /// The object itself, from level Request on.
    pub object: Option<Value>,
}

impl Annotations {
    /// Annotations that are kept, at level Metadata until another one is set.
    #[must_use]
    pub fn recording() -> Self {
        let collected = Collected { level: AtomicU8::new(AuditLevel::Metadata as u8), kept: Mutex::default() };
        Annotations(Some(Arc::new(collected)))
    }

    /// Sets the level that the policy has for the request, once its user is known.
    pub fn set_level(&self, level: AuditLevel) {
        if let Some(collected) = &self.0 {
            collected.level.store(level as u8, Ordering::Release);
        }
    }

    /// Whether annotations are kept: a text that takes work need not be made otherwise.
    #[must_use]
    pub fn are_kept(&self) -> bool {
        self.0.is_some()
    }

    fn kept_at(&self, level: AuditLevel) -> Option<&Mutex<Kept>> {
        self.0.as_ref().filter(|all| all.level.load(Ordering::Acquire) >= level as u8).map(|all| &all.kept)
    }

    /// Whether objects that were sent are kept (level Request and above).
    #[must_use]
    pub fn keep_objects(&self) -> bool {
        self.kept_at(AuditLevel::Request).is_some()
    }

    /// Whether answers are kept (level RequestResponse).
    #[must_use]
    pub fn keep_answers(&self) -> bool {
        self.kept_at(AuditLevel::RequestResponse).is_some()
    }

    /// Sets an annotation. A key is set once; a second value is ignored.
    pub fn set(&self, key: impl Into<String>, value: impl Into<String>) {
        if let Some(all) = &self.0 {
            all.kept.lock().texts.entry(key.into()).or_insert_with(|| value.into());
        }
    }

    /// The annotations that were set so far.
    #[must_use]
    pub fn get(&self) -> BTreeMap<String, String> {
        self.0.as_ref().map(|all| all.kept.lock().texts.clone()).unwrap_or_default()
    }

    /// Keeps the object of a POST or PUT as it was decoded. The reference decodes with the defaults of the kind, and so shows
    /// them.
    pub(crate) fn keep_sent(&self, kind: Option<&Kind>, object: &Value) {
        let Some(kept) = self.kept_at(AuditLevel::Metadata) else { return };
        let text = |name: &str| meta::text(object, name).to_owned();
        let sent = Sent {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            object: self.keep_objects().then(|| {
                let mut object = object.clone();
                if let Some(kind) = kind {
                    schema::defaults::apply(kind, &mut object, None);
                    // An object that cannot be brought into the form of the wire is shown as it is, and refused later.
                    let _ = body::normalise(kind, &mut object, None);
                }
                object
            }),
        };
        kept.lock().sent = sent;
    }

    /// Keeps the body of a request that is no object: a patch, or the options of a delete.
    pub fn keep_body(&self, body: impl FnOnce() -> Option<Value>) {
        if let Some(kept) = self.kept_at(AuditLevel::Request) {
            let body = body();
            kept.lock().sent.object = body;
        }
    }

    /// Keeps the options of a delete. The reference shows them under the name of its internal version.
    pub fn keep_delete_options(&self, options: impl FnOnce() -> Option<Value>) {
        self.keep_body(|| {
            let mut options = options()?;
            let members = options.as_object_mut()?;
            members.shift_remove("kind");
            members.shift_remove("apiVersion");
            members.shift_insert(0, "kind", json!("DeleteOptions"));
            members.shift_insert(1, "apiVersion", json!("meta.k8s.io/__internal"));
            Some(options)
        });
    }

    /// Keeps a `Status` that is the answer.
    pub fn keep_status(&self, status: &Status) {
        if let Some(all) = &self.0 {
            all.kept.lock().status = Some(status.clone());
        }
    }

    /// Keeps the answer as JSON, where the client gets it in another encoding.
    pub fn keep_answer(&self, answer: Vec<Bytes>) {
        if let Some(kept) = self.kept_at(AuditLevel::RequestResponse) {
            kept.lock().answer = Some(answer);
        }
    }

    /// Takes the object that was sent.
    #[must_use]
    pub fn sent(&self) -> Sent {
        self.0.as_ref().map(|all| all.kept.lock().sent.clone()).unwrap_or_default()
    }

    /// The `Status` that is the answer, if it is one.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.0.as_ref().and_then(|all| all.kept.lock().status.clone())
    }

    /// Takes the answer, if it was kept.
    #[must_use]
    pub fn take_answer(&self) -> Option<Vec<Bytes>> {
        self.0.as_ref().and_then(|all| all.kept.lock().answer.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(level: AuditLevel, resource: &str, body: Value) -> Sent {
        let annotations = Annotations::recording();
        annotations.set_level(level);
        let (group, plural) = resource.split_once('/').unwrap_or(("", resource));
        let kind = crate::kinds::builtin().get(group, "v1", plural).expect("a built-in kind");
        annotations.keep_sent(Some(kind), &body);
        annotations.sent()
    }

    #[test]
    fn aud_16_a_key_is_set_once() {
        let none = Annotations::default();
        none.set("a", "1");
        assert!(none.get().is_empty() && !none.are_kept() && !none.keep_objects());
        let kept = Annotations::recording();
        kept.set("a", "1");
        kept.clone().set("a", "2");
        kept.set("b", "3");
        assert_eq!(kept.get().into_iter().collect::<Vec<_>>(), [("a".into(), "1".into()), ("b".into(), "3".into())]);
    }

    #[test]
    fn aud_12_13_the_object_is_kept_from_level_request_on_and_its_names_before() {
        let body =
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "uid": "u"}, "data": {"k": "v"}});
        let metadata = sent(AuditLevel::Metadata, "configmaps", body.clone());
        assert_eq!((metadata.name.as_str(), metadata.uid.as_str()), ("a", "u"));
        assert!(metadata.object.is_none());
        let request = sent(AuditLevel::Request, "configmaps", body.clone());
        assert_eq!(request.object, Some(body));
    }

    #[test]
    fn aud_12_an_object_is_shown_with_the_defaults_of_its_kind_and_nothing_else() {
        let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let shown = sent(AuditLevel::Request, "pods", pod).object.expect("kept");
        assert_eq!(shown["spec"]["restartPolicy"], "Always");
        assert_eq!(shown["spec"]["containers"][0]["imagePullPolicy"], "Always");
        assert!(shown["metadata"].get("namespace").is_none());
        assert!(shown["spec"].get("priority").is_none(), "admission comes later");
    }

    #[test]
    fn aud_12_options_of_a_delete_have_the_internal_version() {
        let annotations = Annotations::recording();
        annotations.set_level(AuditLevel::Request);
        annotations.keep_delete_options(|| Some(json!({"propagationPolicy": "Orphan", "apiVersion": "v1"})));
        let shown = annotations.sent().object.expect("kept");
        let text = machinery::json::to_string(&shown);
        assert_eq!(
            text,
            r#"{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/__internal","propagationPolicy":"Orphan"}"#
        );
    }
}
