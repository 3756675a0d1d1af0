//! An object in the cache: its bytes, and the labels and fields that selectors need.

use std::sync::OnceLock;

use bytes::Bytes;
use machinery::Revision;
use machinery::encoded::{Encoded, Malformed};
use machinery::peek::{self, Peeked};
use parking_lot::Mutex;
use store::Key;

use crate::spec::Spec;

/// One object at one revision. Shared by reference with every reader; never changed.
#[derive(Debug)]
pub struct Item {
    key: Key,
    revision: Revision,
    /// Offsets of the namespace, if any, and the name in the key.
    namespace_at: u16,
    name_at: u16,
    labels: Box<[(Box<str>, Box<str>)]>,
    fields: Box<[Box<str>]>,
    encoded: Encoded,
    /// Other encodings of the object (another version, metadata only, …), created on first use.
    forms: OnceLock<Box<Forms>>,
}

/// Identifies another encoding. Chosen by the caller, stable for the life of the process.
pub type FormId = u32;
type Forms = Mutex<Vec<(FormId, Bytes)>>;

impl Item {
    /// Parses an object from the store.
    pub fn new(key: Key, revision: Revision, stored: &[u8], spec: &Spec) -> Result<Self, Malformed> {
        Self::peeked(key, revision, stored, peek::peek(stored, spec.paths())?, spec)
    }

    /// As [`Item::new`], for an object whose labels and fields are known.
    pub(crate) fn peeked(
        key: Key,
        revision: Revision,
        stored: &[u8],
        peeked: Peeked,
        spec: &Spec,
    ) -> Result<Self, Malformed> {
        let encoded = Encoded::from_stored(stored, revision)?;
        let fields = spec.values(peeked.values);
        Ok(Self::assemble(key, revision, peeked.labels.into(), fields, encoded))
    }

    fn assemble(
        key: Key,
        revision: Revision,
        labels: Box<[(Box<str>, Box<str>)]>,
        fields: Box<[Box<str>]>,
        encoded: Encoded,
    ) -> Self {
        let namespace_at = key.collection().len() + 1;
        let name_at = key.as_str()[namespace_at..].find('/').map_or(namespace_at, |slash| namespace_at + slash + 1);
        Item {
            // A key has at most 1024 bytes.
            namespace_at: namespace_at as u16,
            name_at: name_at as u16,
            key,
            revision,
            labels,
            fields,
            encoded,
            forms: OnceLock::new(),
        }
    }

    /// The same content at a later revision, for a DELETED event.
    pub(crate) fn at_revision(&self, revision: Revision) -> Self {
        let encoded = self.encoded.with_revision(revision);
        Self::assemble(self.key.clone(), revision, self.labels.clone(), self.fields.clone(), encoded)
    }

    /// The same object, parsed again for other selectable fields.
    pub(crate) fn respecified(&self, spec: &Spec) -> Option<Self> {
        let peeked = peek::peek(self.encoded.whole(), spec.paths()).ok()?;
        let fields = spec.values(peeked.values);
        Some(Self::assemble(self.key.clone(), self.revision, self.labels.clone(), fields, self.encoded.clone()))
    }

    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Empty for a cluster-scoped object.
    #[must_use]
    pub fn namespace(&self) -> &str {
        let (from, to) = (self.namespace_at as usize, self.name_at as usize);
        if from == to { "" } else { &self.key.as_str()[from..to - 1] }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.key.as_str()[self.name_at as usize..]
    }

    /// Sorted by key.
    #[must_use]
    pub fn labels(&self) -> &[(Box<str>, Box<str>)] {
        &self.labels
    }

    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }

    /// One value for each field of the collection's [`Spec`].
    #[must_use]
    pub fn fields(&self) -> &[Box<str>] {
        &self.fields
    }

    #[must_use]
    pub fn encoded(&self) -> &Encoded {
        &self.encoded
    }

    /// Size as JSON, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.encoded.whole().len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns another encoding of this object. `make` runs once in the life of the item, or twice if two readers race.
    pub fn form<E>(&self, id: FormId, make: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        let forms = self.forms.get_or_init(Box::default);
        if let Some((_, bytes)) = forms.lock().iter().find(|(known, _)| *known == id) {
            return Ok(bytes.clone());
        }
        let bytes = make()?;
        let mut forms = forms.lock();
        if !forms.iter().any(|(known, _)| *known == id) {
            forms.push((id, bytes.clone()));
        }
        Ok(bytes)
    }
}
