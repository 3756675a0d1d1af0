//! Objects as they arrive over the wire, and the types they are decoded into.

use std::any::{Any, type_name};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::envelope::Envelope;
use crate::{Key, ResourceVersion};

/// An object as the server sent it: its bytes, and the few fields that list-watch itself needs.
///
/// The envelope is read first and the body only on demand, so that an object that cannot be decoded still has a name and a
/// version.
#[derive(Clone)]
pub struct RawObject {
    /// `apiVersion`, absent on the items of built-in lists.
    pub api_version: Option<String>,
    /// `kind`, absent on the items of built-in lists.
    pub kind: Option<String>,
    /// `namespace/name`.
    pub key: Key,
    /// The UID of this incarnation; empty if the server sent none.
    pub uid: String,
    /// The version of this state.
    pub version: ResourceVersion,
    /// The JSON text. Its own allocation: keeping one object keeps nothing of its page or its read buffer (LW-9).
    pub body: Bytes,
}

#[derive(Deserialize)]
struct WholeEnvelope<'a> {
    #[serde(rename = "apiVersion")]
    api_version: Option<String>,
    kind: Option<String>,
    #[serde(borrow, default)]
    metadata: EnvelopeMeta<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct EnvelopeMeta<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    namespace: Option<String>,
    uid: String,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
}

impl RawObject {
    /// The same for text that is known to be one object, from a server that wrote the same form before: only the envelope is
    /// read. If the rest is damaged, decoding it will fail.
    pub(crate) fn from_known_json(body: Bytes) -> Result<Self, serde_json::Error> {
        let Some(found) = Envelope::peek(&body) else { return Self::from_json(body) };
        Ok(Self {
            api_version: found.api_version.map(str::to_owned),
            kind: found.kind.map(str::to_owned),
            key: Key::new(found.namespace, found.name.unwrap_or_default()),
            uid: found.uid.unwrap_or_default().to_owned(),
            version: found.version.unwrap_or_default().into(),
            body,
        })
    }

    /// Reads the envelope of an object's JSON, and makes sure that it is JSON.
    pub fn from_json(body: Bytes) -> Result<Self, serde_json::Error> {
        let WholeEnvelope { api_version, kind, metadata: meta } = serde_json::from_slice(&body)?;
        let key = Key::new(meta.namespace.as_deref(), &meta.name);
        let version = ResourceVersion::from(&*meta.resource_version);
        let uid = meta.uid;
        Ok(Self { api_version, kind, key, uid, version, body })
    }

    /// The same object without `metadata.managedFields`, which is often a third of the bytes and rarely read.
    pub fn without_managed_fields(self) -> Self {
        #[derive(Deserialize)]
        struct Outer<'a> {
            #[serde(borrow)]
            metadata: Inner<'a>,
        }
        #[derive(Deserialize)]
        struct Inner<'a> {
            #[serde(borrow, rename = "managedFields")]
            managed_fields: Option<&'a RawValue>,
        }
        let Ok(outer) = serde_json::from_slice::<Outer<'_>>(&self.body) else { return self };
        let Some(span) = outer.metadata.managed_fields.and_then(|raw| span_within(&self.body, raw.get())) else {
            return self;
        };
        let mut body = Vec::with_capacity(self.body.len() - span.len() + 2);
        body.extend_from_slice(&self.body[..span.start]);
        body.extend_from_slice(b"[]");
        body.extend_from_slice(&self.body[span.end..]);
        Self { body: body.into(), ..self }
    }
}

/// The range of `part`, a slice of `whole`, within it.
pub(crate) fn span_within(whole: &[u8], part: &str) -> Option<std::ops::Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= whole.len()).then_some(start..end)
}

impl fmt::Debug for RawObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} ({} bytes)", self.key, self.version, self.body.len())
    }
}

/// An object that an informer can store: any `kube` resource (typed, dynamic or metadata-only), or [`Encoded`].
///
/// The runtime itself reads only the name, version and UID, so a stored form need not decode more.
pub trait Object: Resource + Send + Sync + Sized + 'static {
    /// Converts a wire object into its stored form.
    fn from_raw(raw: &RawObject) -> Result<Self, serde_json::Error>;

    /// The object's key.
    fn object_key(&self) -> Key {
        Key::of(self)
    }

    /// The version of this state.
    fn state_version(&self) -> ResourceVersion {
        version_of(self)
    }

    /// The UID; empty if there is none.
    fn incarnation(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }
}

/// A stored object without its type: all that lists, watches, queues and mailboxes need of it.
///
/// They are compiled once, for `dyn Stored`, and not for each kind; stores and events have the type.
pub trait Stored: Any + Send + Sync {
    /// See [`Object::object_key`].
    fn key(&self) -> Key;
    /// See [`Object::state_version`].
    fn version(&self) -> ResourceVersion;
    /// See [`Object::incarnation`].
    fn uid(&self) -> &str;
}

impl<K: Object> Stored for K {
    fn key(&self) -> Key {
        self.object_key()
    }
    fn version(&self) -> ResourceVersion {
        self.state_version()
    }
    fn uid(&self) -> &str {
        self.incarnation()
    }
}

/// Gives an object of an informer its type back.
///
/// # Panics
/// If the object has another type: an informer stores objects of one type only.
pub(crate) fn typed<K: Object>(object: Arc<dyn Stored>) -> Arc<K> {
    let object: Arc<dyn Any + Send + Sync> = object;
    object.downcast().unwrap_or_else(|_| panic!("an informer stores one type, and {} is another", type_name::<K>()))
}

impl<K> Object for K
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    fn from_raw(raw: &RawObject) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(&raw.body)
    }
}

/// A stored object that keeps its bytes and decodes on access.
///
/// A decoded Pod takes about ten times the memory of its JSON. When a process reads few of the objects it watches, this
/// form is smaller and cheaper to keep current. Metadata is decoded on first access and then kept.
///
/// ```
/// use bytes::Bytes;
/// use client::{Encoded, Object, RawObject};
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// let text = br#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"7"},"data":{"k":"v"}}"#;
/// let raw = RawObject::from_json(Bytes::from_static(text))?;
/// let map = Encoded::<ConfigMap>::from_raw(&raw)?;
/// assert_eq!((map.object_key().as_str(), map.state_version().as_str()), ("n/a", "7"));
/// assert_eq!(map.decode()?.data.unwrap()["k"], "v");
/// # Ok::<(), serde_json::Error>(())
/// ```
pub struct Encoded<K> {
    key: Key,
    uid: Box<str>,
    version: ResourceVersion,
    meta: OnceLock<Box<ObjectMeta>>,
    body: Bytes,
    kind: PhantomData<fn() -> K>,
}

impl<K> Encoded<K> {
    /// The JSON text.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The metadata without managed fields; only the fields of the envelope if it cannot be decoded.
    fn read_meta(&self) -> Box<ObjectMeta> {
        #[derive(Deserialize)]
        struct MetaOnly {
            metadata: ObjectMeta,
        }
        let read = serde_json::from_slice::<MetaOnly>(&self.body);
        let mut meta = read.map(|object| object.metadata).unwrap_or_else(|_| ObjectMeta {
            name: Some(self.key.name().to_owned()),
            namespace: self.key.namespace().map(str::to_owned),
            uid: Some(self.uid.to_string()),
            resource_version: Some(self.version.to_string()),
            ..ObjectMeta::default()
        });
        meta.managed_fields = None;
        Box::new(meta)
    }
}

impl<K: DeserializeOwned> Encoded<K> {
    /// Decodes the object.
    pub fn decode(&self) -> Result<K, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }
}

impl<K> fmt::Debug for Encoded<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.body))
    }
}

impl<K: Resource + 'static> Resource for Encoded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
        K::kind(dt)
    }
    fn group(dt: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
        K::group(dt)
    }
    fn version(dt: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
        K::version(dt)
    }
    fn plural(dt: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
        K::plural(dt)
    }
    fn metadata_api() -> bool {
        K::metadata_api()
    }
    fn meta(&self) -> &ObjectMeta {
        self.meta.get_or_init(|| self.read_meta())
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        let read = self.meta.take().unwrap_or_else(|| self.read_meta());
        self.meta = OnceLock::from(read);
        self.meta.get_mut().expect("it was set the line above")
    }
}

impl<K: Resource + DeserializeOwned + 'static> Object for Encoded<K> {
    fn from_raw(raw: &RawObject) -> Result<Self, serde_json::Error> {
        Ok(Self {
            key: raw.key.clone(),
            uid: raw.uid.as_str().into(),
            version: raw.version.clone(),
            meta: OnceLock::new(),
            body: raw.body.clone(),
            kind: PhantomData,
        })
    }

    fn object_key(&self) -> Key {
        self.key.clone()
    }

    fn state_version(&self) -> ResourceVersion {
        self.version.clone()
    }

    fn incarnation(&self) -> &str {
        &self.uid
    }
}

/// An object that exists on the server and cannot be decoded here (RF-17).
#[derive(Clone)]
pub struct Undecodable {
    /// The object as the server sent it.
    pub raw: RawObject,
    /// The error of its decoding.
    pub error: Arc<serde_json::Error>,
}

impl fmt::Debug for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.raw, self.error)
    }
}

/// The version of an object's state.
pub fn version_of<K: Resource>(object: &K) -> ResourceVersion {
    object.meta().resource_version.as_deref().unwrap_or_default().into()
}

/// True if both are the same state of the same incarnation.
pub(crate) fn same_state<K: Stored + ?Sized>(a: &K, b: &K) -> bool {
    let version = a.version();
    !version.is_unset() && version == b.version() && a.uid() == b.uid()
}

/// True if both are the same incarnation; objects without UIDs count as the same.
pub(crate) fn same_incarnation<K: Stored + ?Sized>(a: &K, b: &K) -> bool {
    let (a, b) = (a.uid(), b.uid());
    a.is_empty() || b.is_empty() || a == b
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    const TEXT: &str = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","managedFields":[{"manager":"x","fieldsV1":{"f:data":{}}}],"labels":{"l":"1"}},"data":{"k":"v"}}"#;

    #[test]
    fn envelope_is_read_without_the_body() {
        let raw =
            RawObject::from_json(Bytes::from_static(br#"{"metadata":{"name":"a","resourceVersion":"7"},"data":42}"#))
                .unwrap();
        assert_eq!((raw.key.as_str(), raw.version.as_str()), ("a", "7"));
        assert!(ConfigMap::from_raw(&raw).is_err(), "the body is unreadable, the envelope is not");
    }

    #[test]
    fn managed_fields_are_cut_out_of_the_text() {
        let raw = RawObject::from_json(Bytes::from_static(TEXT.as_bytes())).unwrap().without_managed_fields();
        let text = std::str::from_utf8(&raw.body).unwrap();
        assert!(text.contains(r#""managedFields":[],"labels""#), "{text}");
        let map = ConfigMap::from_raw(&raw).unwrap();
        assert_eq!(map.data.unwrap()["k"], "v");
    }

    #[test]
    fn encoded_keeps_the_bytes_and_decodes_on_access() {
        let raw = RawObject::from_json(Bytes::from_static(TEXT.as_bytes())).unwrap();
        let encoded = Encoded::<ConfigMap>::from_raw(&raw).unwrap();
        assert_eq!((encoded.object_key().as_str(), encoded.incarnation()), ("n/a", "u"));
        assert!(encoded.meta.get().is_none(), "nothing was decoded for that");
        assert_eq!(Key::of(&encoded).as_str(), "n/a");
        assert!(encoded.meta().managed_fields.is_none());
        assert_eq!(encoded.decode().unwrap().data.unwrap()["k"], "v");
    }

    #[test]
    fn encoded_metadata_that_cannot_be_read_still_names_the_object() {
        let text = br#"{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","labels":42}}"#;
        let raw = RawObject::from_json(Bytes::from_static(text)).unwrap();
        let mut encoded = Encoded::<ConfigMap>::from_raw(&raw).unwrap();
        assert_eq!(Key::of(&encoded).as_str(), "n/a");
        encoded.meta_mut().annotations = Some([("k".to_owned(), "v".to_owned())].into());
        assert_eq!(encoded.meta().annotations.as_ref().map(|a| a.len()), Some(1));
        assert_eq!(version_of(&encoded).as_str(), "7");
    }
}
