//! A policy and its bindings, read when they are stored. Expressions are compiled once, when they are first needed: the write
//! of a policy needs them before it is answered. What follows the log of the store never waits for a compiler.

use std::sync::OnceLock;

use cel::policy::{Declarations, ExpectedType, Expression, PolicyVariables, Uses, Variables};
use machinery::GroupVersion;
use machinery::json::Value;
use machinery::labels::Selector;

use super::super::conditions::CompiledConditions;
use super::super::matching::Criteria;

/// A compiled expression, or why it does not compile.
pub(super) type Compiled = Result<Expression, String>;

/// A policy of either kind.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(super) name: String,
    pub(super) ignores_failure: bool,
    pub(super) criteria: Criteria,
    pub(super) param_kind: Option<ParamKind>,
    /// Whether it validates or changes objects.
    validates: bool,
    spec: Value,
    code: OnceLock<Code>,
}

/// The expressions of a policy.
#[derive(Debug)]
pub(super) struct Code {
    pub(super) conditions: CompiledConditions,
    pub(super) variables: Variables,
    pub(super) rules: Rules,
    /// What the expressions read, those of conditions apart.
    pub(super) uses: Uses,
}

/// What a policy does.
#[derive(Debug)]
pub(super) enum Rules {
    Validate { validations: Vec<Validation>, annotations: Vec<AuditAnnotation> },
    Mutate { mutations: Vec<Mutation>, runs_again: bool },
}

#[derive(Debug)]
pub(super) struct Validation {
    pub(super) expression: Compiled,
    /// The expression as it was written.
    pub(super) text: String,
    pub(super) message: String,
    pub(super) message_expression: Option<Compiled>,
    pub(super) reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Invalid,
    Forbidden,
    RequestEntityTooLarge,
    Unauthorized,
}

#[derive(Debug)]
pub(super) struct AuditAnnotation {
    pub(super) key: String,
    pub(super) expression: Compiled,
}

#[derive(Debug)]
pub(super) struct Mutation {
    pub(super) kind: MutationKind,
    pub(super) expression: Compiled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MutationKind {
    ApplyConfiguration,
    JsonPatch,
}

#[derive(Clone, Debug)]
pub(super) struct ParamKind {
    pub(super) version: GroupVersion,
    pub(super) kind: String,
}

/// A binding of a policy.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(super) name: String,
    pub(super) policy: String,
    /// None matches everything that the policy matches.
    pub(super) criteria: Option<Criteria>,
    pub(super) params: Option<ParamRef>,
    pub(super) actions: Vec<Action>,
}

#[derive(Debug)]
pub(super) struct ParamRef {
    pub(super) namespace: String,
    pub(super) selected: Selected,
    /// A binding without its params refuses instead of doing nothing.
    pub(super) required: bool,
}

#[derive(Debug)]
pub(super) enum Selected {
    Name(String),
    Selector(Selector),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Deny,
    Warn,
    Audit,
}

impl Action {
    /// As metrics show it.
    pub(super) fn label(self) -> &'static str {
        match self {
            Action::Deny => "deny",
            Action::Warn => "warn",
            Action::Audit => "audit",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Action::Deny => "Deny",
            Action::Warn => "Warn",
            Action::Audit => "Audit",
        }
    }
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

impl Policy {
    pub(super) fn read(object: &Value, validates: bool) -> Result<Self, String> {
        let spec = &object["spec"];
        let param_kind = spec["paramKind"].is_object().then(|| ParamKind {
            version: GroupVersion::parse(text(&spec["paramKind"], "apiVersion")).unwrap_or_default(),
            kind: text(&spec["paramKind"], "kind").to_owned(),
        });
        Ok(Policy {
            name: text(&object["metadata"], "name").to_owned(),
            ignores_failure: spec["failurePolicy"] == "Ignore",
            criteria: Criteria::of_match_resources(&spec["matchConstraints"])?,
            param_kind,
            validates,
            spec: spec.clone(),
            code: OnceLock::new(),
        })
    }

    /// Whether this is the policy of an object, whatever its metadata and status are.
    pub(super) fn is_still(&self, object: &Value) -> bool {
        self.spec == object["spec"]
    }

    /// The expressions, compiled if nothing has needed them yet.
    pub(super) fn code(&self) -> &Code {
        self.code.get_or_init(|| Code::compile(&self.spec, self.validates))
    }

    /// Whether nothing has to be compiled for a request any more.
    #[cfg(test)]
    fn is_compiled(&self) -> bool {
        self.code.get().is_some()
    }
}

impl Code {
    fn compile(spec: &Value, validates: bool) -> Self {
        let params = spec["paramKind"].is_object();
        let mut base = Declarations::admission(params, true);
        if !validates {
            base = base.with_patches();
        }
        let (mut types, mut variables) = (PolicyVariables::default(), Variables::default());
        for variable in list(spec, "variables") {
            variables.push(types.compile(&base, text(variable, "name"), text(variable, "expression")));
        }
        let declared = |authorizer: bool| {
            let base = if authorizer { base.clone() } else { Declarations::admission(params, false) };
            if list(spec, "variables").is_empty() { base } else { base.and(&types) }
        };
        let rules = if validates { validating_rules(spec, &declared) } else { mutating_rules(spec, &declared(true)) };
        let uses = rules.uses().or(variables.uses());
        let conditions = CompiledConditions::of_policy(&spec["matchConditions"], params);
        Code { conditions, variables, rules, uses }
    }
}

fn validating_rules(spec: &Value, declared: &dyn Fn(bool) -> Declarations) -> Rules {
    // Expressions of messages have no access to the authorizer.
    let (with_authorizer, without_authorizer) = (declared(true), declared(false));
    let validation = |rule: &Value| Validation {
        expression: with_authorizer.compile(text(rule, "expression"), ExpectedType::Bool),
        text: text(rule, "expression").to_owned(),
        message: text(rule, "message").trim().to_owned(),
        message_expression: Some(text(rule, "messageExpression"))
            .filter(|made| !made.is_empty())
            .map(|made| without_authorizer.compile(made, ExpectedType::String)),
        reason: match text(rule, "reason") {
            "Forbidden" => Reason::Forbidden,
            "RequestEntityTooLarge" => Reason::RequestEntityTooLarge,
            "Unauthorized" => Reason::Unauthorized,
            _ => Reason::Invalid,
        },
    };
    let annotation = |annotation: &Value| AuditAnnotation {
        key: text(annotation, "key").to_owned(),
        expression: with_authorizer.compile(text(annotation, "valueExpression").trim(), ExpectedType::StringOrNull),
    };
    Rules::Validate {
        validations: list(spec, "validations").iter().map(validation).collect(),
        annotations: list(spec, "auditAnnotations").iter().map(annotation).collect(),
    }
}

fn mutating_rules(spec: &Value, declared: &Declarations) -> Rules {
    let mutation = |mutation: &Value| {
        let (kind, written, wanted) = match text(mutation, "patchType") {
            "JSONPatch" => (MutationKind::JsonPatch, &mutation["jsonPatch"], ExpectedType::JsonPatch),
            _ => (MutationKind::ApplyConfiguration, &mutation["applyConfiguration"], ExpectedType::ApplyConfiguration),
        };
        Mutation { kind, expression: declared.compile(text(written, "expression"), wanted) }
    };
    Rules::Mutate {
        mutations: list(spec, "mutations").iter().map(mutation).collect(),
        runs_again: text(spec, "reinvocationPolicy") == "IfNeeded",
    }
}

impl Rules {
    fn uses(&self) -> Uses {
        let expressions: Vec<&Compiled> = match self {
            Rules::Validate { validations, annotations } => {
                let messages = validations.iter().filter_map(|rule| rule.message_expression.as_ref());
                let annotations = annotations.iter().map(|annotation| &annotation.expression);
                validations.iter().map(|rule| &rule.expression).chain(messages).chain(annotations).collect()
            }
            Rules::Mutate { mutations, .. } => mutations.iter().map(|mutation| &mutation.expression).collect(),
        };
        let compiled = expressions.into_iter().filter_map(|expression| expression.as_ref().ok());
        compiled.fold(Uses::default(), |uses, expression| uses.or(expression.uses()))
    }
}

impl Binding {
    pub(super) fn read(object: &Value) -> Result<Self, String> {
        let spec = &object["spec"];
        let action = |action: &Value| match action.as_str() {
            Some("Deny") => Some(Action::Deny),
            Some("Warn") => Some(Action::Warn),
            Some("Audit") => Some(Action::Audit),
            _ => None,
        };
        let narrows = spec["matchResources"].is_object();
        Ok(Binding {
            name: text(&object["metadata"], "name").to_owned(),
            policy: text(spec, "policyName").to_owned(),
            criteria: narrows.then(|| Criteria::of_match_resources(&spec["matchResources"])).transpose()?,
            params: spec["paramRef"].is_object().then(|| ParamRef::read(&spec["paramRef"])).transpose()?,
            actions: list(spec, "validationActions").iter().filter_map(action).collect(),
        })
    }
}

impl ParamRef {
    fn read(reference: &Value) -> Result<Self, String> {
        let name = text(reference, "name");
        let selected = match name {
            "" => Selected::Selector(Selector::from_label_selector(&reference["selector"])?),
            name => Selected::Name(name.to_owned()),
        };
        let required = text(reference, "parameterNotFoundAction") == "Deny";
        Ok(ParamRef { namespace: text(reference, "namespace").to_owned(), selected, required })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::json::json;

    #[test]
    fn bd_1_expressions_are_compiled_when_they_are_needed_and_once() {
        let rules =
            json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]);
        let object = json!({
            "metadata": {"name": "p", "resourceVersion": "1"},
            "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "object.x > 1"}, {"expression": "("}]},
        });
        let policy = Policy::read(&object, true).expect("it can be read");
        assert!(!policy.is_compiled(), "reading it compiles nothing");
        let Rules::Validate { validations, .. } = &policy.code().rules else { panic!("it validates") };
        assert_eq!(validations.iter().map(|rule| rule.expression.is_ok()).collect::<Vec<_>>(), [true, false]);
        assert!(policy.is_compiled());
        let mut written = object.clone();
        written["metadata"]["resourceVersion"] = json!("2");
        written["status"] = json!({"observedGeneration": 1});
        assert!(policy.is_still(&written), "a new status changes no expression");
        written["spec"]["validations"][0]["expression"] = json!("true");
        assert!(!policy.is_still(&written));
    }
}
