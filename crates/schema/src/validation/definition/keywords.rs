//! The rare keywords of a schema. A definition has hundreds of schemas, each is checked for dozens of keywords, and most have
//! three: so rare ones are searched for once.

use machinery::json::Value;

/// Groups of rare keywords that a schema may have: if one is not set, none of its keywords is present.
#[derive(Clone, Copy, Default)]
pub(super) struct Rare {
    /// `x-kubernetes-*`
    pub(super) extensions: bool,
    /// `allOf`, `anyOf`, `oneOf`, `not`
    pub(super) alternatives: bool,
    /// Keywords that a structural schema cannot have, except for `items`.
    pub(super) unsupported: bool,
}

impl Rare {
    pub(super) fn new(schema: &Value) -> Rare {
        let mut rare = Rare::default();
        for (keyword, _) in schema.as_object().into_iter().flatten() {
            match keyword.as_str() {
                "allOf" | "anyOf" | "oneOf" | "not" => rare.alternatives = true,
                "id" | "$ref" | "$schema" | "patternProperties" | "dependencies" | "additionalItems"
                | "definitions" => rare.unsupported = true,
                other => rare.extensions |= other.starts_with("x-kubernetes-"),
            }
        }
        rare
    }
}

/// Iterates over the direct children of a schema.
pub(super) fn children(schema: &Value) -> impl Iterator<Item = &Value> {
    let (mut lists, mut maps, mut single) = ([None; 3], [None; 3], [None; 3]);
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        match keyword.as_str() {
            "allOf" => lists[0] = value.as_array(),
            "anyOf" => lists[1] = value.as_array(),
            "oneOf" => lists[2] = value.as_array(),
            "properties" => maps[0] = value.as_object(),
            "definitions" => maps[1] = value.as_object(),
            "patternProperties" => maps[2] = value.as_object(),
            "not" => single[0] = Some(value),
            "items" => single[1] = Some(value),
            "additionalProperties" => single[2] = Some(value),
            _ => {}
        }
    }
    let lists = lists.into_iter().flatten().flatten();
    let maps = maps.into_iter().flatten().flat_map(|map| map.values());
    lists.chain(maps).chain(single.into_iter().flatten().filter(|child| child.is_object()))
}
