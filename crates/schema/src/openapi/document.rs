//! OpenAPI documents: their names, their parts, and their bytes in both forms.
//!
//! A document is written part by part, a path or a definition at a time, so that the largest (the core group: one and a
//! half megabytes) needs little more memory than its bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512};

use super::definitions::{Definitions, PLACE};
use super::operations::{self, Names};
use super::version2::{self, Parameters};
use super::{custom, message};
use crate::kind::Kind;
use crate::kinds::Kinds;
use crate::protobuf::wire::put_message;

const BUILTIN_MEDIA: [&str; 3] = ["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"];

/// The encoding of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    Json,
    /// The protobuf message of gnostic.
    Message,
}

/// The input of documents.
pub struct Source<'a> {
    pub kinds: &'a Kinds,
    /// The version of the server.
    pub version: &'a str,
}

/// A document of version 3.
#[derive(Clone, Copy)]
enum Part<'a> {
    /// `api`, `apis`, `version`
    Fixed(&'static str),
    Group(&'a str),
    Version(&'a str, &'a crate::kinds::Version),
}

impl<'a> Source<'a> {
    /// Returns the names of the documents of version 3: `api`, `apis/apps/v1`, …
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = ["api", "apis", "version"].map(str::to_owned).to_vec();
        for group in self.kinds.groups() {
            if !group.name.is_empty()
                && !group.versions.iter().all(|version| version.kinds.iter().all(|kind| kind.custom))
            {
                paths.push(format!("apis/{}", group.name));
            }
            paths.extend(group.versions.iter().map(|version| operations::root(&group.name, &version.name)));
        }
        paths.sort_unstable();
        paths
    }

    fn part(&self, path: &str) -> Option<Part<'a>> {
        let segments: Vec<&str> = path.split('/').collect();
        match *segments.as_slice() {
            ["api"] => Some(Part::Fixed("api")),
            ["apis"] => Some(Part::Fixed("apis")),
            ["version"] => Some(Part::Fixed("version")),
            ["api", version] => Some(Part::Version("", self.kinds.group("")?.version(version)?)),
            ["apis", group] => {
                let group = self.kinds.group(group).filter(|group| !group.name.is_empty())?;
                let builtin = group.versions.iter().any(|version| version.kinds.iter().any(|kind| !kind.custom));
                builtin.then_some(Part::Group(&group.name))
            }
            ["apis", group, version] => {
                let group = self.kinds.group(group).filter(|group| !group.name.is_empty())?;
                Some(Part::Version(&group.name, group.version(version)?))
            }
            _ => None,
        }
    }

    /// Returns the kinds of a document of version 3; `None` if there is no such document.
    #[must_use]
    pub fn kinds_of(&self, path: &str) -> Option<Vec<Arc<Kind>>> {
        Some(match self.part(path)? {
            Part::Version(_, version) => version.kinds.clone(),
            Part::Fixed(_) | Part::Group(_) => Vec::new(),
        })
    }

    /// Returns a hash of the input of a document of version 3, without building it: equal hashes mean equal documents.
    #[must_use]
    pub fn hash(&self, path: &str) -> Option<String> {
        let mut hash = self.hasher(path);
        match self.part(path)? {
            Part::Fixed(_) => {}
            Part::Group(name) => hash.update(name),
            Part::Version(_, version) => version.kinds.iter().for_each(|kind| self.hash_kind(&mut hash, kind)),
        }
        Some(upper(&hash.finalize()))
    }

    /// Returns a hash of the input of the document of version 2.
    #[must_use]
    pub fn hash_v2(&self) -> String {
        let mut hash = self.hasher("v2");
        self.kinds.iter().for_each(|kind| self.hash_kind(&mut hash, kind));
        upper(&hash.finalize())
    }

    fn hasher(&self, path: &str) -> Sha512 {
        let mut hash = Sha512::new();
        for text in [env!("OPENAPI_SOURCES"), self.version, path] {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        hash
    }

    /// Hashes the input of operations and definitions, without the status of a definition and compiled schemas.
    fn hash_kind(&self, hash: &mut Sha512, kind: &Kind) {
        let schema = custom::schema(kind).map(|schema| schema.to_string()).unwrap_or_default();
        let subresources: Vec<_> = kind.subresources.iter().map(|sub| (&sub.name, &sub.gvk, &sub.verbs)).collect();
        let head = format!(
            "{:?}",
            (&kind.gvk, &kind.list_kind, &kind.plural, kind.namespaced, kind.custom, &kind.verbs, subresources)
        );
        for text in [head, schema] {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
    }

    /// Returns the bytes of a document of version 3.
    #[must_use]
    pub fn v3(&self, path: &str, encoding: Encoding) -> Option<Vec<u8>> {
        let part = self.part(path)?;
        let definitions = Definitions::open();
        let mut made = Made::new(encoding, None);
        let mut within = Vec::new();
        let mut own: Vec<&Kind> = Vec::new();
        match part {
            Part::Fixed(name) => made.add_path(&format!("/{name}/"), &fixed(name)),
            Part::Group(name) => {
                let (path, item) = group(name);
                made.add_path(&path, &item);
            }
            Part::Version(group, version) => {
                within.push((group.to_owned(), version.name.clone()));
                self.version(group, version, &definitions, &mut made);
                own.extend(version.kinds.iter().map(|kind| &**kind));
            }
        }
        self.define(&definitions, &mut made, &within, &own);
        let head = json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": self.version}});
        let schemes = json!({"securitySchemes": security()});
        let mut out = Vec::with_capacity(made.size() + 4096);
        match encoding {
            Encoding::Json => {
                let text = json_text(&head);
                out.extend_from_slice(&text[..text.len() - 1]);
                out.extend_from_slice(b",\"paths\":");
                made.write_json(&made.paths, &mut out);
                out.extend_from_slice(b",\"components\":{\"schemas\":");
                made.write_json(&made.definitions, &mut out);
                out.push(b',');
                out.extend_from_slice(&json_text(&schemes)[1..]);
                out.push(b'}');
            }
            Encoding::Message => {
                message::v3::document(&head, &mut out);
                put(&mut out, 4, |out| made.write_message(&made.paths, 1, out));
                put(&mut out, 5, |out| {
                    put(out, 1, |out| made.write_message(&made.definitions, 1, out));
                    message::v3::components(&schemes, out);
                });
            }
        }
        Some(out)
    }

    /// Returns the bytes of the document of version 2, which has all kinds.
    #[must_use]
    pub fn v2(&self, encoding: Encoding) -> Vec<u8> {
        let definitions = Definitions::open();
        let mut made = Made::new(encoding, Some(Parameters::default()));
        for name in ["api", "apis", "version"] {
            made.add_path(&format!("/{name}/"), &fixed(name));
        }
        let mut within = Vec::new();
        let mut own: Vec<&Kind> = Vec::new();
        for served in self.kinds.groups() {
            if self.part(&format!("apis/{}", served.name)).is_some() {
                let (path, item) = group(&served.name);
                made.add_path(&path, &item);
            }
            for version in &served.versions {
                within.push((served.name.clone(), version.name.clone()));
                self.version(&served.name, version, &definitions, &mut made);
                own.extend(version.kinds.iter().map(|kind| &**kind));
            }
        }
        within.sort();
        self.define(&definitions, &mut made, &within, &own);
        let parameters = made.parameters.take().map(|parameters| parameters.shown).unwrap_or_default();
        let head = json!({
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": self.version},
            "parameters": parameters.into_iter().collect::<Map<_, _>>(),
            "security": [{"BearerToken": []}],
            "securityDefinitions": security(),
        });
        let mut out = Vec::with_capacity(made.size() + 65_536);
        match encoding {
            Encoding::Json => {
                let text = json_text(&head);
                out.extend_from_slice(&text[..text.len() - 1]);
                out.extend_from_slice(b",\"paths\":");
                made.write_json(&made.paths, &mut out);
                out.extend_from_slice(b",\"definitions\":");
                made.write_json(&made.definitions, &mut out);
                out.push(b'}');
            }
            Encoding::Message => {
                message::v2::document(&head, &mut out);
                put(&mut out, 8, |out| made.write_message(&made.paths, 2, out));
                put(&mut out, 9, |out| made.write_message(&made.definitions, 1, out));
            }
        }
        out
    }

    fn version(&self, group: &str, version: &crate::kinds::Version, definitions: &Definitions, made: &mut Made) {
        let root = operations::root(group, &version.name);
        if version.kinds.iter().any(|kind| !kind.custom) {
            let names = Names::of(group, &version.name);
            let id = format!("get{}APIResources", names.prefix);
            let answer = "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList";
            let item = operations::plain(id, "get available resources", &names.tag, &BUILTIN_MEDIA, answer);
            made.add_path(&format!("/{root}/"), &item);
        }
        for kind in &version.kinds {
            for (path, item) in operations::paths(kind, definitions) {
                made.add_path(&path, &item);
            }
        }
    }

    /// Adds the definitions that are referred to, directly or indirectly.
    fn define(&self, definitions: &Definitions, made: &mut Made, within: &[(String, String)], own: &[&Kind]) {
        let customs: BTreeMap<String, (&Kind, bool)> = own
            .iter()
            .filter(|kind| kind.custom)
            .flat_map(|kind| {
                let object = (custom::name(kind, &kind.gvk.kind), (*kind, false));
                [object, (custom::name(kind, &kind.list_kind), (*kind, true))]
            })
            .collect();
        while let Some(name) = made.wanted.pop_first() {
            let schema = match customs.get(&name) {
                Some((kind, true)) => Some(custom::list(kind, definitions)),
                Some((kind, false)) => Some(custom::object(kind, definitions)),
                None => definitions.get(&name, within),
            };
            if let Some(schema) = schema {
                let is_custom = customs.contains_key(&name);
                made.add_definition(name, &schema, is_custom);
            }
        }
    }
}

/// Encoded parts of a document, by name.
struct Made {
    encoding: Encoding,
    /// Parameters that operations share in version 2.
    parameters: Option<Parameters>,
    paths: BTreeMap<String, Vec<u8>>,
    definitions: BTreeMap<String, Vec<u8>>,
    /// Definitions that are referred to and not yet added.
    wanted: BTreeSet<String>,
}

impl Made {
    fn new(encoding: Encoding, parameters: Option<Parameters>) -> Self {
        Made { encoding, parameters, paths: BTreeMap::new(), definitions: BTreeMap::new(), wanted: BTreeSet::new() }
    }

    fn add_path(&mut self, path: &str, item: &Value) {
        self.want(item);
        let bytes = match (&mut self.parameters, self.encoding) {
            (None, Encoding::Json) => json_text(item),
            (None, Encoding::Message) => message_of(item, message::v3::path),
            (Some(parameters), Encoding::Json) => json_text(&parameters.path(item)),
            (Some(parameters), Encoding::Message) => message_of(&parameters.path(item), message::v2::path),
        };
        self.paths.insert(path.to_owned(), bytes);
    }

    fn add_definition(&mut self, name: String, schema: &Value, custom: bool) {
        let bytes = match (self.parameters.is_some(), self.encoding) {
            (false, Encoding::Json) => json_text(schema),
            (false, Encoding::Message) => message_of(schema, message::v3::schema_or_reference),
            (true, Encoding::Json) => json_text(&version2::schema(schema, custom)),
            (true, Encoding::Message) => message_of(&version2::schema(schema, custom), message::v2::schema),
        };
        self.definitions.insert(name, bytes);
        self.want(schema);
    }

    fn want(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    match value {
                        Value::String(text) if key == "$ref" => {
                            let name = text.strip_prefix(PLACE).filter(|name| !self.definitions.contains_key(*name));
                            self.wanted.extend(name.map(str::to_owned));
                        }
                        _ => self.want(value),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.want(item)),
            _ => {}
        }
    }

    fn size(&self) -> usize {
        let all = self.paths.iter().chain(&self.definitions);
        all.map(|(name, bytes)| name.len() + bytes.len() + 16).sum()
    }

    fn write_json(&self, parts: &BTreeMap<String, Vec<u8>>, out: &mut Vec<u8>) {
        out.push(b'{');
        for (at, (name, bytes)) in parts.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend(json_text(&Value::from(&**name)));
            out.push(b':');
            out.extend_from_slice(bytes);
        }
        out.push(b'}');
    }

    fn write_message(&self, parts: &BTreeMap<String, Vec<u8>>, number: u32, out: &mut Vec<u8>) {
        for (name, bytes) in parts {
            message::named(out, number, name, |out| out.extend_from_slice(bytes));
        }
    }
}

fn put(out: &mut Vec<u8>, number: u32, content: impl FnOnce(&mut Vec<u8>)) {
    let written: Result<(), std::convert::Infallible> = put_message(out, number, |out| {
        content(out);
        Ok(())
    });
    let Ok(()) = written;
}

fn json_text(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

fn message_of(value: &Value, encode: fn(&Value, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    encode(value, &mut out);
    out
}

fn security() -> Value {
    json!({"BearerToken": {
        "description": "Bearer Token authentication",
        "in": "header",
        "name": "authorization",
        "type": "apiKey",
    }})
}

fn fixed(name: &str) -> Value {
    let (id, text, tag, answer) = match name {
        "api" => ("getCoreAPIVersions", "get available API versions", "core", "APIVersions"),
        "apis" => ("getAPIVersions", "get available API versions", "apis", "APIGroupList"),
        _ => {
            let info = "io.k8s.apimachinery.pkg.version.Info";
            let text = "get the version information for this server";
            return operations::plain("getCodeVersion".to_owned(), text, "version", &["application/json"], info);
        }
    };
    let answer = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{answer}");
    operations::plain(id.to_owned(), text, tag, &BUILTIN_MEDIA, &answer)
}

fn group(name: &str) -> (String, Value) {
    let names = Names::of(name, "");
    let id = format!("get{}APIGroup", names.prefix);
    let tag = names.tag.trim_end_matches('_');
    let answer = "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroup";
    (format!("/apis/{name}/"), operations::plain(id, "get information of a group", tag, &BUILTIN_MEDIA, answer))
}

fn upper(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02X}")).collect()
}
