//! The part of a CustomResourceDefinition that a kind keeps: one [`Definition`] for each served version.
//!
//! Schemas are compiled from the text of the definition when the kind is first used.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use machinery::Revision;
use machinery::json::Value;
use serde::Deserialize;

use super::columns::Column;
use super::structural::Schema;
use crate::facts::Type;

/// The definition of a custom kind in one version.
#[derive(Debug)]
pub struct Definition {
    /// `things.example.com`
    pub name: String,
    pub uid: String,
    /// Objects written after this revision conform to this schema.
    pub since: Revision,
    /// Identifies the encoding of an object in this version: unique for each version of each state of a definition.
    pub form: u32,
    /// The definition is being deleted: no objects may be created.
    pub terminating: bool,
    /// Warning for clients that use a deprecated version.
    pub deprecation: Option<String>,
    pub columns: Vec<Column>,
    pub scale: Option<Scale>,
    pub conversion: Conversion,
    pub(super) source: Arc<Source>,
    pub(super) version: String,
    /// The version that objects are stored in.
    pub(super) storage: String,
}

/// Paths of the fields of `/scale`, as lists of field names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    pub spec_replicas: Vec<String>,
    pub status_replicas: Vec<String>,
    pub selector: Option<Vec<String>>,
}

/// The conversion of objects between versions.
#[derive(Clone, Debug, PartialEq)]
pub enum Conversion {
    /// Only `apiVersion` changes.
    None,
    /// A webhook converts objects; `client` is its `clientConfig`.
    Webhook { client: Value, versions: Vec<String> },
}

/// The text of a definition and its compiled versions.
#[derive(Debug)]
pub(super) struct Source {
    /// The text of the newest revision, which the cache holds too.
    pub(super) json: Bytes,
    /// Shared by all revisions with the same spec.
    pub(super) versions: Arc<[(String, OnceLock<Version>)]>,
}

/// The compiled schema of a version.
#[derive(Debug)]
pub struct Version {
    pub schema: Schema,
    /// The type for ownership and apply.
    pub ty: Type,
    pub rules: cel::Validator,
}

impl Version {
    #[must_use]
    pub fn compile(schema: Option<&Value>) -> Version {
        Version {
            schema: schema.map(Schema::compile).unwrap_or_default(),
            ty: Type::of_schema(schema),
            // A definition whose rules do not compile is refused when it is written.
            rules: schema.map(cel::Validator::lazy).unwrap_or_default(),
        }
    }
}

impl Definition {
    /// Returns the schema of the version that this kind is served in.
    #[must_use]
    pub fn version(&self) -> &Version {
        self.source.version(&self.version)
    }

    /// Returns the schema of the version that objects are stored in.
    #[must_use]
    pub fn stored_version(&self) -> &Version {
        self.source.version(&self.storage)
    }

    /// Returns the schema of any version of the definition, served or not.
    #[must_use]
    pub fn version_named(&self, name: &str) -> Option<&Version> {
        self.source.versions.iter().any(|(known, _)| known == name).then(|| self.source.version(name))
    }

    /// Returns `openAPIV3Schema` of this version as it was sent, with descriptions. Parses the text on each call.
    #[must_use]
    pub fn open_api_schema(&self) -> Option<Value> {
        self.source.schema(&self.version)
    }
}

impl Source {
    fn version(&self, name: &str) -> &Version {
        static EMPTY: OnceLock<Version> = OnceLock::new();
        let known = self.versions.iter().find(|(known, _)| known == name);
        let cell = known.map_or(&EMPTY, |(_, cell)| cell);
        cell.get_or_init(|| Version::compile(self.schema(name).as_ref()))
    }

    fn schema(&self, name: &str) -> Option<Value> {
        #[derive(Deserialize)]
        struct SourceText {
            spec: Spec,
        }
        #[derive(Deserialize)]
        struct Spec {
            versions: Vec<NamedSchema>,
        }
        #[derive(Deserialize)]
        struct NamedSchema {
            name: String,
            schema: Option<Value>,
        }
        let source: SourceText = serde_json::from_slice(&self.json).ok()?;
        let version = source.spec.versions.into_iter().find(|version| version.name == name)?;
        let mut schema = version.schema?;
        Some(schema.get_mut("openAPIV3Schema")?.take())
    }
}
