//! Checks that a schema accepts its own defaults.

use machinery::field_error::{FieldError, Path};
use machinery::json::{Value, json};

use super::Errors;
use crate::custom;
use crate::walk::Walk as _;

pub(super) fn check(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    walk(schema, path, true, None, errors);
}

/// Checks the defaults in a schema. `meta` is the schema of the object whose metadata this is part of, and the path from there.
fn walk(schema: &Value, path: &Path<'_>, root: bool, meta: Option<&Inside<'_>>, errors: &mut Errors) {
    let embedded = schema.flag("x-kubernetes-embedded-resource") == Some(true);
    let meta = meta.filter(|_| !embedded);
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        let path = path.child("default");
        match meta {
            None => custom::validate_default(schema, default, &path, errors),
            Some(inside) => {
                let object = inside.around(default.clone());
                let mut found = Errors::new();
                custom::validate_embedded(&object, &mut found);
                if found.is_empty() {
                    custom::validate_default(schema, default, &path, errors);
                } else {
                    let why = machinery::field_error::join(&found);
                    let why = format!("must result in valid metadata: {why}");
                    errors.push(FieldError::invalid(path, default, why));
                }
            }
        }
    }
    let items = schema.at("items");
    if items.is_object() {
        let inside = meta.map(|meta| Inside { parent: Some(meta), step: Step::Item });
        walk(items, &path.child("items"), false, inside.as_ref(), errors);
    }
    let list = path.child("properties");
    for (name, property) in schema.at("properties").as_object().into_iter().flatten() {
        let begins = (root || embedded) && matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
        let inside = match meta {
            Some(meta) => Some(Inside { parent: Some(meta), step: Step::Field(name) }),
            None => begins.then_some(Inside { parent: None, step: Step::Field(name) }),
        };
        walk(property, &list.key(name), false, inside.as_ref(), errors);
    }
}

/// A position within the metadata of an object.
struct Inside<'a> {
    parent: Option<&'a Inside<'a>>,
    step: Step<'a>,
}

enum Step<'a> {
    Field(&'a str),
    Item,
}

impl Inside<'_> {
    /// Returns an object that has only a value at this position.
    fn around(&self, value: Value) -> Value {
        let value = match self.step {
            Step::Item => json!([value]),
            Step::Field(name) => [(name, value)].into_iter().collect(),
        };
        match self.parent {
            Some(parent) => parent.around(value),
            None => {
                let mut object = value;
                for (name, text) in [("apiVersion", "validation/v1"), ("kind", "Validation")] {
                    if object.get(name).is_none() {
                        object[name] = text.into();
                    }
                }
                object
            }
        }
    }
}
