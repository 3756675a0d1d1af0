//! Accounts, their tokens and the root certificate.

use controllers::{Selection, Settings};
use dogwatch::testing::Server;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::world::{until, until_gone};

async fn server(controllers: &str) -> Server {
    let selection = Selection::parse(controllers).unwrap();
    Server::with_controllers(Settings { selection, ca_pem: "the certificate".into(), ..Settings::default() }).await
}

async fn namespace(client: &Client, name: &str) {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
}

#[tokio::test]
async fn sa_1_every_namespace_has_an_account_and_gets_it_back() {
    let server = server("serviceaccount").await;
    let client = server.client();
    let accounts = |name: &str| Api::<ServiceAccount>::namespaced(client.clone(), name);
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        until(&accounts(name), "default", "there", |_| true).await;
    }
    namespace(&client, "fresh").await;
    let first = until(&accounts("fresh"), "default", "there", |_| true).await;
    accounts("fresh").delete("default", &DeleteParams::default()).await.unwrap();
    until(&accounts("fresh"), "default", "another", |account| account.uid() != first.uid()).await;
    let secrets = Api::<Secret>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    assert!(secrets.items.is_empty(), "tokens are asked for, not stored");
    // One that is being deleted gets nothing.
    let patch = json!({"metadata": {"finalizers": ["example.com/held"]}});
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.patch("fresh", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    namespaces.delete("fresh", &DeleteParams::default()).await.unwrap();
    accounts("fresh").delete("default", &DeleteParams::default()).await.unwrap();
    namespace(&client, "later").await;
    until(&accounts("later"), "default", "there", |_| true).await;
    assert!(accounts("fresh").get_opt("default").await.unwrap().is_none());
}

async fn who(client: &Client, token: &str) -> Option<String> {
    let review =
        TokenReview { spec: TokenReviewSpec { token: token.into(), audiences: None }, ..TokenReview::default() };
    let answer = Api::<TokenReview>::all(client.clone()).create(&PostParams::default(), &review).await.unwrap();
    let status = answer.status.unwrap();
    status.authenticated.unwrap_or_default().then(|| status.user.unwrap().username.unwrap())
}

#[tokio::test]
async fn sa_2_au_30_a_secret_gets_a_token_that_the_server_believes() {
    let server = server("serviceaccount,serviceaccount-token").await;
    let client = server.client();
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "default");
    let secrets = Api::<Secret>::namespaced(client.clone(), "default");
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "robot"}})).unwrap();
    let account = accounts.create(&PostParams::default(), &account).await.unwrap();
    let asking = |name: &str, account: &str| -> Secret {
        let annotations = json!({"kubernetes.io/service-account.name": account});
        let secret = json!({
            "metadata": {"name": name, "annotations": annotations}, "type": "kubernetes.io/service-account-token",
        });
        serde_json::from_value(secret).unwrap()
    };
    secrets.create(&PostParams::default(), &asking("robot-token", "robot")).await.unwrap();
    let has_token = |secret: &Secret| secret.data.as_ref().is_some_and(|data| data.contains_key("token"));
    let secret = until(&secrets, "robot-token", "served", has_token).await;
    let text = |name: &str| String::from_utf8(secret.data.as_ref().unwrap()[name].0.clone()).unwrap();
    assert_eq!((text("ca.crt").as_str(), text("namespace").as_str()), ("the certificate", "default"));
    assert_eq!(secret.annotations()["kubernetes.io/service-account.uid"], account.uid().unwrap());
    let token = text("token");
    assert_eq!(who(&client, &token).await.as_deref(), Some("system:serviceaccount:default:robot"));
    // It is written once.
    secrets.create(&PostParams::default(), &asking("second", "robot")).await.unwrap();
    until(&secrets, "second", "served", has_token).await;
    let later = secrets.get("robot-token").await.unwrap();
    assert_eq!(later.data, secret.data);
    // Only the day of its use is noted.
    let marked = |secret: &Secret| secret.labels().contains_key("kubernetes.io/legacy-token-last-used");
    until(&secrets, "robot-token", "marked", marked).await;
    // A secret without an account is deleted, and all are deleted with the account; then the token is invalid.
    secrets.create(&PostParams::default(), &asking("nobody", "no-such")).await.unwrap();
    until_gone(&secrets, "nobody").await;
    accounts.delete("robot", &DeleteParams::default()).await.unwrap();
    until_gone(&secrets, "robot-token").await;
    until_gone(&secrets, "second").await;
    assert_eq!(who(&client, &token).await, None);
}

#[tokio::test]
async fn ca_1_rot_6_every_namespace_has_the_root_certificate_and_gets_it_back() {
    let server = server("root-ca-cert-publisher").await;
    let client = server.client();
    namespace(&client, "fresh").await;
    let api = Api::<ConfigMap>::namespaced(client.clone(), "fresh");
    let name = "kube-root-ca.crt";
    let right = |map: &ConfigMap| map.data == Some([("ca.crt".to_owned(), "the certificate".to_owned())].into());
    let map = until(&api, name, "there", right).await;
    assert!(map.annotations()["kubernetes.io/description"].starts_with("Contains a CA bundle"));
    api.delete(name, &DeleteParams::default()).await.unwrap();
    until(&api, name, "back", |restored| right(restored) && restored.uid() != map.uid()).await;
    let change = json!({"data": {"ca.crt": "another", "more": "data"}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    let map = until(&api, name, "restored", right).await;
    // Labels of others stay, and nothing is written for them.
    let labels = json!({"metadata": {"labels": {"mine": "yes"}}});
    let labelled = api.patch(name, &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    namespace(&client, "later").await;
    until(&Api::<ConfigMap>::namespaced(client, "later"), name, "there", right).await;
    let now = api.get(name).await.unwrap();
    assert_eq!(now.resource_version(), labelled.resource_version());
    assert_eq!(now.uid(), map.uid());
}
