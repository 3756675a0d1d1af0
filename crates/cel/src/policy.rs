//! Expressions that objects of the API carry beside schemas: conditions of webhooks and admission policies, selectors of
//! devices. Whether they compile, which is what is asked when such an object is written.

use std::sync::{Arc, LazyLock};

use machinery::json::{Value, json};

use crate::shape::Shape;
use crate::types::{Extra, Type};
use crate::{checker, literal_checks, parser};

/// What an expression must evaluate to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Bool,
    String,
    /// What an audit annotation is made of.
    StringOrNull,
    Anything,
    /// A bool, or what is not known before it is evaluated.
    BoolOrUnknown,
}

/// The variables that expressions of one place may name.
#[derive(Clone, Debug)]
pub struct Declarations {
    variables: Vec<(Box<str>, Type)>,
    composes: bool,
}

/// A variable whose type is what its expression evaluates to.
const VARIABLES: &str = "variables";

impl Declarations {
    /// Those of admission: the object as it is and as it was, the request, the namespace.
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
        Declarations { variables, composes: false }
    }

    /// Those of a selector of devices.
    #[must_use]
    pub fn device() -> Declarations {
        Declarations { variables: vec![("device".into(), Type::Object(Arc::clone(&DEVICE)))], composes: false }
    }

    /// With the variables that a policy has named so far, to be found below `variables`.
    #[must_use]
    pub fn and(mut self, composed: &Composed) -> Declarations {
        if !self.composes {
            self.composes = true;
            self.variables.push((VARIABLES.into(), Type::Object(Arc::clone(&NOTHING))));
        }
        self.variables.extend(composed.0.iter().cloned());
        self
    }

    /// What is wrong with an expression, in the words of the reference.
    #[must_use]
    pub fn complaint(&self, expression: &str, wanted: Wanted) -> Option<String> {
        self.compile(expression, wanted).err()
    }

    fn compile(&self, expression: &str, wanted: Wanted) -> Result<Type, String> {
        let refused = |issues: crate::Issues| format!("compilation failed: {}", issues.show(expression));
        let ast = parser::parse(expression).map_err(refused)?;
        let checked = checker::check(ast, &self.variables).map_err(refused)?;
        let issues = literal_checks::check(&checked);
        if !issues.is_empty() {
            return Err(refused(issues));
        }
        let (found, shown) = (checked.output(), || checked.show(checked.output()));
        match (wanted, found) {
            (Wanted::Anything, _)
            | (Wanted::Bool | Wanted::BoolOrUnknown, Type::Bool)
            | (Wanted::BoolOrUnknown, Type::Dyn)
            | (Wanted::String | Wanted::StringOrNull, Type::String)
            | (Wanted::StringOrNull, Type::Null) => Ok(found.clone()),
            (Wanted::Bool, _) => Err(format!("must evaluate to bool but got {}", shown())),
            (Wanted::BoolOrUnknown, _) => Err(format!("must evaluate to bool or the unknown type, not {}", shown())),
            (Wanted::String, _) => Err(format!("must evaluate to string but got {}", shown())),
            (Wanted::StringOrNull, _) => Err(format!("must evaluate to one of [string null_type] but got {}", shown())),
        }
    }
}

/// The variables that a policy names itself; each sees those before it.
#[derive(Clone, Debug, Default)]
pub struct Composed(Vec<(Box<str>, Type)>);

impl Composed {
    /// Adds a variable; gives what is wrong with its expression. It is then of any type for those that follow.
    pub fn add(&mut self, base: &Declarations, name: &str, expression: &str) -> Option<String> {
        let compiled = base.clone().and(self).compile(expression, Wanted::Anything);
        let (of, complaint) = match compiled {
            Ok(of) => (of, None),
            Err(why) => (Type::Dyn, Some(why)),
        };
        self.0.push((format!("{VARIABLES}.{name}").into(), of));
        complaint
    }
}

fn object(fields: Value) -> Value {
    json!({"type": "object", "properties": fields})
}

fn map(of: Value) -> Value {
    json!({"type": "object", "additionalProperties": of})
}

fn list(of: Value) -> Value {
    json!({"type": "array", "items": of})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

/// A value of any type.
fn any() -> Value {
    json!({"x-kubernetes-int-or-string": true})
}

static NOTHING: LazyLock<Arc<Shape>> = LazyLock::new(|| Shape::of(&object(json!({})), false));

/// The request as expressions see it: the objects are variables of their own.
static REQUEST: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let kind = object(json!({"group": text(), "version": text(), "kind": text()}));
    let resource = object(json!({"group": text(), "version": text(), "resource": text()}));
    let user = object(json!({"username": text(), "uid": text(), "groups": list(text()), "extra": map(list(text()))}));
    let request = json!({"kind": kind, "resource": resource, "subResource": text(), "requestKind": kind,
        "requestResource": resource, "requestSubResource": text(), "name": text(), "namespace": text(),
        "operation": text(), "userInfo": user, "dryRun": {"type": "boolean"}, "options": any()});
    Shape::of(&object(request), false)
});

static NAMESPACE: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let number = json!({"type": "integer"});
    let metadata = object(json!({"name": text(), "generateName": text(), "namespace": text(), "labels": map(text()),
        "annotations": map(text()), "UID": text(), "creationTimestamp": time(), "deletionGracePeriodSeconds": number,
        "deletionTimestamp": time(), "generation": number, "resourceVersion": text(), "finalizers": list(text())}));
    let condition = object(json!({"status": text(), "type": text(), "lastTransitionTime": time(), "message": text(),
        "reason": text()}));
    let status = object(json!({"conditions": list(condition), "phase": text()}));
    let spec = object(json!({"finalizers": list(text())}));
    Shape::of(&object(json!({"metadata": metadata, "spec": spec, "status": status})), false)
});

static DEVICE: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let device = json!({"driver": text(), "allowMultipleAllocations": {"type": "boolean"},
        "attributes": map(map(any())), "capacity": map(map(any()))});
    Shape::of(&object(device), false)
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_policies_compile_or_say_why_not() {
        let plain = Declarations::admission(false, true);
        for (expression, wanted, want) in [
            ("object.metadata.name != 'bad'", Wanted::Bool, None),
            ("request.operation == 'CREATE' && 'a' in request.userInfo.groups", Wanted::Bool, None),
            ("request.namespace == namespaceObject.metadata.name", Wanted::Bool, None),
            ("namespaceObject.metadata.labels.exists(k, k == 'x')", Wanted::Bool, None),
            ("authorizer.group('').resource('pods').check('get').allowed()", Wanted::Bool, None),
            ("authorizer.requestResource.check('get').allowed()", Wanted::Bool, None),
            ("1", Wanted::StringOrNull, Some("must evaluate to one of [string null_type] but got int")),
            ("object.spec.flag", Wanted::Bool, Some("must evaluate to bool but got dyn")),
            ("'a'", Wanted::Bool, Some("must evaluate to bool but got string")),
            ("true", Wanted::String, Some("must evaluate to string but got bool")),
        ] {
            assert_eq!(plain.complaint(expression, wanted).as_deref(), want, "{expression}");
        }
        let why = |expression: &str| plain.complaint(expression, Wanted::Bool).unwrap_or_default();
        assert!(why("params.a == 1").contains("undeclared reference to 'params' (in container '')"));
        assert!(why("request.nothing == 1").contains("undefined field 'nothing'"));
        assert!(why("variables.a").contains("undeclared reference to 'variables'"));
        assert!(why("object.(").starts_with("compilation failed: ERROR: <input>:1:8: Syntax error: "));
        let silent = Declarations::admission(true, false);
        assert_eq!(silent.complaint("params.a == 1", Wanted::Bool), None);
        assert!(silent.complaint("authorizer.path('/').check('get').allowed()", Wanted::Bool).is_some());
    }

    #[test]
    fn variables_of_a_policy_have_the_type_of_their_expression() {
        let base = Declarations::admission(false, true);
        let mut composed = Composed::default();
        assert_eq!(composed.add(&base, "n", "object.spec.containers.size()"), None);
        assert_eq!(composed.add(&base, "many", "variables.n > 3"), None);
        assert!(composed.add(&base, "wrong", "variables.later").unwrap().contains("undefined field 'later'"));
        let all = base.and(&composed);
        assert_eq!(all.complaint("variables.many && has(variables.n)", Wanted::Bool), None);
        assert_eq!(all.complaint("variables.wrong == 1", Wanted::Bool), None, "of any type");
        let why = all.complaint("variables.n == 'a'", Wanted::Bool).unwrap();
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
            assert_eq!(device.complaint(fine, Wanted::BoolOrUnknown), None, "{fine}");
        }
        assert_eq!(
            device.complaint("device.driver", Wanted::BoolOrUnknown).as_deref(),
            Some("must evaluate to bool or the unknown type, not string")
        );
    }
}
