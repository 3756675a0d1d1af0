//! The `SubjectAccessReview` that a webhook is sent for a request.

use access::authorizer::{Attributes, ResourceAttributes, What};
use machinery::json::{Map, Value, json};
use machinery::{fields, labels};

use super::modes::ReviewVersion;

/// The spec of a review, in version v1; match conditions see it as `request`. Empty members are omitted.
#[must_use]
pub fn spec(attributes: &Attributes<'_>) -> Value {
    let mut spec = Map::new();
    match &attributes.what {
        What::Resource(about) => spec.insert("resourceAttributes", resource(attributes.verb, about)),
        What::Path(path) => {
            let members = [("path", *path), ("verb", attributes.verb)];
            spec.insert("nonResourceAttributes", texts(&members).into())
        }
    };
    let user = attributes.user;
    if !user.name.is_empty() {
        spec.insert("user", user.name.as_str().into());
    }
    if !user.groups.is_empty() {
        spec.insert("groups", user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        let extra = user.extra.iter().map(|(key, values)| (key.clone(), Value::from(values.clone())));
        spec.insert("extra", extra.collect::<Map>().into());
    }
    if !user.uid.is_empty() {
        spec.insert("uid", user.uid.as_str().into());
    }
    spec.into()
}

/// The review with this spec. In v1beta1 the groups have another name.
#[must_use]
pub fn review(version: ReviewVersion, spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let (ReviewVersion::V1beta1, Some(members)) = (version, spec.as_object_mut())
        && let Some(groups) = members.shift_remove("groups")
    {
        members.insert("group", groups);
    }
    json!({
        "kind": "SubjectAccessReview",
        "apiVersion": format!("authorization.k8s.io/{}", version.as_str()),
        "metadata": {},
        "spec": spec,
        "status": {"allowed": false},
    })
}

fn resource(verb: &str, about: &ResourceAttributes<'_>) -> Value {
    let mut members = texts(&[
        ("namespace", about.namespace),
        ("verb", verb),
        ("group", about.group),
        ("version", about.version),
        ("resource", about.resource),
        ("subresource", about.subresource),
        ("name", about.name),
    ]);
    let fields: Vec<Value> = about.selectors.fields.requirements().iter().map(field_requirement).collect();
    if !fields.is_empty() {
        members.insert("fieldSelector", json!({"requirements": fields}));
    }
    let labels: Vec<Value> = about.selectors.labels.requirements().iter().filter_map(label_requirement).collect();
    if !labels.is_empty() {
        members.insert("labelSelector", json!({"requirements": labels}));
    }
    members.into()
}

fn texts(members: &[(&'static str, &str)]) -> Map {
    let given = members.iter().filter(|(_, text)| !text.is_empty());
    given.map(|(name, text)| ((*name).to_owned(), Value::from(*text))).collect()
}

fn field_requirement(term: &fields::Requirement) -> Value {
    let operator = match term.operator {
        fields::Operator::Equals => "In",
        fields::Operator::NotEquals => "NotIn",
    };
    json!({"key": term.field, "operator": operator, "values": [term.value]})
}

/// None for operators that a review does not have: without the term it asks for more, never for less.
fn label_requirement(term: &labels::Requirement) -> Option<Value> {
    let operator = match term.operator() {
        labels::Operator::Equals | labels::Operator::In => "In",
        labels::Operator::NotEquals | labels::Operator::NotIn => "NotIn",
        labels::Operator::Exists => "Exists",
        labels::Operator::DoesNotExist => "DoesNotExist",
        _ => return None,
    };
    let mut requirement = json!({"key": term.key(), "operator": operator});
    if !term.values().is_empty() {
        requirement["values"] = term.values().to_vec().into();
    }
    Some(requirement)
}

#[cfg(test)]
mod tests {
    use access::User;
    use access::selectors::{FieldTerms, LabelTerms, Selectors};

    use super::*;

    #[test]
    fn az_8_a_review_has_the_attributes_and_the_terms_of_selectors() {
        let mut user = User { name: "alice".to_owned(), uid: "7".to_owned(), ..User::default() }.authenticated();
        user.extra.insert("scopes".to_owned(), vec!["a".to_owned()]);
        let what = What::Resource(ResourceAttributes {
            group: "apps",
            version: "v1",
            resource: "deployments",
            namespace: "n",
            selectors: Selectors {
                labels: LabelTerms::Text("a in (b,c),!d,e>5"),
                fields: FieldTerms::Text("metadata.name!=x"),
            },
            ..ResourceAttributes::default()
        });
        let spec = spec(&Attributes { user: &user, verb: "list", what });
        let expected = json!({
            "resourceAttributes": {
                "namespace": "n", "verb": "list", "group": "apps", "version": "v1", "resource": "deployments",
                "fieldSelector": {"requirements": [{"key": "metadata.name", "operator": "NotIn", "values": ["x"]}]},
                "labelSelector": {"requirements": [
                    {"key": "a", "operator": "In", "values": ["b", "c"]},
                    {"key": "d", "operator": "DoesNotExist"},
                ]},
            },
            "user": "alice", "groups": ["system:authenticated"], "extra": {"scopes": ["a"]}, "uid": "7",
        });
        assert_eq!(spec, expected);
        assert_eq!(review(ReviewVersion::V1, &spec)["spec"], expected);
        let beta = review(ReviewVersion::V1beta1, &spec);
        assert_eq!(beta["apiVersion"], "authorization.k8s.io/v1beta1");
        assert_eq!(beta["spec"]["group"], json!(["system:authenticated"]));
        assert!(beta["spec"]["groups"].is_null());
    }

    #[test]
    fn az_8_a_path_is_a_non_resource_attribute() {
        let user = User { name: "alice".to_owned(), ..User::default() };
        let spec = spec(&Attributes { user: &user, verb: "get", what: What::Path("/metrics") });
        assert_eq!(spec, json!({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}, "user": "alice"}));
    }
}
