//! An object on its way to the store, and what is known of it from earlier ones.
//!
//! Every step of a create or an update takes a [`Draft`]. What is known only makes steps cheaper: with [`Known::Nothing`]
//! each of them does the same work in full, and debug builds check that the result is the same.

use std::sync::Arc;

use machinery::json::Value;
use machinery::media::MediaType;
use machinery::options::FieldValidation;
use machinery::{FieldError, Status};
use schema::facts::Type;
use schema::kind::Kind;
use schema::managed::{Subject, Writer, track_create};

use super::templates::{Recalled, Template, Templates};
use crate::body;
use crate::request::{Body, Context};

/// An object under way.
#[derive(Clone)]
pub(crate) struct Draft {
    pub(crate) object: Value,
    /// An object in the form of the wire that has parts in common with this one: those need not be normalised again.
    wire: Option<Value>,
    known: Known,
}

/// What is known of the spec of a draft.
#[derive(Clone, Default)]
enum Known {
    #[default]
    Nothing,
    /// The same text was sent before: what is computed from it this time is remembered.
    SeenTwice { text: Box<[u8]>, hash: u64 },
    /// The defaults and owners of the spec.
    Template(Arc<Template>),
    /// As `Template`; admission left the spec in this state for the first time.
    Admitted(Arc<Template>, Value),
    /// The spec is valid, has no warnings and is in the form of the wire.
    Settled,
}

impl Draft {
    /// An object of which nothing is known.
    pub(crate) fn new(object: Value) -> Self {
        Draft { object, wire: None, known: Known::Nothing }
    }

    /// The next state of an object that is shown as `old`, in the form of the wire.
    pub(crate) fn following(old: &Value, object: Value) -> Self {
        Draft { object, wire: Some(old.clone()), known: Known::Nothing }
    }

    /// Reads the body of a create. With `templates`, a spec that was sent before is recognised by its text.
    pub(crate) fn decode(
        kind: &Kind,
        body: &Body,
        validation: FieldValidation,
        templates: Option<&Templates>,
        ctx: &Context,
    ) -> Result<Self, Status> {
        let Some(templates) = templates.filter(|_| body.media == MediaType::Json) else {
            let object = body::object(kind, body, validation, ctx)?;
            return Ok(Draft { wire: Some(object.clone()), object, known: Known::Nothing });
        };
        let (recalled, range) = templates.recall(&body.bytes);
        let member = match &recalled {
            Recalled::Template(template) => Some(template.in_body(range)),
            _ => None,
        };
        let is_known = member.is_some();
        let (object, complaints) = body::decode(&kind.gvk, body, validation, member, ctx)?;
        ctx.annotations.keep_sent(Some(kind), &object);
        // A spec with unknown fields is complained about each time it is sent, so it is not remembered.
        let may_be_kept = complaints == 0 && validation != FieldValidation::Ignore;
        let known = match recalled {
            _ if !may_be_kept && !is_known => Known::Nothing,
            Recalled::Nothing => Known::Nothing,
            Recalled::SeenTwice { text, hash } => Known::SeenTwice { text, hash },
            Recalled::Template(template) => Known::Template(template),
        };
        Ok(Draft { wire: Some(object.clone()), object, known })
    }

    fn template(&self) -> Option<&Arc<Template>> {
        match &self.known {
            Known::Template(template) | Known::Admitted(template, _) => Some(template),
            Known::Nothing | Known::SeenTwice { .. } | Known::Settled => None,
        }
    }

    pub(crate) fn apply_defaults(&mut self, kind: &Kind) {
        let template = self.template().cloned();
        schema::defaults::apply(kind, &mut self.object, template.as_ref().map(|template| template.wire()));
    }

    /// Records the creator as the owner of what is in the object now.
    pub(crate) fn track_creator(&mut self, kind: &Kind, ty: &Type, writer: &Writer<'_>, templates: &Templates) {
        let lent = schema::strategy::lend_labels(kind, &mut self.object);
        let template = self.template().cloned();
        let known = template.as_ref().map(|template| template.owned());
        track_create(&Subject::new(kind, ty), &mut self.object, writer, known);
        if lent {
            crate::meta::of_mut(&mut self.object).remove("labels");
        }
        if let Known::SeenTwice { text, hash } = &self.known {
            templates.remember(text.clone(), *hash, ty, &self.object);
        }
    }

    /// Compares the spec, which admission has left, with that of an earlier object.
    pub(crate) fn recognise_admitted(&mut self) {
        self.known = match std::mem::take(&mut self.known) {
            Known::Template(template) if template.put_settled(&mut self.object) => Known::Settled,
            Known::Template(template) => match template.unsettled(&self.object) {
                Some(spec) => Known::Admitted(template, spec),
                None => Known::Nothing,
            },
            _ => Known::Nothing,
        };
    }

    fn is_settled(&self) -> bool {
        matches!(self.known, Known::Settled)
    }

    pub(crate) fn validate_new(&self, kind: &Kind) -> Vec<FieldError> {
        let errors = schema::validation::validate_create(kind, &self.object, self.is_settled());
        debug_assert_eq!(
            errors,
            schema::validation::validate_create(kind, &self.object, false),
            "a settled spec was valid before"
        );
        errors
    }

    pub(crate) fn warnings_of_new(&mut self, kind: &Kind) -> Vec<String> {
        let warnings = schema::warnings::on_write(kind, &self.object, None, self.is_settled());
        debug_assert_eq!(
            warnings,
            schema::warnings::on_write(kind, &self.object, None, false),
            "a settled spec had no warnings before"
        );
        if !warnings.is_empty() && matches!(self.known, Known::Admitted(..)) {
            self.known = Known::Nothing;
        }
        warnings
    }

    /// Brings the object into the order and form of the wire.
    pub(crate) fn normalise(&mut self, kind: &Kind) -> Result<(), Status> {
        if let Known::Settled = self.known {
            let mut wire = self.wire.take().unwrap_or_default();
            wire["spec"] = self.object["spec"].clone();
            self.wire = Some(wire);
        }
        body::normalise(kind, &mut self.object, self.wire.as_ref())?;
        if let Known::Admitted(template, admitted) = &self.known {
            template.settle(admitted.clone(), &self.object);
        }
        debug_assert!(
            !self.is_settled() || {
                let mut whole: Value = machinery::json::from_str(&self.object.to_string()).unwrap_or_default();
                let made = body::normalise(kind, &mut whole, None);
                made.is_ok() && whole.is_identical(&self.object)
            },
            "a settled spec is in the form of the wire: {}",
            self.object
        );
        Ok(())
    }
}
