//! `dogwatch access kubeconfig`: a service account, its token and a kubeconfig with it.

use http::Method;
use machinery::json::{Value, json};
use server::certs::write_private;

use crate::args::AccountKubeconfig;
use crate::commands::remote::Remote;
use crate::failure::Failure;

const JSON: &str = "application/json";

pub(super) async fn kubeconfig(args: AccountKubeconfig) -> Result<(), Failure> {
    let account = &args.as_serviceaccount;
    let (namespace, name) = account
        .split_once('/')
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'))
        .ok_or_else(|| Failure::usage(format!("--as-serviceaccount {account:?} must be NAMESPACE/NAME")))?;
    let remote = Remote::connect(args.kubeconfig.as_deref()).await?;
    create(&remote, "/api/v1/namespaces", "Namespace", namespace).await?;
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    create(&remote, &accounts, "ServiceAccount", name).await?;
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": args.duration.as_secs()},
    });
    let path = format!("{accounts}/{name}/token");
    let body = Some((JSON, request.to_string().into_bytes()));
    let issued = remote.call_ok(Method::POST, &path, JSON, body).await?.value()?;
    let token = issued["status"]["token"].as_str().ok_or_else(|| Failure::new("the server issued no token"))?;
    let text = machinery::yaml::to_yaml(&config(&remote.cluster()?, namespace, account, token));
    match &args.out {
        None => print!("{text}"),
        Some(path) => {
            write_private(path, text.as_bytes()).map_err(Failure::new)?;
            println!("export KUBECONFIG={}", path.display());
        }
    }
    Ok(())
}

/// Creates an object unless it exists.
async fn create(remote: &Remote, path: &str, kind: &str, name: &str) -> Result<(), Failure> {
    let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    let body = Some((JSON, object.to_string().into_bytes()));
    let response = remote.call(Method::POST, path, JSON, body).await?;
    if response.code == 409 || (200..300).contains(&response.code) { Ok(()) } else { Err(response.refusal()) }
}

fn config(cluster: &Value, namespace: &str, user: &str, token: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "dogwatch", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": user, "context": {"cluster": "dogwatch", "user": user, "namespace": namespace}}],
        "current-context": user,
    })
}
