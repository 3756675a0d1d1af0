//! Property tests: no parser of this crate panics on any input, and each parses its own output to an equal value.

use machinery::accept::{self, Endpoint};
use machinery::continue_token::ContinueToken;
use machinery::json::Value;
use machinery::options::{CreateOptions, DeleteOptions, GetOptions, ListOptions, PatchOptions};
use machinery::quantity::Quantity;
use machinery::query::Query;
use machinery::{Revision, fields, go_json, labels, media, names, object_meta, timestamp, yaml};
use proptest::prelude::*;

/// Texts over the alphabet of selectors, quantities, times and headers, to reach most branches.
fn dense() -> impl Strategy<Value = String> {
    "[-a-zA-Z0-9 ,=!<>()/.;:+*\\\\%&\"'\\[\\]{}|#\n\téß\u{0}]{0,40}"
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![dense(), any::<String>()]
}

/// Any key but the merge key of YAML, see `a_merge_key_is_written_as_the_reference_writes_it`.
fn key() -> impl Strategy<Value = String> {
    text().prop_filter("a merge key", |key| key != "<<")
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::hash_map(key(), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn label_selectors(text in text()) {
        if let Ok(selector) = labels::Selector::parse(&text) {
            prop_assert_eq!(labels::Selector::parse(&selector.to_string()), Ok(selector));
        }
    }

    #[test]
    fn field_selectors(text in text()) {
        if let Ok(selector) = fields::Selector::parse(&text) {
            prop_assert_eq!(fields::Selector::parse(&selector.to_string()), Ok(selector));
        }
    }

    #[test]
    fn options_of_every_verb(text in text(), body in any::<Vec<u8>>()) {
        for query in [text.clone(), format!("resourceVersion={text}&limit={text}&dryRun={text}&fieldManager={text}")] {
            let query = Query::parse(&query);
            if let Ok(options) = ListOptions::from_query(&query) {
                let _ = (options.list_mode(), options.watch_start(), options.page_size());
            }
            let _ = GetOptions::from_query(&query).map(|options| options.mode());
            let _ = (CreateOptions::from_query(&query), PatchOptions::from_query(&query, true));
            let _ = DeleteOptions::from_query(&query);
        }
        let _ = DeleteOptions::from_json(&body);
        let _ = DeleteOptions::from_json(text.as_bytes());
    }

    #[test]
    fn continue_tokens(text in text(), revision in 1..=i64::MAX as u64) {
        let _ = ContinueToken::decode(&text);
        let segments: Vec<&str> = text.split('/').filter(|s| !matches!(*s, "" | "." | "..")).collect();
        let token = ContinueToken::after(&format!("ns/{}", segments.join("/")), Revision(revision));
        prop_assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
    }

    #[test]
    fn headers(text in text()) {
        let endpoint = Endpoint {
            is_routed: false, is_collection: true, is_watch: false, has_protobuf: true, has_table: true,
        };
        let _ = accept::negotiate(Some(&text), &endpoint);
        let _ = accept::negotiate_discovery(Some(&text));
        let _ = accept::error_media(Some(&text));
        let _ = (media::body_type(Some(&text)), media::patch_type(Some(&text), true));
    }

    #[test]
    fn quantities(text in "[-+0-9.eEinumkKMGTP]{0,45}") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            let again: Result<Quantity, _> = quantity.to_string().parse();
            prop_assert_eq!(again.as_ref(), Ok(&quantity));
            let _ = (quantity.value(), quantity.milli_value(), quantity.plus(&quantity), quantity.is_integer());
        }
    }

    #[test]
    fn times_and_names(text in text()) {
        if let Ok(time) = timestamp::parse(&text) {
            let _ = (timestamp::seconds(time), timestamp::micros(time));
        }
        let _ = (names::qualified_name(&text), names::dns1123_label(&text), names::label_value(&text));
        let _ = (names::NameRule::DnsSubdomain.check_prefix(&text), names::config_map_key(&text));
    }

    #[test]
    fn metadata(value in json()) {
        let rules = object_meta::MetaRules {
            name: names::NameRule::DnsSubdomain, namespaced: true, known_finalizers_only: true,
        };
        let _ = object_meta::validate_object_meta(&value, &rules);
        let _ = object_meta::validate_object_meta_update(&value, &value, &rules);
    }

    #[test]
    fn what_the_json_parser_refuses_is_a_syntax_error(bytes in any::<Vec<u8>>(), text in dense()) {
        let _ = go_json::syntax_error(&bytes);
        // The parser is stricter for numbers out of range only. None of these texts has one.
        let refused = serde_json::from_str::<Value>(&text).is_err();
        prop_assert_eq!(go_json::syntax_error(text.as_bytes()).is_some(), refused, "{}", text);
    }

    #[test]
    fn yaml_text(bytes in any::<Vec<u8>>(), text in text()) {
        let _ = yaml::read(&bytes);
        let _ = yaml::read(text.as_bytes());
    }

    #[test]
    fn yaml_of_json_is_that_json(value in json()) {
        let written = yaml::to_yaml(&value);
        let read = yaml::read(written.as_bytes()).map(|document| document.value);
        prop_assert_eq!(read.as_ref(), Ok(&value), "{}", written);
    }
}

/// The reference writes this key without quotes, and then parses it as a merge: it cannot parse its own output, or parses
/// another value. With quotes it is a key like any other.
#[test]
fn a_merge_key_is_written_as_the_reference_writes_it() {
    let object = |value: Value| Value::Object([("<<".to_owned(), value)].into_iter().collect());
    let read =
        |text: &str| yaml::read(text.as_bytes()).map(|document| document.value).map_err(|error| error.to_string());
    let inner = Value::Object([("x".to_owned(), Value::from(1))].into_iter().collect());
    assert_eq!(yaml::to_yaml(&object(Value::Null)), "<<: null\n");
    assert_eq!(read("<<: null\n"), Err("yaml: map merge requires map or sequence of maps as the value".to_owned()));
    assert_eq!(yaml::to_yaml(&object(inner.clone())), "<<:\n  x: 1\n");
    assert_eq!(read("<<:\n  x: 1\n"), Ok(inner));
    assert_eq!(read("\"<<\": null\n"), Ok(object(Value::Null)));
}
