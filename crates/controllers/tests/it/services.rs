//! Endpoints and EndpointSlices of services whose pods the tests move themselves.

use controllers::{Selection, Settings};
use dogwatch::testing::Server;
use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use std::time::Duration;

use crate::between::{Between, Turn};
use crate::world::{PATIENCE, until, until_gone};

struct World {
    _server: Server,
    client: Client,
}

impl World {
    async fn start() -> Self {
        let selection = Selection::parse("endpoint,endpointslice,garbagecollector").unwrap();
        let server = Server::with_controllers(Settings { selection, ..Settings::default() }).await;
        let client = server.client();
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "node"}})).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
        Self { _server: server, client }
    }

    async fn service(&self, name: &str, spec: Value) -> Service {
        let service = json!({"metadata": {"name": name}, "spec": spec});
        let service = serde_json::from_value(service).unwrap();
        self.services().create(&PostParams::default(), &service).await.unwrap()
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "default")
    }
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }
    fn endpoints(&self) -> Api<Endpoints> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// A pod `app=web` on the node, with an address, ready.
    async fn pod(&self, name: &str, ip: &str) {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "i"}]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap();
        let status = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]});
        self.patch_status(name, json!({"status": status})).await;
        self.ready(name, true).await;
    }

    async fn ready(&self, name: &str, ready: bool) {
        let status = if ready { "True" } else { "False" };
        let now = machinery::clock::Clock::system().now().to_string();
        let condition = json!({"type": "Ready", "status": status, "lastTransitionTime": now});
        self.patch_status(name, json!({"status": {"conditions": [condition]}})).await;
    }

    async fn patch_status(&self, name: &str, patch: Value) {
        self.pods().patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn slices(&self, service: &str) -> Vec<EndpointSlice> {
        let api = Api::<EndpointSlice>::namespaced(self.client.clone(), "default");
        let params = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
        api.list(&params).await.unwrap().items
    }

    /// Waits until the only slice of a service has these endpoints: `ip ready serving terminating` of each.
    async fn until_slice(&self, service: &str, expected: &[&str]) -> EndpointSlice {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let slices = self.slices(service).await;
            let said = |slice: &EndpointSlice| {
                let flag = |flag: Option<bool>| if flag == Some(true) { "yes" } else { "no" };
                let endpoints = slice.endpoints.iter().flatten().map(|endpoint| {
                    let conditions = endpoint.conditions.clone().unwrap_or_default();
                    let (ready, serving) = (flag(conditions.ready), flag(conditions.serving));
                    format!("{} {ready} {serving} {}", endpoint.addresses[0], flag(conditions.terminating))
                });
                let mut endpoints: Vec<String> = endpoints.collect();
                endpoints.sort();
                endpoints
            };
            if slices.len() == 1 && said(&slices[0]) == expected {
                return slices[0].clone();
            }
            assert!(tokio::time::Instant::now() < deadline, "{:?}", slices.iter().map(said).collect::<Vec<_>>());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn ips(endpoints: &Endpoints) -> (Vec<String>, Vec<String>) {
    let subsets = endpoints.subsets.iter().flatten();
    let of = |all: &Option<Vec<k8s_openapi::api::core::v1::EndpointAddress>>| {
        all.iter().flatten().map(|address| address.ip.clone()).collect::<Vec<_>>()
    };
    let ready = subsets.clone().flat_map(|subset| of(&subset.addresses)).collect();
    (ready, subsets.flat_map(|subset| of(&subset.not_ready_addresses)).collect())
}

#[tokio::test]
async fn ep_2_ep_3_pods_come_lose_readiness_and_go() {
    let world = World::start().await;
    world.service("web", json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]})).await;
    let empty = world.until_slice("web", &[]).await;
    assert_eq!(empty.owner_references()[0].kind, "Service");
    world.pod("a", "10.1.0.1").await;
    world.pod("b", "10.1.0.2").await;
    let slice = world.until_slice("web", &["10.1.0.1 yes yes no", "10.1.0.2 yes yes no"]).await;
    assert_eq!(slice.metadata.name, empty.metadata.name, "the empty slice became this one");
    assert!(slice.annotations().contains_key("endpoints.kubernetes.io/last-change-trigger-time"));
    let endpoints = until(&world.endpoints(), "web", "full", |endpoints| ips(endpoints).0.len() == 2).await;
    assert_eq!(endpoints.labels()["endpoints.kubernetes.io/managed-by"], "endpoint-controller");
    world.ready("a", false).await;
    world.until_slice("web", &["10.1.0.1 no no no", "10.1.0.2 yes yes no"]).await;
    until(&world.endpoints(), "web", "half", |endpoints| ips(endpoints).1 == ["10.1.0.1"]).await;
    // A pod that is being deleted stays in slices, not in Endpoints.
    world.pods().delete("b", &DeleteParams::default()).await.unwrap();
    world.until_slice("web", &["10.1.0.1 no no no", "10.1.0.2 no yes yes"]).await;
    until(&world.endpoints(), "web", "one", |endpoints| ips(endpoints) == (vec![], vec!["10.1.0.1".into()])).await;
    world.pods().delete("b", &DeleteParams::default().grace_period(0)).await.unwrap();
    world.until_slice("web", &["10.1.0.1 no no no"]).await;
    // A deleted slice is created again.
    let slices = Api::<EndpointSlice>::namespaced(world.client.clone(), "default");
    slices.delete(&slice.name_any(), &DeleteParams::default()).await.unwrap();
    until_gone(&slices, &slice.name_any()).await;
    world.until_slice("web", &["10.1.0.1 no no no"]).await;
    // All of it is deleted with the service.
    let last = world.slices("web").await[0].name_any();
    world.services().delete("web", &DeleteParams::default()).await.unwrap();
    until_gone(&world.endpoints(), "web").await;
    until_gone(&slices, &last).await;
}

#[tokio::test]
async fn ep_1_services_without_a_selector_are_skipped() {
    let world = World::start().await;
    world.service("manual", json!({"ports": [{"port": 80}]})).await;
    world
        .service(
            "elsewhere",
            json!({"type": "ExternalName", "externalName": "example.com", "selector": {"app": "web"}}),
        )
        .await;
    world.service("web", json!({"selector": {"app": "web"}, "ports": [{"port": 80}]})).await;
    world.until_slice("web", &[]).await;
    until(&world.endpoints(), "web", "there", |_| true).await;
    for name in ["manual", "elsewhere"] {
        assert!(world.slices(name).await.is_empty());
        assert!(world.endpoints().get_opt(name).await.unwrap().is_none());
    }
    let kubernetes = world.endpoints().get_opt("kubernetes").await.unwrap();
    assert!(kubernetes.is_none_or(|endpoints| !endpoints.labels().contains_key("endpoints.kubernetes.io/managed-by")));
}

#[tokio::test]
async fn ep_8_a_slice_that_cannot_be_written_is_tried_ever_later() {
    let server = Server::start().await;
    let posts = "POST /apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let between =
        Between::new(server.client(), move |asked| if asked.line() == posts { Turn::Refuse(500) } else { Turn::Pass });
    let selection = Selection::parse("endpointslice").unwrap();
    let _running = between.run(Settings { selection, ..Settings::default() });
    let client = server.client();
    let world = World { _server: server, client };
    world.service("web", json!({"selector": {"app": "web"}, "ports": [{"port": 80}]})).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let tries = loop {
        let tries = between.asked_like(posts);
        if tries.len() == 3 {
            break tries;
        }
        assert!(tokio::time::Instant::now() < deadline, "{} attempts", tries.len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let waits: Vec<Duration> = tries.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    assert!(waits[0] >= Duration::from_secs(1) && waits[1] >= Duration::from_secs(2), "{waits:?}");
}

#[tokio::test]
async fn ep_7_changes_that_say_nothing_new_are_not_written() {
    let world = World::start().await;
    world.service("web", json!({"selector": {"app": "web"}, "ports": [{"port": 80}]})).await;
    world.pod("a", "10.1.0.1").await;
    let slice = world.until_slice("web", &["10.1.0.1 yes yes no"]).await;
    let endpoints = until(&world.endpoints(), "web", "full", |endpoints| ips(endpoints).0.len() == 1).await;
    for count in 0..20 {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"count": count.to_string()}}}));
        world.pods().patch("a", &PatchParams::default(), &patch).await.unwrap();
    }
    // A later change of another service has been answered, so the earlier ones were seen.
    world.service("later", json!({"selector": {"app": "web"}, "ports": [{"port": 81}]})).await;
    world.until_slice("later", &["10.1.0.1 yes yes no"]).await;
    assert_eq!(world.slices("web").await[0].resource_version(), slice.resource_version());
    assert_eq!(world.endpoints().get("web").await.unwrap().resource_version(), endpoints.resource_version());
}
