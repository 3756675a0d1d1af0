//! Requests of which only the outcome counts: the answer is not made into an object.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::Client;
use serde::Deserialize;
use serde_json::Value;

/// How a body is to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    Json,
    Merge,
    Strategic,
}

impl Form {
    fn media(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
        }
    }
}

#[derive(Deserialize, Default)]
struct Answer {
    #[serde(default)]
    metadata: AnswerMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct AnswerMeta {
    resource_version: Option<String>,
}

/// Sends a body and returns the version of the object that came back, if one did.
pub(crate) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    form: Form,
    body: &Value,
) -> Result<Option<String>, client::Error> {
    let request = http::Request::builder().method(method).uri(path).header("content-type", form.media());
    let request = request.body(body.to_string().into_bytes());
    let request = request.map_err(|error| client::Error::Config(format!("{method} {path}: {error}")))?;
    let answer: Answer = client.request(request).await?;
    Ok(answer.metadata.resource_version)
}

/// The path of a pod.
pub(crate) fn pod_path(pod: &Pod) -> String {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    format!("/api/v1/namespaces/{}/pods/{name}", pod.metadata.namespace.as_deref().unwrap_or_default())
}

/// What an event about a pod points at.
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

/// A time as most fields have it: to the second.
pub(crate) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time as leases have it: to the microsecond.
pub(crate) fn microseconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
