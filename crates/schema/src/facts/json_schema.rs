//! The part of a JSON schema that type checks of expressions depend on, built from a type.

use machinery::json::{Map, Value, json};

use super::shape::{Form, NodeId, Object, Scalar, Shapes, Type};

/// Levels below this are left out.
const DEPTH_MAX: usize = 64;

/// Returns the schema of a type. Types that contain themselves are objects without fields there, as in the reference.
#[must_use]
pub fn of_type(ty: &Type) -> Value {
    Builder { shapes: ty.shapes(), open: Vec::new() }.schema(ty.root())
}

struct Builder<'a> {
    shapes: &'a Shapes,
    /// The types that are being built, from the outermost.
    open: Vec<NodeId>,
}

impl Builder<'_> {
    fn schema(&mut self, id: NodeId) -> Value {
        match &self.shapes.node(id).form {
            Form::Scalar(scalar) => self::scalar(*scalar),
            Form::List(list) => json!({"type": "array", "items": self.below(list.item)}),
            Form::Object(_) if self.open.contains(&id) || self.open.len() > DEPTH_MAX => json!({"type": "object"}),
            Form::Object(object) => {
                self.open.push(id);
                let schema = self.object(object);
                self.open.pop();
                schema
            }
            Form::Raw => json!({"type": "object"}),
            // Any value, or one of several types: expressions cannot use it.
            Form::Any { .. } | Form::Either(_) => json!({}),
        }
    }

    fn below(&mut self, id: NodeId) -> Value {
        self.schema(id)
    }

    fn object(&mut self, object: &Object) -> Value {
        let mut schema = Map::new();
        schema.insert("type", "object".into());
        let mut properties = Map::with_capacity(object.fields.len());
        for field in &object.fields {
            properties.insert(&*field.name, self.below(field.node));
        }
        if !properties.is_empty() {
            schema.insert("properties", properties.into());
        } else if let Some(rest) = object.rest {
            schema.insert("additionalProperties", self.below(rest));
        }
        schema.into()
    }
}

fn scalar(scalar: Scalar) -> Value {
    match scalar {
        Scalar::String | Scalar::Duration => json!({"type": "string"}),
        Scalar::Bool => json!({"type": "boolean"}),
        Scalar::Int32 | Scalar::Int64 => json!({"type": "integer"}),
        Scalar::Float64 | Scalar::Number => json!({"type": "number"}),
        Scalar::Bytes => json!({"type": "string", "format": "byte"}),
        Scalar::Time | Scalar::MicroTime => json!({"type": "string", "format": "date-time"}),
        Scalar::IntOrString => json!({"x-kubernetes-int-or-string": true}),
        // A string or a number, which the reference does not declare either.
        Scalar::Quantity | Scalar::Untyped => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use machinery::GroupVersionKind;

    use super::*;
    use crate::facts::Types;

    #[test]
    fn types_have_the_schemas_that_expressions_are_checked_with() {
        let of = |group: &str, version: &str, kind: &str| {
            of_type(&Types::get().kind(&GroupVersionKind::new(group, version, kind)).unwrap())
        };
        let deployment = of("apps", "v1", "Deployment");
        let properties = &deployment["properties"];
        assert_eq!(properties["metadata"]["properties"]["labels"]["additionalProperties"]["type"], "string");
        assert_eq!(properties["metadata"]["properties"]["creationTimestamp"]["format"], "date-time");
        let spec = &properties["spec"]["properties"];
        assert_eq!(spec["replicas"]["type"], "integer");
        let container = &spec["template"]["properties"]["spec"]["properties"]["containers"]["items"]["properties"];
        assert_eq!(container["image"]["type"], "string");
        assert_eq!(container["resources"]["properties"]["limits"]["additionalProperties"], json!({}));
        let definition = of("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        assert_eq!(definition["type"], "object", "a type that contains itself ends");
        assert_eq!(of("", "v1", "Secret")["properties"]["data"]["additionalProperties"]["format"], "byte");
    }
}
