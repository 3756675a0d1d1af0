//! From the claims of a verified token to a user.

use std::collections::BTreeMap;
use std::fmt;

use access::identity::User;
use machinery::json::{Value, json};

const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The variable of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// `claims`
    Claims,
    /// `user`
    User,
}

/// A compiled expression.
pub trait Compiled: Send + Sync {
    /// The value of the expression for a value of its variable.
    fn evaluate(&self, variable: &Value) -> Result<Value, String>;
}

/// An expression with its text.
pub struct Expression {
    pub text: String,
    pub compiled: Box<dyn Compiled>,
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The source of a part of the user.
#[derive(Debug)]
pub enum Claim {
    Named { name: String, prefix: String },
    Expression(Expression),
}

/// Which claims make which parts of a user.
#[derive(Debug)]
pub struct Mapping {
    pub username: Claim,
    pub groups: Option<Claim>,
    pub uid: Option<Claim>,
    pub extra: Vec<(String, Expression)>,
}

/// A condition on claims, or on the user.
#[derive(Debug)]
pub enum Rule {
    Required {
        claim: String,
        value: String,
    },
    /// With the message of the refusal.
    Expression(Expression, String),
}

/// Makes the user of claims, after all conditions.
pub(super) fn user(claims: &Value, mapping: &Mapping, rules: &[Rule], user_rules: &[Rule]) -> Result<User, String> {
    let mut user = User {
        name: name(claims, &mapping.username)?,
        groups: groups(claims, mapping.groups.as_ref())?,
        uid: uid(claims, mapping.uid.as_ref())?,
        extra: extra(claims, &mapping.extra)?,
    };
    for rule in rules {
        check(rule, claims, claims, "claim validation expression")?;
    }
    if !user_rules.is_empty() {
        let extra: BTreeMap<&str, &Vec<String>> =
            user.extra.iter().map(|(key, values)| (key.as_str(), values)).collect();
        let mut shown = json!({"username": user.name, "uid": user.uid, "groups": user.groups});
        shown["extra"] = extra
            .into_iter()
            .map(|(key, values)| (key.to_owned(), Value::from(values.clone())))
            .collect::<machinery::json::Map>()
            .into();
        for rule in user_rules {
            check(rule, claims, &shown, "user info validation rule")?;
        }
    }
    user = user.authenticated();
    Ok(user)
}

fn check(rule: &Rule, claims: &Value, variable: &Value, what: &str) -> Result<(), String> {
    match rule {
        Rule::Required { claim, value } => match claims.get(claim.as_str()) {
            None => Err(format!("oidc: required claim {claim} not present in ID token")),
            Some(Value::String(found)) if found.as_str() == value => Ok(()),
            Some(Value::String(found)) => {
                Err(format!("oidc: required claim {claim} value does not match. Got = {found}, want = {value}"))
            }
            Some(_) => Err(format!("oidc: parse claim {claim}: it is not a string")),
        },
        Rule::Expression(expression, message) => match expression.compiled.evaluate(variable) {
            Ok(Value::Bool(true)) => Ok(()),
            Ok(Value::Bool(false)) => {
                let why = if message.is_empty() {
                    format!("validation expression '{}' failed", expression.text)
                } else {
                    format!("validation expression '{}' failed: {message}", expression.text)
                };
                Err(format!("oidc: error evaluating {what}: {why}"))
            }
            Ok(_) => Err(format!("oidc: error evaluating {what}: validation expression must return a boolean")),
            Err(why) => {
                Err(format!("oidc: error evaluating {what}: expression '{}' resulted in error: {why}", expression.text))
            }
        },
    }
}

fn evaluated(expression: &Expression, claims: &Value, what: &str) -> Result<Value, String> {
    expression.compiled.evaluate(claims).map_err(|why| {
        format!(
            "oidc: error evaluating {what} claim expression: expression '{}' resulted in error: {why}",
            expression.text
        )
    })
}

fn name(claims: &Value, claim: &Claim) -> Result<String, String> {
    let (name, prefix) = match claim {
        Claim::Named { name, prefix } => (name, prefix),
        Claim::Expression(expression) => {
            return match evaluated(expression, claims, "username")? {
                Value::String(text) if text.is_empty() => {
                    Err("oidc: empty username via CEL expression is not allowed".to_owned())
                }
                Value::String(text) => Ok(text.to_string()),
                _ => Err(
                    "oidc: error evaluating username claim expression: username claim expression must return a string"
                        .to_owned(),
                ),
            };
        }
    };
    let found = match claims.get(name.as_str()) {
        None => return Err(format!("oidc: parse username claims {name:?}: claim not present")),
        Some(Value::String(found)) => found,
        Some(_) => return Err(format!("oidc: parse username claims {name:?}: it is not a string")),
    };
    if name == "email"
        && let Some(verified) = claims.get("email_verified")
    {
        match verified {
            Value::Bool(true) => {}
            Value::Bool(false) => return Err("oidc: email not verified".to_owned()),
            _ => return Err("oidc: parse 'email_verified' claim: it is not a boolean".to_owned()),
        }
    }
    Ok(format!("{prefix}{found}"))
}

fn groups(claims: &Value, claim: Option<&Claim>) -> Result<Vec<String>, String> {
    match claim {
        None => Ok(Vec::new()),
        Some(Claim::Named { name, prefix }) => {
            let Some(found) = claims.get(name.as_str()) else { return Ok(Vec::new()) };
            // A single text counts as a list of one.
            let texts = match found {
                Value::String(one) => Some(vec![one.as_str()]),
                Value::Array(items) => items.iter().map(Value::as_str).collect(),
                _ => None,
            };
            let texts = texts.ok_or_else(|| format!("oidc: parse groups claim {name:?}: it is no list of strings"))?;
            Ok(texts.into_iter().map(|group| format!("{prefix}{group}")).collect())
        }
        Some(Claim::Expression(expression)) => {
            let value = evaluated(expression, claims, "group")?;
            texts(&value).map_err(|why| format!("oidc: error evaluating group claim expression: {why}"))
        }
    }
}

fn uid(claims: &Value, claim: Option<&Claim>) -> Result<String, String> {
    match claim {
        None => Ok(String::new()),
        Some(Claim::Named { name, .. }) => match claims.get(name.as_str()) {
            Some(Value::String(uid)) => Ok(uid.to_string()),
            Some(_) => Err(format!("oidc: parse uid claim {name:?}: it is not a string")),
            None => Err(format!("oidc: parse uid claim {name:?}: claim not present")),
        },
        Some(Claim::Expression(expression)) => match evaluated(expression, claims, "uid")? {
            Value::String(uid) => Ok(uid.to_string()),
            _ => {
                Err("oidc: error evaluating uid claim expression: uid claim expression must return a string".to_owned())
            }
        },
    }
}

fn extra(claims: &Value, mappings: &[(String, Expression)]) -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut extra = BTreeMap::new();
    if let Some(id) = claims["jti"].as_str().filter(|id| !id.is_empty()) {
        extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
    }
    for (key, expression) in mappings {
        let value = evaluated(expression, claims, "extra")?;
        let values = texts(&value)
            .map_err(|why| format!("oidc: error evaluating extra claim expression: {}: {why}", expression.text))?;
        if !values.is_empty() {
            extra.insert(key.clone(), values);
        }
    }
    Ok(extra)
}

/// A text, a list of texts, or nothing; empty texts are left out.
fn texts(value: &Value) -> Result<Vec<String>, String> {
    let wrong = || "expression must return a string or a list of strings".to_owned();
    let found: Vec<String> = match value {
        Value::Null => Vec::new(),
        Value::String(one) => vec![one.to_string()],
        Value::Array(items) => {
            items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect::<Result<_, _>>()?
        }
        _ => return Err(wrong()),
    };
    Ok(found.into_iter().filter(|text| !text.is_empty()).collect())
}
