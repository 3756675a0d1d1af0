//! Requests to the API server.
//!
//! [`Api`] reads and writes objects of one kind; [`send`] writes where the response is not needed as an object. Both use one
//! function that knows nothing of kinds, and one form of text to decode from: `kube::Api` compiles its requests, and a second
//! copy of the decoder that informers have, for each kind.

use std::marker::PhantomData;
use std::sync::Arc;

use client::Error;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Request;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::{DeleteParams, GetParams, ListParams, PostParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::identities::ActingNode;

/// The media type of a request body.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    Json,
    Merge,
    Strategic,
    JsonPatch,
}

impl Form {
    fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::JsonPatch => "application/json-patch+json",
        }
    }
}

/// The fields of a response that are read where its object is not needed.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Envelope {
    kind: Option<String>,
    metadata: EnvelopeMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct EnvelopeMeta {
    resource_version: Option<String>,
}

/// Sends a body and returns the resource version of the object in the response, if there is one.
pub(crate) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    form: Form,
    body: &Value,
) -> Result<Option<String>, Error> {
    let response: Envelope = request(client, method, path, form, body).await?;
    Ok(response.metadata.resource_version)
}

/// As [`send`], as one of the nodes.
pub(crate) async fn send_as(
    node: &Arc<str>,
    client: &Client,
    method: &str,
    path: &str,
    form: Form,
    body: &Value,
) -> Result<Option<String>, Error> {
    let response: Envelope = request_as(node, client, method, path, form, body).await?;
    Ok(response.metadata.resource_version)
}

/// As [`request`], as one of the nodes.
pub(crate) async fn request_as<T: DeserializeOwned>(
    node: &Arc<str>,
    client: &Client,
    method: &str,
    path: &str,
    form: Form,
    body: &Value,
) -> Result<T, Error> {
    let mut request = build(method, path, form, body)?;
    request.extensions_mut().insert(ActingNode(node.clone()));
    decode(&response_text(client, request).await?)
}

/// Sends a body and decodes the response.
pub(crate) async fn request<T: DeserializeOwned>(
    client: &Client,
    method: &str,
    path: &str,
    form: Form,
    body: &Value,
) -> Result<T, Error> {
    decode(&response_text(client, build(method, path, form, body)?).await?)
}

fn build(method: &str, path: &str, form: Form, body: &Value) -> Result<Request<Vec<u8>>, Error> {
    let request = Request::builder().method(method).uri(path).header("content-type", form.media_type());
    let request = request.body(body.to_string().into_bytes());
    request.map_err(|error| Error::Config(format!("{method} {path}: {error}")))
}

fn response_text(client: &Client, request: Request<Vec<u8>>) -> BoxFuture<'_, Result<String, Error>> {
    async move { Ok(client.request_text(request).await?) }.boxed()
}

fn decode<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    // From bytes and not from text, as informers do: each source compiles a decoder of its own for every type.
    serde_json::from_slice(text.as_bytes()).map_err(undecodable)
}

fn undecodable(error: serde_json::Error) -> Error {
    Error::Decode { what: "the response", message: error.to_string() }
}

/// The objects of one kind: those of a namespace, or all of a kind that has no namespaces.
pub(crate) struct Api<K> {
    client: Client,
    requests: kube::core::Request,
    kind: PhantomData<fn() -> K>,
}

impl<K: Resource<DynamicType = ()>> Api<K> {
    pub(crate) fn all(client: &Client) -> Self {
        Self::at(client, K::url_path(&(), None))
    }

    pub(crate) fn namespaced(client: &Client, namespace: &str) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        Self::at(client, K::url_path(&(), Some(namespace)))
    }

    fn at(client: &Client, path: String) -> Self {
        Self { client: client.clone(), requests: kube::core::Request::new(path), kind: PhantomData }
    }

    /// Deletes an object. Returns its resource version if it still exists, with a deletion timestamp.
    pub(crate) async fn delete(&self, name: &str, params: &DeleteParams) -> Result<Option<String>, Error> {
        let response: Envelope = decode(&self.text(self.requests.delete(name, params)).await?)?;
        let deleted = response.kind.as_deref() == Some("Status");
        Ok(response.metadata.resource_version.filter(|_| !deleted))
    }

    fn text(
        &self,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> BoxFuture<'_, Result<String, Error>> {
        match request {
            Ok(request) => response_text(&self.client, request),
            Err(error) => futures::future::ready(Err(kube::Error::BuildRequest(error).into())).boxed(),
        }
    }
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned> Api<K> {
    /// Returns an object as the server has it now; none if it does not exist.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<K>, Error> {
        match self.text(self.requests.get(name, &GetParams::default())).await {
            Ok(text) => decode(&text).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns all objects as the server has them now.
    pub(crate) async fn list(&self) -> Result<Vec<K>, Error> {
        #[derive(Deserialize)]
        #[serde(bound = "K: DeserializeOwned")]
        struct List<K> {
            items: Vec<K>,
        }
        let list: List<K> = decode(&self.text(self.requests.list(&ListParams::default())).await?)?;
        Ok(list.items)
    }

    /// Changes part of an object.
    pub(crate) async fn patch(&self, name: &str, form: Form, patch: &Value) -> Result<K, Error> {
        let path = format!("{}/{name}", self.requests.url_path);
        request(&self.client, "PATCH", &path, form, patch).await
    }
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned + Serialize> Api<K> {
    pub(crate) async fn create(&self, object: &K) -> Result<K, Error> {
        decode(&self.text(self.requests.create(&PostParams::default(), encode(object)?)).await?)
    }

    /// Writes a whole object, unless it changed since it was read.
    pub(crate) async fn replace(&self, object: &K) -> Result<K, Error> {
        let (name, params) = (crate::owners::name(object), PostParams::default());
        decode(&self.text(self.requests.replace(name, &params, encode(object)?)).await?)
    }

    /// Writes the status of an object, unless the object changed since it was read.
    pub(crate) async fn replace_status(&self, object: &K) -> Result<K, Error> {
        self.replace_subresource("status", object).await
    }

    pub(crate) async fn replace_subresource(&self, subresource: &str, object: &K) -> Result<K, Error> {
        let (name, params) = (crate::owners::name(object), PostParams::default());
        decode(&self.text(self.requests.replace_subresource(subresource, name, &params, encode(object)?)).await?)
    }
}

fn encode<K: Serialize>(object: &K) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(object).map_err(|error| Error::Config(format!("an object cannot be encoded: {error}")))
}

/// The URL path of a pod.
pub(crate) fn pod_path(pod: &Pod) -> String {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    format!("/api/v1/namespaces/{}/pods/{name}", pod.metadata.namespace.as_deref().unwrap_or_default())
}

/// The reference that events about a pod carry.
pub(crate) fn pod_reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path: None,
    }
}

/// A time in the form of most fields: to the second.
pub(crate) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time in the form of leases: to the microsecond.
pub(crate) fn microseconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
