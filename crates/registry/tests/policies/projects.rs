//! Policies in the shapes that real projects write or generate: the samples of Kubernetes, Gatekeeper, Kyverno.

use machinery::json::{Value, json};

use super::world::{GROUP, World, rule};

fn pod(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{"name": "c", "image": "prod.example.com/app:1"}]);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn create(world: &World, kind: &str, object: Value) {
    world.create(&format!("{GROUP}:{kind}"), object).await.result.unwrap();
}

/// Kubernetes' sample about images: a chain of variables from the labels of the namespace.
#[tokio::test]
async fn kubernetes_images_match_the_environment_of_their_namespace() {
    let world = World::new().await;
    let variable = |name: &str, expression: &str| json!({"name": name, "expression": expression});
    let spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule("", "pods", &["CREATE", "UPDATE"])]},
        "variables": [
            variable("environment", "'environment' in namespaceObject.metadata.labels ? namespaceObject.metadata.labels['environment'] : 'prod'"),
            variable("exempt", "has(object.metadata.labels) && 'exempt' in object.metadata.labels && object.metadata.labels['exempt'] == 'true'"),
            variable("containers", "object.spec.containers"),
            variable("containersToCheck", "variables.containers.filter(c, c.image.contains('example.com/'))"),
        ],
        "validations": [{
            "expression": "variables.exempt || variables.containersToCheck.all(c, c.image.startsWith(variables.environment + '.'))",
            "messageExpression": "'only ' + variables.environment + ' images are allowed in namespace ' + namespaceObject.metadata.name",
        }],
    });
    create(&world, "validatingadmissionpolicies", json!({"metadata": {"name": "image-matches"}, "spec": spec})).await;
    let binding = json!({"metadata": {"name": "image-matches"}, "spec": {"policyName": "image-matches", "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchExpressions": [{"key": "environment", "operator": "Exists"}]}}}});
    create(&world, "validatingadmissionpolicybindings", binding).await;
    world.create("pods/default", pod("unselected", json!({}))).await.result.unwrap();
    world.merge("namespaces/default", json!({"metadata": {"labels": {"environment": "staging"}}})).await.unwrap();
    let refused = world.create("pods/default", pod("p", json!({}))).await;
    assert!(
        refused.message().ends_with("only staging images are allowed in namespace default"),
        "{}",
        refused.message()
    );
    let mut exempt = pod("p", json!({}));
    exempt["metadata"]["labels"] = json!({"exempt": "true"});
    world.create("pods/default", exempt).await.result.unwrap();
}

/// Kubernetes' samples of mutation: a sidecar if it is not there, and a label by a JSON patch.
#[tokio::test]
async fn kubernetes_sidecars_and_labels() {
    let world = World::new().await;
    let sidecar = "Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'mesh-proxy', image: 'mesh/proxy:v1.0.0', \
                   args: has(object.spec.never) ? object.spec.never : ['proxy', 'sidecar'], restartPolicy: 'Always'}]}}";
    let spec = json!({
        "matchConstraints": {"resourceRules": [rule("", "pods", &["CREATE"])]},
        "matchConditions": [{"name": "does-not-already-have-sidecar",
            "expression": "!object.spec.?initContainers.orValue([]).exists(c, c.name == 'mesh-proxy')"}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": sidecar}}],
    });
    create(&world, "mutatingadmissionpolicies", json!({"metadata": {"name": "sidecar"}, "spec": spec})).await;
    create(
        &world,
        "mutatingadmissionpolicybindings",
        json!({"metadata": {"name": "sidecar"}, "spec": {"policyName": "sidecar"}}),
    )
    .await;
    let refused = world.create("pods/default", pod("p", json!({}))).await;
    let why = "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.initContainers[0].args";
    assert!(refused.message().ends_with(why), "{}", refused.message());
    let patch = "[JSONPatch{op: 'add', path: '/spec/initContainers', value: []}, JSONPatch{op: 'add', path: '/spec/initContainers/-', \
                 value: Object.spec.initContainers{name: 'mesh-proxy', image: 'mesh-proxy/v1.0.0', restartPolicy: 'Always'}}]";
    let mutations = json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}, "applyConfiguration": null}]);
    world
        .merge(&format!("{GROUP}:mutatingadmissionpolicies/sidecar"), json!({"spec": {"mutations": mutations}}))
        .await
        .unwrap();
    let created = world.create("pods/default", pod("p", json!({}))).await.result.unwrap();
    let sidecars = created["spec"]["initContainers"].as_array().unwrap();
    assert_eq!(
        (sidecars.len(), &sidecars[0]["restartPolicy"]),
        (1, &json!("Always")),
        "the condition ends the second round"
    );
}

fn constraint_definition() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"metadata": {"name": "k8srequiredlabels.constraints.gatekeeper.sh"}, "spec": {
        "group": "constraints.gatekeeper.sh", "scope": "Cluster",
        "names": {"kind": "K8sRequiredLabels", "listKind": "K8sRequiredLabelsList", "plural": "k8srequiredlabels", "singular": "k8srequiredlabels"},
        "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

/// What Gatekeeper generates from a template: everything is matched, conditions read the constraint as params.
#[tokio::test]
async fn gatekeeper_templates_are_policies_with_constraints_as_params() {
    let world = World::new().await;
    world.create("apiextensions.k8s.io:customresourcedefinitions", constraint_definition()).await.result.unwrap();
    while world.registry.kinds().get("constraints.gatekeeper.sh", "v1beta1", "k8srequiredlabels").is_none() {
        tokio::task::yield_now().await;
    }
    let excluded = r#"
        !has(params.spec) ? true: (
            !has(params.spec.match) ? true: (
                !has(params.spec.match.excludedNamespaces) ? true : (
                    [object, oldObject].exists(obj,
                        obj != null && (
                            // objects without a namespace always match
                            !has(obj.metadata.namespace) || obj.metadata.namespace == "" ? true : (
                                !params.spec.match.excludedNamespaces.exists(glob,
                                    (string(obj.metadata.namespace).matches("^" + string(glob).replace("*", ".*") + "$")))
                            )
                        )
                    )
                )
            )
        )"#;
    let kinds = r#"
        !has(params.spec.match.kinds) ? true : params.spec.match.kinds.exists(groupskinds,
            (!has(groupskinds.kinds) || size(groupskinds.kinds) == 0 || "*" in groupskinds.kinds || object.kind in groupskinds.kinds) &&
            (!has(groupskinds.apiGroups) || size(groupskinds.apiGroups) == 0 || "*" in groupskinds.apiGroups ||
                (object.apiVersion.contains("/") ? object.apiVersion.split("/")[0] : "") in groupskinds.apiGroups))"#;
    let spec = json!({
        "paramKind": {"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "K8sRequiredLabels"},
        "matchConstraints": {"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["CREATE", "UPDATE"]}]},
        "matchConditions": [
            {"name": "gatekeeper_internal_match_excluded_namespaces", "expression": excluded},
            {"name": "gatekeeper_internal_match_kinds", "expression": kinds},
        ],
        "failurePolicy": "Fail",
        "variables": [
            {"name": "anyObject", "expression": "has(request.operation) && request.operation == \"DELETE\" && object == null ? oldObject : object"},
            {"name": "params", "expression": "!has(params.spec) ? null : !has(params.spec.parameters) ? null: params.spec.parameters"},
            {"name": "missing", "expression": "variables.params.labels.filter(l, !has(variables.anyObject.metadata.labels) || !(l in variables.anyObject.metadata.labels))"},
        ],
        "validations": [{"expression": "size(variables.missing) == 0", "message": "labels are missing",
            "messageExpression": "'you must provide labels: ' + variables.missing.join(', ')"}],
    });
    let name = "gatekeeper-k8srequiredlabels";
    create(&world, "validatingadmissionpolicies", json!({"metadata": {"name": name}, "spec": spec})).await;
    let constraint = json!({"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "K8sRequiredLabels",
        "metadata": {"name": "owner"}, "spec": {"enforcementAction": "deny", "parameters": {"labels": ["owner", "team"]},
        "match": {"kinds": [{"apiGroups": [""], "kinds": ["ConfigMap"]}], "excludedNamespaces": ["kube-*"]}}});
    world.create("constraints.gatekeeper.sh@v1beta1:k8srequiredlabels", constraint).await.result.unwrap();
    let binding = json!({"metadata": {"name": "gatekeeper-owner"}, "spec": {"policyName": name, "validationActions": ["Deny"],
        "paramRef": {"name": "owner", "parameterNotFoundAction": "Allow"}, "matchResources": {}}});
    create(&world, "validatingadmissionpolicybindings", binding).await;
    let refused = world.map("a", json!({})).await;
    let why = "ValidatingAdmissionPolicy 'gatekeeper-k8srequiredlabels' with binding 'gatekeeper-owner' denied request: you must provide labels: owner, team";
    assert!(refused.message().ends_with(why), "{}", refused.message());
    let labels = json!({"owner": "me", "team": "us"});
    world.create("configmaps/default", json!({"metadata": {"name": "a", "labels": labels}})).await.result.unwrap();
    world.create("configmaps/kube-system", json!({"metadata": {"name": "a"}})).await.result.unwrap();
    world.create("secrets/default", json!({"metadata": {"name": "a"}})).await.result.unwrap();
}

/// What Kyverno generates from a rule of expressions: optional fields, several kinds of controllers, an exception as a condition.
#[tokio::test]
async fn kyverno_rules_are_policies_with_exceptions_as_conditions() {
    let world = World::new().await;
    let rules = json!([
        {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE", "UPDATE"], "scope": "*"},
        {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments", "daemonsets", "statefulsets"], "operations": ["CREATE", "UPDATE"], "scope": "*"},
    ]);
    let variable = |name: &str, expression: &str| json!({"name": name, "expression": expression});
    let spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules, "namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kyverno"]}]}},
        "matchConditions": [{"name": "exclude-exempt", "expression": "!(has(object.metadata.labels) && object.metadata.labels.?exempt.orValue('') == 'yes')"}],
        "variables": [
            variable("podSpec", "object.kind == 'Pod' ? object.spec : object.spec.template.spec"),
            variable("allContainers", "variables.podSpec.containers + variables.podSpec.?initContainers.orValue([]) + variables.podSpec.?ephemeralContainers.orValue([])"),
        ],
        "validations": [
            {"expression": "variables.allContainers.all(container, container.?securityContext.?privileged.orValue(false) == false)", "message": "Privileged mode is disallowed."},
            {"expression": "!(variables.podSpec.?hostNetwork.orValue(false)) && variables.podSpec.?volumes.orValue([]).all(v, !has(v.hostPath))", "message": "Host access is disallowed."},
            {"expression": "variables.allContainers.all(c, c.image.contains(':') && !c.image.endsWith(':latest'))", "message": "An image tag is required."},
            {"expression": "variables.allContainers.all(c, c.?resources.?limits[?'memory'].optMap(m, quantity(m).isLessThan(quantity('2Gi'))).orValue(true))", "message": "Too much memory."},
        ],
        "auditAnnotations": [{"key": "checked", "valueExpression": "'containers: ' + string(size(variables.allContainers))"}],
    });
    create(&world, "validatingadmissionpolicies", json!({"metadata": {"name": "cpol-baseline", "labels": {"app.kubernetes.io/managed-by": "kyverno"}}, "spec": spec})).await;
    let binding = json!({"metadata": {"name": "cpol-baseline-binding"}, "spec": {"policyName": "cpol-baseline", "validationActions": ["Audit", "Deny"]}});
    create(&world, "validatingadmissionpolicybindings", binding).await;
    let container = |more: Value| {
        let mut container = json!({"name": "c", "image": "i:1"});
        for (name, value) in more.as_object().unwrap() {
            container[name.as_str()] = value.clone();
        }
        json!([container])
    };
    for (spec, why) in [
        (
            json!({"containers": container(json!({"securityContext": {"privileged": true}}))}),
            Some("Privileged mode is disallowed."),
        ),
        (json!({"containers": container(json!({})), "hostNetwork": true}), Some("Host access is disallowed.")),
        (json!({"containers": container(json!({"image": "nginx"}))}), Some("An image tag is required.")),
        (
            json!({"containers": container(json!({"resources": {"limits": {"memory": "4Gi"}}}))}),
            Some("Too much memory."),
        ),
        (json!({"containers": container(json!({"resources": {"limits": {"memory": "1Gi"}}}))}), None),
    ] {
        let answer = world.create("pods/default", pod("p", spec.clone())).await;
        match why {
            Some(why) => assert!(answer.message().ends_with(&format!("denied request: {why}")), "{}", answer.message()),
            None => {
                assert_eq!(answer.annotations.get("cpol-baseline/checked").map(String::as_str), Some("containers: 1"));
                answer.result.unwrap();
            }
        }
        let labels = json!({"a": "b"});
        let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}});
        let answer = world.create("apps:deployments/default", deployment.clone()).await;
        assert_eq!(answer.result.is_err(), why.is_some());
        if why.is_some() {
            let mut exempt = deployment;
            exempt["metadata"]["labels"] = json!({"exempt": "yes"});
            exempt["metadata"]["name"] = Value::Null;
            exempt["metadata"]["generateName"] = json!("d-");
            world.create("apps:deployments/default", exempt).await.result.unwrap();
        }
    }
}
