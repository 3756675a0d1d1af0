//! Which keywords a schema has. A definition has hundreds of schemas, each is asked for dozens of keywords, and most have
//! three: so what is rare is looked for once.

use machinery::json::Value;

/// Which rare keywords a schema may have: where one of these is not set, none of its keywords is there.
#[derive(Clone, Copy, Default)]
pub(super) struct Rare {
    /// `x-kubernetes-*`
    pub(super) extensions: bool,
    /// `allOf`, `anyOf`, `oneOf`, `not`
    pub(super) alternatives: bool,
    /// What no structure can be read from, but for `items`.
    pub(super) unsupported: bool,
}

impl Rare {
    pub(super) fn of(schema: &Value) -> Rare {
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

/// Every schema right below a schema.
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
