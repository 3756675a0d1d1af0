//! Definitions of built-in kinds and their parts as schemas of OpenAPI 3.

use machinery::GroupVersionKind;
use serde_json::{Map, Value, json};

use super::published::Published;
use super::texts::Texts;
use crate::facts::{Field, Form, Listing, Node, NodeId, Object, Scalar, Types};

/// Prefix of references to definitions.
pub(super) const PLACE: &str = "#/components/schemas/";

/// `metadata` of objects and of lists.
pub(super) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub(super) const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
/// The body of a DELETE, and the events of a watch.
pub(super) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
pub(super) const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";
/// The kind whose descriptions of kind, apiVersion and metadata are used for all kinds.
const SAMPLE: &str = "io.k8s.api.apps.v1.Deployment";

/// Definitions of types with a special JSON form, by node name.
const LEAVES: [(&str, &str); 12] = [
    ("v1.Time", "io.k8s.apimachinery.pkg.apis.meta.v1.Time"),
    ("v1.MicroTime", "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"),
    ("v1.Duration", "io.k8s.apimachinery.pkg.apis.meta.v1.Duration"),
    ("v1.FieldsV1", "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"),
    ("resource.Quantity", "io.k8s.apimachinery.pkg.api.resource.Quantity"),
    ("intstr.IntOrString", "io.k8s.apimachinery.pkg.util.intstr.IntOrString"),
    ("runtime.RawExtension", "io.k8s.apimachinery.pkg.runtime.RawExtension"),
    ("runtime.Object", "io.k8s.apimachinery.pkg.runtime.RawExtension"),
    ("v1.JSON", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON"),
    ("v1.JSONSchemaPropsOrBool", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool"),
    ("v1.JSONSchemaPropsOrArray", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray"),
    (
        "v1.JSONSchemaPropsOrStringArray",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
    ),
];

/// Definitions of the built-in kinds. Holds a megabyte of descriptions: created for one document, then dropped.
pub(crate) struct Definitions {
    types: &'static Types,
    published: Published,
    pub(super) texts: Texts,
}

impl Definitions {
    pub(crate) fn open() -> Self {
        Definitions { types: Types::get(), published: Published::read(), texts: Texts::unpack() }
    }

    /// Returns the definition name of a built-in kind.
    pub(super) fn name(&self, gvk: &GroupVersionKind) -> Option<&'static str> {
        let name = self.published.name(self.types.kind(gvk)?.root());
        (!name.is_empty()).then_some(name)
    }

    /// Returns a definition by name. `within` are the group versions of the document, which options and watch events
    /// list.
    pub(super) fn get(&self, name: &str, within: &[(String, String)]) -> Option<Value> {
        if let Some(node) = self.published.node(name)
            && let Form::Object(object) = &self.node(node).form
        {
            return Some(self.object(name, node, object, within));
        }
        let (leaf, _) = LEAVES.iter().find(|(_, definition)| *definition == name)?;
        let mut schema = match *leaf {
            "v1.Time" | "v1.MicroTime" => json!({"type": "string", "format": "date-time"}),
            "v1.Duration" => json!({"type": "string"}),
            "v1.FieldsV1" | "runtime.RawExtension" | "runtime.Object" => json!({"type": "object"}),
            "resource.Quantity" => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            "intstr.IntOrString" => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
            _ => json!({}),
        };
        describe(&mut schema, self.texts.of(name));
        Some(schema)
    }

    fn node(&self, id: NodeId) -> &'static Node {
        self.types.shapes().node(id)
    }

    fn object(&self, name: &str, id: NodeId, object: &Object, within: &[(String, String)]) -> Value {
        let mut schema = Map::new();
        let text = self.texts.of(name).or_else(|| list_text(name));
        if let Some(text) = text {
            schema.insert("description".to_owned(), text.into());
        }
        let mut properties: Vec<(&str, Value)> = Vec::with_capacity(object.fields.len());
        let mut required: Vec<&str> = Vec::new();
        for (at, field) in object.fields.iter().enumerate() {
            properties.push((&field.name, self.property(name, id, at, field)));
            if self.published.said(id, at).required() {
                required.push(&field.name);
            }
        }
        properties.sort_unstable_by_key(|(name, _)| *name);
        if !properties.is_empty() {
            let properties: Map<String, Value> =
                properties.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
            schema.insert("properties".to_owned(), properties.into());
        }
        if !required.is_empty() {
            schema.insert("required".to_owned(), required.into());
        }
        schema.insert("type".to_owned(), "object".into());
        let kinds = self.kinds(name, id, within);
        if !kinds.is_empty() {
            schema.insert("x-kubernetes-group-version-kind".to_owned(), kinds.into());
        }
        if object.atomic {
            schema.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
        if let Ok(unions) = serde_json::from_str::<Value>(self.published.unions(id)) {
            schema.insert("x-kubernetes-unions".to_owned(), unions);
        }
        schema.into()
    }

    /// Returns the kinds that a definition describes.
    fn kinds(&self, name: &str, id: NodeId, within: &[(String, String)]) -> Vec<Value> {
        let one = |group: &str, version: &str, kind: &str| json!({"group": group, "kind": kind, "version": version});
        match name {
            DELETE_OPTIONS | WATCH_EVENT => {
                let kind = name.rsplit('.').next().unwrap_or_default();
                let core = ("", "v1");
                let others = within.iter().map(|(group, version)| (&**group, &**version)).filter(|gv| *gv != core);
                std::iter::once(core).chain(others).map(|(group, version)| one(group, version, kind)).collect()
            }
            _ => self.types.kinds_of(id).map(|gvk| one(&gvk.group, &gvk.version, &gvk.kind)).collect(),
        }
    }

    fn property(&self, definition: &str, id: NodeId, at: usize, field: &Field) -> Value {
        let said = self.published.said(id, at);
        let node = self.node(field.node);
        let default = match said.default() {
            Some(text) => serde_json::from_str(text).ok(),
            None if said.no_default() || field.pointer => None,
            None => self.zero(field.node).filter(|zero| zero.is_object() || !(field.omit_empty || field.omit_zero)),
        };
        let mut schema = self.place(field.node, default);
        if said.list_type()
            && let Form::List(list) = &node.form
        {
            let (kind, keys) = match &list.listing {
                Listing::Atomic => ("atomic", None),
                Listing::Set => ("set", None),
                Listing::Map(keys) => ("map", Some(keys)),
            };
            if let Some(keys) = keys {
                schema["x-kubernetes-list-map-keys"] = keys.iter().map(|key| Value::from(&**key)).collect();
            }
            schema["x-kubernetes-list-type"] = kind.into();
        } else if said.list_type() {
            // To Kubernetes, bytes are a list.
            schema["x-kubernetes-list-type"] = "atomic".into();
        }
        if said.map_type()
            && let Form::Object(object) = &node.form
        {
            schema["x-kubernetes-map-type"] = if object.atomic { "atomic" } else { "granular" }.into();
        }
        if let Some(key) = &field.strategy().merge_key {
            schema["x-kubernetes-patch-merge-key"] = Value::from(&**key);
        }
        let strategy = field.strategy();
        let words = [("merge", strategy.merge), ("retainKeys", strategy.retain_keys), ("replace", strategy.replace)];
        let words: Vec<&str> = words.into_iter().filter(|(_, is)| *is).map(|(word, _)| word).collect();
        if !words.is_empty() {
            schema["x-kubernetes-patch-strategy"] = words.join(",").into();
        }
        let mut text = self.field_text(definition, &field.name);
        let mut values = self.published.values(field.node).peekable();
        if values.peek().is_some() {
            let list: String = values.map(|value| format!("\n - `\"{value}\"`")).collect();
            let before = text.map(|text| text + "\n\n").unwrap_or_default();
            text = Some(format!("{before}Possible enum values:{list}"));
        }
        describe(&mut schema, text);
        sorted(schema)
    }

    pub(super) fn field_text(&self, definition: &str, field: &str) -> Option<String> {
        self.texts.of_field(definition, field).or_else(|| match field {
            "object" if definition == WATCH_EVENT => {
                Some("The object after the change, or before it was deleted; of an error, a Status.".to_owned())
            }
            _ if !definition.ends_with("List") => None,
            "items" => Some("The objects of the list.".to_owned()),
            "metadata" => self.texts.of_field("io.k8s.apimachinery.pkg.apis.meta.v1.Status", "metadata"),
            _ => self.texts.of_field(SAMPLE, field),
        })
    }

    /// Returns the common description of kind, apiVersion or metadata.
    pub(super) fn common_text(&self, field: &str) -> Option<String> {
        self.texts.of_field(SAMPLE, field)
    }

    /// Returns the schema of a type in a field, with the default of the field.
    fn place(&self, id: NodeId, default: Option<Value>) -> Value {
        let node = self.node(id);
        let mut schema = match self.definition_of(id) {
            Some(name) if default.is_none() => json!({"$ref": format!("{PLACE}{name}")}),
            Some(name) => json!({"allOf": [{"$ref": format!("{PLACE}{name}")}]}),
            None => match &node.form {
                Form::Scalar(scalar) => self.scalar(id, *scalar),
                Form::List(list) => {
                    json!({"type": "array", "items": self.place(list.item, self.zero(list.item))})
                }
                Form::Object(Object { rest: Some(rest), .. }) => {
                    json!({"type": "object", "additionalProperties": self.place(*rest, self.zero(*rest))})
                }
                Form::Object(_) | Form::Raw => json!({"type": "object"}),
                Form::Any { .. } | Form::Either(_) => json!({}),
            },
        };
        if let Some(default) = default {
            schema["default"] = default;
        }
        schema
    }

    fn scalar(&self, id: NodeId, scalar: Scalar) -> Value {
        match scalar {
            Scalar::Bool => json!({"type": "boolean"}),
            Scalar::Int32 => json!({"type": "integer", "format": "int32"}),
            Scalar::Int64 => json!({"type": "integer", "format": "int64"}),
            Scalar::Float64 | Scalar::Number => json!({"type": "number", "format": "double"}),
            Scalar::Bytes => json!({"type": "string", "format": "byte"}),
            _ => {
                let values: Vec<&str> = self.published.values(id).collect();
                match values.is_empty() {
                    true => json!({"type": "string"}),
                    false => json!({"type": "string", "enum": values}),
                }
            }
        }
    }

    /// Returns the name of the definition of a type, if it has one.
    fn definition_of(&self, id: NodeId) -> Option<&'static str> {
        let own = self.published.name(id);
        if !own.is_empty() {
            return Some(own);
        }
        let name = &*self.node(id).name;
        LEAVES.iter().find(|(leaf, _)| *leaf == name).map(|(_, definition)| *definition)
    }

    /// Returns the default of a type in a required field.
    fn zero(&self, id: NodeId) -> Option<Value> {
        match &self.node(id).form {
            Form::Object(object) if object.rest.is_none() => Some(json!({})),
            Form::Scalar(Scalar::String) => Some(json!("")),
            Form::Scalar(Scalar::Bool) => Some(json!(false)),
            Form::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Float64) => Some(json!(0)),
            _ => None,
        }
    }
}

/// Adds a description. A bare reference cannot have other keys, so it becomes the only element of `allOf`.
pub(super) fn describe(schema: &mut Value, text: Option<String>) {
    if let Some(map) = schema.as_object_mut()
        && map.contains_key("$ref")
        && (text.is_some() || map.len() > 1)
        && let Some(reference) = map.shift_remove("$ref")
    {
        map.insert("allOf".to_owned(), json!([{"$ref": reference}]));
    }
    if let Some(text) = text {
        schema["description"] = text.into();
    }
}

/// Sorts the keys of an object.
fn sorted(mut schema: Value) -> Value {
    if let Some(map) = schema.as_object_mut() {
        map.sort_keys();
    }
    schema
}

/// `k8s-openapi` has one type for all lists.
fn list_text(name: &str) -> Option<String> {
    let list = name.rsplit('.').next()?;
    let of = list.strip_suffix("List").filter(|of| !of.is_empty())?;
    Some(format!("{list} is a list of {of} objects."))
}
