//! Media types: the forms of a body, the kinds of patch, and which of them a request may use (spec 02 §1.4).

use crate::Status;

/// An encoding of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MediaType {
    #[default]
    Json,
    Yaml,
    Protobuf,
}

impl MediaType {
    /// All, in the order of the server's preference and of its messages.
    pub const ALL: [MediaType; 3] = [MediaType::Json, MediaType::Yaml, MediaType::Protobuf];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            MediaType::Json => "application/json",
            MediaType::Yaml => "application/yaml",
            MediaType::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// Returns whether watch events can be sent in it.
    #[must_use]
    pub const fn streams(self) -> bool {
        !matches!(self, MediaType::Yaml)
    }
}

/// Media types that responses to GET are available in.
pub const PLAIN: [&str; 3] = [MediaType::Json.as_str(), MediaType::Yaml.as_str(), MediaType::Protobuf.as_str()];
pub const STREAMS: [&str; 2] = ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

/// Returns the encoding of the body of a POST, PUT or DELETE. No header means JSON; parameters are ignored.
pub fn body_type(content_type: Option<&str>) -> Result<MediaType, Status> {
    let header = content_type.unwrap_or_default();
    if header.is_empty() {
        return Ok(MediaType::Json);
    }
    let bare = bare(header);
    let found = MediaType::ALL.into_iter().find(|media| bare.eq_ignore_ascii_case(media.as_str()));
    found.ok_or_else(|| Status::unsupported_media_type(&PLAIN))
}

/// The kind of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    const ALL: [PatchType; 4] = [PatchType::Json, PatchType::Merge, PatchType::Strategic, PatchType::Apply];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            PatchType::Json => "application/json-patch+json",
            PatchType::Merge => "application/merge-patch+json",
            PatchType::Strategic => "application/strategic-merge-patch+json",
            PatchType::Apply => "application/apply-patch+yaml",
        }
    }
}

/// Returns the kind of a patch. Custom resources have no strategic one, and refuse in other words than the built-in kinds.
pub fn patch_type(content_type: Option<&str>, is_custom_resource: bool) -> Result<PatchType, Status> {
    let bare = bare(content_type.unwrap_or_default());
    let found = PatchType::ALL.into_iter().find(|patch| bare == patch.as_str());
    match found {
        Some(patch) if !(is_custom_resource && patch == PatchType::Strategic) => Ok(patch),
        _ if is_custom_resource => {
            let accepted = [PatchType::Json, PatchType::Merge, PatchType::Apply].map(PatchType::as_str);
            Err(Status::unsupported_media_type(&accepted))
        }
        _ => Err(Status::router_unsupported_media_type()),
    }
}

fn bare(header: &str) -> &str {
    header.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_types() {
        assert_eq!(body_type(None), Ok(MediaType::Json));
        assert_eq!(body_type(Some("")), Ok(MediaType::Json));
        assert_eq!(body_type(Some("application/json; charset=utf-8")), Ok(MediaType::Json));
        assert_eq!(body_type(Some("application/yaml")), Ok(MediaType::Yaml));
        for refused in ["text/plain", "application/x-www-form-urlencoded", "application/merge-patch+json"] {
            assert_eq!(
                body_type(Some(refused)).map_err(|status| status.message),
                Err("the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf".to_owned())
            );
        }
    }

    #[test]
    fn patch_types() {
        assert_eq!(patch_type(Some("application/merge-patch+json; charset=utf-8"), false), Ok(PatchType::Merge));
        assert_eq!(patch_type(Some("application/strategic-merge-patch+json"), false), Ok(PatchType::Strategic));
        for refused in [None, Some("application/json"), Some("application/apply-patch+json")] {
            assert_eq!(
                patch_type(refused, false).map_err(|status| status.message),
                Err("415: Unsupported Media Type".to_owned())
            );
        }
        assert_eq!(
            patch_type(Some("application/strategic-merge-patch+json"), true).map_err(|status| status.message),
            Err("the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml".to_owned())
        );
    }
}
