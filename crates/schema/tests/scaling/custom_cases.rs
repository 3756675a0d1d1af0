//! Steps for definitions and custom objects: defaults, rules, errors, versions, documents, tables.

use std::hint::black_box;

use machinery::Revision;
use machinery::json::{Value, json};

use super::{Case, Step, case, custom, definition_text, join, properties};

pub(crate) const CASES: &[Case] = &[
    case("custom object: errors below a long key", |n| {
        custom(
            r#"{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"array","items":{"type":"string"}}}}}"#,
            format!(r#""m":{{"{}":[{}]}}"#, "k".repeat(4 * n), join(n, |i| i)),
        )
    }),
    case("custom object: duplicates below a long key", |n| {
        custom(
            r#"{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"integer"}}}}}"#,
            format!(r#""m":{{"{}":[{}]}}"#, "k".repeat(4 * n), join(n, |i| i / 2)),
        )
    }),
    case("custom object: unknown fields below a long key", |n| {
        custom(
            r#"{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"object"}}}}"#,
            format!(r#""m":{{"{}":{{{}}}}}"#, "k".repeat(4 * n), join(n, |i| format!(r#""f{i}":1"#))),
        )
    }),
    case("custom object: few of many properties in each item", |n| {
        let of = properties(n, |_| r#""type":"integer""#.to_owned());
        custom(
            &format!(r#"{{"type":"object","properties":{{"l":{{"type":"array","items":{of}}}}}}}"#),
            format!(r#""l":[{}]"#, join(n, |i| format!(r#"{{"k{i}":1}}"#))),
        )
    }),
    case("custom object: required fields that items lack", |n| {
        let words = join(n, |i| format!(r#""a{i}""#));
        custom(
            &format!(
                r#"{{"type":"object","properties":{{"l":{{"type":"array","items":{{"type":"object","required":[{words}]}}}}}}}}"#
            ),
            format!(r#""l":[{}]"#, join(n, |_| "{}")),
        )
    }),
    case("custom object: defaults of items", |n| {
        custom(
            r#"{"type":"object","properties":{"l":{"type":"array","items":{"type":"object","properties":{"a":{"type":"string","default":"x"},"b":{"type":"integer"}}}}}}"#,
            format!(r#""l":[{}]"#, join(n, |i| format!(r#"{{"b":{i}}}"#))),
        )
    }),
    case("custom object: a rule that fails for each item", |n| {
        custom(
            r#"{"type":"object","properties":{"l":{"type":"array","maxItems":100000,"items":{"type":"integer","x-kubernetes-validations":[{"rule":"self < 0"}]}}}}"#,
            format!(r#""l":[{}]"#, join(n, |i| i)),
        )
    }),
    case("custom object: a rule that fails below a long key", |n| {
        custom(
            r#"{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"array","maxItems":100000,"items":{"type":"integer","x-kubernetes-validations":[{"rule":"self < 0"}]}}}}}"#,
            format!(r#""m":{{"{}":[{}]}}"#, "k".repeat(4 * n), join(n, |i| i)),
        )
    }),
    case("custom object: rules of a list with keys", |n| {
        custom(
            r#"{"type":"object","properties":{"l":{"type":"array","maxItems":100000,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["n"],"items":{"type":"object","properties":{"n":{"type":"string","maxLength":20},"v":{"type":"integer"}},"x-kubernetes-validations":[{"rule":"self.v >= oldSelf.v"},{"rule":"self.v < 0"}]}}}}"#,
            format!(r#""l":[{}]"#, join(n, |i| format!(r#"{{"n":"a{i}","v":{i}}}"#))),
        )
    }),
    case("custom object: a rule over a whole list", |n| {
        custom(
            r#"{"type":"object","properties":{"l":{"type":"array","maxItems":100000,"items":{"type":"string","maxLength":20},"x-kubernetes-validations":[{"rule":"self.all(x, x.startsWith('a'))"},{"rule":"self.map(x, x + 'b').exists(x, x == 'none') || self.size() > 0"}]}}}"#,
            format!(r#""l":[{}]"#, join(n, |i| format!(r#""a{i}""#))),
        )
    }),
    case("definition of many versions that are all used", |n| {
        let text = bytes::Bytes::from(definition_text(r#"{"type":"object"}"#, n / 2));
        Box::new(move || {
            let installed = installed(&text);
            black_box(schema::kinds::builtin().with_all(installed.kinds.iter().cloned()));
            for kind in &installed.kinds {
                let Some(definition) = &kind.definition else { continue };
                black_box((definition.version(), definition.open_api_schema()));
            }
        })
    }),
    case("definition that is written again", |n| {
        let text = bytes::Bytes::from(definition_text(r#"{"type":"object"}"#, n / 2));
        let before = installed(&text);
        Box::new(move || drop(black_box(schema::custom::installed::install(&text, Revision(2), Some(&before)))))
    }),
    case("document of a definition of many properties", |n| {
        let schema = properties(n, |_| r#""type":"string","description":"a property""#.to_owned());
        documents(&definition_text(&schema, 1))
    }),
    case("table of many custom objects", |n| {
        let text = bytes::Bytes::from(definition_text(r#"{"type":"object"}"#, 1));
        let kind = installed(&text).kinds.first().cloned().unwrap_or_else(|| panic!("no kind"));
        let object =
            |i: usize| json!({"metadata": {"name": format!("a{i}"), "creationTimestamp": "2024-01-01T00:00:00Z"}});
        let objects: Vec<Value> = (0..n).map(object).collect();
        Box::new(move || objects.iter().for_each(|object| drop(black_box(schema::columns::row(&kind, object, 0)))))
    }),
    case("JSON: indented", |n| {
        let value: Value = (0..n).map(|i| json!({"name": format!("a{i}"), "list": [i]})).collect();
        Box::new(move || drop(black_box(serde_json::to_vec_pretty(&value))))
    }),
];

fn installed(text: &bytes::Bytes) -> schema::custom::installed::Installed {
    schema::custom::installed::install(text, Revision(1), None).unwrap_or_else(|error| panic!("{error}"))
}

/// Both documents of the group that a definition adds.
fn documents(definition: &str) -> Step {
    let installed = installed(&bytes::Bytes::from(definition.to_owned()));
    let kind = installed.kinds.first().cloned().unwrap_or_else(|| panic!("no kind"));
    let kinds = schema::kinds::Kinds::default().with_shared(kind);
    Box::new(move || {
        let source = schema::openapi::Source { kinds: &kinds, version: "v1" };
        black_box(source.v3("apis/example.com/v1", schema::openapi::Encoding::Json));
        black_box(source.hash_v2());
    })
}
