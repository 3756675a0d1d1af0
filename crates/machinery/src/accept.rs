//! Content negotiation: matches the header `Accept` with what an endpoint can produce (spec 01 §11, 02 §10.1).

use crate::Status;
use crate::media::{MediaType, PLAIN, STREAMS};

/// The version of `meta.k8s.io` of a transformed response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    V1,
    V1beta1,
}

impl MetaVersion {
    #[must_use]
    pub const fn api_version(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The transformation of an object or list before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    Table(MetaVersion),
    PartialObjectMetadata(MetaVersion),
    PartialObjectMetadataList(MetaVersion),
}

/// The outcome of a negotiation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    pub media: MediaType,
    pub transform: Option<Transform>,
    /// The header has `pretty=1`; the query and the User-Agent may request it too.
    pub pretty: bool,
}

/// The forms that an endpoint can produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The endpoint is a route of a built-in kind, which refuses types that it does not produce before anything else.
    pub is_routed: bool,
    /// The path can also be watched: the router then lists the stream types too.
    pub is_collection: bool,
    /// This request is a watch.
    pub is_watch: bool,
    /// Objects themselves can be sent as protobuf: true of built-in kinds.
    pub has_protobuf: bool,
    /// Objects can be shown as a table.
    pub has_table: bool,
}

/// Chooses the form of a response; the error is the 406 response.
pub fn negotiate(header: Option<&str>, endpoint: &Endpoint) -> Result<Accepted, Status> {
    let header = header.unwrap_or_default();
    if header.is_empty() {
        return Ok(Accepted::default());
    }
    if endpoint.is_routed {
        check_route(header, endpoint.is_collection)?;
    }
    let allows = |media: MediaType, target: Option<Target<'_>>| match target {
        None if media == MediaType::Protobuf && !endpoint.has_protobuf => None,
        None => Some(None),
        Some(target) => {
            let transform = target.transform()?;
            let is_table = matches!(transform, Transform::Table(_));
            if is_table && (media == MediaType::Protobuf || !endpoint.has_table) { None } else { Some(Some(transform)) }
        }
    };
    for clause in clauses(header) {
        for media in clause.candidates() {
            if !clause.is_allowed_on(media, "v1") {
                continue;
            }
            if let Some(transform) = allows(media, clause.target()) {
                if endpoint.is_watch && !media.streams() {
                    return Err(Status::not_acceptable(&STREAMS));
                }
                return Ok(Accepted { media, transform, pretty: clause.param("pretty") == Some("1") });
            }
        }
    }
    Err(Status::not_acceptable(&PLAIN))
}

/// Returns the form of an error: the requested one if that needs no transformation, else JSON.
#[must_use]
pub fn error_media(header: Option<&str>) -> MediaType {
    plain_media(header.unwrap_or_default()).unwrap_or_default()
}

/// The form of discovery at `/api` and `/apis`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// The lists of groups and versions.
    Plain(MediaType),
    /// All groups, versions and resources at once.
    Aggregated(MediaType),
}

/// Parameters in the content type of an aggregated response; clients check for them.
pub const AGGREGATED_PARAMETERS: &str = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Chooses the form of discovery. An aggregated form wins over a plain one at any position in the header.
pub fn negotiate_discovery(header: Option<&str>) -> Result<Discovery, Status> {
    let header = header.unwrap_or_default();
    for clause in clauses(header) {
        let wanted = Target { kind: "APIGroupDiscoveryList", group: "apidiscovery.k8s.io", version: "v2" };
        if clause.target() == Some(wanted) {
            let found = clause.candidates().find(|media| clause.is_allowed_on(*media, ""));
            if let Some(media) = found {
                return Ok(Discovery::Aggregated(media));
            }
        }
    }
    if header.is_empty() {
        return Ok(Discovery::Plain(MediaType::Json));
    }
    check_route(header, false)?;
    plain_media(header).map(Discovery::Plain).ok_or_else(|| Status::not_acceptable(&PLAIN))
}

/// Negotiates without transformations.
fn plain_media(header: &str) -> Option<MediaType> {
    if header.is_empty() {
        return Some(MediaType::Json);
    }
    clauses(header)
        .into_iter()
        .filter(|clause| clause.target().is_none())
        .find_map(|clause| clause.candidates().find(|media| clause.is_allowed_on(*media, "")))
}

/// Returns the index of the media type that a client prefers; `None` if it accepts none of them. Without a header the first is
/// chosen.
#[must_use]
pub fn preferred(header: Option<&str>, types: &[&str]) -> Option<usize> {
    let header = header.unwrap_or_default();
    if header.is_empty() {
        return (!types.is_empty()).then_some(0);
    }
    clauses(header).into_iter().find_map(|clause| {
        types.iter().position(|media| {
            let (kind, subtype) = media.split_once('/').unwrap_or_default();
            (clause.kind == "*" || clause.kind == kind) && (clause.subtype == "*" || clause.subtype == subtype)
        })
    })
}

/// Checks a header as the router does: `*/*` is the only wildcard, and parameters are ignored.
fn check_route(header: &str, is_collection: bool) -> Result<(), Status> {
    let produced = header.split(',').any(|clause| {
        let bare = clause.split(';').next().unwrap_or_default().trim_matches(' ');
        bare == "*/*" || PLAIN.contains(&bare)
    });
    if produced {
        return Ok(());
    }
    let streams: &[&str] = if is_collection { &STREAMS } else { &[] };
    Err(Status::router_not_acceptable(&[&PLAIN, streams].concat()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target<'a> {
    kind: &'a str,
    group: &'a str,
    version: &'a str,
}

impl Target<'_> {
    fn transform(self) -> Option<Transform> {
        let version = match (self.group, self.version) {
            ("meta.k8s.io", "v1") => MetaVersion::V1,
            ("meta.k8s.io", "v1beta1") => MetaVersion::V1beta1,
            _ => return None,
        };
        match self.kind {
            "Table" => Some(Transform::Table(version)),
            "PartialObjectMetadata" => Some(Transform::PartialObjectMetadata(version)),
            "PartialObjectMetadataList" => Some(Transform::PartialObjectMetadataList(version)),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f32,
    params: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    fn param(&self, name: &str) -> Option<&'a str> {
        self.params.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// Returns the requested transformation. Any one of the three parameters requests one.
    fn target(&self) -> Option<Target<'a>> {
        let (kind, group, version) = (self.param("as"), self.param("g"), self.param("v"));
        if kind.is_none() && group.is_none() && version.is_none() {
            return None;
        }
        Some(Target {
            kind: kind.unwrap_or_default(),
            group: group.unwrap_or_default(),
            version: version.unwrap_or_default(),
        })
    }

    fn candidates(&self) -> impl Iterator<Item = MediaType> {
        let (kind, subtype) = (self.kind, self.subtype);
        MediaType::ALL.into_iter().filter(move |media| {
            let (media_kind, media_subtype) = media.as_str().split_once('/').unwrap_or_default();
            (kind == "*" && subtype == "*") || (kind == media_kind && (subtype == media_subtype || subtype == "*"))
        })
    }

    fn is_allowed_on(&self, media: MediaType, server_version: &str) -> bool {
        let stream = self.param("stream").unwrap_or_default();
        let version = self.param("sv").unwrap_or_default();
        (stream.is_empty() || (stream == "watch" && media.streams()))
            && (version.is_empty() || version == server_version)
    }

    /// Returns whether this clause takes precedence over the other. Not an order: a concrete type precedes a wildcard even
    /// if its quality is lower, depending on which of them is first in the header.
    fn precedes(&self, other: &Clause<'_>) -> bool {
        self.quality > other.quality
            || (self.kind != "*" && other.kind == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }
}

/// More clauses than any client sends; the rest of a longer header is ignored.
const CLAUSES_MAX: usize = 64;

fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = Vec::new();
    for part in header.split(',').take(CLAUSES_MAX) {
        let Some(clause) = clause(part) else { continue };
        // Insertion, because `precedes` is not an order, as a library sort would need.
        clauses.push(clause);
        let mut at = clauses.len() - 1;
        while at > 0 && clauses[at].precedes(&clauses[at - 1]) {
            clauses.swap(at, at - 1);
            at -= 1;
        }
    }
    clauses
}

fn clause(part: &str) -> Option<Clause<'_>> {
    let mut pieces = part.trim_matches(' ').split(';');
    let media = pieces.next()?;
    let (kind, subtype) = match media.split_once('/') {
        Some((_, subtype)) if subtype.contains('/') => return None,
        Some((kind, subtype)) if !subtype.is_empty() => (kind.trim_matches(' '), subtype.trim_matches(' ')),
        _ if media.trim_matches(['/', ' ']) == "*" => ("*", "*"),
        _ => return None,
    };
    let mut clause = Clause { kind, subtype, quality: 1.0, params: Vec::new() };
    for piece in pieces {
        let Some((name, value)) = piece.split_once('=') else { continue };
        if value.is_empty() || value.contains('=') {
            continue;
        }
        match name.trim_matches(' ') {
            "q" => clause.quality = value.parse().unwrap_or_default(),
            name => clause.params.push((name, value.trim_matches(' '))),
        }
    }
    Some(clause)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: Endpoint =
        Endpoint { is_routed: true, is_collection: false, is_watch: false, has_protobuf: true, has_table: true };
    const WATCH: Endpoint = Endpoint { is_collection: true, is_watch: true, ..ITEM };
    const CUSTOM: Endpoint = Endpoint { is_routed: false, has_protobuf: false, ..ITEM };

    fn accepted(header: &str, endpoint: &Endpoint) -> Result<(MediaType, Option<Transform>), String> {
        negotiate(Some(header), endpoint)
            .map(|accepted| (accepted.media, accepted.transform))
            .map_err(|status| status.message)
    }

    const ONLY: &str = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    const ROUTER: &str = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf";

    #[test]
    fn a_client_gets_what_it_prefers_among_other_types() {
        let types = ["application/json", "application/x.v1+protobuf", "application/x@v1+protobuf"];
        for (header, expected) in [
            ("", Some(0)),
            ("*/*", Some(0)),
            ("application/*;q=0.5, application/x@v1+protobuf", Some(2)),
            ("application/x.v1+protobuf;q=0.2, application/json;q=0.1", Some(1)),
            ("text/html, application/json", Some(0)),
            ("text/html", None),
            ("application/vnd.kubernetes.protobuf", None),
        ] {
            assert_eq!(preferred(Some(header), &types), expected, "{header}");
        }
        assert_eq!(preferred(None, &types), Some(0));
    }

    #[test]
    fn accepted_ways_of_asking_for_json() {
        for header in [
            "",
            "*/*",
            "application/json;q=0.5, text/html",
            "text/html, */*;q=0.1",
            "application/json; charset=utf-8",
            "application/json;stream=watch",
            "application/yaml;q=0.3,application/json;q=0.4",
        ] {
            assert_eq!(accepted(header, &ITEM), Ok((MediaType::Json, None)), "{header}");
        }
        assert_eq!(accepted("application/*", &CUSTOM), Ok((MediaType::Json, None)));
        assert_eq!(accepted("application/yaml, application/json;q=0.9", &ITEM), Ok((MediaType::Yaml, None)));
        assert!(negotiate(Some("application/json;pretty=1"), &ITEM).is_ok_and(|accepted| accepted.pretty));
    }

    #[test]
    fn not_acceptable_by_the_router() {
        for header in ["application/*", "text/html", "application/xml", "garbage"] {
            assert_eq!(accepted(header, &ITEM), Err(ROUTER.to_owned()), "{header}");
        }
        assert_eq!(
            accepted("text/plain", &WATCH),
            Err(format!("{ROUTER}, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"))
        );
    }

    #[test]
    fn not_acceptable_by_negotiation() {
        for header in [
            "application/json;as=Nope;v=v1;g=meta.k8s.io",
            "application/json;as=Table;v=v2;g=meta.k8s.io",
            "application/json;as=Table;v=v1;g=nope",
            "application/json;as=Table;g=meta.k8s.io",
            "application/json;v=v1;g=meta.k8s.io",
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
            "application/json;sv=v2",
            "application/json;stream=other",
        ] {
            assert_eq!(accepted(header, &ITEM), Err(ONLY.to_owned()), "{header}");
        }
        assert_eq!(accepted("application/vnd.kubernetes.protobuf", &CUSTOM), Err(ONLY.to_owned()));
        let no_table = Endpoint { has_table: false, ..ITEM };
        assert_eq!(accepted("application/json;as=Table;v=v1;g=meta.k8s.io", &no_table), Err(ONLY.to_owned()));
    }

    #[test]
    fn transformations() {
        use MetaVersion::{V1, V1beta1};
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        for (header, want) in [
            (kubectl, Some(Transform::Table(V1))),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", Some(Transform::Table(V1beta1))),
            ("application/json;as=Nope;v=v1;g=meta.k8s.io,application/json", None),
            (
                "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
                Some(Transform::PartialObjectMetadata(V1)),
            ),
            (
                "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
                Some(Transform::PartialObjectMetadataList(V1)),
            ),
        ] {
            assert_eq!(accepted(header, &ITEM), Ok((MediaType::Json, want)), "{header}");
        }
        assert_eq!(
            accepted("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", &CUSTOM),
            Ok((MediaType::Protobuf, Some(Transform::PartialObjectMetadata(V1))))
        );
    }

    #[test]
    fn watch_forms_that_do_not_stream() {
        assert_eq!(
            accepted("application/yaml", &WATCH),
            Err("only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch".to_owned())
        );
        assert_eq!(error_media(Some("application/yaml")), MediaType::Yaml);
        assert_eq!(error_media(Some("text/html")), MediaType::Json);
        assert_eq!(
            accepted("application/vnd.kubernetes.protobuf;stream=watch", &WATCH),
            Ok((MediaType::Protobuf, None))
        );
    }

    #[test]
    fn discovery_forms() {
        let discovery = |header: &str| negotiate_discovery(Some(header)).map_err(|status| status.message);
        let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let unknown = "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList";
        assert_eq!(discovery(aggregated), Ok(Discovery::Aggregated(MediaType::Json)));
        assert_eq!(discovery(&format!("application/json,{aggregated}")), Ok(Discovery::Aggregated(MediaType::Json)));
        assert_eq!(discovery(unknown), Err(ONLY.to_owned()));
        assert_eq!(discovery(&format!("{unknown},application/json")), Ok(Discovery::Plain(MediaType::Json)));
        assert_eq!(discovery("text/html"), Err(ROUTER.to_owned()));
        assert_eq!(discovery(""), Ok(Discovery::Plain(MediaType::Json)));
        assert_eq!(discovery("application/yaml"), Ok(Discovery::Plain(MediaType::Yaml)));
    }
}
