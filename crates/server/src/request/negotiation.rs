//! Content negotiation: chooses the form of a response by `Accept`, the query and the user agent.

use http::{HeaderMap, header};
use machinery::Status;
use machinery::accept::{self, Endpoint, Transform};
use machinery::media::MediaType;
use machinery::query::{Query, strict_truth};
use registry::kind::Kind;
use registry::{Encoding, Form, IncludeObject, Shape};

/// User agents whose output people read.
const READABLE_AGENTS: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];

/// The negotiated form of a response.
#[derive(Clone, Copy, Debug)]
pub struct Negotiated {
    pub form: Form,
    /// Distinguishes the metadata of one object from that of a list.
    transform: Option<Transform>,
}

/// The `Accept` header, if it is text.
#[must_use]
pub fn accept_header(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok())
}

/// Returns whether to indent JSON.
#[must_use]
pub fn pretty(headers: &HeaderMap, query: &Query) -> bool {
    match query.get("pretty") {
        Some(value) => strict_truth(value),
        None => {
            let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
            READABLE_AGENTS.iter().any(|readable| agent.starts_with(readable))
        }
    }
}

/// Chooses the form, or fails with 406 (400 for a bad `includeObject`).
pub fn negotiate(
    headers: &HeaderMap,
    query: &Query,
    kind: &Kind,
    is_collection: bool,
    is_watch: bool,
) -> Result<Negotiated, Status> {
    let has_protobuf = !kind.custom;
    let endpoint = Endpoint { is_routed: !kind.custom, is_collection, is_watch, has_protobuf, has_table: true };
    let accepted = accept::negotiate(accept_header(headers), &endpoint)?;
    let encoding = match accepted.media {
        MediaType::Yaml => Encoding::Yaml,
        MediaType::Protobuf => Encoding::Protobuf,
        MediaType::Json => Encoding::Json { pretty: !is_watch && (accepted.pretty || pretty(headers, query)) },
    };
    let shape = match accepted.transform {
        None => Shape::Plain,
        Some(Transform::PartialObjectMetadata(version) | Transform::PartialObjectMetadataList(version)) => {
            Shape::Partial(version)
        }
        Some(Transform::Table(version)) => {
            let include = IncludeObject::parse(query.get("includeObject").unwrap_or_default())?;
            Shape::Table { version, include }
        }
    };
    Ok(Negotiated { form: Form { encoding, shape }, transform: accepted.transform })
}

impl Negotiated {
    /// Refuses an object that was requested as a list of metadata.
    pub fn fits_object(&self, kind: &Kind) -> Result<(), Status> {
        match self.transform {
            Some(Transform::PartialObjectMetadataList(_)) => Err(Status::not_acceptable_because(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                go_type(kind, &kind.gvk.kind)
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses a list that was requested as the metadata of one object.
    pub fn fits_list(&self, kind: &Kind) -> Result<(), Status> {
        match self.transform {
            Some(Transform::PartialObjectMetadata(_)) => Err(Status::not_acceptable_because(format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({})",
                go_type(kind, &kind.list_kind)
            ))),
            _ => Ok(()),
        }
    }
}

/// The Go type of a kind, which the reference's message names.
fn go_type(kind: &Kind, name: &str) -> String {
    if kind.custom {
        let list = if name == kind.list_kind { "List" } else { "" };
        return format!("*unstructured.Unstructured{list}");
    }
    let package = match kind.gvk.group.split('.').next().unwrap_or_default() {
        "" | "events" => "core",
        first => first,
    };
    format!("*{package}.{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(pairs: &[(header::HeaderName, &str)], query: &str) -> Result<Form, u16> {
        let headers: HeaderMap = pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        let kind = registry::kinds::builtin().get("", "v1", "pods").unwrap();
        negotiate(&headers, &Query::parse(query), kind, true, false)
            .map(|negotiated| negotiated.form)
            .map_err(|status| status.code)
    }

    #[test]
    fn people_get_indented_json() {
        let pretty = |pairs: &[(header::HeaderName, &str)], query: &str| form(pairs, query).unwrap().encoding;
        let agent = |agent| (header::USER_AGENT, agent);
        assert_eq!(pretty(&[agent("curl/8.5.0")], ""), Encoding::Json { pretty: true });
        assert_eq!(pretty(&[agent("curl/8.5.0")], "pretty=false"), Encoding::Json { pretty: false });
        assert_eq!(pretty(&[agent("kubectl/v1.36")], ""), Encoding::Json { pretty: false });
        assert_eq!(pretty(&[agent("kubectl/v1.36")], "pretty=1"), Encoding::Json { pretty: true });
        assert_eq!(pretty(&[agent("curl/8"), (header::ACCEPT, "application/yaml")], ""), Encoding::Yaml);
    }

    #[test]
    fn go_programs_get_protobuf() {
        let accept = |text: &'static str| form(&[(header::ACCEPT, text)], "").map(|form| (form.encoding, form.shape));
        let (json, protobuf) = (Encoding::Json { pretty: false }, Encoding::Protobuf);
        let partial = Shape::Partial(accept::MetaVersion::V1);
        assert_eq!(accept("application/vnd.kubernetes.protobuf,application/json"), Ok((protobuf, Shape::Plain)));
        assert_eq!(accept("application/json,application/vnd.kubernetes.protobuf"), Ok((json, Shape::Plain)));
        let metadata =
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        assert_eq!(accept(metadata), Ok((protobuf, partial)));
        assert_eq!(accept("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1"), Err(406));
    }

    #[test]
    fn custom_resources_have_protobuf_only_of_their_metadata() {
        let mut kind = registry::kinds::builtin().get("", "v1", "pods").unwrap().as_ref().clone();
        kind.custom = true;
        let accept = |text: &'static str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, text.parse().unwrap())]);
            let negotiated = negotiate(&headers, &Query::parse(""), &kind, true, false);
            negotiated.map(|negotiated| negotiated.form.encoding).map_err(|status| status.code)
        };
        assert_eq!(accept("application/vnd.kubernetes.protobuf"), Err(406));
        let next = accept("application/vnd.kubernetes.protobuf,application/json");
        assert_eq!(next, Ok(Encoding::Json { pretty: false }));
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(accept(metadata), Ok(Encoding::Protobuf));
    }

    #[test]
    fn a_bad_include_object_matters_only_for_tables() {
        let table = (header::ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io");
        assert_eq!(form(std::slice::from_ref(&table), "includeObject=x"), Err(400));
        assert!(form(&[table], "includeObject=Object").is_ok());
        assert!(form(&[], "includeObject=x").is_ok());
    }
}
