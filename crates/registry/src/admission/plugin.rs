//! The trait of an admission plugin, and the request as plugins see it.

use std::future::Future;
use std::pin::Pin;

use machinery::json::Value;
use machinery::options::{CreateOptions, DeleteOptions, PatchOptions, UpdateOptions};
use machinery::{GroupVersionKind, Status};

use crate::collections::NAMESPACES;
use crate::kinds::KindBehaviour;
use crate::meta;
use crate::request::{Context, Target};

/// The operation of a request, as admission distinguishes them. A patch is an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    /// A connection to a node: exec, attach, portforward, proxy.
    Connect,
}

/// The options that were sent with a request.
#[derive(Clone, Copy, Debug)]
pub enum Options<'a> {
    Create(&'a CreateOptions),
    Update(&'a UpdateOptions),
    Patch(&'a PatchOptions),
    Delete(&'a DeleteOptions),
    /// A connection, or a write that the server makes of its own.
    None,
}

impl Options<'_> {
    fn dry_run(&self) -> bool {
        match self {
            Options::Create(options) => options.dry_run,
            Options::Update(options) => options.dry_run,
            Options::Patch(options) => options.dry_run,
            Options::Delete(options) => options.dry_run,
            Options::None => false,
        }
    }
}

/// A request as admission sees it. Its objects are given to the plugins apart, since they change on the way.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    pub operation: Operation,
    /// Kind, namespace, name and subresource.
    pub target: &'a Target,
    /// The name in the request: of the path, else of the body. Empty while a name is still to be generated, and for each
    /// object of a deleted collection.
    pub name: &'a str,
    pub options: Options<'a>,
    pub dry_run: bool,
    /// The user, and where warnings are collected.
    pub ctx: &'a Context,
    pub(crate) behaviour: &'static dyn KindBehaviour,
}

impl<'a> Attributes<'a> {
    pub(crate) fn new(operation: Operation, target: &'a Target, options: Options<'a>, ctx: &'a Context) -> Self {
        let behaviour = crate::kinds::behaviour(&target.kind);
        Attributes { operation, target, name: target.name(), options, dry_run: options.dry_run(), ctx, behaviour }
    }

    /// The same request for the object itself, of a subresource that writes a part of it.
    pub(crate) fn of(self, target: &'a Target) -> Self {
        Attributes { target, ..self }
    }

    #[must_use]
    pub fn subresource(&self) -> Option<&'a str> {
        self.target.subresource.as_deref()
    }

    /// The kind of the request's objects: that of the subresource, if it has its own.
    #[must_use]
    pub fn kind(&self) -> &'a GroupVersionKind {
        let kind = &self.target.kind;
        self.subresource().and_then(|name| kind.subresource(name)).map_or(&kind.gvk, |subresource| &subresource.gvk)
    }

    /// The namespace of the request; a namespace itself is in its own.
    #[must_use]
    pub fn namespace(&self) -> &'a str {
        let target = self.target;
        if target.kind.collection == NAMESPACES {
            return self.name;
        }
        target.namespace.as_deref().filter(|_| target.kind.namespaced).unwrap_or_default()
    }

    /// Whether the request writes objects of a collection themselves, not a subresource of them.
    #[must_use]
    pub fn writes(&self, operation: Operation, collection: &str) -> bool {
        self.operation == operation && self.subresource().is_none() && self.target.kind.collection == collection
    }

    /// Whether a refusal names everything that is known of it.
    #[must_use]
    pub fn explains(&self) -> bool {
        self.ctx.explains || self.ctx.trace.is_some()
    }

    /// The name that refusals show.
    #[must_use]
    pub fn name_shown<'o>(&'o self, object: &'o Value) -> &'o str {
        let names = [self.name, meta::name(object), meta::text(object, "generateName")];
        names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
    }

    /// A refusal by a plugin.
    #[must_use]
    pub fn forbidden(&self, object: &Value, why: impl Into<String>) -> Status {
        Status::forbidden(&self.target.gr(), self.name_shown(object), why.into())
    }
}

/// The states of an object that a plugin is given: what is there and what is to be.
#[derive(Clone, Copy)]
pub struct States<'a> {
    /// None for a create.
    pub old: Option<&'a Value>,
    /// None for a delete.
    pub new: Option<&'a Value>,
    /// Whether `new` is in the form of the wire. What is stored always is.
    pub(crate) is_wire: bool,
}

impl<'a> States<'a> {
    pub(crate) fn new(old: Option<&'a Value>, new: Option<&'a Value>) -> Self {
        States { old, new, is_wire: false }
    }

    /// States that are both in the form of the wire: policies and webhooks see them without a copy.
    pub(crate) fn shown(old: Option<&'a Value>, new: &'a Value) -> Self {
        States { old, new: Some(new), is_wire: true }
    }
}

/// The decision of a plugin: known at once, or to be awaited.
pub enum Decision<'a> {
    Now(Result<(), Status>),
    Later(Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>),
}

impl<'a> Decision<'a> {
    pub const ADMIT: Decision<'static> = Decision::Now(Ok(()));

    pub fn later(decision: impl Future<Output = Result<(), Status>> + Send + 'a) -> Self {
        Decision::Later(Box::pin(decision))
    }
}

/// One admission plugin. It is called in one or both phases of the requests that concern it.
pub trait Plugin: Send + Sync {
    /// The name under which the reference lists it.
    fn name(&self) -> &'static str;

    /// Whether the plugin looks at this request. Cheap: it is called for every write.
    fn concerns(&self, attributes: &Attributes<'_>) -> bool;

    /// Changes the object, or refuses it. A delete has no object to change.
    fn mutate<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        _object: &'a mut Value,
        _old: Option<&'a Value>,
    ) -> Decision<'a> {
        Decision::ADMIT
    }

    /// Refuses a write that is valid by the rules of its kind.
    fn validate<'a>(&'a self, _attributes: &'a Attributes<'a>, _states: States<'a>) -> Decision<'a> {
        Decision::ADMIT
    }
}
