//! CustomResourceDefinitions with kubectl, operators' manifests, kube-rs types, client-go, controller-runtime and Python; and
//! a conversion webhook that this test serves.

use std::process::Command;
use std::sync::Arc;

use base64::Engine as _;
use blackbox::process::DEADLINE;
use blackbox::writer::client;
use blackbox::{Process, Server, run, tools};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const WIDGETS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns:
    - {name: Color, type: string, jsonPath: .spec.color}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    - {name: Phase, type: string, jsonPath: .status.phase, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        description: A widget of the example.
        properties:
          spec:
            type: object
            properties:
              color: {type: string, default: blue, description: What it looks like.}
              replicas: {type: integer, minimum: 0}
          status:
            type: object
            properties:
              phase: {type: string}
              replicas: {type: integer}
"#;

fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| line.split_whitespace().collect()).collect()
}

fn install(server: &Server) {
    server.kubectl_with("create -f -", WIDGETS).ok();
    server.kubectl("wait --for=condition=Established crd/widgets.example.com --timeout=60s").ok();
}

#[test]
fn kubectl_from_definition_to_deletion() {
    let server = Server::start();
    install(&server);
    let resources = server.kubectl("api-resources --api-group=example.com --no-headers").ok();
    assert_eq!(rows(&resources), [["widgets", "wd", "example.com/v1", "true", "Widget"]]);
    let one = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: one}, spec: {replicas: 2}}";
    assert_eq!(server.kubectl_with("apply -f -", one).ok(), "widget.example.com/one created\n");
    let table = server.kubectl("get wd").ok();
    assert_eq!(rows(&table), [vec!["NAME", "COLOR", "REPLICAS"], vec!["one", "blue", "2"]]);
    let all = server.kubectl("get all -o name").ok();
    assert!(all.contains("widget.example.com/one"), "{all}");
    assert_eq!(server.kubectl("scale widget one --replicas=5").ok(), "widget.example.com/one scaled\n");
    assert_eq!(server.kubectl("get widget one -o jsonpath={.spec.replicas}").ok(), "5");
    let wrong = server.kubectl("patch widget one --type=merge -p '{\"spec\":{\"color\":5}}'").refused();
    assert!(wrong.contains("spec.color in body must be of type string"), "{wrong}");

    let editor = server.folder().join("editor.sh");
    std::fs::write(&editor, "sed -i 's/^spec:/status:\\n  phase: Ready\\nspec:/' \"$1\"\n")
        .expect("the folder can be written");
    let mut edit = server.kubectl_command("edit widget one --subresource=status");
    edit.env("KUBE_EDITOR", format!("sh {}", editor.display())).env("TMPDIR", server.folder());
    assert_eq!(run(edit, "").ok(), "widget.example.com/one edited\n");
    assert_eq!(rows(&server.kubectl("get wd -o wide --no-headers").ok()), [["one", "blue", "5", "Ready"]]);
    let explained = server.kubectl("explain widget.spec.color").ok();
    assert!(explained.contains("What it looks like."), "{explained}");

    server.kubectl("delete crd widgets.example.com --timeout=60s").ok();
    // kubectl caches the kinds of a server for a while.
    let gone = server.kubectl("get widgets").refused();
    let forgotten = gone.contains("the server doesn't have a resource type \"widgets\"");
    assert!(forgotten || gone.contains("the server could not find the requested resource"), "{gone}");
}

#[test]
fn a_killed_server_comes_back_with_definitions_and_instances() {
    let mut server = Server::start();
    install(&server);
    let one = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: one}, spec: {color: red}}";
    server.kubectl_with("create -f -", one).ok();
    server.kill_and_restart();
    assert_eq!(server.kubectl("get widget one -o jsonpath={.spec.color}").ok(), "red");
    server.kubectl_with("create -f -", &one.replace("one", "two")).ok();
    assert_eq!(rows(&server.kubectl("get widgets --no-headers").ok()).len(), 2);
}

/// The published manifests of five projects, installed by `cargo xtask test`.
#[test]
fn definitions_as_operators_ship_them() {
    let server = Server::start();
    let projects = ["gateway-api", "prometheus-operator", "cert-manager", "cluster-api", "keda"];
    for project in projects {
        // kubectl does not follow a link to a folder.
        let folder = tools::installed(&format!("definitions/{project}")).canonicalize().expect("it is there");
        let said = server.kubectl(&format!("create -f {}", folder.display())).ok();
        assert!(said.lines().count() >= 5, "{project}: {said}");
    }
    server.kubectl("wait --for=condition=Established crd --all --timeout=120s").ok();
    let names = server.kubectl("get crd -o name").ok();
    assert!(names.lines().count() >= 40, "{names}");
    for object in [
        r#"{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: c},
            spec: {secretName: s, dnsNames: [a.example.com], issuerRef: {name: i}}}"#,
        r#"{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {name: m},
            spec: {selector: {matchLabels: {a: b}}, endpoints: [{port: web, interval: 30s}]}}"#,
        r#"{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: r},
            spec: {parentRefs: [{name: g}], rules: [{backendRefs: [{name: s, port: 80}]}]}}"#,
        r#"{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {name: o},
            spec: {scaleTargetRef: {name: d}, triggers: [{type: cron, metadata: {a: b}}]}}"#,
    ] {
        server.kubectl_with("create -f -", object).ok();
    }
    // Defaults at every depth, as the schema of the project has them.
    let route = server.kubectl("get httproute r -o json").json();
    assert_eq!(route["spec"]["rules"][0]["matches"][0]["path"], json!({"type": "PathPrefix", "value": "/"}));
    let wrong = r#"{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {name: wrong},
                    spec: {selector: {}, endpoints: [{interval: soon}]}}"#;
    let wrong = server.kubectl_with("create -f -", wrong).refused();
    assert!(wrong.contains("spec.endpoints[0].interval in body should match"), "{wrong}");
}

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "rs.example.com",
    version = "v1",
    kind = "Gadget",
    namespaced,
    status = "GadgetStatus",
    shortname = "gd"
)]
#[kube(validation = Rule::new("self.spec.low <= self.spec.high").message("low is above high"))]
struct GadgetSpec {
    low: i32,
    high: i32,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct GadgetStatus {
    phase: Option<String>,
}

#[tokio::test]
async fn kube_rs_types_with_a_rule() {
    let server = Server::start();
    let client = client(&server).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &Gadget::crd()).await.expect("the definition is accepted");
    let established = await_condition(definitions, "gadgets.rs.example.com", conditions::is_crd_established());
    tokio::time::timeout(DEADLINE, established).await.expect("in time").expect("it is established");
    let gadgets: Api<Gadget> = Api::namespaced(client, "default");
    let one = Gadget::new("one", GadgetSpec { low: 1, high: 2, tags: Vec::new() });
    let made = gadgets.create(&PostParams::default(), &one).await.expect("it is created");
    assert_eq!(made.metadata.generation, Some(1));
    let wrong = Gadget::new("two", GadgetSpec { low: 3, high: 2, tags: Vec::new() });
    let refused = gadgets.create(&PostParams::default(), &wrong).await.expect_err("the rule does not hold");
    assert!(refused.to_string().contains("low is above high"), "{refused}");
    let status = Patch::Merge(json!({"status": {"phase": "Ready"}}));
    let patched = gadgets.patch_status("one", &PatchParams::default(), &status).await.expect("a status");
    assert_eq!(patched.status.and_then(|status| status.phase).as_deref(), Some("Ready"));
    let names: Vec<String> =
        gadgets.list(&ListParams::default()).await.expect("a list").iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["one"]);
}

fn go(server: &Server, name: &str) -> Command {
    let mut command = server.command(tools::installed("bin/go-clients"));
    command.arg(name);
    command
}

#[test]
fn go_dynamic_and_metadata_clients() {
    let server = Server::start();
    let said = run(go(&server, "custom"), "").ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "created a map[color:blue]",
            "created b map[color:blue]",
            "applied map[color:red] 2",
            "watch ADDED a",
            "status map[phase:Done] 2",
            "metadata of 2, first a",
            "left 1",
        ]
    );
}

#[test]
fn a_controller_runtime_manager_with_a_cache_and_an_index() {
    let server = Server::start();
    let mut manager = Process::start(go(&server, "manager"));
    manager.expect(&["starting"]);
    let thing =
        |name: &str| format!("{{apiVersion: go.example.com/v1, kind: Thing, metadata: {{name: {name}}}, spec: {{}}}}");
    server.kubectl_with("create -f -", &thing("one")).ok();
    manager.line_where("the first settles", |line| line == "settled one BLUE 1");
    server.kubectl_with("create -f -", &thing("two")).ok();
    manager.line_where("the second settles", |line| line == "settled two BLUE 2");
    server.kubectl("patch thing one --type=merge -p '{\"spec\":{\"color\":\"red\"}}'").ok();
    manager.line_where("the first changes", |line| line == "settled one RED 1");
    assert_eq!(server.kubectl("get thing one -o jsonpath={.status.phase}").ok(), "RED");
}

#[test]
fn python_dynamic_client() {
    let server = Server::start();
    let mut command = server.command(tools::installed("python/bin/python"));
    command.arg(tools::tests().join("python/clients.py")).arg("custom");
    let said = run(command, "").ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines, ["established", "created one 1 1", "refused spec.size", "listed [('one', 'red')]", "left 0"]);
}

/// Serves conversions between `spec.host` with `spec.port` (v1) and `spec.address` (v2). Returns its address and authority.
async fn converter() -> (String, String) {
    let key = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let authority = base64::engine::general_purpose::STANDARD.encode(key.cert.pem());
    let private = rustls_pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der()).expect("a key");
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("TLS has versions")
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], private)
        .expect("the key matches the certificate");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("https://{}/convert", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(async |request: hyper::Request<hyper::body::Incoming>| {
                    let body = request.into_body().collect().await?.to_bytes();
                    let answer = converted(&serde_json::from_slice(&body).unwrap_or_default());
                    Ok::<_, hyper::Error>(hyper::Response::new(Full::new(Bytes::from(answer.to_string()))))
                });
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (url, authority)
}

fn converted(review: &Value) -> Value {
    let wanted = review["request"]["desiredAPIVersion"].as_str().unwrap_or_default();
    let convert = |object: &Value| {
        let (mut object, spec) = (object.clone(), &object["spec"]);
        object["apiVersion"] = json!(wanted);
        object["spec"] = match spec["address"].as_str().and_then(|address| address.split_once(':')) {
            Some((host, port)) => json!({"host": host, "port": port.parse::<i64>().unwrap_or_default()}),
            None => json!({"address": format!("{}:{}", spec["host"].as_str().unwrap_or_default(), spec["port"])}),
        };
        object
    };
    let objects: Vec<Value> = review["request"]["objects"].as_array().into_iter().flatten().map(convert).collect();
    json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": {
        "uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects}})
}

#[tokio::test]
async fn a_conversion_webhook_served_by_the_test() {
    let (url, authority) = converter().await;
    let version = |name: &str, storage: bool, properties: Value| {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "doors.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "doors", "kind": "Door"},
            "versions": [
                version("v1", true, json!({"host": {"type": "string"}, "port": {"type": "integer"}})),
                version("v2", false, json!({"address": {"type": "string"}})),
            ],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": {"url": url, "caBundle": authority}, "conversionReviewVersions": ["v1"]}},
        },
    });
    tokio::task::spawn_blocking(move || {
        let server = Server::start();
        server.kubectl_with("create -f -", &definition.to_string()).ok();
        server.kubectl("wait --for=condition=Established crd/doors.example.com --timeout=60s").ok();
        let old =
            r#"{"apiVersion":"example.com/v1","kind":"Door","metadata":{"name":"old"},"spec":{"host":"a","port":1}}"#;
        server.kubectl_with("create -f -", old).ok();
        let new = r#"{"apiVersion":"example.com/v2","kind":"Door","metadata":{"name":"new"},"spec":{"address":"b:2"}}"#;
        server.kubectl_with("create -f -", new).ok();
        let v2 = server.kubectl("get doors.v2.example.com -o jsonpath={.items[*].spec.address}").ok();
        assert_eq!(v2, "b:2 a:1");
        assert_eq!(server.kubectl("get doors.v1.example.com new -o jsonpath={.spec}").ok(), r#"{"host":"b","port":2}"#);
        server.kubectl("patch doors.v2.example.com old --type=merge -p '{\"spec\":{\"address\":\"c:3\"}}'").ok();
        assert_eq!(server.kubectl("get doors.v1.example.com old -o jsonpath={.spec.host}").ok(), "c");
    })
    .await
    .expect("the client's requests succeed");
}
