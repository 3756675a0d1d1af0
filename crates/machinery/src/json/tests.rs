//! Tests of values: shared parts are not changed, unread parts equal parsed ones.

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
fn every_way_to_change_a_map_keeps_its_names_findable() {
    let names =
        ["", ".", "a", "a.", "a.b", "ab.c/d", "abc", "name", "namespace", "na", "ünicode", "x", "é", "metadata"];
    let mut map = Map::new();
    for (at, name) in names.into_iter().enumerate() {
        match at % 4 {
            0 => drop(map.insert(name, at.into())),
            1 => drop(map.shift_insert(0, name, at.into())),
            2 => *map.entry(name).or_insert(Value::Null) = at.into(),
            _ => map.rework(|members| members.push((name.into(), at.into()))),
        }
    }
    let copies = [map.clone(), map.iter().map(|(name, value)| (name.clone(), value.clone())).collect()];
    let mut fewer = map.clone();
    fewer.retain(|_, value| value.as_u64().is_some_and(|at| at.is_multiple_of(2)));
    for (at, name) in names.into_iter().enumerate() {
        assert!(copies.iter().all(|map| map.get(name) == Some(&at.into())), "{name}");
        assert_eq!(fewer.get(name).is_some(), at % 2 == 0, "{name}");
        if !name.contains('.') {
            assert!(map.may_hold(name) && map.may_hold(&format!("{name}.below")), "{name}");
        }
    }
    assert!(!Map::new().may_hold("a") && map.get("names").is_none());
}

#[test]
fn hundreds_of_thousands_of_members_are_read_quickly() {
    // Comparing each with each would take minutes.
    let text: String = (0..300_000).map(|number| format!("\"k{number}\":0,")).collect();
    let value = from_str(&format!("{{{text}\"k7\":1}}")).unwrap();
    assert_eq!(value["k7"], 1);
    assert_eq!(value.as_object().unwrap().len(), 300_000);
}

#[test]
fn equality_ignores_the_order_but_identity_does_not() {
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
fn duplicate_names_are_noticed() {
    assert_eq!(from_slice_noting_duplicates(br#"{"a":{"b":1,"b":2}}"#).unwrap(), (json!({"a": {"b": 2}}), true));
    assert!(!from_slice_noting_duplicates(br#"{"a":{"a":1}}"#).unwrap().1);
    assert!(from_slice_noting_duplicates(b"{} x").is_err());
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
fn an_absent_member_is_null_and_can_be_set() {
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
    let (raw, mut read) = (from_stored(&text.into()).unwrap(), from_str(text).unwrap());
    let fields = |value: &Value| value["metadata"]["managedFields"][0]["fieldsV1"].clone();
    assert!(matches!(fields(&raw), Value::Raw(_)));
    assert!(raw["spec"]["fieldsV1"].is_object());
    assert_eq!(raw, read);
    assert!(raw.is_identical(&read) && read.is_identical(&raw));
    assert_eq!(raw.to_string(), text);
    assert_eq!(serde_json::to_string(&raw).unwrap(), text);
    assert_eq!(serde_json::Value::from(raw.clone()).to_string(), text);
    read["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:x"] = json!({});
    assert_ne!(raw, read);
    let mut raw = raw;
    raw.parse_raw();
    assert!(fields(&raw).is_object());
}

/// A stored object with parts that are large enough to stay text, some inside others.
fn large() -> String {
    let word = "w".repeat(200);
    let item = format!(
        r#"{{"name":"c","a.b/c":"{word}","env":[{{"name":"x","value":"{word}\n"}},{{"value":1.5}}],"n":null}}"#
    );
    let spec = format!(
        r#"{{"containers":[{item},{item},7],"deep":{{"er":{item},"word":"{word}"}},"replicas":3,"word":"{word}"}}"#
    );
    format!(r#"{{"kind":"K","metadata":{{"name":"a","labels":{{"l":"{word}"}}}},"spec":{spec},"status":{{}}}}"#)
}

fn is_unread(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.unread_text().is_some())
}

#[test]
fn unused_parts_stay_text() {
    let text = large();
    let (stored, read) = (from_stored(&text.clone().into()).unwrap(), from_str(&text).unwrap());
    assert!(is_unread(&stored["spec"]) && !is_unread(&stored["metadata"]) && !is_unread(&stored["status"]));
    assert_eq!(stored.to_string(), text);
    assert_eq!(serde_json::to_string(&stored).unwrap(), text);
    assert_eq!(stored["spec"]["replicas"], 3);
    assert!(is_unread(&stored["spec"]["containers"][1]) && is_unread(&stored["spec"]["deep"]["er"]));
    assert!(stored == read && stored.is_identical(&read) && read.is_identical(&stored));
    assert_eq!(stored.to_string(), text);
}

#[test]
fn what_was_text_changes_like_anything_else() {
    let text = large();
    let changes: [fn(&mut Value); 7] = [
        |object| object["spec"]["replicas"] = json!(4),
        |object| object["spec"]["containers"][1]["env"][0]["name"] = json!("y"),
        |object| drop(object["spec"]["deep"]["er"].as_object_mut().unwrap().remove("a.b/c")),
        |object| object["spec"]["containers"][0].as_object_mut().unwrap().sort_keys(),
        |object| object["spec"].as_object_mut().unwrap().retain(|name, _| name != "word"),
        |object| object["spec"].as_object_mut().unwrap().clear(),
        |object| {
            let members = std::mem::take(object["spec"].as_object_mut().unwrap()).into_iter().rev();
            object["spec"] = Value::Object(members.collect());
        },
    ];
    for change in changes {
        let stored = from_stored(&text.clone().into()).unwrap();
        let (mut changed, mut read) = (stored.clone(), from_str(&text).unwrap());
        change(&mut changed);
        change(&mut read);
        assert!(changed.is_identical(&read), "{changed}");
        assert_eq!(changed.to_string(), read.to_string());
        assert_eq!(stored.to_string(), text, "a copy was changed with its original");
        assert!(!changed["spec"].is_same(&stored["spec"]) && !changed.is_identical(&stored));
        // A value that is not shared is changed in place.
        let mut alone = from_stored(&text.clone().into()).unwrap();
        change(&mut alone);
        assert!(alone.is_identical(&read));
    }
}

#[test]
fn a_text_and_a_reader_of_it_are_the_same() {
    let stored = from_stored(&large().into()).unwrap();
    let mut copy = stored.clone();
    assert!(copy["spec"].is_same(&stored["spec"]));
    copy["metadata"]["name"] = json!("b");
    assert!(copy["spec"].is_same(&stored["spec"]) && is_unread(&copy["spec"]));
    // A change parses the part; its other members stay the same memory.
    copy["spec"]["replicas"] = json!(3);
    assert!(!copy["spec"].is_same(&stored["spec"]) && copy["spec"] == stored["spec"]);
    assert!(copy["spec"]["deep"].is_same(&stored["spec"]["deep"]));
}

#[test]
fn stored_text_that_is_wrong_is_refused_wherever_it_is() {
    let word = "w".repeat(500);
    for part in [r#""x":tru"#, r#""x":1,"#, r#""x":"\ud800""#, r#""x""#, "\"x\":\"\u{1}\"", r#""x":"\q""#] {
        let text = format!(r#"{{"kind":"K","metadata":{{}},"spec":{{"word":"{word}",{part}}}}}"#);
        assert!(from_stored(&text.clone().into()).is_err(), "{part}");
    }
    for text in ["", "7", "[]", r#"{"kind":"K"}}"#, r#"{"kind":"K"#, r#"{"spec":{"a":[}"#] {
        assert!(from_stored(&text.to_owned().into()).is_err(), "{text}");
    }
    assert!(from_stored(&bytes::Bytes::from_static(b"{\"kind\":\"\xff\"}")).is_err());
}

#[test]
fn the_last_of_one_name_counts_in_stored_text_too() {
    let word = "w".repeat(500);
    let twice = format!(r#"{{"spec":{{"a":"{word}","a":1,"\"\\":2}},"kind":"K","kind":"L"}}"#);
    let stored = from_stored(&twice.clone().into()).unwrap();
    assert_eq!(stored, json!({"spec": {"a": 1, "\"\\": 2}, "kind": "L"}));
    assert!(stored.is_identical(&from_str(&twice).unwrap()));
}

/// Reads every part, however deep.
fn read_all(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(read_all).sum(),
        Value::Object(members) => members.values().map(read_all).sum(),
        Value::Raw(_) => read_all(&value.parsed()),
        _ => 1,
    }
}

#[test]
fn a_stored_part_that_cannot_be_read_is_an_error_wherever_it_is() {
    let word = "w".repeat(500);
    let digits = |count: usize| "9".repeat(count);
    let leaves = [
        "1e400".to_owned(),
        "-1E+400".to_owned(),
        "1.5e309".to_owned(),
        digits(309),
        digits(400),
        format!("-{}.5", digits(310)),
        format!("{}e-100", digits(500)),
        // These can be read.
        "1e308".to_owned(),
        "-1.5E-400".to_owned(),
        digits(308),
        "18446744073709551616".to_owned(),
        r#""1e400""#.to_owned(),
        r#""\"1e400\\""#.to_owned(),
        format!(r#"{{"{}":{{}}}}"#, digits(400)),
    ];
    for leaf in leaves {
        for part in [
            format!(r#""spec":{{"word":"{word}","x":{leaf}}}"#),
            format!(r#""spec":{{"x":{leaf}}}"#),
            format!(r#""spec":{{"x":{{"y":[7,[{{"z":{leaf}}},"{word}"]],"word":"{word}"}}}}"#),
            format!(r#""spec":[{{"word":"{word}","x":[{leaf}]}}]"#),
            format!(r#""spec":[{leaf},"{word}"]"#),
            format!(r#""metadata":{{"managedFields":[{{"fieldsV1":{{"f:x":{leaf},"f:{word}":{{}}}}}}]}}"#),
        ] {
            let text = format!(r#"{{"kind":"K",{part}}}"#);
            let (stored, read) = (from_stored(&text.clone().into()), from_str(&text));
            assert_eq!(stored.is_ok(), read.is_ok(), "{part}");
            if let (Ok(stored), Ok(read)) = (stored, read) {
                assert_eq!(read_all(&stored), read_all(&read), "{part}");
                assert!(stored == read, "{part}");
            }
        }
    }
    let half = r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:x":"\ud800"}}]}}"#;
    assert!(from_stored(&half.to_owned().into()).is_err());
}

#[test]
fn depth_has_an_end() {
    let deep = |levels: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    let text = |levels: usize| format!(r#"{{"spec":{},"word":"{}"}}"#, deep(levels), "w".repeat(500));
    for levels in [1, 100, 125] {
        let stored = from_stored(&text(levels).into()).unwrap();
        assert!(stored.is_identical(&from_str(&text(levels)).unwrap()));
    }
    // Far beyond what a body may hold it is an error, and not a full stack.
    for levels in [127, 150, 193, 300, 200_000] {
        assert!(from_str(&text(levels)).is_err());
        assert!(from_stored(&text(levels).into()).is_err(), "{levels}");
    }
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
fn every_byte_that_needs_it_is_escaped_at_every_position() {
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

#[test]
fn equal_values_have_equal_hashes() {
    use std::hash::BuildHasher as _;
    let seed = std::hash::RandomState::new();
    let hash = |value: &Value| seed.hash_one(value);
    let stored =
        from_stored(&bytes::Bytes::from_static(br#"{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]}}"#))
            .unwrap();
    let plain = json!({"metadata": {"managedFields": [{"fieldsV1": {"f:a": {}}}]}});
    for (a, b) in [
        (json!({"a": 1, "b": [null, "x"]}), json!({"b": [null, "x"], "a": 1})),
        (json!(1.5), json!(1.5)),
        (stored, plain),
    ] {
        assert_eq!(a, b);
        assert_eq!(hash(&a), hash(&b));
    }
    assert_ne!(hash(&json!([["a"], []])), hash(&json!([[], ["a"]])));
}
