//! What nodes and pods use: the group `metrics.k8s.io`.

use http::Request;
use kube::Client;
use serde_json::{Value, json};

use super::*;

const GROUP: &str = "/apis/metrics.k8s.io/v1beta1";

async fn read(client: &Client, path: &str) -> Value {
    client.request(Request::get(path).body(Vec::new()).unwrap()).await.unwrap_or_else(|error| panic!("{path}: {error}"))
}

async fn refused(client: &Client, path: &str) -> (u16, String) {
    match client.request::<Value>(Request::get(path).body(Vec::new()).unwrap()).await {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("{path}: {other:?}"),
    }
}

async fn running(server: &Server, name: &str, annotations: Value) {
    make_pod(server, name, |pod| {
        pod["metadata"]["annotations"] = annotations;
        pod["metadata"]["labels"] = json!({"app": name});
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "200m", "memory": "64Mi"}});
    })
    .await;
    until_running(server, name).await;
}

#[tokio::test]
async fn mx_1_the_group_is_served_with_its_api_service() {
    let server = Server::with_controllers(settings(NODES)).await;
    let client = server.client();
    let resources = read(&client, GROUP).await;
    let named = |name: &str| {
        let all = resources["resources"].as_array().unwrap();
        all.iter().find(|resource| resource["name"] == name).unwrap_or_else(|| panic!("{resources}")).clone()
    };
    assert_eq!(named("pods")["kind"], "PodMetrics");
    assert_eq!(named("nodes")["verbs"], json!(["get", "list"]));
    let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io";
    let service = read(&client, path).await;
    assert_eq!(service["spec"]["groupPriorityMinimum"], 100, "{service}");
    assert_eq!(service["status"]["conditions"][0]["reason"], "Local", "{service}");
    server.stop().await;
    let without = Server::start().await;
    assert_eq!(refused(&without.client(), &format!("{GROUP}/nodes")).await.0, 404);
}

#[tokio::test]
async fn mx_2_mx_4_pods_and_nodes_are_measured() {
    let server = Server::with_controllers(settings(NODES)).await;
    let client = server.client();
    running(&server, "plain", json!({})).await;
    running(&server, "busy", json!({"nodes.dogwatch/cpu": "step(3,4,10h)", "nodes.dogwatch/memory": "1Gi"})).await;
    make_pod(&server, "waiting", |pod| pod["spec"]["nodeSelector"] = json!({"no": "node"})).await;
    let pods = format!("{GROUP}/namespaces/default/pods");
    let list = read(&client, &pods).await;
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&json!("PodMetricsList"), 2), "{list}");
    let busy = &read(&client, &format!("{pods}?labelSelector=app%3Dbusy")).await["items"];
    assert_eq!(busy[0]["containers"], json!([{"name": "c", "usage": {"cpu": "3", "memory": "1Gi"}}]), "{busy}");
    assert_eq!((&busy[0]["metadata"]["labels"]["app"], &busy[1]), (&json!("busy"), &Value::Null));
    let plain = read(&client, &format!("{pods}/plain")).await;
    assert_eq!(plain["containers"][0]["usage"], json!({"cpu": "100m", "memory": "32Mi"}), "{plain}");
    assert_eq!((&plain["kind"], &plain["window"]), (&json!("PodMetrics"), &json!("15s")));
    let everywhere = read(&client, &format!("{GROUP}/pods?fieldSelector=metadata.name%3Dplain")).await;
    assert_eq!(everywhere["items"].as_array().unwrap().len(), 1, "{everywhere}");
    assert_eq!(refused(&client, &format!("{GROUP}/pods?fieldSelector=spec.nodeName%3Dx")).await.0, 400);
    let missing = refused(&client, &format!("{pods}/waiting")).await;
    assert_eq!(missing, (404, "podmetrics.metrics.k8s.io \"default/waiting\" not found".to_owned()));
    let node = read(&client, &format!("{GROUP}/nodes/node-1")).await;
    assert_eq!(node["usage"]["cpu"], "3200m", "{node}");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "node-1");
    let missing = refused(&client, &format!("{GROUP}/nodes/other")).await;
    assert_eq!(missing, (404, "nodemetrics.metrics.k8s.io \"other\" not found".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn mx_3_tables_have_sums_and_viewers_may_read() {
    let server = Server::with_controllers(settings(NODES)).await;
    running(&server, "plain", json!({})).await;
    let table = Request::get(format!("{GROUP}/pods"))
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = server.client().request(table).await.unwrap();
    assert_eq!(table["rows"][0]["cells"], json!(["plain", "100m", "32Mi", "15s"]), "{table}");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "v"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "viewer", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    let made = Request::post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings");
    let made = made.header("content-type", "application/json").body(binding.to_string().into_bytes()).unwrap();
    server.client().request::<Value>(made).await.unwrap();
    read(&server.client_as("viewer", &[]), &format!("{GROUP}/pods")).await;
    assert_eq!(refused(&server.client_as("nobody", &[]), &format!("{GROUP}/pods")).await.0, 403);
    server.stop().await;
}

#[tokio::test]
async fn mx_6_a_curve_that_cannot_be_read_is_an_event() {
    let server = Server::with_controllers(settings(NODES)).await;
    running(&server, "odd", json!({"nodes.dogwatch/cpu": "sine(1,2)"})).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let is_told = |events: &[Event]| {
        let said = |event: &Event| event.message.clone().unwrap_or_default();
        events
            .iter()
            .any(|event| event.reason.as_deref() == Some("InvalidAnnotation") && said(event).contains("sine(1,2)"))
    };
    while !is_told(&told(&server.client(), "odd", 1).await) {
        assert!(tokio::time::Instant::now() < deadline, "no event names the curve");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let pod = read(&server.client(), &format!("{GROUP}/namespaces/default/pods/odd")).await;
    assert_eq!(pod["containers"][0]["usage"]["cpu"], "100m", "the requests count instead");
    server.stop().await;
}

#[tokio::test]
async fn mx_8_another_server_may_serve_the_group_instead() {
    let server = Server::with_controllers(settings(NODES)).await;
    let services: Api<DynamicObject> = Api::all_with(
        server.client(),
        &ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService")),
    );
    let spec = json!({"spec": {"service": {"namespace": "kube-system", "name": "metrics-server"}, "insecureSkipTLSVerify": true}});
    merge(&services, "v1beta1.metrics.k8s.io", spec).await;
    let taken = |service: &DynamicObject| service.data["status"]["conditions"][0]["reason"] == "ServiceNotFound";
    until(&services, "v1beta1.metrics.k8s.io", "that of a missing Service", taken).await;
    assert_eq!(refused(&server.client(), &format!("{GROUP}/nodes")).await.0, 503);
    server.stop().await;
}
