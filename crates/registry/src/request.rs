//! The parts of a request: target, body, options, user.

use std::collections::HashSet;
use std::sync::Arc;

use access::User;
use bytes::Bytes;
use cache::Item;
use machinery::GroupResource;
use machinery::media::{MediaType, PatchType};
use parking_lot::Mutex;
use schema::kind::Kind;

use crate::audit::Annotations;

/// The kind, namespace, object and subresource that a path names.
#[derive(Clone, Debug)]
pub struct Target {
    pub kind: Arc<Kind>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

impl Target {
    pub(crate) fn gr(&self) -> GroupResource {
        self.kind.group_resource()
    }

    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// One object of a kind.
    pub(crate) fn of_item(kind: &Arc<Kind>, item: &Item) -> Target {
        Target {
            kind: Arc::clone(kind),
            namespace: Some(item.namespace().to_owned()).filter(|namespace| !namespace.is_empty()),
            name: Some(item.name().to_owned()),
            subresource: None,
        }
    }

    /// The same object without its subresource.
    pub(crate) fn parent(&self) -> Target {
        Target { subresource: None, ..self.clone() }
    }
}

/// A write: what is written, with which options, by whom.
#[derive(Debug)]
pub struct WriteRequest<'a, O> {
    pub target: &'a Target,
    pub options: &'a O,
    pub ctx: &'a Context,
}

impl<O> Clone for WriteRequest<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for WriteRequest<'_, O> {}

/// The body of a POST or PUT.
#[derive(Clone, Debug)]
pub struct Body {
    pub bytes: Bytes,
    pub media: MediaType,
}

/// The body of a PATCH.
#[derive(Clone, Debug)]
pub struct PatchBody {
    pub bytes: Bytes,
    pub kind: PatchType,
}

/// The user of a request, and where its warnings and audit annotations are collected.
#[derive(Clone, Debug, Default)]
pub struct Context {
    pub user: Arc<User>,
    pub user_agent: String,
    /// Texts of `Warning` headers, sent whether the write succeeds or not.
    pub warnings: Warnings,
    pub annotations: Annotations,
}

/// Warnings that are collected while a request is handled.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Collected>>);

#[derive(Debug, Default)]
struct Collected {
    texts: Vec<String>,
    /// The same texts: each is sent once, and there may be one for each item of a long list.
    known: HashSet<String>,
}

impl Warnings {
    pub fn push(&self, text: impl Into<String>) {
        let (mut collected, text) = (self.0.lock(), text.into());
        if collected.known.insert(text.clone()) {
            collected.texts.push(text);
        }
    }

    /// Takes the warnings that were collected.
    #[must_use]
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock()).texts
    }
}

impl Context {
    /// The field manager of a write: the one it names, else the program in its user agent.
    pub(crate) fn manager(&self, field_manager: &str) -> String {
        schema::managed::manager(field_manager, &self.user_agent)
    }
}
