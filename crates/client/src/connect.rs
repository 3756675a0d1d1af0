//! Creates a `kube` client that suits this runtime. Errors contain advice.

use std::path::Path;

use kube::client::{ClientBuilder, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::ServiceBuilder;

use crate::Error;
use crate::watch_connection::{DedicatedConnections, WatchLayer};

/// A client from the environment: the kubeconfig of `KUBECONFIG` or of the home directory, or the service account of the pod.
///
/// ```no_run
/// # async fn run() -> Result<(), client::Error> {
/// let client = client::connect::from_environment().await?;
/// # Ok(())
/// # }
/// ```
pub async fn from_environment() -> Result<Client, Error> {
    let config = Config::infer().await.map_err(|error| {
        Error::Config(format!(
            "no usable client configuration: {error}. Set KUBECONFIG to a kubeconfig file, or run inside a cluster with a service account"
        ))
    })?;
    from_config(config)
}

/// A client from a kubeconfig file, with its current context or the named one.
pub async fn from_kubeconfig(path: &Path, context: Option<&str>) -> Result<Client, Error> {
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| {
        Error::Config(format!("cannot read the kubeconfig {}: {error}. Check the path, or write one", path.display()))
    })?;
    let options = KubeConfigOptions { context: context.map(Into::into), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| {
        Error::Config(format!(
            "the kubeconfig {} is not usable: {error}. Check its contexts, users and clusters",
            path.display()
        ))
    })?;
    from_config(config)
}

/// A client from a configuration, with `kube`'s own retries switched off: below a reflector they would be minutes of silence
/// that cannot be interrupted or seen (K-6). Each watch has a connection of its own, which the reader of the watch reads.
pub fn from_config(mut config: Config) -> Result<Client, Error> {
    config.default_retry = false;
    let url = config.cluster_url.clone();
    build(config).map_err(|error| {
        Error::Config(format!("cannot build a client for {url}: {error}. Check the certificates in the kubeconfig"))
    })
}

fn build(config: Config) -> Result<Client, kube::Error> {
    let builder = ClientBuilder::try_from(config.clone())?;
    if config.proxy_url.is_some() || runs_a_program(&config) {
        return Ok(builder.build());
    }
    let dedicated =
        DedicatedConnections { connector: config.rustls_https_connector()?, connect_timeout: config.connect_timeout };
    let watches = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(dedicated);
    Ok(builder.with_layer(&WatchLayer { watches }).build())
}

/// True if a program provides the credentials. It may prompt its user, so it must not run a second time for watches.
fn runs_a_program(config: &Config) -> bool {
    config.auth_info.exec.is_some() || config.auth_info.auth_provider.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let error = from_kubeconfig(Path::new("/nowhere/kubeconfig"), None).await.err().unwrap().to_string();
        assert!(error.contains("/nowhere/kubeconfig") && error.contains("Check the path"), "{error}");
    }

    #[tokio::test]
    async fn a_credential_program_is_not_run_again_for_watches() {
        let ran = std::env::temp_dir().join(format!("dogwatch-credentials-{}", std::process::id()));
        let credentials =
            r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}"#;
        let script = format!("echo ran >> '{}'; echo '{credentials}'", ran.display());
        let exec = serde_json::json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
            "args": ["-c", script], "interactiveMode": "Never"});
        let mut config = Config::new(http::Uri::from_static("http://127.0.0.1:1"));
        config.auth_info.exec = Some(serde_json::from_value(exec).unwrap());
        let times = |built: bool| {
            let times = std::fs::read_to_string(&ran).unwrap_or_default().lines().count();
            let _ = std::fs::remove_file(&ran);
            built.then_some(times)
        };
        let ours = times(from_config(config.clone()).is_ok());
        let of_kube = times(Client::try_from(config).is_ok());
        assert!(of_kube.is_some_and(|times| times > 0));
        assert_eq!(ours, of_kube);
    }
}
