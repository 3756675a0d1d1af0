//! AdmissionReview: what a webhook is sent.

use bytes::Bytes;
use machinery::json::{self, Map, Value, json};

/// The text of a review. `members` are those of the request but its uid and objects.
pub(super) fn text(version: &str, uid: &str, members: &Map, object: Option<&Value>, old: Option<&Value>) -> Bytes {
    let mut request = Map::new();
    request.insert("uid", json!(uid));
    for (name, value) in members {
        if name.as_str() == "dryRun" {
            request.insert("object", object.cloned().unwrap_or_default());
            request.insert("oldObject", old.cloned().unwrap_or_default());
        }
        request.insert(name.as_str(), value.clone());
    }
    let mut review = Map::new();
    review.insert("kind", json!("AdmissionReview"));
    review.insert("apiVersion", json!(format!("admission.k8s.io/{version}")));
    review.insert("request", Value::Object(request));
    Bytes::from(json::to_string(&Value::Object(review)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use machinery::options::{CreateOptions, DeleteOptions, FieldValidation, PatchOptions, Propagation};

    use super::super::super::matching::Matched;
    use super::super::super::plugin::{Attributes, Operation, Options};
    use super::super::super::request_value::request_value as request_members;
    use super::*;
    use crate::request::{Context, Target};

    fn target(plural: &str, subresource: Option<&str>) -> Target {
        let kind = Arc::clone(crate::kinds::builtin().get("", "v1", plural).unwrap());
        Target {
            kind,
            namespace: Some("n".to_owned()),
            name: Some("x".to_owned()),
            subresource: subresource.map(str::to_owned),
        }
    }

    fn ctx() -> Context {
        let user = access::User { name: "u".to_owned(), groups: vec!["g".to_owned()], ..access::User::default() };
        Context { user: Arc::new(user), ..Context::default() }
    }

    #[test]
    fn wh_2_ad_20_22_a_review_of_each_operation() {
        let ctx = ctx();
        let create = CreateOptions { field_manager: "m".to_owned(), dry_run: true, ..CreateOptions::default() };
        let patch = PatchOptions { field_validation: FieldValidation::Strict, ..PatchOptions::default() };
        let delete = DeleteOptions {
            grace_period_seconds: Some(0),
            uid: Some("1".to_owned()),
            propagation: Some(Propagation::Background),
            ..DeleteOptions::default()
        };
        let (maps, exec) = (target("configmaps", None), target("pods", Some("exec")));
        let object = json!({"kind": "ConfigMap"});
        let kind = r#""kind":{"group":"","version":"v1","kind":"ConfigMap"},"resource":{"group":"","version":"v1","resource":"configmaps"},"#;
        let asked = r#""requestKind":{"group":"","version":"v1","kind":"ConfigMap"},"requestResource":{"group":"","version":"v1","resource":"configmaps"},"#;
        let who = r#""name":"x","namespace":"n","operation":"OP","userInfo":{"username":"u","groups":["g"]},"#;
        let case =
            |operation: Operation, target: &Target, options: Options<'_>, new: Option<&Value>, old: Option<&Value>| {
                let attributes = Attributes::new(operation, target, options, &ctx);
                let review = text("v1", "id", &request_members(&attributes, &Matched::default()), new, old);
                String::from_utf8(review.to_vec()).unwrap()
            };
        let expected = |operation: &str, rest: &str| {
            let who = who.replace("OP", operation);
            let start = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"id","#;
            format!("{start}{kind}{asked}{who}{rest}}}}}")
        };
        assert_eq!(
            case(Operation::Create, &maps, Options::Create(&create), Some(&object), None),
            expected(
                "CREATE",
                r#""object":{"kind":"ConfigMap"},"oldObject":null,"dryRun":true,"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","dryRun":["All"],"fieldManager":"m"}"#
            )
        );
        assert_eq!(
            case(Operation::Update, &maps, Options::Patch(&patch), Some(&object), Some(&object)),
            expected(
                "UPDATE",
                r#""object":{"kind":"ConfigMap"},"oldObject":{"kind":"ConfigMap"},"dryRun":false,"options":{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldValidation":"Strict"}"#
            )
        );
        assert_eq!(
            case(Operation::Delete, &maps, Options::Delete(&delete), None, Some(&object)),
            expected(
                "DELETE",
                r#""object":null,"oldObject":{"kind":"ConfigMap"},"dryRun":false,"options":{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1","gracePeriodSeconds":0,"preconditions":{"uid":"1"},"propagationPolicy":"Background"}"#
            )
        );
        let connect = case(Operation::Connect, &exec, Options::None, Some(&json!({"kind": "PodExecOptions"})), None);
        let connect = json::from_str(&connect).unwrap();
        let request = &connect["request"];
        assert_eq!(request["kind"]["kind"], "PodExecOptions");
        assert_eq!((&request["subResource"], &request["requestSubResource"]), (&json!("exec"), &json!("exec")));
        assert_eq!((&request["options"], &request["oldObject"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn wh_2_empty_names_are_absent() {
        let (ctx, delete) = (ctx(), DeleteOptions::default());
        let target = target("configmaps", None);
        let attributes =
            Attributes { name: "", ..Attributes::new(Operation::Delete, &target, Options::Delete(&delete), &ctx) };
        let members = request_members(&attributes, &Matched::default());
        assert!(
            members.get("name").is_none() && members.get("namespace").is_some() && members.get("subResource").is_none()
        );
    }

    #[test]
    fn ad_24_a_namespace_is_in_itself() {
        let (ctx, create) = (ctx(), CreateOptions::default());
        let mut target = target("namespaces", None);
        target.namespace = None;
        let attributes = Attributes::new(Operation::Create, &target, Options::Create(&create), &ctx);
        assert_eq!(request_members(&attributes, &Matched::default()).get("namespace"), Some(&json!("x")));
    }
}
