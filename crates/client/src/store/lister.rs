//! `Lister`: reads a store with the terms and errors of the API.

use std::sync::Arc;

use kube::Resource;
use kube::core::{Selector, SelectorExt, Status, response::StatusDetails};

use super::Store;
use crate::{Error, Key, Object};

/// A condition on labels.
#[derive(Debug, Clone, Default)]
pub enum Labels {
    /// All objects.
    #[default]
    Everything,
    /// No object.
    Nothing,
    /// Objects that a selector matches.
    Matching(Selector),
}

impl Labels {
    fn accepts<K: Resource>(&self, object: &K) -> bool {
        match self {
            Self::Everything => true,
            Self::Nothing => false,
            Self::Matching(selector) => match &object.meta().labels {
                Some(labels) => selector.matches(labels),
                None => selector.matches(&std::collections::BTreeMap::new()),
            },
        }
    }
}

impl From<Selector> for Labels {
    fn from(selector: Selector) -> Self {
        if selector.selects_all() { Self::Everything } else { Self::Matching(selector) }
    }
}

/// Get and list on a store, as on the API.
///
/// ```
/// use client::store::{Labels, Lister, Store};
/// use k8s_openapi::api::core::v1::Pod;
///
/// let (store, _writer) = Store::<Pod>::new();
/// let pods = Lister::new(store, &());
/// assert!(pods.list(Some("default"), &Labels::Everything).is_empty());
/// assert!(pods.get(Some("default"), "web").unwrap_err().is_not_found());
/// ```
pub struct Lister<K> {
    store: Store<K>,
    group: String,
    plural: String,
}

impl<K: Object> Lister<K> {
    /// A lister of the kind that `dt` describes.
    pub fn new(store: Store<K>, dt: &K::DynamicType) -> Self {
        Self { store, group: K::group(dt).into_owned(), plural: K::plural(dt).into_owned() }
    }

    /// The object of that name, or the error that the API would return.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Result<Arc<K>, Error> {
        self.store.get(&Key::new(namespace, name)).ok_or_else(|| self.not_found(name))
    }

    /// The objects with such labels, in all namespaces or one.
    pub fn list(&self, namespace: Option<&str>, labels: &Labels) -> Vec<Arc<K>> {
        if let Labels::Nothing = labels {
            return Vec::new();
        }
        let snapshot = self.store.snapshot();
        match namespace {
            Some(namespace) => snapshot.in_namespace(namespace).filter(|o| labels.accepts(&***o)).cloned().collect(),
            None => snapshot.iter().filter(|o| labels.accepts(&***o)).cloned().collect(),
        }
    }

    fn not_found(&self, name: &str) -> Error {
        let resource =
            if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) };
        let details = StatusDetails {
            name: name.to_owned(),
            group: self.group.clone(),
            kind: self.plural.clone(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        };
        let status = Status::failure(&format!("{resource} {name:?} not found"), "NotFound").with_code(404);
        Error::from_answer(404, None, status.with_details(details))
    }
}
