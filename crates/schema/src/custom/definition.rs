//! The part of a CustomResourceDefinition that a kind keeps: one [`Definition`] for each served version.
//!
//! Schemas are compiled from the text of the definition when the kind is first used.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use machinery::Revision;
use machinery::json::Value;
use serde::Deserialize;
use serde_json::value::RawValue;

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
    /// The text of the spec in the newest revision, which the cache holds too.
    pub(super) spec: Bytes,
    /// Shared by all revisions with the same spec.
    pub(super) versions: Arc<Versions>,
}

/// The versions of a spec.
#[derive(Debug)]
pub(super) struct Versions {
    pub(super) list: Box<[(String, OnceLock<Version>)]>,
    /// Where the text of a spec has the schema of each version. Found once for all versions, since there may be as many as fit
    /// into the text.
    schemas: OnceLock<Box<[Option<Range<usize>>]>>,
}

impl Versions {
    pub(super) fn new(names: impl Iterator<Item = String>) -> Versions {
        Versions { list: names.map(|name| (name, OnceLock::new())).collect(), schemas: OnceLock::new() }
    }
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
        self.source.versions.list.iter().any(|(known, _)| known == name).then(|| self.source.version(name))
    }

    /// Returns `openAPIV3Schema` of this version as it was sent, with descriptions. Parses its text on each call.
    #[must_use]
    pub fn open_api_schema(&self) -> Option<Value> {
        self.source.schema(&self.version)
    }
}

impl Source {
    fn version(&self, name: &str) -> &Version {
        static EMPTY: OnceLock<Version> = OnceLock::new();
        let known = self.versions.list.iter().find(|(known, _)| known == name);
        let cell = known.map_or(&EMPTY, |(_, cell)| cell);
        cell.get_or_init(|| Version::compile(self.schema(name).as_ref()))
    }

    fn schema(&self, name: &str) -> Option<Value> {
        let schemas = self.versions.schemas.get_or_init(|| self.find_schemas());
        let at = self.versions.list.iter().position(|(known, _)| known == name)?;
        let text = self.spec.get(schemas.get(at)?.clone()?)?;
        let mut schema: Value = serde_json::from_slice(text).ok()?;
        Some(schema.get_mut("openAPIV3Schema")?.take())
    }

    /// Finds the schemas of all versions, in the order of the versions.
    fn find_schemas(&self) -> Box<[Option<Range<usize>>]> {
        #[derive(Deserialize)]
        struct Spec<'a> {
            #[serde(borrow)]
            versions: Vec<WithSchema<'a>>,
        }
        #[derive(Deserialize)]
        struct WithSchema<'a> {
            #[serde(borrow)]
            schema: Option<&'a RawValue>,
        }
        let Ok(spec) = serde_json::from_slice::<Spec<'_>>(&self.spec) else { return Box::default() };
        let start = self.spec.as_ptr() as usize;
        let place = |text: &str| {
            let at = text.as_ptr() as usize - start;
            at..at + text.len()
        };
        spec.versions.iter().map(|version| version.schema.map(|schema| place(schema.get()))).collect()
    }
}
