//! Expressions outside schemas: conditions of webhooks, admission policies, device selectors. They are checked when such an
//! object is written; those of webhooks and policies are compiled with the same declarations and run by [`Run`].

use std::sync::{Arc, LazyLock};

use machinery::json::{Value, json};

use crate::run::SLOTS;
use crate::shape::Shape;
use crate::source::Issues;
use crate::types::{Extra, Type};
use crate::{checker, literal_checks, parser, plan};

pub use crate::access::{Check, CheckTarget, Decision, Decisions, ResourceCheck, Subject};
pub use crate::run::{Answer, Evaluated, Expression, Inputs, OUT_OF_BUDGET, Run, Stop, Uses, Variable, Variables};

/// The type that an expression must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedType {
    Bool,
    String,
    /// The value of an audit annotation.
    StringOrNull,
    Anything,
    /// A bool, or a type that is not known before evaluation.
    BoolOrUnknown,
    /// `Object`
    ApplyConfiguration,
    /// `list(JSONPatch)`
    JsonPatch,
}

/// The variables of the expressions in one field.
#[derive(Clone, Debug)]
pub struct Declarations {
    variables: Vec<(Box<str>, Type)>,
    composes: bool,
    /// The types of mutations are declared.
    patches: bool,
}

/// Prefix of the variables that a policy declares.
pub(crate) const VARIABLES: &str = "variables";

impl Declarations {
    /// The variables of admission: new and old object, request, namespace.
    #[must_use]
    pub fn admission(params: bool, authorizer: bool) -> Declarations {
        let mut variables: Vec<(Box<str>, Type)> = vec![
            ("object".into(), Type::Dyn),
            ("oldObject".into(), Type::Dyn),
            ("namespaceObject".into(), Type::Object(Arc::clone(&NAMESPACE))),
            ("request".into(), Type::Object(Arc::clone(&REQUEST))),
        ];
        if params {
            variables.push(("params".into(), Type::Dyn));
        }
        if authorizer {
            variables.push(("authorizer".into(), Type::Extra(Extra::Authorizer)));
            variables.push(("authorizer.requestResource".into(), Type::Extra(Extra::ResourceCheck)));
        }
        Declarations { variables, composes: false, patches: false }
    }

    /// As [`Declarations::admission`], with an object of a known schema. `params` is set if there are params, and has their
    /// schema if it is known. For type checks only: what is compiled with it is not run.
    #[must_use]
    pub fn typed_admission(object: &Value, params: Option<Option<&Value>>) -> Declarations {
        let typed = |schema: &Value| {
            let shape = Shape::from_schema(schema, true);
            if shape.declared { shape.declared_type() } else { Type::Dyn }
        };
        let object = typed(object);
        let mut declared = Declarations::admission(params.is_some(), true);
        for (name, ty) in &mut declared.variables {
            match &**name {
                "object" | "oldObject" => *ty = object.clone(),
                "params" => *ty = params.flatten().map_or(Type::Dyn, typed),
                _ => {}
            }
        }
        declared
    }

    /// Returns the issues of an expression of any type.
    #[must_use]
    pub fn issues(&self, expression: &str) -> Option<Issues> {
        let checked = parser::parse(expression).and_then(|ast| checker::check_with(ast, &self.variables, self.patches));
        match checked {
            Err(issues) => Some(issues),
            Ok(checked) => Some(literal_checks::check(&checked)).filter(|issues| !issues.is_empty()),
        }
    }

    /// Declares the types of mutations too.
    #[must_use]
    pub fn with_patches(self) -> Declarations {
        Declarations { patches: true, ..self }
    }

    /// The variables of a device selector.
    #[must_use]
    pub fn device() -> Declarations {
        Declarations {
            variables: vec![("device".into(), Type::Object(Arc::clone(&DEVICE)))],
            composes: false,
            patches: false,
        }
    }

    /// Adds the variables that a policy declared so far, as fields of `variables`.
    #[must_use]
    pub fn and(mut self, composed: &PolicyVariables) -> Declarations {
        if !self.composes {
            self.composes = true;
            self.variables.push((VARIABLES.into(), Type::Object(Arc::clone(&NOTHING))));
        }
        self.variables.extend(composed.0.iter().cloned());
        self
    }

    /// Returns the error of an expression, in the wording of Kubernetes.
    #[must_use]
    pub fn error(&self, expression: &str, wanted: ExpectedType) -> Option<String> {
        self.check(expression, wanted).err()
    }

    /// Compiles an expression to be run, or returns its error in the wording of Kubernetes.
    pub fn compile(&self, expression: &str, wanted: ExpectedType) -> Result<Expression, String> {
        let checked = self.check(expression, wanted)?;
        let composed: Vec<&str> = self.composed().collect();
        let plan = plan::plan_with(&checked, &SLOTS, &composed)
            .map_err(|why| format!("program instantiation failed: {why}"))?;
        Ok(Expression {
            text: expression.into(),
            plan,
            depth: checked.ast.depth(),
            uses: Uses {
                namespace: checked.names_variable(SLOTS[2]),
                request: checked.names_variable(SLOTS[3]),
                authorizer: checked.names_variable(SLOTS[5]),
            },
        })
    }

    /// The names of the variables that a policy declared.
    fn composed(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().filter_map(|(name, _)| name.strip_prefix(VARIABLES)?.strip_prefix('.'))
    }

    fn check(&self, expression: &str, wanted: ExpectedType) -> Result<checker::Checked, String> {
        let refused = |issues: crate::Issues| format!("compilation failed: {}", issues.render(expression));
        let ast = parser::parse(expression).map_err(refused)?;
        let checked = checker::check_with(ast, &self.variables, self.patches).map_err(refused)?;
        let issues = literal_checks::check(&checked);
        if !issues.is_empty() {
            return Err(refused(issues));
        }
        let (found, shown) = (checked.output(), || checked.display_type(checked.output()));
        let is_message = |ty: &Type, name: &str| matches!(ty, Type::Message(found) if &**found == name);
        let why = match (wanted, found) {
            (ExpectedType::Anything, _)
            | (ExpectedType::Bool | ExpectedType::BoolOrUnknown, Type::Bool)
            | (ExpectedType::BoolOrUnknown, Type::Dyn)
            | (ExpectedType::String | ExpectedType::StringOrNull, Type::String)
            | (ExpectedType::StringOrNull, Type::Null) => return Ok(checked),
            (ExpectedType::ApplyConfiguration, found) if is_message(found, checker::OBJECT) => return Ok(checked),
            (ExpectedType::JsonPatch, Type::List(item)) if is_message(item, checker::JSON_PATCH) => return Ok(checked),
            (ExpectedType::Bool, _) => format!("must evaluate to bool but got {}", shown()),
            (ExpectedType::BoolOrUnknown, _) => {
                format!("must evaluate to bool or the unknown type, not {}", shown())
            }
            (ExpectedType::String, _) => format!("must evaluate to string but got {}", shown()),
            (ExpectedType::StringOrNull, _) => {
                format!("must evaluate to one of [string null_type] but got {}", shown())
            }
            (ExpectedType::ApplyConfiguration, _) => format!("must evaluate to Object but got {}", shown()),
            (ExpectedType::JsonPatch, _) => format!("must evaluate to list(JSONPatch) but got {}", shown()),
        };
        Err(why)
    }
}

/// The variables that a policy declares; each can use the earlier ones.
#[derive(Clone, Debug, Default)]
pub struct PolicyVariables(Vec<(Box<str>, Type)>);

impl PolicyVariables {
    /// Adds a variable and returns the error of its expression. A variable with an error has type `dyn`.
    pub fn add(&mut self, base: &Declarations, name: &str, expression: &str) -> Option<String> {
        let checked = base.clone().and(self).check(expression, ExpectedType::Anything);
        let (ty, error) = match checked {
            Ok(checked) => (checked.output().clone(), None),
            Err(why) => (Type::Dyn, Some(why)),
        };
        self.0.push((format!("{VARIABLES}.{name}").into(), ty));
        error
    }

    /// Adds a variable and compiles its expression to be run.
    pub fn compile(&mut self, base: &Declarations, name: &str, expression: &str) -> Variable {
        let compiled = base.clone().and(self).compile(expression, ExpectedType::Anything);
        // A variable that does not compile fails where it is used.
        let _ = self.add(base, name, expression);
        Variable { name: name.into(), expression: compiled }
    }
}

/// Returns the name of a type of the request or the namespace, by its path in the schema; other types are named by the path.
pub(crate) fn type_name(root: &Arc<Shape>, path: &str) -> Option<&'static str> {
    let path = path.strip_prefix("selfType")?;
    if Arc::ptr_eq(root, &REQUEST) {
        return Some(match path {
            "" => "kubernetes.AdmissionRequest",
            ".kind" | ".requestKind" => "kubernetes.GroupVersionKind",
            ".resource" | ".requestResource" => "kubernetes.GroupVersionResource",
            ".userInfo" => "kubernetes.UserInfo",
            _ => return None,
        });
    }
    if Arc::ptr_eq(root, &NAMESPACE) {
        return Some(match path {
            "" => "kubernetes.Namespace",
            ".metadata" => "kubernetes.NamespaceMetadata",
            ".spec" => "kubernetes.NamespaceSpec",
            ".status" => "kubernetes.NamespaceStatus",
            ".status.conditions.@idx" => "kubernetes.NamespaceCondition",
            _ => return None,
        });
    }
    (Arc::ptr_eq(root, &NOTHING) && path.is_empty()).then_some("kubernetes.variables")
}

fn object(fields: Value) -> Value {
    json!({"type": "object", "properties": fields})
}

fn map(values: Value) -> Value {
    json!({"type": "object", "additionalProperties": values})
}

fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

fn string() -> Value {
    json!({"type": "string"})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

/// A value of any type.
fn any() -> Value {
    json!({"x-kubernetes-int-or-string": true})
}

static NOTHING: LazyLock<Arc<Shape>> = LazyLock::new(|| Shape::from_schema(&object(json!({})), false));

/// The admission request; the objects are separate variables.
static REQUEST: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let kind = object(json!({"group": string(), "version": string(), "kind": string()}));
    let resource = object(json!({"group": string(), "version": string(), "resource": string()}));
    let user =
        object(json!({"username": string(), "uid": string(), "groups": list(string()), "extra": map(list(string()))}));
    let request = json!({"kind": kind, "resource": resource, "subResource": string(), "requestKind": kind,
        "requestResource": resource, "requestSubResource": string(), "name": string(), "namespace": string(),
        "operation": string(), "userInfo": user, "dryRun": {"type": "boolean"}, "options": any()});
    // Both kinds, and both resources, are of one type, so that they can be compared.
    Shape::from_schema(&object(request), false)
        .with_same_type("requestKind", "kind")
        .with_same_type("requestResource", "resource")
});

static NAMESPACE: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let number = json!({"type": "integer"});
    let metadata = object(
        json!({"name": string(), "generateName": string(), "namespace": string(), "labels": map(string()),
        "annotations": map(string()), "UID": string(), "creationTimestamp": time(), "deletionGracePeriodSeconds": number,
        "deletionTimestamp": time(), "generation": number, "resourceVersion": string(), "finalizers": list(string())}),
    );
    let condition =
        object(json!({"status": string(), "type": string(), "lastTransitionTime": time(), "message": string(),
        "reason": string()}));
    let status = object(json!({"conditions": list(condition), "phase": string()}));
    let spec = object(json!({"finalizers": list(string())}));
    Shape::from_schema(&object(json!({"metadata": metadata, "spec": spec, "status": status})), false)
});

static DEVICE: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let device = json!({"driver": string(), "allowMultipleAllocations": {"type": "boolean"},
        "attributes": map(map(any())), "capacity": map(map(any()))});
    Shape::from_schema(&object(device), false)
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_policies_compile_or_say_why_not() {
        let plain = Declarations::admission(false, true);
        for (expression, wanted, want) in [
            ("object.metadata.name != 'bad'", ExpectedType::Bool, None),
            ("request.operation == 'CREATE' && 'a' in request.userInfo.groups", ExpectedType::Bool, None),
            ("request.namespace == namespaceObject.metadata.name", ExpectedType::Bool, None),
            ("namespaceObject.metadata.labels.exists(k, k == 'x')", ExpectedType::Bool, None),
            ("authorizer.group('').resource('pods').check('get').allowed()", ExpectedType::Bool, None),
            ("authorizer.requestResource.check('get').allowed()", ExpectedType::Bool, None),
            (
                "request.kind == request.requestKind && request.resource != request.requestResource",
                ExpectedType::Bool,
                None,
            ),
            ("1", ExpectedType::StringOrNull, Some("must evaluate to one of [string null_type] but got int")),
            ("object.spec.flag", ExpectedType::Bool, Some("must evaluate to bool but got dyn")),
            ("'a'", ExpectedType::Bool, Some("must evaluate to bool but got string")),
            ("true", ExpectedType::String, Some("must evaluate to string but got bool")),
            ("request", ExpectedType::Bool, Some("must evaluate to bool but got kubernetes.AdmissionRequest")),
            ("request.userInfo", ExpectedType::Bool, Some("must evaluate to bool but got kubernetes.UserInfo")),
        ] {
            assert_eq!(plain.error(expression, wanted).as_deref(), want, "{expression}");
        }
        let why = |expression: &str| plain.error(expression, ExpectedType::Bool).unwrap_or_default();
        assert!(why("params.a == 1").contains("undeclared reference to 'params' (in container '')"));
        assert!(why("request.nothing == 1").contains("undefined field 'nothing'"));
        assert!(why("variables.a").contains("undeclared reference to 'variables'"));
        assert!(why("object.(").starts_with("compilation failed: ERROR: <input>:1:8: Syntax error: "));
        let silent = Declarations::admission(true, false);
        assert_eq!(silent.error("params.a == 1", ExpectedType::Bool), None);
        assert!(silent.error("authorizer.path('/').check('get').allowed()", ExpectedType::Bool).is_some());
    }

    #[test]
    fn variables_of_a_policy_have_the_type_of_their_expression() {
        let base = Declarations::admission(false, true);
        let mut composed = PolicyVariables::default();
        assert_eq!(composed.add(&base, "n", "object.spec.containers.size()"), None);
        assert_eq!(composed.add(&base, "many", "variables.n > 3"), None);
        assert!(composed.add(&base, "wrong", "variables.later").unwrap().contains("undefined field 'later'"));
        let all = base.and(&composed);
        assert_eq!(all.error("variables.many && has(variables.n)", ExpectedType::Bool), None);
        assert_eq!(all.error("variables.wrong == 1", ExpectedType::Bool), None, "of any type");
        let why = all.error("variables.n == 'a'", ExpectedType::Bool).unwrap();
        assert!(why.contains("found no matching overload for '_==_' applied to '(int, string)'"), "{why}");
    }

    #[test]
    fn selectors_of_devices_look_at_a_device() {
        let device = Declarations::device();
        for fine in [
            "device.driver == 'a.example.com'",
            "device.attributes['a.example.com'].flag",
            "device.capacity['a.example.com'].memory.compareTo(quantity('1Gi')) >= 0",
        ] {
            assert_eq!(device.error(fine, ExpectedType::BoolOrUnknown), None, "{fine}");
        }
        assert_eq!(
            device.error("device.driver", ExpectedType::BoolOrUnknown).as_deref(),
            Some("must evaluate to bool or the unknown type, not string")
        );
    }
}
