//! Service accounts that come with a namespace.

use dogwatch::testing::{Selection, Server, Settings};
use machinery::json::json;

use crate::world::World;

#[tokio::test]
async fn ba_10_the_account_default_is_there_when_the_namespace_is() {
    let selection = Selection::parse("serviceaccount").unwrap();
    let server = Server::with_controllers(Settings { selection, nodes: 0, ..Settings::default() }).await;
    let world = World { server };
    for round in 0..20 {
        let name = format!("n{round}");
        world.make("/api/v1/namespaces", json!({"metadata": {"name": name}})).await;
        let account = world.get("root", &format!("/api/v1/namespaces/{name}/serviceaccounts/default")).await;
        assert_eq!(account.code, 200, "{name}: {}", account.text());
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        world.make(&format!("/api/v1/namespaces/{name}/pods"), pod).await;
    }
    let applied = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "applied"}});
    let path = "/api/v1/namespaces/applied?fieldManager=me";
    let answer = world.ask_as("root", "PATCH", path, "application/apply-patch+yaml", Some(applied)).await;
    assert_eq!(answer.code, 201, "{}", answer.text());
    assert_eq!(world.get("root", "/api/v1/namespaces/applied/serviceaccounts/default").await.code, 200);
}
