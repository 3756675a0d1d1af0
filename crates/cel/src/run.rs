//! Runs the expressions of admission policies on the objects of a request.
//!
//! A [`Run`] is one list of expressions with a common budget: the validations of a policy, its messages, or one mutation. The
//! variables of the policy are evaluated on first use and once for each list. Objects are read where they are, without a copy.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

use machinery::json::Value;

use crate::access::{self, Access, Check, Decisions, ResourceCheck, Subject};
use crate::ast::Ast;
use crate::cost::{CALL_LIMIT, Meter};
use crate::evaluate::{Evaluator, Slot};
use crate::patch;
use crate::plan::Plan;
use crate::shape::Shape;
use crate::value::{Fault, Outcome, Val, from_json};

/// Names of the variables, in the order of their slots.
pub(crate) const SLOTS: [&str; 7] =
    ["object", "oldObject", "namespaceObject", "request", "params", "authorizer", "authorizer.requestResource"];

/// The text of an exhausted budget.
pub const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Levels of all expressions that are evaluated inside of each other: an expression, a variable that it uses, and so on.
const DEPTH_MAX: u32 = Ast::DEPTH_MAX as u32;

/// A compiled expression of a policy.
#[derive(Debug)]
pub struct Expression {
    pub(crate) text: Box<str>,
    pub(crate) plan: Plan,
    pub(crate) depth: u16,
    pub(crate) uses: Uses,
}

/// Which of the costly inputs an expression reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    pub request: bool,
    pub namespace: bool,
    pub authorizer: bool,
}

impl Uses {
    #[must_use]
    pub fn or(self, other: Uses) -> Uses {
        Uses {
            request: self.request || other.request,
            namespace: self.namespace || other.namespace,
            authorizer: self.authorizer || other.authorizer,
        }
    }
}

impl Expression {
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    #[must_use]
    pub fn uses(&self) -> Uses {
        self.uses
    }
}

/// A variable that a policy declares.
#[derive(Debug)]
pub struct Variable {
    pub(crate) name: Box<str>,
    /// Or why the expression does not compile.
    pub(crate) expression: Result<Expression, String>,
}

/// The compiled variables of a policy.
#[derive(Debug, Default)]
pub struct Variables(pub(crate) Vec<Variable>);

impl Variables {
    /// Adds a variable, in the order in which they were declared.
    pub fn push(&mut self, variable: Variable) {
        self.0.push(variable);
    }

    /// What the expressions of all variables read.
    #[must_use]
    pub fn uses(&self) -> Uses {
        let compiled = self.0.iter().filter_map(|variable| variable.expression.as_ref().ok());
        compiled.fold(Uses::default(), |uses, expression| uses.or(expression.uses))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|variable| &*variable.name)
    }
}

static NULL: Value = Value::Null;

/// What expressions can read.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// Null if the request has none; so are the others.
    pub object: &'a Value,
    pub old_object: &'a Value,
    pub namespace: &'a Value,
    pub request: &'a Value,
    pub params: &'a Value,
    /// The resource of `authorizer.requestResource`, and the answers of `authorizer`. Without it they have no value.
    pub authorizer: Option<(&'a dyn Decisions, &'a dyn Fn() -> ResourceCheck)>,
}

impl Default for Inputs<'_> {
    fn default() -> Self {
        Inputs { object: &NULL, old_object: &NULL, namespace: &NULL, request: &NULL, params: &NULL, authorizer: None }
    }
}

/// Why a run ends before its last expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The budget is exhausted.
    Budget,
    /// The authorizer has to answer first; the run is then repeated.
    Needs(Box<Check>),
}

/// The result of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Bool(bool),
    Text(String),
    Null,
    /// A value of another type.
    Other(&'static str),
}

/// The result of an expression or the text of its error, unless the run stops.
pub type Evaluated<T> = Result<Result<T, String>, Stop>;

/// One list of expressions that share a budget and the values of variables.
pub struct Run<'p, 'a> {
    scope: Scope<'p, 'a>,
    budget: Cell<u64>,
    spent: Cell<u64>,
}

impl<'p, 'a> Run<'p, 'a> {
    #[must_use]
    pub fn new(inputs: Inputs<'a>, variables: &'p Variables, budget: u64) -> Self {
        let scope = Scope {
            inputs,
            variables: &variables.0,
            known: RefCell::new(Vec::new()),
            depth: Cell::new(0),
            cost: Cell::new(0),
            pending: RefCell::new(None),
        };
        Run { scope, budget: Cell::new(budget), spent: Cell::new(0) }
    }

    /// What is left of the budget.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.budget.get()
    }

    /// The cost of all expressions so far, those of variables included.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.spent.get()
    }

    /// Evaluates a condition, a message or an annotation.
    pub fn answer(&self, expression: &Expression) -> Evaluated<Answer> {
        Ok(self.evaluate(expression)?.map(|value| match value {
            Val::Bool(value) => Answer::Bool(value),
            Val::String(text) => Answer::Text(text.to_string()),
            Val::Null => Answer::Null,
            other => Answer::Other(other.type_name()),
        }))
    }

    /// Evaluates an expression that returns an apply configuration.
    pub fn apply_configuration(&self, expression: &Expression) -> Evaluated<Value> {
        Ok(self.evaluate(expression)?.and_then(|value| patch::apply_configuration(&value)))
    }

    /// Evaluates an expression that returns the operations of a JSON patch.
    pub fn json_patch(&self, expression: &Expression) -> Evaluated<Vec<Value>> {
        Ok(self.evaluate(expression)?.and_then(|value| patch::json_patch(&value)))
    }

    /// The variables that were used so far, with their values or errors.
    #[must_use]
    pub fn used_variables(&self) -> Vec<(&'p str, Result<Value, String>)> {
        let known = self.scope.known.borrow();
        let used = self.scope.variables.iter().zip(known.iter());
        let shown = |value: &Outcome<Val<'a>>| match value {
            Ok(value) => patch::to_json(value).or_else(|_| Ok(Value::from(value.type_name()))),
            Err(fault) => Err(fault.to_string()),
        };
        used.filter_map(|(variable, value)| Some((&*variable.name, shown(value.as_ref()?)))).collect()
    }

    fn evaluate(&self, expression: &Expression) -> Evaluated<Val<'a>> {
        let (value, cost) = self.scope.run(expression);
        if let Some(check) = self.scope.pending.borrow_mut().take() {
            return Err(Stop::Needs(check));
        }
        let cost = cost.saturating_add(self.scope.cost.take());
        self.spent.set(self.spent.get().saturating_add(cost));
        let Some(left) = self.budget.get().checked_sub(cost) else {
            return Err(Stop::Budget);
        };
        self.budget.set(left);
        Ok(value.map_err(|fault| format!("expression '{}' resulted in error: {fault}", expression.text)))
    }
}

impl fmt::Debug for Run<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("budget", &self.budget).finish_non_exhaustive()
    }
}

/// What the expressions of one list have in common.
pub(crate) struct Scope<'p, 'a> {
    inputs: Inputs<'a>,
    variables: &'p [Variable],
    /// The values of the variables used so far.
    known: RefCell<Vec<Option<Outcome<Val<'a>>>>>,
    /// Levels of the expressions that are evaluated now.
    depth: Cell<u32>,
    /// Cost of variables since the last expression of the list.
    cost: Cell<u64>,
    /// The check that stopped the evaluation.
    pending: RefCell<Option<Box<Check>>>,
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

impl<'a> Scope<'_, 'a> {
    /// Evaluates an expression and returns its cost.
    fn run(&self, expression: &Expression) -> (Outcome<Val<'a>>, u64) {
        let depth = self.depth.get() + u32::from(expression.depth);
        if depth > DEPTH_MAX {
            return (Err(Fault::from_static("variables are nested too deeply")), 0);
        }
        let outer = self.depth.replace(depth);
        let mut evaluator =
            Evaluator { slots: self.slots(expression), meter: Meter::new(CALL_LIMIT), scope: Some(self) };
        let value = evaluator.eval(&expression.plan);
        self.depth.set(outer);
        (value, evaluator.meter.cost())
    }

    fn slots<'p>(&self, expression: &Expression) -> Vec<Slot<'p, 'a>> {
        let Inputs { object, old_object, namespace, request, params, authorizer } = self.inputs;
        let mut slots = Vec::with_capacity(SLOTS.len() + 3);
        for value in [object, old_object, namespace, request, params] {
            slots.push(Slot::Ready(from_json(value, Shape::dynamic())));
        }
        if !expression.uses.authorizer {
            return slots_without_authorizer(slots);
        }
        let Some((_, resource)) = authorizer else {
            return slots_without_authorizer(slots);
        };
        for access in [Access::Authorizer(Subject::Requester), Access::Resource(Subject::Requester, resource())] {
            slots.push(Slot::Ready(Ok(Val::Access(Arc::new(access)))));
        }
        slots
    }

    /// Returns the value of a variable of the policy.
    pub(crate) fn variable(&self, at: usize) -> Outcome<Val<'a>> {
        if let Some(Some(value)) = self.known.borrow().get(at) {
            return value.clone();
        }
        let Some(variable) = self.variables.get(at) else {
            return Err(Fault::from_static("no such attribute(s): variables"));
        };
        let value = match &variable.expression {
            Err(why) => Err(Fault::new(format!("composited variable \"{}\" fails to compile: {why}", variable.name))),
            Ok(expression) => {
                let (value, cost) = self.run(expression);
                self.cost.set(self.cost.get().saturating_add(cost));
                if self.pending.borrow().is_some() {
                    return Err(Fault::Limit);
                }
                value.map_err(|fault| {
                    Fault::new(format!("composited variable \"{}\" fails to evaluate: {fault}", variable.name))
                })
            }
        };
        let mut known = self.known.borrow_mut();
        if known.len() <= at {
            known.resize(self.variables.len(), None);
        }
        if let Some(place) = known.get_mut(at) {
            *place = Some(value.clone());
        }
        value
    }

    /// Returns the decision of the authorizer, or stops the evaluation until it is known.
    pub(crate) fn check(&self, args: &[Val<'a>]) -> Outcome<Val<'a>> {
        let check = access::question(args)?;
        let Some((decisions, _)) = self.inputs.authorizer else {
            return Err(Fault::overload());
        };
        match decisions.decide(&check) {
            Some(decision) => Ok(Val::Access(Arc::new(Access::Decision(decision)))),
            None => {
                *self.pending.borrow_mut() = Some(Box::new(check));
                // Like an exhausted budget, this is not absorbed by `||`.
                Err(Fault::Limit)
            }
        }
    }
}

fn slots_without_authorizer<'p, 'a>(mut slots: Vec<Slot<'p, 'a>>) -> Vec<Slot<'p, 'a>> {
    slots.push(Slot::Missing(SLOTS[5]));
    slots.push(Slot::Missing(SLOTS[6]));
    slots
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use crate::policy::{Decision, Declarations, ExpectedType, PolicyVariables};

    use super::*;

    const BUDGET: u64 = 10_000_000;

    fn bool_of(text: &str, inputs: Inputs<'_>) -> Evaluated<Answer> {
        let declared = Declarations::admission(true, true);
        let expression = declared.compile(text, ExpectedType::Bool).unwrap_or_else(|why| panic!("{text}: {why}"));
        Run::new(inputs, &Variables::default(), BUDGET).answer(&expression)
    }

    fn pod() -> Value {
        json!({
            "metadata": {"name": "p", "labels": {"a": "b"}, "creationTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}]}], "x": null, "f": 1.5},
        })
    }

    #[test]
    fn objects_have_no_schema() {
        let (object, request) = (pod(), json!({"operation": "CREATE", "options": {"a": 1}}));
        let inputs = Inputs { object: &object, request: &request, ..Inputs::default() };
        for text in [
            "object.spec.containers.all(c, c.image.endsWith(':1'))",
            "object.spec.containers[0].ports[0].containerPort == 80",
            "type(object.metadata.creationTimestamp) == string",
            "object.spec.f == 1.5 && object.spec.x == null && has(object.spec.x)",
            "object.metadata.labels == {'a': 'b'} && object.metadata.labels != {}",
            "object.spec.containers != 'text' && !(object.metadata == 1)",
            "object.metadata.?labels.?nope.orValue('') == '' && 'a' in object.metadata.labels",
            "oldObject == null && params == null && request.options.a == 1",
            "object.spec.containers.map(c, c.name) + ['d'] == ['c', 'd']",
        ] {
            assert_eq!(bool_of(text, inputs), Ok(Ok(Answer::Bool(true))), "{text}");
        }
        for (text, error) in [
            ("object.nope.a == 1", "no such key: nope"),
            ("oldObject.a == 1", "no such key: a"),
            ("object.spec.containers[3].name == ''", "index out of bounds: 3"),
            ("object.metadata.name.x == 1", "no such key: x"),
            ("object.metadata.name + 1 == 2", "no such overload"),
        ] {
            let error = format!("expression '{text}' resulted in error: {error}");
            assert_eq!(bool_of(text, inputs), Ok(Err(error)), "{text}");
        }
    }

    #[test]
    fn vap_4_variables_are_evaluated_on_first_use_and_once() {
        let base = Declarations::admission(false, true);
        let (mut types, mut variables) = (PolicyVariables::default(), Variables::default());
        for (name, text) in [
            ("all", "object.spec.containers"),
            ("count", "variables.all.size()"),
            ("broken", "object.nope"),
            ("wrong", "nope"),
        ] {
            variables.push(types.compile(&base, name, text));
        }
        let declared = base.and(&types);
        let object = pod();
        let run = Run::new(Inputs { object: &object, ..Inputs::default() }, &variables, BUDGET);
        let answer = |text: &str| run.answer(&declared.compile(text, ExpectedType::Bool).unwrap());
        assert_eq!(answer("variables.count == 1 && has(variables.broken)"), Ok(Ok(Answer::Bool(true))));
        let first = run.spent();
        assert_eq!(answer("variables.count == 1 && has(variables.broken)"), Ok(Ok(Answer::Bool(true))));
        assert!(run.spent() - first < first, "the variables are not evaluated again");
        assert_eq!(answer("false && variables.broken == 1"), Ok(Ok(Answer::Bool(false))));
        let error = "expression 'variables.broken == 1' resulted in error: composited variable \"broken\" fails to evaluate: \
                     no such key: nope";
        assert_eq!(answer("variables.broken == 1"), Ok(Err(error.to_owned())));
        assert!(answer("variables.wrong == 1").unwrap().unwrap_err().contains("\"wrong\" fails to compile: "));
        assert_eq!(answer("variables.?count.orValue(0) == 1"), Ok(Ok(Answer::Bool(true))));
        let used: Vec<&str> = run.used_variables().into_iter().map(|(name, _)| name).collect();
        assert_eq!(used, ["all", "count", "broken", "wrong"]);
    }

    #[test]
    fn variables_do_not_nest_without_end() {
        let base = Declarations::admission(false, true);
        let (mut types, mut variables) = (PolicyVariables::default(), Variables::default());
        variables.push(types.compile(&base, "v0", "1"));
        for at in 1..400 {
            variables.push(types.compile(&base, &format!("v{at}"), &format!("variables.v{} + 1", at - 1)));
        }
        let expression = base.and(&types).compile("variables.v399 == 400", ExpectedType::Bool).unwrap();
        let answer = Run::new(Inputs::default(), &variables, BUDGET).answer(&expression);
        assert!(answer.unwrap().unwrap_err().contains("variables are nested too deeply"));
    }

    #[test]
    fn vap_7_the_budget_is_shared_and_one_expression_is_limited() {
        let declared = Declarations::admission(false, false);
        let compile = |text: &str| declared.compile(text, ExpectedType::Bool).unwrap();
        let none = Variables::default();
        let run = Run::new(Inputs::default(), &none, 10);
        assert_eq!(run.answer(&compile("[1, 2] == [1, 2]")), Ok(Ok(Answer::Bool(true))));
        assert_eq!(run.answer(&compile("[1, 2].all(x, [1, 2].all(y, x + y > 0))")), Err(Stop::Budget));
        let all = |inner: &str, name: &str| format!("[1,2,3,4,5,6,7,8,9,10].all({name}, {inner})");
        let text = ["a", "b", "c", "d", "e", "f"].iter().fold("a > 0".to_owned(), |text, name| all(&text, name));
        let limit = "resulted in error: operation cancelled: actual cost limit exceeded";
        let answer = Run::new(Inputs::default(), &none, BUDGET).answer(&compile(&text));
        assert!(answer.unwrap().unwrap_err().ends_with(limit));
    }

    struct Known(Vec<(Check, Decision)>);

    impl Decisions for Known {
        fn decide(&self, check: &Check) -> Option<Decision> {
            self.0.iter().find(|(known, _)| known == check).map(|(_, decision)| decision.clone())
        }
    }

    #[test]
    fn vap_10_an_evaluation_stops_at_a_decision_that_is_not_known() {
        let text = "authorizer.group('apps').resource('deployments').subresource('scale').namespace('n').name('d').check('get')";
        let text = format!("({text}.allowed() || true) && {text}.reason() == 'r'");
        let resource = || ResourceCheck { resource: "pods".to_owned(), ..ResourceCheck::default() };
        fn inputs<'a>(known: &'a Known, resource: &'a dyn Fn() -> ResourceCheck) -> Inputs<'a> {
            Inputs { authorizer: Some((known, resource)), ..Inputs::default() }
        }
        let mut known = Known(Vec::new());
        let Err(Stop::Needs(check)) = bool_of(&text, inputs(&known, &resource)) else { panic!("it needs a decision") };
        let wanted = ResourceCheck {
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            subresource: "scale".to_owned(),
            namespace: "n".to_owned(),
            name: "d".to_owned(),
            ..ResourceCheck::default()
        };
        assert_eq!(check.target, crate::access::CheckTarget::Resource(wanted));
        known.0.push((*check, Decision { allowed: true, reason: "r".to_owned(), error: None }));
        assert_eq!(bool_of(&text, inputs(&known, &resource)), Ok(Ok(Answer::Bool(true))));
        let own = "authorizer.requestResource.check('get').allowed()";
        assert!(matches!(bool_of(own, inputs(&known, &resource)), Err(Stop::Needs(check)) if check.verb == "get"));
        let account = "authorizer.serviceAccount('n', 's').path('/metrics').check('get').allowed()";
        let Err(Stop::Needs(check)) = bool_of(account, inputs(&known, &resource)) else {
            panic!("it needs a decision")
        };
        assert_eq!(check.subject, Subject::ServiceAccount { namespace: "n".to_owned(), name: "s".to_owned() });
        let error =
            bool_of("authorizer.path(' ').check('get').allowed()", inputs(&known, &resource)).unwrap().unwrap_err();
        assert!(error.ends_with("resulted in error: path must not be empty"), "{error}");
        let error = bool_of("authorizer.path('/').check('get').allowed()", Inputs::default()).unwrap().unwrap_err();
        assert!(error.ends_with("no such attribute(s): authorizer"), "{error}");
    }

    fn mutations() -> Declarations {
        Declarations::admission(false, true).with_patches()
    }

    #[test]
    fn map_3_5_apply_configurations_are_named_by_path() {
        let object = pod();
        let apply = |text: &str| {
            let expression = mutations().compile(text, ExpectedType::ApplyConfiguration).unwrap();
            let inputs = Inputs { object: &object, ..Inputs::default() };
            Run::new(inputs, &Variables::default(), BUDGET).apply_configuration(&expression).unwrap()
        };
        let text = "Object{spec: Object.spec{containers: object.spec.containers.map(c, \
                    Object.spec.containers{name: c.name, ports: c.ports})}, ?kind: optional.none(), ?data: optional.of({'a': '1'})}";
        let want =
            json!({"data": {"a": "1"}, "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}});
        assert_eq!(apply(text), Ok(want));
        let mismatch = "type mismatch: unexpected type name \"Object.spec.wrong\", expected \"Object.spec.selector\", which \
                        matches field name path from root Object type";
        assert_eq!(apply("Object{spec: Object.spec{selector: Object.spec.wrong{}}}"), Err(mismatch.to_owned()));
        for (text, why) in [
            ("1", "must evaluate to Object but got int"),
            ("Object.spec{}", "must evaluate to Object but got Object.spec"),
            ("JSONPatch{}", "must evaluate to Object but got JSONPatch"),
            (
                "Objects{}",
                "compilation failed: ERROR: <input>:1:8: undeclared reference to 'Objects' (in container '')",
            ),
        ] {
            let error = mutations().error(text, ExpectedType::ApplyConfiguration).unwrap();
            assert!(error.starts_with(why), "{text}: {error}");
        }
        let plain = Declarations::admission(false, true);
        assert!(plain.error("Object{}", ExpectedType::Anything).unwrap().contains("undeclared reference to 'Object'"));
        assert!(plain.error("jsonpatch.escapeKey('a')", ExpectedType::Anything).is_some());
    }

    #[test]
    fn map_6_json_patches_are_lists_of_operations() {
        let object = pod();
        let patch = |text: &str| {
            let expression = mutations().compile(text, ExpectedType::JsonPatch).unwrap();
            let inputs = Inputs { object: &object, ..Inputs::default() };
            Run::new(inputs, &Variables::default(), BUDGET).json_patch(&expression).unwrap()
        };
        let text = "[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('x/~y'), value: object.metadata.labels}, \
                    JSONPatch{op: 'move', from: '/a', path: '/b'}, JSONPatch{op: 'add', path: '/c', value: Object.c{d: 1}}]";
        let want = vec![
            json!({"op": "add", "path": "/a/x~1~0y", "value": {"a": "b"}}),
            json!({"op": "move", "path": "/b", "from": "/a"}),
            json!({"op": "add", "path": "/c", "value": {"d": 1}}),
        ];
        assert_eq!(patch(text), Ok(want));
        assert_eq!(patch("false ? [JSONPatch{}] : []"), Ok(Vec::new()));
        for (text, why) in [
            ("[]", "must evaluate to list(JSONPatch) but got list(dyn)"),
            (
                "[JSONPatch{op: 1}]",
                "compilation failed: ERROR: <input>:1:14: expected type of field 'op' is 'string' but provided type is 'int'",
            ),
            (
                "[JSONPatch{nope: 1}]",
                "compilation failed: ERROR: <input>:1:16: expected type of field 'nope' is '' but provided type is 'int'",
            ),
        ] {
            let error = mutations().error(text, ExpectedType::JsonPatch).unwrap();
            assert!(error.starts_with(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_mutation_does_not_create_more_than_can_be_stored() {
        let object = json!({"data": {"k": "x".repeat(100_000)}});
        let many = "[1,2,3,4,5,6,7,8,9,10]";
        let text = format!("Object{{x: {many}.map(a, {many}.map(b, object.data))}}");
        let expression = mutations().compile(&text, ExpectedType::ApplyConfiguration).unwrap();
        let inputs = Inputs { object: &object, ..Inputs::default() };
        let made = Run::new(inputs, &Variables::default(), BUDGET).apply_configuration(&expression).unwrap();
        assert!(made.unwrap_err().starts_with("value is larger than "));
    }

    #[test]
    fn the_operations_of_a_patch_together_do_not_create_more_than_can_be_stored() {
        let items = |count: usize| Value::from((0..count).map(|at| json!(at)).collect::<Vec<_>>());
        let object =
            json!({"large": "x".repeat(1_000_000), "few": items(4), "most": items(10_000), "many": items(10_001)});
        let patch = |text: &str| {
            let expression = mutations().compile(text, ExpectedType::JsonPatch).unwrap();
            let inputs = Inputs { object: &object, ..Inputs::default() };
            Run::new(inputs, &Variables::default(), BUDGET).json_patch(&expression).unwrap()
        };
        let one = patch("[JSONPatch{op: 'add', path: '/a', value: object.large}]").unwrap();
        assert_eq!(one[0]["value"], object["large"]);
        for text in [
            "object.few.map(at, JSONPatch{op: 'add', path: '/a', value: object.large})",
            "object.few.map(at, JSONPatch{op: 'add', path: '/a', value: {'in': [object.large]}})",
            "object.few.map(at, JSONPatch{op: 'remove', path: object.large})",
            "object.few.map(at, JSONPatch{op: 'move', path: '/a', from: object.large})",
        ] {
            let error = patch(text).map(|operations| operations.len()).unwrap_err();
            assert!(error.ends_with("value is larger than 3145728 bytes"), "{text}: {error}");
        }
        assert_eq!(patch("object.most.map(at, JSONPatch{op: 'remove', path: '/a'})").unwrap().len(), 10_000);
        assert_eq!(
            patch("object.many.map(at, JSONPatch{op: 'remove', path: '/a'})"),
            Err("The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned())
        );
    }
}
