//! kubectl explain, and other uses of the server's OpenAPI documents.

use blackbox::Server;

/// The names of fields that explain lists, each with its type, in order.
fn fields(shown: &str, indent: usize) -> Vec<(&str, &str)> {
    shown
        .lines()
        .skip_while(|line| !line.starts_with("FIELDS:"))
        .filter(|line| line.len() - line.trim_start().len() == indent)
        .filter_map(|line| line.trim().split_once('\t'))
        .collect()
}

#[test]
fn explain_a_kind_and_its_parts() {
    let server = Server::start();
    let pod = server.kubectl("explain pod").ok();
    assert!(pod.starts_with("KIND:       Pod\nVERSION:    v1\n\nDESCRIPTION:\n    Pod is"), "{pod}");
    let names: Vec<&str> = fields(&pod, 2).iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["apiVersion", "kind", "metadata", "spec", "status"]);

    let containers = server.kubectl("explain pod.spec.containers").ok();
    assert!(containers.contains("FIELD: containers <[]Container>\n"), "{containers}");
    let found = fields(&containers, 2);
    assert!(found.contains(&("name", "<string> -required-")), "{found:?}");
    assert!(found.contains(&("resources", "<ResourceRequirements>")), "{found:?}");
    assert!(containers.contains("  imagePullPolicy\t<string>\n  enum: Always, IfNotPresent, Never\n"), "{containers}");

    let all = server.kubectl("explain deployments --recursive").ok();
    assert!(all.starts_with("GROUP:      apps\nKIND:       Deployment\nVERSION:    v1\n"), "{all}");
    let deep = fields(&all, 8);
    assert!(deep.contains(&("containers", "<[]Container> -required-")), "{deep:?}");

    let version = server.kubectl("explain hpa.spec.metrics --api-version=autoscaling/v2").ok();
    assert!(version.contains("FIELD: metrics <[]MetricSpec>"), "{version}");
    let plain = server.kubectl("explain configmap.data --output=plaintext-openapiv2").ok();
    assert!(
        plain.contains("FIELD: data <map[string]string>") || plain.contains("FIELD:    data <map[string]string>"),
        "{plain}"
    );

    let refused = server.kubectl("explain pod.spec.nope").refused();
    assert!(refused.contains("field \"nope\" does not exist"), "{refused}");
}

/// Before it sends a manifest, kubectl looks in the documents for the parameter that lets the server validate it.
#[test]
fn manifests_are_checked_by_the_server() {
    let server = Server::start();
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndatas: {}\n";
    let refused = server.kubectl_with("create --validate=strict -f -", manifest).refused();
    assert!(refused.contains("unknown field \"datas\""), "{refused}");
    let warned = server.kubectl_with("create --validate=warn -f -", manifest);
    assert!(warned.stderr.contains("unknown field \"datas\""), "{}", warned.stderr);
    assert_eq!(warned.ok(), "configmap/a created\n");
}

/// kubectl computes the change; it reads from the documents that containers merge by name and ports by number.
#[test]
fn apply_merges_lists_by_their_keys() {
    let server = Server::start();
    let deployment = |containers: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    spec: {{containers: [{containers}]}}\n"
        )
    };
    let (one, two) = ("{name: one, image: a}", "{name: two, image: b, ports: [{containerPort: 80}]}");
    server.kubectl_with("apply -f -", &deployment(&format!("{one}, {two}"))).ok();
    // A container that another client added must stay.
    let other = r#"{"spec":{"template":{"spec":{"containers":[{"name":"other","image":"c"}]}}}}"#;
    server.kubectl(&format!("patch deployment web -p '{other}'")).ok();
    server.kubectl_with("apply -f -", &deployment("{name: two, image: b2, ports: [{containerPort: 81}]}")).ok();
    let now = server.kubectl("get deployment web -o json").json();
    let containers = now["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let mut names: Vec<&str> = containers.iter().map(|container| container["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["other", "two"]);
    let two = containers.iter().find(|container| container["name"] == "two").unwrap();
    assert_eq!(two["image"], "b2");
    let ports: Vec<i64> =
        two["ports"].as_array().unwrap().iter().filter_map(|port| port["containerPort"].as_i64()).collect();
    assert_eq!(ports, [81]);
}

fn definition(fields: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: ships.sea.example.com}}\nspec:\n  group: sea.example.com\n  scope: Namespaced\n  names: {{plural: ships, singular: ship, kind: Ship}}\n  versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        type: object\n        description: A ship at sea.\n        properties:\n          spec: {{type: object, required: [sails], properties: {{{fields}}}}}\n"
    )
}

#[test]
fn explain_a_custom_resource() {
    let server = Server::start();
    let sails = "sails: {type: integer, minimum: 1, description: How many.}";
    server.kubectl_with("apply -f -", &definition(sails)).ok();
    server.kubectl("wait --for=condition=Established crd/ships.sea.example.com").ok();
    let ship = server.kubectl("explain ship").ok();
    assert!(ship.starts_with("GROUP:      sea.example.com\nKIND:       Ship\nVERSION:    v1\n"), "{ship}");
    assert!(ship.contains("DESCRIPTION:\n    A ship at sea.\n"), "{ship}");
    let names: Vec<&str> = fields(&ship, 2).iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["apiVersion", "kind", "metadata", "spec"]);
    let spec = server.kubectl("explain ship.spec").ok();
    assert_eq!(fields(&spec, 2), [("sails", "<integer> -required-")], "{spec}");
    assert!(spec.contains("    How many.\n"), "{spec}");

    // The next document has the current definition. kubectl requests it by its hash, so never an old one.
    server.kubectl_with("apply -f -", &definition(&format!("{sails}, flag: {{type: string}}"))).ok();
    server
        .kubectl_with(
            "apply -f -",
            "{apiVersion: sea.example.com/v1, kind: Ship, metadata: {name: a}, spec: {sails: 1, flag: x}}",
        )
        .ok();
    let all = server.kubectl("explain ship --recursive").ok();
    assert_eq!(
        fields(&all, 4).iter().rev().take(2).collect::<Vec<_>>(),
        [&("sails", "<integer> -required-"), &("flag", "<string>")],
        "{all}"
    );
    let refused = server
        .kubectl_with(
            "create -f -",
            "{apiVersion: sea.example.com/v1, kind: Ship, metadata: {name: b}, spec: {sails: 1, mast: 2}}",
        )
        .refused();
    assert!(refused.contains("unknown field \"spec.mast\""), "{refused}");

    server.kubectl("delete crd ships.sea.example.com").ok();
    let gone = server.kubectl("explain ship").refused();
    assert!(
        gone.contains("the server doesn't have a resource type \"ship\"") || gone.contains("couldn't find resource"),
        "{gone}"
    );
}
