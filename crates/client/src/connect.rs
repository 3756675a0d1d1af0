//! Making a `kube` client that suits this runtime, with errors that say what to do.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::Error;

/// A client from the environment: the kubeconfig that `KUBECONFIG` or the home directory names, or the service account
/// of the pod this runs in.
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

/// A client from a configuration, with `kube`'s own retries switched off: below a reflector they would be minutes of
/// silence that nobody can interrupt or see (K-6).
pub fn from_config(mut config: Config) -> Result<Client, Error> {
    config.default_retry = false;
    let url = config.cluster_url.clone();
    Client::try_from(config).map_err(|error| {
        Error::Config(format!("cannot build a client for {url}: {error}. Check the certificates in the kubeconfig"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let error = from_kubeconfig(Path::new("/nowhere/kubeconfig"), None).await.err().unwrap().to_string();
        assert!(error.contains("/nowhere/kubeconfig") && error.contains("Check the path"), "{error}");
    }
}
