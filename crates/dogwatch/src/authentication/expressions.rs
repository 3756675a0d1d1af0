//! Expressions over the claims of a token, or over the user that was made of them.

use std::sync::Arc;

use cel::{CompileError, Environment, Output, Program};
use machinery::json::{Value, json};
use server::authentication::issuers::Compile;
use server::authentication::issuers::claims::{Compiled, Variable};

/// Compiles expressions of an `AuthenticationConfiguration`.
pub(super) fn compile() -> Compile {
    let claims = Environment::new().with_dynamic("claims");
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let user = json!({
        "type": "object",
        "properties": {
            "username": {"type": "string"},
            "uid": {"type": "string"},
            "groups": texts,
            "extra": {"type": "object", "additionalProperties": texts},
        },
    });
    let user = Environment::new().with("user", &user, false);
    Arc::new(move |variable, text| {
        let environment = match variable {
            Variable::Claims => &claims,
            Variable::User => &user,
        };
        let program = environment.compile(text, Output::Anything).map_err(|error| match error {
            CompileError::Issues(issues) => format!("compilation failed: {}", issues.render(text)),
            CompileError::Output => "the expression has another type".to_owned(),
            CompileError::Constant(why) => why,
        })?;
        Ok(Box::new(Expression(program)) as Box<dyn Compiled>)
    })
}

struct Expression(Program);

impl Compiled for Expression {
    fn evaluate(&self, variable: &Value) -> Result<Value, String> {
        self.0.evaluate_value(&[Some(variable)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate(variable: Variable, text: &str, value: Value) -> Result<Value, String> {
        compile()(variable, text)?.evaluate(&value)
    }

    #[test]
    fn au_68_expressions_read_claims_and_users() {
        let claims = json!({"sub": "ann", "roles": "a,b", "admin": true, "n": 3, "nested": {"x": ["y"]}});
        let of = |text: &str| evaluate(Variable::Claims, text, claims.clone());
        assert_eq!(of("'oidc:' + claims.sub"), Ok(json!("oidc:ann")));
        assert_eq!(of("claims.roles.split(',')"), Ok(json!(["a", "b"])));
        assert_eq!(of("claims.nested.x[0]"), Ok(json!("y")));
        assert_eq!(of("has(claims.missing) ? claims.missing : ''"), Ok(json!("")));
        assert_eq!(of("claims.?missing.orValue('none')"), Ok(json!("none")));
        assert_eq!(of("claims.admin && claims.n == 3"), Ok(json!(true)));
        assert!(of("claims.missing").unwrap_err().contains("no such key"));
        assert!(of("other.x").unwrap_err().starts_with("compilation failed"));
        let user = json!({"username": "ann", "uid": "", "groups": ["g"], "extra": {"a.b/c": ["d"]}});
        let of = |text: &str| evaluate(Variable::User, text, user.clone());
        assert_eq!(of("!user.username.startsWith('system:')"), Ok(json!(true)));
        assert_eq!(of("user.groups.all(group, !group.startsWith('system:'))"), Ok(json!(true)));
        assert!(of("user.name == 'x'").unwrap_err().starts_with("compilation failed"));
    }
}
