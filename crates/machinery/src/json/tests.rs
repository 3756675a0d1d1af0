//! Of values, and that what is shared is not changed.

use super::*;

#[test]
fn a_copy_is_not_changed_with_its_original() {
    let mut value = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"list": [1, 2]}});
    let copy = value.clone();
    value["metadata"]["labels"]["a"] = "c".into();
    value["spec"]["list"].as_array_mut().unwrap().push(3.into());
    assert_eq!(copy, json!({"metadata": {"labels": {"a": "b"}}, "spec": {"list": [1, 2]}}));
    assert_eq!(value, json!({"metadata": {"labels": {"a": "c"}}, "spec": {"list": [1, 2, 3]}}));
}

#[test]
fn untouched_parts_stay_the_same_memory() {
    let before = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"list": [1, 2]}});
    let mut after = before.clone();
    after["metadata"]["labels"]["a"] = "c".into();
    let same = |name: &str| before[name].as_object().unwrap().is_same(after[name].as_object().unwrap());
    assert!(same("spec"));
    assert!(!same("metadata"));
}

#[test]
fn members_keep_their_order_and_are_found_among_many() {
    let mut map = Map::new();
    for number in 0..100_usize {
        assert!(map.insert(format!("n{number}"), number.into()).is_none());
        assert_eq!(map.get(&format!("n{number}")).unwrap(), &number);
    }
    assert_eq!(map.insert("n7", 700.into()), Some(7.into()));
    assert_eq!(map.shift_remove("n3"), Some(3.into()));
    assert_eq!(map.get("n3"), None);
    assert_eq!(map["n4"], 4);
    assert_eq!(map["n99"], 99);
    map.shift_insert(0, "n50", "first".into());
    assert_eq!(map.keys().next().unwrap(), "n50");
    assert_eq!(map.len(), 99);
    map.sort_keys();
    assert_eq!(map.keys().take(3).collect::<Vec<_>>(), ["n0", "n1", "n10"]);
    assert_eq!(map["n98"], 98);
    map.retain(|name, _| name.len() == 2);
    assert_eq!(map.len(), 9);
}

#[test]
fn hundreds_of_thousands_of_members_are_read_in_passing() {
    // Comparing each with each would take minutes.
    let text: String = (0..300_000).map(|number| format!("\"k{number}\":0,")).collect();
    let value = from_str(&format!("{{{text}\"k7\":1}}")).unwrap();
    assert_eq!(value["k7"], 1);
    assert_eq!(value.as_object().unwrap().len(), 300_000);
}

#[test]
fn equality_does_not_ask_for_the_order_but_identity_does() {
    let (a, b) = (json!({"a": 1, "b": [{}, null]}), json!({"b": [{}, null], "a": 1}));
    assert_eq!(a, b);
    assert!(!a.is_identical(&b) && a.is_identical(&a.clone()));
    assert_ne!(json!({"a": 1}), json!({"a": 1, "b": null}));
    assert_ne!(json!({"a": 1, "b": 1}), json!({"a": 1, "c": 1}));
}

#[test]
fn text_reads_back_as_written() {
    let text =
        r#"{"a":[1,-2,1.5,true,null,"x\"\\\n\u0001é😀"],"long":"abcdefghijklmnopqrstuvwxyz0123456789","o":{},"l":[]}"#;
    let value = from_str(text).unwrap();
    assert_eq!(value.to_string(), text);
    assert_eq!(serde_json::to_string(&value).unwrap(), text);
    assert_eq!(serde_json::Value::from(value.clone()).to_string(), text);
    assert_eq!(Value::from(serde_json::from_str::<serde_json::Value>(text).unwrap()), value);
    assert_eq!(format!("{:#}", json!({"a": 1})), "{\n  \"a\": 1\n}");
}

#[test]
fn names_that_stand_twice_are_noticed() {
    assert_eq!(from_slice_noting(br#"{"a":{"b":1,"b":2}}"#).unwrap(), (json!({"a": {"b": 2}}), true));
    assert!(!from_slice_noting(br#"{"a":{"a":1}}"#).unwrap().1);
    assert!(from_slice_noting(b"{} x").is_err());
}

#[test]
fn pointers_lead_to_members_and_items() {
    let mut value = json!({"a/b": [{"~": 1}], "": 2});
    assert_eq!(value.pointer("/a~1b/0/~0").unwrap(), &1);
    assert_eq!(value.pointer("/").unwrap(), &2);
    assert_eq!(value.pointer("/a~1b/00"), None);
    assert_eq!(value.pointer("a"), None);
    *value.pointer_mut("/a~1b/0").unwrap() = Value::Null;
    assert_eq!(value, json!({"a/b": [null], "": 2}));
    assert!(value.pointer("").unwrap().is_object());
}

#[test]
fn what_is_not_there_is_null_and_can_be_made() {
    let mut value = Value::Null;
    assert!(value["a"]["b"][3].is_null());
    value["a"]["b"] = json!([1]);
    assert_eq!(value, json!({"a": {"b": [1]}}));
    assert_eq!(value["a"]["b"].take(), json!([1]));
    assert!(value["a"]["b"].is_null());
}

#[test]
fn a_value_is_three_words() {
    assert_eq!(size_of::<Value>(), 24);
}

#[test]
fn fields_of_managers_stay_text() {
    let text = r#"{"metadata":{"name":"a","managedFields":[{"manager":"m","fieldsV1":{"f:spec":{}}}]},"spec":{"fieldsV1":{}}}"#;
    let (raw, mut told) = (from_stored(text.as_bytes()).unwrap(), from_str(text).unwrap());
    let fields = |value: &Value| value["metadata"]["managedFields"][0]["fieldsV1"].clone();
    assert!(matches!(fields(&raw), Value::Raw(_)));
    assert!(raw["spec"]["fieldsV1"].is_object());
    assert_eq!(raw, told);
    assert!(raw.is_identical(&told) && told.is_identical(&raw));
    assert_eq!(raw.to_string(), text);
    assert_eq!(serde_json::to_string(&raw).unwrap(), text);
    assert_eq!(serde_json::Value::from(raw.clone()).to_string(), text);
    told["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:x"] = json!({});
    assert_ne!(raw, told);
    let mut raw = raw;
    raw.tell();
    assert!(fields(&raw).is_object());
}

#[test]
fn identical_members_become_the_same_memory() {
    let known = json!({"metadata": {"name": "a"}, "spec": {"a": [1]}});
    let mut other = json!({"metadata": {"name": "b"}, "spec": {"a": [1]}});
    other.share_members(&known);
    assert!(other["spec"].is_same(&known["spec"]) && !other["metadata"].is_same(&known["metadata"]));
    assert_eq!(other, json!({"metadata": {"name": "b"}, "spec": {"a": [1]}}));
}

#[test]
fn every_byte_that_needs_it_is_escaped_wherever_it_stands() {
    for byte in 0..=127_u8 {
        for length in [1, 7, 8, 9, 17] {
            for at in 0..length {
                let mut text = vec![b'x'; length];
                text[at] = byte;
                let text = String::from_utf8(text).unwrap();
                let mut out = Vec::new();
                write_text(&text, &mut out);
                assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&text).unwrap());
            }
        }
    }
}
