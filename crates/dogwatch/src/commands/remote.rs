//! The server of a kubeconfig, and the resources it serves.

use std::path::{Path, PathBuf};

use http::{Method, Request, header};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::ApiResource;
use kube::{Client, Config};
use machinery::json::Value;

use crate::failure::Failure;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// A connection to a server.
pub(super) struct Remote {
    client: Client,
    kubeconfig: Kubeconfig,
    /// The namespace of commands that name none.
    pub(super) namespace: String,
}

/// A resource of the server.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) kind: String,
    pub(super) namespaced: bool,
    /// Whether it can be listed.
    pub(super) is_listed: bool,
}

/// A response with its whole body.
pub(super) struct RemoteResponse {
    pub(super) code: u16,
    pub(super) body: Vec<u8>,
}

impl Remote {
    /// Connects with the given kubeconfig, else `$KUBECONFIG`, else that of a server started in this directory, else the
    /// user's own.
    pub(super) async fn connect(kubeconfig: Option<&Path>) -> Result<Self, Failure> {
        let path = find_kubeconfig(kubeconfig)?;
        let unusable = |error: &dyn std::fmt::Display| {
            Failure::new(format!("the kubeconfig {} cannot be used: {error}", path.display()))
                .hint("start a server with `dogwatch up`, or name its kubeconfig with --kubeconfig")
        };
        let read = Kubeconfig::read_from(&path).map_err(|error| unusable(&error))?;
        let kubeconfig = read.clone();
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
        let config = config.map_err(|error| unusable(&error))?;
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|error| unusable(&error))?;
        Ok(Remote { client, kubeconfig, namespace })
    }

    /// The server of the kubeconfig's current context, as the file has it.
    pub(super) fn cluster(&self) -> Result<Value, Failure> {
        let config = serde_json::to_value(&self.kubeconfig).map_err(Failure::new)?;
        let config: Value = serde_json::from_value(config).map_err(Failure::new)?;
        let named = |list: &str, name: &Value| {
            config[list].as_array().into_iter().flatten().find(|entry| entry["name"] == *name).cloned()
        };
        let context = named("contexts", &config["current-context"]);
        let cluster = context.and_then(|context| named("clusters", &context["context"]["cluster"]));
        cluster
            .map(|cluster| cluster["cluster"].clone())
            .ok_or_else(|| Failure::new("the kubeconfig has no cluster in its current context"))
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Sends a request; the body of the response is a stream.
    pub(super) async fn send(&self, request: Request<Body>) -> Result<http::Response<Body>, Failure> {
        self.client.send(request).await.map_err(|error| Failure::new(format!("the server does not answer: {error}")))
    }

    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> Result<RemoteResponse, Failure> {
        let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
        let bytes = match body {
            Some((content_type, bytes)) => {
                request = request.header(header::CONTENT_TYPE, content_type);
                bytes
            }
            None => Vec::new(),
        };
        let request = request.body(Body::from(bytes)).map_err(Failure::new)?;
        let response = self.send(request).await?;
        let code = response.status().as_u16();
        let body =
            response.into_body().collect().await.map_err(|error| {
                Failure::new(format!("the connection ended in the middle of the response: {error}"))
            })?;
        Ok(RemoteResponse { code, body: body.to_bytes().into() })
    }

    /// As [`Remote::call`]; a response other than a success is a failure with the server's message.
    pub(super) async fn call_ok(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> Result<RemoteResponse, Failure> {
        let response = self.call(method, path, accept, body).await?;
        if (200..300).contains(&response.code) { Ok(response) } else { Err(response.refusal()) }
    }

    /// Finds a resource by `pods`, `pod`, `po` or `deployments.apps`.
    pub(super) async fn resource(&self, word: &str) -> Result<Resource, Failure> {
        let (name, group) = word.split_once('.').map_or((word, None), |(name, group)| (name, Some(group)));
        let found = self.resources("").await?.into_iter().find(|(resource, names)| {
            names.iter().any(|known| known.eq_ignore_ascii_case(name))
                && group.is_none_or(|group| resource.group == group)
        });
        found.map(|(resource, _)| resource).ok_or_else(|| {
            Failure::new(format!("the server has no resource {word:?}"))
                .hint("names are as in `kubectl api-resources`: pods, pod, po, deployments.apps, …")
        })
    }

    /// Finds the resource of a kind in one version.
    pub(super) async fn resource_of_kind(&self, api_version: &str, kind: &str) -> Result<Resource, Failure> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = self
            .resources("")
            .await?
            .into_iter()
            .find(|(resource, _)| resource.group == group && resource.version == version && resource.kind == kind);
        found
            .map(|(resource, _)| resource)
            .ok_or_else(|| Failure::new(format!("the server knows no {kind} in {api_version}")))
    }

    /// The resources whose objects are the state of a world, each in one version. The path of the world is `prefix`.
    pub(super) async fn stored_resources(&self, prefix: &str) -> Result<Vec<Resource>, Failure> {
        let mut found: Vec<Resource> = Vec::new();
        for (resource, _) in self.resources(prefix).await? {
            let is_known = |other: &Resource| other.group == resource.group && other.plural == resource.plural;
            if resource.is_listed && resource.group != lab::kinds::GROUP && !found.iter().any(is_known) {
                found.push(resource);
            }
        }
        Ok(found)
    }

    /// All resources with their names, the core group first.
    async fn resources(&self, prefix: &str) -> Result<Vec<(Resource, Vec<String>)>, Failure> {
        let mut all = Vec::new();
        for path in ["/api", "/apis"] {
            let response = self.call_ok(Method::GET, &format!("{prefix}{path}"), AGGREGATED, None).await?;
            for group in response.value()?["items"].as_array().into_iter().flatten() {
                let name = group["metadata"]["name"].as_str().unwrap_or_default();
                for version in group["versions"].as_array().into_iter().flatten() {
                    for resource in version["resources"].as_array().into_iter().flatten() {
                        all.push(parse_resource(name, version, resource));
                    }
                }
            }
        }
        Ok(all)
    }
}

fn parse_resource(group: &str, version: &Value, resource: &Value) -> (Resource, Vec<String>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found = Resource {
        group: group.to_owned(),
        version: text(&version["version"]),
        plural: text(&resource["resource"]),
        kind: text(&resource["responseKind"]["kind"]),
        namespaced: resource["scope"] == "Namespaced",
        is_listed: resource["verbs"].as_array().into_iter().flatten().any(|verb| verb == "list"),
    };
    let mut names = vec![found.plural.clone(), text(&resource["singularResource"]), found.kind.clone()];
    names.extend(resource["shortNames"].as_array().into_iter().flatten().map(text));
    names.retain(|name| !name.is_empty());
    (found, names)
}

impl Resource {
    /// This resource, as clients of kube-rs name it.
    pub(super) fn described(&self) -> ApiResource {
        ApiResource {
            group: self.group.clone(),
            version: self.version.clone(),
            api_version: self.api_version(),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        }
    }

    /// `v1`, or `apps/v1`.
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path of its collection, or of one object in it.
    pub(super) fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if let Some(namespace) = namespace.filter(|_| self.namespaced) {
            path.push_str(&format!("/namespaces/{namespace}"));
        }
        path.push_str(&format!("/{}", self.plural));
        if let Some(name) = name {
            path.push_str(&format!("/{name}"));
        }
        path
    }

    /// The name of an object in output: `configmap/a`, `deployment.apps/web`.
    pub(super) fn display(&self, name: &str) -> String {
        let kind = self.kind.to_lowercase();
        if self.group.is_empty() { format!("{kind}/{name}") } else { format!("{kind}.{}/{name}", self.group) }
    }
}

impl RemoteResponse {
    pub(super) fn value(&self) -> Result<Value, Failure> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Failure::new(format!("the server's response is not JSON: {error}")))
    }

    /// The server's message about a request that it refused.
    pub(super) fn refusal(&self) -> Failure {
        let message = self.value().ok().and_then(|value| value["message"].as_str().map(str::to_owned));
        Failure::new(message.unwrap_or_else(|| format!("{} {}", self.code, String::from_utf8_lossy(&self.body).trim())))
    }
}

fn find_kubeconfig(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    if let Some(paths) = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()) {
        let first = std::env::split_paths(&paths).find(|path| !path.as_os_str().is_empty());
        return first.ok_or_else(|| Failure::new("KUBECONFIG names no file"));
    }
    let here = PathBuf::from(".dogwatch/kubeconfig");
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    [Some(here), home].into_iter().flatten().find(|path| path.exists()).ok_or_else(|| {
        Failure::new("no kubeconfig found").hint("start a server with `dogwatch up`, or name one with --kubeconfig")
    })
}
