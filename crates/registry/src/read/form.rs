//! The form of an answer: JSON, YAML or protobuf; the object itself, its metadata only, or a table.

use machinery::Status;
pub use machinery::accept::MetaVersion;

/// The form a client negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    pub encoding: Encoding,
    pub shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Json {
        pretty: bool,
    },
    Yaml,
    /// Not for tables, and for custom resources only for their metadata.
    Protobuf,
}

impl Default for Encoding {
    fn default() -> Self {
        Encoding::Json { pretty: false }
    }
}

impl Encoding {
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Encoding::Json { .. } => "application/json",
            Encoding::Yaml => "application/yaml",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// The part of an object in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    #[default]
    Plain,
    /// `PartialObjectMetadata` (of a list: `PartialObjectMetadataList`).
    Partial(MetaVersion),
    Table {
        version: MetaVersion,
        include: IncludeObject,
    },
}

/// The part of its object in a table row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    /// Reads the `includeObject` parameter.
    pub fn parse(text: &str) -> Result<Self, Status> {
        match text {
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            "None" => Ok(IncludeObject::None),
            "Object" => Ok(IncludeObject::Object),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                machinery::go_text::quote(other)
            ))),
        }
    }
}
