//! Options of delete, from the query or from a body (spec 02 §6).

use crate::json::Value;

use super::write::dry_run_error;
use crate::field_error::FieldError;
use crate::go_json::json_kind;
use crate::query::Query;
use crate::{Status, go_json};

/// The treatment of the objects that the deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They are kept.
    Orphan,
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
}

impl Propagation {
    fn read(text: &str) -> Option<Self> {
        match text {
            "Orphan" => Some(Propagation::Orphan),
            "Background" => Some(Propagation::Background),
            "Foreground" => Some(Propagation::Foreground),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    /// The older form of [`Propagation::Orphan`].
    pub orphan_dependents: Option<bool>,
    pub dry_run: bool,
    /// Whether preconditions were sent, also without any in them.
    pub has_preconditions: bool,
    /// Precondition: the object has this uid.
    pub uid: Option<String>,
    /// Precondition: the object is at this resourceVersion.
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    pub fn from_query(query: &Query) -> Result<Self, Status> {
        let grace_period_seconds = query.integer("gracePeriodSeconds")?;
        let orphan_dependents = query.truth("orphanDependents");
        let propagation = query.get("propagationPolicy");
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        let precondition = |name| query.get(name).filter(|value| !value.is_empty()).map(str::to_owned);
        Ok(DeleteOptions {
            grace_period_seconds,
            orphan_dependents,
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            ..Self::checked(orphan_dependents, propagation, &dry_run)?
        })
    }

    /// Parses a JSON body.
    pub fn from_json(body: &[u8]) -> Result<Self, Status> {
        if let Some(why) = go_json::syntax_error(body) {
            return Err(Status::bad_request(format!("couldn't get version/kind; json parse error: {why}")));
        }
        let body = serde_json::from_slice(body)
            .map_err(|e| Status::bad_request(format!("couldn't get version/kind; json parse error: {e}")))?;
        Self::from_value(&body)
    }

    /// As [`DeleteOptions::from_json`], for a body that was parsed from another encoding.
    pub fn from_value(body: &Value) -> Result<Self, Status> {
        if !body.is_object() && !body.is_null() {
            return Err(Status::bad_request(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                json_kind(body)
            )));
        }
        let member = Members { body, of: "DeleteOptions" };
        let kind = member.text("kind")?.unwrap_or("DeleteOptions");
        let version = member.text("apiVersion")?.unwrap_or("v1");
        // Options are the same in every group, so their version does not matter.
        if !(kind.is_empty() || kind == "DeleteOptions") {
            return Err(Status::bad_request(format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\""
            )));
        }
        let grace_period_seconds = member.integer("gracePeriodSeconds")?;
        let orphan_dependents = member.boolean("orphanDependents")?;
        let propagation = member.text("propagationPolicy")?;
        let dry_run = match body.get("dryRun") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(values)) => values
                .iter()
                .map(|value| value.as_str().ok_or_else(|| member.wrong("dryRun", value, "string")))
                .collect::<Result<_, _>>()?,
            Some(other) => return Err(member.wrong("dryRun", other, "[]string")),
        };
        let preconditions = Members { body: body.get("preconditions").unwrap_or(&Value::Null), of: "Preconditions" };
        if !preconditions.body.is_object() && !preconditions.body.is_null() {
            return Err(member.wrong("preconditions", preconditions.body, "v1.Preconditions"));
        }
        let precondition = |name| preconditions.text(name).map(|value| value.map(str::to_owned));
        Ok(DeleteOptions {
            grace_period_seconds,
            orphan_dependents,
            uid: precondition("uid")?,
            resource_version: precondition("resourceVersion")?,
            has_preconditions: preconditions.body.is_object(),
            ..Self::checked(orphan_dependents, propagation, &dry_run)?
        })
    }

    fn checked(orphan: Option<bool>, propagation: Option<&str>, dry_run: &[&str]) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let policy = propagation.and_then(Propagation::read);
        if let Some(text) = propagation {
            if orphan.is_some() {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid("propagationPolicy", text, detail));
            }
            if policy.is_none() {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", text, supported));
            }
        }
        errors.extend(dry_run_error(dry_run));
        if errors.is_empty() {
            Ok(DeleteOptions { propagation: policy, dry_run: !dry_run.is_empty(), ..DeleteOptions::default() })
        } else {
            Err(Status::delete_options_invalid(&errors))
        }
    }
}

/// Typed access to the members of a body, with the errors of the reference's decoder.
struct Members<'a> {
    body: &'a Value,
    of: &'a str,
}

impl<'a> Members<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.body.get(name).filter(|value| !value.is_null())
    }

    fn wrong(&self, name: &str, value: &Value, ty: &str) -> Status {
        let (kind, of) = (json_kind(value), self.of);
        Status::bad_request(format!("json: cannot unmarshal {kind} into Go struct field {of}.{name} of type {ty}"))
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, Status> {
        let value = self.get(name);
        value.map(|value| value.as_str().ok_or_else(|| self.wrong(name, value, "string"))).transpose()
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, Status> {
        let value = self.get(name);
        value.map(|value| value.as_i64().ok_or_else(|| self.wrong(name, value, "int64"))).transpose()
    }

    fn boolean(&self, name: &str) -> Result<Option<bool>, Status> {
        let value = self.get(name);
        value.map(|value| value.as_bool().ok_or_else(|| self.wrong(name, value, "bool"))).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Result<DeleteOptions, (u16, String)> {
        DeleteOptions::from_json(text.as_bytes()).map_err(|status| (status.code, status.message))
    }

    fn query(text: &str) -> Result<DeleteOptions, (u16, String)> {
        DeleteOptions::from_query(&Query::parse(text)).map_err(|status| (status.code, status.message))
    }

    #[test]
    fn bodies_that_are_no_options() {
        for (text, want) in [
            (
                r#"{"apiVersion":"v1","kind":"ConfigMap"}"#,
                "no kind \"ConfigMap\" is registered for version \"v1\" in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"",
            ),
            (
                "nope",
                "couldn't get version/kind; json parse error: invalid character 'o' in literal null (expecting 'u')",
            ),
            (
                "[]",
                "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
            ),
            (
                r#"{"apiVersion":"v1","gracePeriodSeconds":"x","kind":"DeleteOptions"}"#,
                "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
            ),
        ] {
            assert_eq!(body(text), Err((400, want.to_owned())));
        }
        assert!(body(r#"{"apiVersion":"v1","kind":"DeleteOptions","nope":1}"#).is_ok());
        assert!(body(r#"{"apiVersion":"apps/v1","kind":"DeleteOptions"}"#).is_ok());
        assert!(body("{}").is_ok());
    }

    #[test]
    fn policy_values() {
        let unsupported = |value: &str| {
            let text = format!(
                "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"{value}\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
            );
            Err((422, text))
        };
        assert_eq!(query("propagationPolicy=Nope"), unsupported("Nope"));
        assert_eq!(query("propagationPolicy="), unsupported(""));
        assert_eq!(body(r#"{"propagationPolicy":"background"}"#), unsupported("background"));
        assert_eq!(
            body(r#"{"orphanDependents":true,"propagationPolicy":"Orphan"}"#),
            Err((422, "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set".to_owned()))
        );
        assert_eq!(query("dryRun=x").map_err(|e| e.0), Err(422));
    }

    #[test]
    fn query_and_body_say_the_same() {
        let want = DeleteOptions {
            grace_period_seconds: Some(0),
            propagation: Some(Propagation::Foreground),
            orphan_dependents: None,
            dry_run: true,
            uid: Some("u".to_owned()),
            resource_version: Some("5".to_owned()),
            has_preconditions: false,
        };
        assert_eq!(
            query("gracePeriodSeconds=0&propagationPolicy=Foreground&dryRun=All&uid=u&resourceVersion=5"),
            Ok(want.clone())
        );
        assert_eq!(
            body(
                r#"{"gracePeriodSeconds":0,"propagationPolicy":"Foreground","dryRun":["All"],"preconditions":{"uid":"u","resourceVersion":"5"}}"#
            ),
            Ok(DeleteOptions { has_preconditions: true, ..want })
        );
        assert_eq!(query("orphanDependents=true").map(|options| options.orphan_dependents), Ok(Some(true)));
    }
}
