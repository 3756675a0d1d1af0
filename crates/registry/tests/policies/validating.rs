//! ValidatingAdmissionPolicy: what expressions read, and what follows from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use access::authorizer::{Attributes, Decision, RuleList, Verdict, What};
use access::{Authorizer, User};
use bytes::Bytes;
use machinery::json::{Value, json};
use machinery::media::MediaType;
use machinery::options::UpdateOptions;
use registry::{Body, Context, Settings, WriteRequest};

use super::world::{GROUP, World, definition, denied, rule, validations};

#[tokio::test]
async fn vap_1_a_policy_acts_only_where_it_is_bound() {
    let world = World::new().await;
    world.policy("p", json!({"validations": validations(&["false"])})).await;
    world.map("a", json!({})).await.result.unwrap();
    world.bind("other", json!({"validationActions": ["Deny"]})).await;
    world.map("b", json!({})).await.result.unwrap();
    world.bind_as("b", "p", &mut json!({"validationActions": ["Deny"]})).await;
    let refused = world.map("c", json!({})).await;
    assert!(refused.message().contains("ValidatingAdmissionPolicy 'p' with binding 'b' denied request"));
    world.delete(&format!("{GROUP}:validatingadmissionpolicybindings/b")).await.unwrap();
    world.map("c", json!({})).await.result.unwrap();
}

#[tokio::test]
async fn vap_3_20_expressions_read_the_request() {
    let world = World::new().await;
    world.merge("namespaces/default", json!({"metadata": {"labels": {"env": "prod"}}})).await.unwrap();
    for expression in [
        "object.data.k == 'v' && oldObject == null",
        "request.name == 'a' && request.namespace == 'default' && request.operation == 'CREATE'",
        "request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps' && !has(request.subResource)",
        "request.userInfo.username == 'alice' && request.userInfo.groups == ['g']",
        "request.options.fieldManager == 'test' && !request.dryRun",
        "namespaceObject.metadata.name == 'default' && namespaceObject.metadata.labels['env'] == 'prod'",
        "namespaceObject.status.phase == 'Active' && !has(namespaceObject.metadata.namespace)",
        "has(object.metadata.uid) && has(object.metadata.creationTimestamp) && has(object.metadata.managedFields)",
        "object.kind == 'ConfigMap' && object.apiVersion == 'v1'",
    ] {
        let name = "a";
        world
            .deny("p", json!({"validations": [{"expression": format!("!({expression})"), "message": "so it is"}]}))
            .await;
        let user = User { name: "alice".to_owned(), groups: vec!["g".to_owned()], ..User::default() };
        let answer =
            world.create_as(user, "configmaps/default", json!({"metadata": {"name": name}, "data": {"k": "v"}})).await;
        assert_eq!(answer.message(), denied("p", "so it is"), "{expression}");
        let status = answer.result.unwrap_err();
        assert_eq!((status.code, status.reason()), (422, "Invalid"));
        let details = status.details.unwrap();
        assert_eq!((details.name.as_str(), details.kind.as_str()), ("a", "configmaps"));
        world.delete(&format!("{GROUP}:validatingadmissionpolicies/p")).await.unwrap();
        world.delete(&format!("{GROUP}:validatingadmissionpolicybindings/p")).await.unwrap();
    }
}

/// Addresses are reserved before the validating phase, and are free again if it refuses.
#[tokio::test]
async fn vap_3_a_new_service_has_its_address() {
    let world = World::new().await;
    let spec = json!({"validations": [
        {"expression": "has(object.spec.clusterIP) && object.spec.clusterIP != ''", "message": "no address"},
        {"expression": "object.metadata.name != 'refused'", "message": "not this one"},
    ]});
    world.policy_for("p", json!([rule("", "services", &["CREATE"])]), spec).await;
    world.bind("p", json!({"validationActions": ["Deny"]})).await;
    let service = |name: &str, address: &Value| {
        let mut spec = json!({"ports": [{"port": 80}]});
        if address.is_string() {
            spec["clusterIP"] = address.clone();
        }
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let made = world.create("services/default", service("a", &Value::Null)).await.result.unwrap();
    let address = &made["spec"]["clusterIP"];
    world.delete("services/default/a").await.unwrap();
    let refused = world.create("services/default", service("refused", address)).await;
    assert!(refused.message().ends_with("not this one"), "{}", refused.message());
    let made = world.create("services/default", service("b", address)).await.result.unwrap();
    assert_eq!(&made["spec"]["clusterIP"], address);
}

#[tokio::test]
async fn vap_3_27_deletes_and_updates_have_the_old_object() {
    let world = World::new().await;
    let rules = json!([rule("", "configmaps", &["DELETE", "UPDATE"])]);
    let spec = json!({"validations": [
        {"expression": "object != null || oldObject.metadata.name != 'kept'", "message": "it stays"},
        {"expression": "object == null || object.data.n != oldObject.data.n", "message": "it must change"},
    ]});
    world.policy_for("p", rules, spec).await;
    world.bind("p", json!({"validationActions": ["Deny"]})).await;
    world.map("kept", json!({"n": "1"})).await.result.unwrap();
    world.map("other", json!({"n": "1"})).await.result.unwrap();
    assert!(world.delete("configmaps/default/kept").await.unwrap_err().message.ends_with("it stays"));
    world.delete("configmaps/default/other").await.unwrap();
    let refused = world.merge("configmaps/default/kept", json!({"data": {"o": "1"}})).await.unwrap_err();
    assert!(refused.message.ends_with("it must change"), "{}", refused.message);
    world.merge("configmaps/default/kept", json!({"data": {"n": "2"}})).await.unwrap();
}

#[tokio::test]
async fn vap_4_variables_fail_only_where_they_are_used() {
    let world = World::new().await;
    let variables = json!([
        {"name": "data", "expression": "has(object.data) ? object.data : {}"},
        {"name": "bad", "expression": "variables.data.filter(k, variables.data[k] == '1')"},
        {"name": "broken", "expression": "object.nope"},
    ]);
    world
        .deny(
            "p",
            json!({"variables": variables, "validations": [
                {"expression": "variables.bad.size() == 0", "messageExpression": "'bad: ' + variables.bad.join(', ')"},
                {"expression": "!('use' in variables.data) || variables.broken == 1"},
            ]}),
        )
        .await;
    assert_eq!(world.map("a", json!({"x": "1"})).await.message(), denied("p", "bad: x"));
    let why = "expression '!('use' in variables.data) || variables.broken == 1' resulted in error: composited variable \
               \"broken\" fails to evaluate: no such key: nope";
    assert_eq!(world.map("a", json!({"use": "x"})).await.message(), denied("p", why));
    world.map("a", json!({"x": "2"})).await.result.unwrap();
}

#[tokio::test]
async fn vap_5_6_messages_and_errors() {
    let world = World::new().await;
    let long = "x".repeat(6000);
    for (rule, why) in [
        (json!({"expression": "  false  "}), "failed expression: false"),
        (json!({"expression": "false", "message": " fixed "}), "fixed"),
        (json!({"expression": "false", "message": "fixed", "messageExpression": "' made ' + request.name"}), "made a"),
        (json!({"expression": "false", "message": "fixed", "messageExpression": "'  '"}), "fixed"),
        (json!({"expression": "false", "message": "fixed", "messageExpression": "'a\\nb'"}), "fixed"),
        (json!({"expression": "false", "message": "fixed", "messageExpression": "string(object.nope)"}), "fixed"),
        (json!({"expression": "false", "messageExpression": format!("'{long}'")}), "failed expression: false"),
        (
            json!({"expression": "object.nope == 1", "message": "fixed"}),
            "expression 'object.nope == 1' resulted in error: no such key: nope",
        ),
    ] {
        world.deny("p", json!({"validations": [rule]})).await;
        assert_eq!(world.map("a", json!({})).await.message(), denied("p", why));
        world.delete(&format!("{GROUP}:validatingadmissionpolicies/p")).await.unwrap();
        world.delete(&format!("{GROUP}:validatingadmissionpolicybindings/p")).await.unwrap();
    }
    world.deny("p", json!({"failurePolicy": "Ignore", "validations": validations(&["object.nope == 1"])})).await;
    world.map("a", json!({})).await.result.unwrap();
}

#[tokio::test]
async fn vap_7_too_costly_expressions_are_errors() {
    let world = World::new().await;
    let list = "[1,2,3,4,5,6,7,8,9,10]";
    let nested =
        |names: &[&str]| names.iter().fold("a > 0".to_owned(), |text, name| format!("{list}.all({name}, {text})"));
    let (one, part) = (nested(&["a", "b", "c", "d", "e", "f"]), nested(&["a", "b", "c", "d"]));
    world.deny("p", json!({"validations": validations(&[&one])})).await;
    let refused = world.map("a", json!({})).await;
    assert!(refused.message().ends_with("resulted in error: operation cancelled: actual cost limit exceeded"));
    world.delete(&format!("{GROUP}:validatingadmissionpolicies/p")).await.unwrap();
    let all: Vec<&str> = std::iter::repeat_n(part.as_str(), 250).collect();
    world.policy("p", json!({"validations": validations(&all)})).await;
    let why = "validation failed due to running out of cost budget, no further validation rules will be run";
    assert_eq!(world.map("a", json!({})).await.message(), denied("p", why));
}

#[tokio::test]
async fn vap_8_audit_annotations_are_collected_and_their_errors_deny() {
    let world = World::new().await;
    let annotation = |key: &str, text: &str| json!({"key": key, "valueExpression": text});
    let annotations =
        json!([annotation("a", "'  ' + object.data.k"), annotation("none", "null"), annotation("empty", "' '")]);
    world.policy("p", json!({"auditAnnotations": annotations, "validations": validations(&["true"])})).await;
    world.bind_as("b1", "p", &mut json!({"validationActions": ["Deny"]})).await;
    world.bind_as("b2", "p", &mut json!({"validationActions": ["Deny"]})).await;
    let answer = world.map("a", json!({"k": "v"})).await;
    assert_eq!(answer.annotations.get("p/a").map(String::as_str), Some("v"));
    assert!(!answer.annotations.contains_key("p/none") && !answer.annotations.contains_key("p/empty"));
    world.policy("q", json!({"auditAnnotations": [annotation("a", "string(object.data.nope)")]})).await;
    world.bind("q", json!({"validationActions": ["Warn"]})).await;
    let why = "expression 'string(object.data.nope)' resulted in error: no such key: nope";
    assert_eq!(world.map("a", json!({"k": "v"})).await.message(), denied("q", why));
    world
        .policy("r", json!({"auditAnnotations": [annotation("a", "authorizer.path('/').check('get').reason()")]}))
        .await;
    world.bind("r", json!({"validationActions": ["Deny"]})).await;
    assert!(world.map("b", json!({"k": "v", "nope": ""})).await.message().contains("no such attribute(s): authorizer"));
}

/// Allows what its text names, at once or later, and counts the questions.
struct Rights {
    later: bool,
    asked: Arc<AtomicUsize>,
}

impl Authorizer for Rights {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        let text = match attributes.what {
            What::Path(path) => path.to_owned(),
            What::Resource(what) => {
                format!("{} {} {} {} {}", what.group, what.resource, what.subresource, what.namespace, what.name)
            }
        };
        let question = format!("{} {} {text}", attributes.user.name, attributes.verb);
        let allowed = [
            "alice get /metrics",
            "alice approve apps deployments scale n d",
            "alice do  configmaps  default a",
            "system:serviceaccount:n:s get  pods   ",
        ];
        let decision = match allowed.contains(&question.as_str()) {
            true => Decision::allow("granted"),
            false => Decision::no_opinion(),
        };
        if !self.later {
            self.asked.fetch_add(1, Ordering::SeqCst);
            return Verdict::Now(decision);
        }
        let asked = Arc::clone(&self.asked);
        Verdict::Later(Box::pin(async move {
            tokio::task::yield_now().await;
            asked.fetch_add(1, Ordering::SeqCst);
            decision
        }))
    }

    fn rules_for(&self, _: &User, _: &str) -> RuleList {
        RuleList::default()
    }
}

#[tokio::test]
async fn vap_10_the_authorizer_is_asked_once_for_equal_checks() {
    for later in [false, true] {
        let asked = Arc::new(AtomicUsize::new(0));
        let authorizer = Arc::new(Rights { later, asked: Arc::clone(&asked) });
        let world = World::with(Settings { authorizer, ..Settings::default() }).await;
        let checks = [
            "authorizer.path('/metrics').check('get').allowed()",
            "authorizer.group('apps').resource('deployments').subresource('scale').namespace('n').name('d').check('approve').reason() == 'granted'",
            "authorizer.requestResource.check('do').allowed()",
            "authorizer.serviceAccount('n', 's').group('').resource('pods').check('get').allowed()",
            "!authorizer.group('').resource('pods').check('get').allowed()",
            "authorizer.path('/metrics').check('get').allowed() && variables.may",
        ];
        let variables = json!([{"name": "may", "expression": "authorizer.path('/metrics').check('get').allowed()"}]);
        world.deny("p", json!({"variables": variables, "validations": validations(&checks)})).await;
        asked.store(0, Ordering::SeqCst);
        let user = |name: &str| User { name: name.to_owned(), ..User::default() };
        let object = json!({"metadata": {"name": "a"}});
        let answer = world.create_as(user("alice"), "configmaps/default", object.clone()).await;
        answer.result.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 5, "later: {later}");
        let refused = world.create_as(user("bob"), "configmaps/default", object).await;
        assert!(refused.message().ends_with(&format!("failed expression: {}", checks[0])));
    }
}

#[tokio::test]
async fn vap_15_16_17_19_params() {
    let world = World::new().await;
    let limits =
        |name: &str, max: &str| json!({"metadata": {"name": name, "labels": {"use": "yes"}}, "data": {"max": max}});
    world.create("configmaps/default", limits("limits", "3")).await.result.unwrap();
    world.create("configmaps/default", limits("strict", "1")).await.result.unwrap();
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [
        {"expression": "params == null || int(object.data.k) <= int(params.data.max)", "messageExpression": "'at most ' + params.data.max"}]});
    let bind = async |params: Value| {
        world.policy("p", spec.clone()).await;
        world.bind("p", json!({"validationActions": ["Deny"], "paramRef": params})).await;
    };
    let unbind = async || {
        world.delete(&format!("{GROUP}:validatingadmissionpolicies/p")).await.unwrap();
        world.delete(&format!("{GROUP}:validatingadmissionpolicybindings/p")).await.unwrap();
    };
    let none = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    for (params, value, why) in [
        (json!({"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}), "5", Some("at most 3")),
        (json!({"name": "limits", "parameterNotFoundAction": "Deny"}), "5", Some("at most 3")),
        (json!({"name": "limits", "parameterNotFoundAction": "Deny"}), "2", None),
        (
            json!({"selector": {"matchLabels": {"use": "yes"}}, "parameterNotFoundAction": "Deny"}),
            "2",
            Some("at most 1"),
        ),
        (json!({"name": "none", "parameterNotFoundAction": "Deny"}), "2", Some(none)),
        (json!({"selector": {"matchLabels": {"use": "no"}}, "parameterNotFoundAction": "Deny"}), "2", Some(none)),
        (json!({"name": "none", "parameterNotFoundAction": "Allow"}), "9", None),
    ] {
        bind(params.clone()).await;
        let answer = world.map("a", json!({"k": value})).await;
        match why {
            Some(why) => assert_eq!(answer.message(), denied("p", why), "{params}"),
            None => {
                answer.result.unwrap();
                world.delete("configmaps/default/a").await.unwrap();
            }
        }
        unbind().await;
    }
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "Namespace"}, "validations": validations(&["params.metadata.name == 'other'"])});
    world.policy("p", spec).await;
    let params = json!({"name": "default", "namespace": "default", "parameterNotFoundAction": "Deny"});
    world.bind("p", json!({"validationActions": ["Deny"], "paramRef": params})).await;
    let why = "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`";
    assert_eq!(world.map("a", json!({})).await.message(), denied("p", why));
}

#[tokio::test]
async fn vap_15_a_cluster_scoped_request_has_no_namespace_for_params() {
    let world = World::new().await;
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": validations(&["true"])});
    world.policy_for("p", json!([rule("", "nodes", &["CREATE"])]), spec).await;
    let params = json!({"name": "x", "parameterNotFoundAction": "Allow"});
    world.bind("p", json!({"validationActions": ["Deny"], "paramRef": params})).await;
    let refused = world.create("nodes", json!({"metadata": {"name": "n"}})).await;
    let why = "failed to configure binding: cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
    assert!(refused.message().ends_with(why), "{}", refused.message());
}

#[tokio::test]
async fn vap_18_ad_55_a_param_kind_is_known_as_soon_as_it_is_defined() {
    let world = World::new().await;
    let spec = json!({"paramKind": {"apiVersion": "example.com/v1", "kind": "Thing"}, "validations": [
        {"expression": "int(object.data.k) <= params.spec.n", "messageExpression": "'at most %d'.format([params.spec.n])"}]});
    world.policy("p", spec).await;
    let params = json!({"name": "t", "parameterNotFoundAction": "Deny"});
    world.bind("p", json!({"validationActions": ["Deny"], "paramRef": params})).await;
    let why = "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed \
               to find resource referenced by paramKind: 'example.com/v1, Kind=Thing'";
    assert_eq!(world.map("a", json!({"k": "1"})).await.message(), why);
    world.create("apiextensions.k8s.io:customresourcedefinitions", definition()).await.result.unwrap();
    while world.registry.kinds().get("example.com", "v1", "things").is_none() {
        tokio::task::yield_now().await;
    }
    world.create("example.com:things/default", json!({"metadata": {"name": "t"}, "spec": {}})).await.result.unwrap();
    assert_eq!(world.map("a", json!({"k": "8"})).await.message(), denied("p", "at most 7"));
    world.map("a", json!({"k": "7"})).await.result.unwrap();
}

#[tokio::test]
async fn vap_21_the_reason_decides_about_the_code() {
    let world = World::new().await;
    for (reason, code) in [("Forbidden", 403), ("Invalid", 422), ("RequestEntityTooLarge", 413)] {
        world.deny("p", json!({"validations": [{"expression": "false", "message": "no", "reason": reason}]})).await;
        let answer = world.map("a", json!({})).await;
        assert_eq!(answer.message(), denied("p", "no"));
        let status = answer.result.unwrap_err();
        assert_eq!((status.code, status.reason()), (code, reason));
        world.delete(&format!("{GROUP}:validatingadmissionpolicies/p")).await.unwrap();
        world.delete(&format!("{GROUP}:validatingadmissionpolicybindings/p")).await.unwrap();
    }
}

#[tokio::test]
async fn vap_22_23_bd_2_3_denials_are_in_the_order_of_names_and_all_are_shown() {
    let world = World::new().await;
    world.deny("b", json!({"validations": [{"expression": "false", "message": "b1"}, {"expression": "false", "message": "b2"}]})).await;
    world.deny("a", json!({"validations": [{"expression": "false", "message": "a1"}]})).await;
    assert_eq!(world.map("a", json!({})).await.causes().len(), 1, "as the reference shows it");
    let object = json!({"metadata": {"name": "a"}});
    let answer = world.create_explained("configmaps/default", object).await;
    assert_eq!(answer.message(), denied("a", "a1"));
    let cause = |policy: &str, why: &str| {
        format!("ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {why}")
    };
    assert_eq!(answer.causes(), [cause("a", "a1"), cause("b", "b1"), cause("b", "b2")]);
}

#[tokio::test]
async fn vap_24_25_30_actions() {
    let world = World::new().await;
    let rules = json!({"validations": [{"expression": "object.data.k < 'x'", "message": "no & <never>"}]});
    world.policy("p", rules).await;
    world.bind("p", json!({"validationActions": ["Warn", "Audit"]})).await;
    let answer = world.map("a", json!({"k": "x"})).await;
    assert_eq!(answer.warnings, ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': no & <never>"]);
    let value = r#"[{"message":"no \u0026 \u003cnever\u003e","policy":"p","binding":"p","expressionIndex":0,"validationActions":["Warn","Audit"]}]"#;
    let key = "validation.policy.admission.k8s.io/validation_failure";
    assert_eq!(answer.annotations.get(key).map(String::as_str), Some(value));
    answer.result.unwrap();
    // Errors follow the actions too.
    let answer = world.map("b", json!({})).await;
    assert!(answer.warnings[0].ends_with("resulted in error: no such key: data"), "{:?}", answer.warnings);
    answer.result.unwrap();
}

#[tokio::test]
async fn vap_27_subresources_are_named_by_rules() {
    let world = World::new().await;
    let spec =
        |message: &str| json!({"validations": [{"expression": "object.spec.replicas <= 5", "message": message}]});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    world.create("apps:deployments/default", deployment).await.result.unwrap();
    world.policy_for("p", json!([rule("apps", "deployments", &["*"])]), spec("too many")).await;
    world.bind("p", json!({"validationActions": ["Deny"]})).await;
    let refused = world.merge("apps:deployments/default/d", json!({"spec": {"replicas": 6}})).await.unwrap_err();
    let why =
        "deployments.apps \"d\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: too many";
    assert_eq!((refused.code, refused.message.as_str()), (422, why));
    let scale = |replicas: i64| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": replicas}});
    let update_scale = async |replicas: i64| {
        let (target, options, ctx) =
            (world.target("apps:deployments/default/d/scale"), UpdateOptions::default(), Context::default());
        let body = Body { bytes: Bytes::from(scale(replicas).to_string()), media: MediaType::Json };
        world
            .registry
            .update_scale(WriteRequest { target: &target, options: &options, ctx: &ctx }, &body)
            .await
            .map(|_| ())
    };
    update_scale(3).await.unwrap();
    world.policy_for("q", json!([rule("apps", "deployments/scale", &["*"])]), spec("too large a scale")).await;
    world.bind("q", json!({"validationActions": ["Deny"]})).await;
    assert!(update_scale(6).await.unwrap_err().message.ends_with("too large a scale"));
}

#[tokio::test]
async fn ad_30_38_policies_do_not_see_policies_and_may_be_narrowed() {
    let world = World::new().await;
    let everything = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}]);
    world.policy_for("p", everything, json!({"validations": validations(&["false"])})).await;
    let narrow = json!({"resourceRules": [rule("", "configmaps", &["CREATE"])], "excludeResourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"], "resourceNames": ["free"]}]});
    world.bind("p", json!({"validationActions": ["Deny"], "matchResources": narrow})).await;
    assert!(world.map("a", json!({})).await.result.is_err());
    world.map("free", json!({})).await.result.unwrap();
    world.create("secrets/default", json!({"metadata": {"name": "s"}})).await.result.unwrap();
    world.bind_as("all", "p", &mut json!({"validationActions": ["Deny"]})).await;
    assert!(world.create("secrets/default", json!({"metadata": {"name": "t"}})).await.result.is_err());
    let hooks = json!({"metadata": {"name": "h"}, "webhooks": []});
    assert!(world.create(&format!("{GROUP}:validatingwebhookconfigurations"), hooks).await.result.is_err());
    world.delete(&format!("{GROUP}:validatingadmissionpolicies/p")).await.unwrap();
    world.create("secrets/default", json!({"metadata": {"name": "t"}})).await.result.unwrap();
}

#[tokio::test]
async fn vap_2_each_binding_and_param_is_evaluated() {
    let world = World::new().await;
    for (name, max) in [("a", "1"), ("b", "2")] {
        let params = json!({"metadata": {"name": name, "labels": {"use": "yes"}}, "data": {"max": max}});
        world.create("configmaps/default", params).await.result.unwrap();
    }
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "c", "expression": "params.data.max != '1' || object.data.k != 'skip'"}],
        "validations": [{"expression": "false", "messageExpression": "'max ' + params.data.max"}],
        "auditAnnotations": [{"key": "max", "valueExpression": "string(params.data.max)"}]});
    world.policy("p", spec).await;
    let params = json!({"selector": {"matchLabels": {"use": "yes"}}, "parameterNotFoundAction": "Deny"});
    for name in ["b2", "b1"] {
        world.bind_as(name, "p", &mut json!({"validationActions": ["Warn"], "paramRef": params})).await;
    }
    let answer = world.map("m", json!({"k": "v"})).await;
    let warning = |binding: &str, max: u8| {
        format!("Validation failed for ValidatingAdmissionPolicy 'p' with binding '{binding}': max {max}")
    };
    assert_eq!(answer.warnings, [warning("b1", 1), warning("b1", 2), warning("b2", 1), warning("b2", 2)]);
    assert_eq!(answer.annotations.get("p/max").map(String::as_str), Some("1, 2"));
    let answer = world.map("n", json!({"k": "skip"})).await;
    assert_eq!(answer.warnings, [warning("b1", 2), warning("b2", 2)], "the condition is evaluated for each param");
}

#[tokio::test]
async fn vap_35_map_2_policies_that_cannot_work_are_refused() {
    let world = World::new().await;
    let rules = || json!({"resourceRules": [rule("", "configmaps", &["CREATE"])]});
    let validating = |spec: Value| ("validating", spec);
    let mutating = |mutation: Value| {
        ("mutating", json!({"matchConstraints": rules(), "reinvocationPolicy": "Never", "mutations": [mutation]}))
    };
    let expression = |text: &str| json!({"matchConstraints": rules(), "validations": validations(&[text])});
    for ((kind, spec), why) in [
        (validating(json!({"validations": validations(&["true"])})), "spec.matchConstraints: Required value"),
        (
            validating(json!({"matchConstraints": {}, "validations": validations(&["true"])})),
            "spec.matchConstraints.resourceRules: Required value",
        ),
        (
            validating(json!({"matchConstraints": rules()})),
            "validations or auditAnnotations must contain at least one item",
        ),
        (validating(expression("1")), "must evaluate to bool but got int"),
        (validating(expression("nope")), "undeclared reference to 'nope' (in container '')"),
        (validating(expression("Object{}")), "undeclared reference to 'Object' (in container '')"),
        (
            validating(json!({"matchConstraints": rules(), "validations": [{"expression": "true", "reason": "Nope"}]})),
            "Unsupported value: \"Nope\"",
        ),
        (mutating(json!({})), "spec.mutations[0].patchType: Required value"),
        (mutating(json!({"patchType": "Merge"})), "supported values: \"ApplyConfiguration\", \"JSONPatch\""),
        (
            mutating(json!({"patchType": "JSONPatch"})),
            "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
        ),
        (
            mutating(
                json!({"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{}]"}, "applyConfiguration": {"expression": "Object{}"}}),
            ),
            "spec.mutations[0].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be specified when patchType is JSONPatch",
        ),
        (
            mutating(json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "{}"}})),
            "must evaluate to Object but got map(dyn, dyn)",
        ),
        (
            (
                "mutating",
                json!({"matchConstraints": {"resourceRules": [rule("", "configmaps", &["DELETE"])]}, "reinvocationPolicy": "Never",
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{}]"}}]}),
            ),
            "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\"",
        ),
        (
            (
                "mutating",
                json!({"matchConstraints": rules(), "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{}]"}}]}),
            ),
            "spec.reinvocationPolicy: Required value",
        ),
    ] {
        let object = json!({"metadata": {"name": "p"}, "spec": spec});
        let answer = world.create(&format!("{GROUP}:{kind}admissionpolicies"), object).await;
        assert!(answer.message().contains(why), "{why}: {}", answer.message());
        assert_eq!(answer.result.unwrap_err().code, 422);
    }
}
