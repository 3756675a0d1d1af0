//! Explanations of decisions, and the record of what users did.

use std::sync::Arc;

use access::Rbac;
use access::authorizer::{Attributes, Authorizer, Decision, ResourceAttributes, What, forbidden};
use access::explain::Explanation;
use access::identity::User;
use jiff::Timestamp;
use machinery::Status;
use machinery::json::{Value, json};
use machinery::query::Query;

use super::recorder::Recorder;

/// Causes of a refusal that is explained.
const CAUSES_MAX: usize = 10;
const ACCOUNT: &str = "system:serviceaccount:";

/// What a server can show about its decisions. The default shows nothing.
#[derive(Clone, Default)]
pub struct Inspection {
    /// The roles and bindings that explanations refer to.
    pub roles: Option<Arc<Rbac>>,
    pub recorder: Option<Arc<Recorder>>,
    /// Whether a 403 names the bindings that come nearest.
    pub explain_forbidden: bool,
    /// Whether a running watch ends when its user loses the right to it.
    pub recheck_watches: bool,
}

impl Inspection {
    /// Records a decision. Members of `system:masters` are not recorded.
    pub fn record(&self, attributes: &Attributes<'_>, decision: &Decision, now: impl FnOnce() -> Timestamp) {
        if let Some(recorder) = &self.recorder
            && !attributes.user.is_master()
        {
            recorder.record(attributes, decision.allowed, now().as_second());
        }
    }

    /// The 403 of a refused request; with the nearest bindings as causes, if they are to be shown.
    #[must_use]
    pub fn refusal(&self, attributes: &Attributes<'_>, decision: &Decision) -> Status {
        let mut status = forbidden(attributes, decision);
        if let Some(recorder) = &self.recorder {
            recorder.refused(&attributes.user.name, &status.message);
        }
        if let (true, Some(roles)) = (self.explain_forbidden, &self.roles) {
            let explanation = Explanation::new(&roles.index(), attributes, decision.clone());
            for near in explanation.near_misses().take(CAUSES_MAX) {
                let field = near.failed.first().map_or("", |part| part.field());
                status = status.with_cause("NearMiss", near.sentence(attributes), field);
            }
        }
        status
    }

    /// Explains the request that a query describes.
    pub async fn explain(&self, authorizer: &dyn Authorizer, query: &Query) -> Result<Value, Status> {
        let roles = self.roles.as_ref().ok_or_else(no_inspection)?;
        let user = user(query)?;
        let text = |name: &str| query.get(name).unwrap_or_default();
        let what = match text("path") {
            "" if text("resource").is_empty() => return Err(Status::bad_request("a resource or a path is needed")),
            "" => What::Resource(ResourceAttributes {
                group: text("apiGroup"),
                version: "*",
                resource: text("resource"),
                subresource: text("subresource"),
                namespace: text("namespace"),
                name: text("name"),
                ..ResourceAttributes::default()
            }),
            path => What::Path(path),
        };
        let attributes = Attributes { user: &user, verb: text("verb"), what };
        let decision = authorizer.authorize(&attributes).get().await;
        let explanation = Explanation::new(&roles.index(), &attributes, decision);
        let mut value = explanation.to_value();
        let sentences: Vec<String> = explanation.bindings.iter().map(|binding| binding.sentence(&attributes)).collect();
        value["sentences"] = sentences.into();
        value["user"] = user.to_value();
        if !explanation.decision.allowed {
            value["message"] = forbidden(&attributes, &explanation.decision).message.into();
        }
        Ok(value)
    }

    /// The roles for what the user of a query did.
    pub fn least_roles(&self, query: &Query) -> Result<Value, Status> {
        let (Some(roles), Some(recorder)) = (&self.roles, &self.recorder) else { return Err(no_inspection()) };
        let name = query.get("user").filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Status::bad_request("a user is needed"))?;
        let start = match query.get("from") {
            None | Some("") => 0,
            Some(text) => text
                .parse::<Timestamp>()
                .map_err(|error| {
                    Status::bad_request(format!("from must be a time such as 2006-01-02T15:04:05Z: {error}"))
                })?
                .as_second(),
        };
        let record = recorder.usage(name, start);
        let with_names = query.get("names").is_some_and(|text| text == "true");
        let mut report = match record.usage {
            Some(usage) if with_names => usage.report(&roles.index()),
            Some(usage) => usage.of_any_name().report(&roles.index()),
            None => json!({"user": name, "least": [], "missing": [], "refused": [], "beyond": []}),
        };
        if record.left_out > 0 {
            report["leftOut"] = record.left_out.into();
        }
        Ok(report)
    }
}

fn no_inspection() -> Status {
    Status::router_not_found()
}

/// The user of a query, with the groups that authentication would give it.
fn user(query: &Query) -> Result<User, Status> {
    let name = query.get("as").filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Status::bad_request("the parameter as must name a user"))?.to_owned();
    let mut groups: Vec<String> = query.all("as-group").map(str::to_owned).collect();
    if let Some((namespace, _)) = name.strip_prefix(ACCOUNT).and_then(|rest| rest.split_once(':'))
        && groups.is_empty()
    {
        groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    }
    let user = User { name, groups, ..User::default() };
    Ok(if user.name == access::identity::ANONYMOUS { User::anonymous() } else { user.authenticated() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ba_1_a_user_has_the_groups_of_authentication() {
        let groups = |query: &str| user(&Query::parse(query)).unwrap().groups;
        assert_eq!(groups("as=alice"), ["system:authenticated"]);
        assert_eq!(groups("as=alice&as-group=devs"), ["devs", "system:authenticated"]);
        let account = ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"];
        assert_eq!(groups("as=system:serviceaccount:n:op"), account);
        assert_eq!(groups("as=system:anonymous"), ["system:unauthenticated"]);
        assert_eq!(user(&Query::parse("")).unwrap_err().code, 400);
    }

    #[test]
    fn ba_2_causes_only_if_they_are_asked_for() {
        use access::rbac::objects::{Binding, Name, Role};
        let roles = Arc::new(Rbac::default());
        roles.change(|index| {
            let rules = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
            index.set_role(Role::from_value(Name::new("n", "r"), &rules));
            let binding =
                json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "alice"}]});
            index.set_binding(Binding::from_value(Name::new("n", "b"), &binding));
        });
        let alice = User { name: "alice".to_owned(), ..User::default() }.authenticated();
        let what = What::Resource(ResourceAttributes { resource: "pods", namespace: "n", ..Default::default() });
        let attributes = Attributes { user: &alice, verb: "list", what };
        let refusal = |explain_forbidden: bool| {
            let inspection = Inspection { roles: Some(Arc::clone(&roles)), explain_forbidden, ..Inspection::default() };
            inspection.refusal(&attributes, &roles.decide(&attributes))
        };
        let plain = refusal(false);
        assert!(plain.details.as_ref().unwrap().causes.is_empty());
        let explained = refusal(true);
        assert_eq!(explained.message, plain.message, "the sentence stays the same");
        let causes = explained.details.unwrap().causes;
        assert_eq!(causes.len(), 1);
        assert_eq!(causes[0].field, "verbs");
        let expected = "RoleBinding \"b\" in namespace \"n\" of Role \"r\": verb \"list\" is not among \"get\"";
        assert_eq!(causes[0].message, expected);
    }
}
