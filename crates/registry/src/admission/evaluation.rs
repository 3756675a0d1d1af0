//! What the expressions of one request have in common: its objects, the request itself, and the answers of the authorizer.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use access::authorizer::{Attributes as Access, ResourceAttributes, Verdict, What};
use access::selectors::{FieldTerms, LabelTerms, Selectors};
use access::{Authorizer, User};
use cel::policy::{Check, CheckTarget, Decision, Decisions, Inputs, ResourceCheck, Stop, Subject, Uses};
use machinery::json::Value;
use parking_lot::Mutex;

use super::matching::Matched;
use super::plugin::{Attributes, States};
use super::request_value::request_value;

/// The answers of the authorizer to one request. Equal checks are decided once.
pub(crate) struct Answers<'a> {
    authorizer: &'a Arc<dyn Authorizer>,
    user: &'a User,
    known: Mutex<HashMap<Check, Decision>>,
}

impl<'a> Answers<'a> {
    pub(crate) fn new(authorizer: &'a Arc<dyn Authorizer>, user: &'a User) -> Self {
        Answers { authorizer, user, known: Mutex::default() }
    }

    /// Waits for a decision that could not be made at once.
    async fn ask(&self, check: &Check) {
        let account = account(&check.subject);
        let user = account.as_ref().unwrap_or(self.user);
        let attributes = attributes(check, user);
        let decision = self.authorizer.authorize(&attributes).get().await;
        self.known.lock().insert(check.clone(), translated(&decision));
    }
}

impl Decisions for Answers<'_> {
    fn decide(&self, check: &Check) -> Option<Decision> {
        if let Some(known) = self.known.lock().get(check) {
            return Some(known.clone());
        }
        let account = account(&check.subject);
        let user = account.as_ref().unwrap_or(self.user);
        let attributes = attributes(check, user);
        match self.authorizer.authorize(&attributes) {
            Verdict::Now(decision) => {
                let decision = translated(&decision);
                self.known.lock().insert(check.clone(), decision.clone());
                Some(decision)
            }
            Verdict::Later(_) => None,
        }
    }
}

/// The service account that a check names instead of the requester.
fn account(subject: &Subject) -> Option<User> {
    match subject {
        Subject::Requester => None,
        Subject::ServiceAccount { namespace, name } => Some(User {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")],
            ..User::default()
        }),
    }
}

fn attributes<'c>(check: &'c Check, user: &'c User) -> Access<'c> {
    let what = match &check.target {
        CheckTarget::Path(path) => What::Path(path),
        CheckTarget::Resource(check) => {
            let mut selectors = Selectors::default();
            if !check.label_selector.is_empty() {
                selectors.labels = LabelTerms::Text(&check.label_selector);
            }
            if !check.field_selector.is_empty() {
                selectors.fields = FieldTerms::Text(&check.field_selector);
            }
            What::Resource(ResourceAttributes {
                group: &check.group,
                version: "*",
                resource: &check.resource,
                subresource: &check.subresource,
                namespace: &check.namespace,
                name: &check.name,
                selectors,
            })
        }
    };
    Access { user, verb: &check.verb, what }
}

fn translated(decision: &access::Decision) -> Decision {
    let error = Some(decision.error.to_string()).filter(|error| !error.is_empty());
    Decision { allowed: decision.allowed, reason: decision.reason.to_string(), error }
}

/// A request in the version that a rule matched.
pub(crate) struct Evaluation<'a> {
    attributes: &'a Attributes<'a>,
    states: States<'a>,
    matched: &'a Matched,
    answers: &'a Answers<'a>,
    /// Made on first use: most conditions look at the object only.
    request: OnceLock<Value>,
}

static NULL: Value = Value::Null;

impl<'a> Evaluation<'a> {
    /// `states` are in the version of `matched`.
    pub(crate) fn new(
        attributes: &'a Attributes<'a>,
        states: States<'a>,
        matched: &'a Matched,
        answers: &'a Answers<'a>,
    ) -> Self {
        Evaluation { attributes, states, matched, answers, request: OnceLock::new() }
    }

    pub(crate) fn attributes(&self) -> &'a Attributes<'a> {
        self.attributes
    }

    fn request(&self) -> &Value {
        self.request.get_or_init(|| Value::Object(request_value(self.attributes, self.matched)))
    }

    /// Calls `run` with the variables that expressions use, and again after each decision of the authorizer that it waited for.
    /// The error is an exhausted budget.
    pub(crate) async fn run<T>(
        &self,
        uses: Uses,
        params: &Value,
        namespace: &Value,
        mut run: impl FnMut(Inputs<'_>) -> Result<T, Stop>,
    ) -> Result<T, OutOfBudget> {
        loop {
            let check = match self.run_once(uses, params, namespace, &mut run) {
                Ok(result) => return Ok(result),
                Err(Stop::Budget) => return Err(OutOfBudget),
                Err(Stop::Needs(check)) => check,
            };
            self.answers.ask(&check).await;
        }
    }

    fn run_once<T>(
        &self,
        uses: Uses,
        params: &Value,
        namespace: &Value,
        run: &mut impl FnMut(Inputs<'_>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let resource = || self.request_resource();
        run(Inputs {
            object: self.states.new.unwrap_or(&NULL),
            old_object: self.states.old.unwrap_or(&NULL),
            namespace,
            request: if uses.request { self.request() } else { &NULL },
            params,
            authorizer: Some((self.answers, &resource)),
        })
    }

    /// The resource of `authorizer.requestResource`.
    fn request_resource(&self) -> ResourceCheck {
        let attributes = self.attributes;
        let kind = &attributes.target.kind;
        ResourceCheck {
            group: kind.gvk.group.to_string(),
            resource: kind.plural.to_string(),
            subresource: attributes.subresource().unwrap_or_default().to_owned(),
            namespace: attributes.namespace().to_owned(),
            name: attributes.name.to_owned(),
            ..ResourceCheck::default()
        }
    }
}

/// The expressions cost more than their budget.
pub(crate) struct OutOfBudget;
