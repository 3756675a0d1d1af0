//! Properties of all objects and patches, checked on random objects of the built-in types.

use machinery::GroupVersionKind;
use machinery::json::{Map, Value, json};
use proptest::prelude::*;
use schema::decode::{self, FieldValidation, MediaType};
use schema::facts::{Form, Listing, Scalar, Type, Types};
use schema::managed::{self, ApplyError, Subject, Writer};
use schema::patch::{self, Target};

/// A small random generator: one seed gives one object.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn word(&mut self) -> String {
        ["a", "b", "c", "d"][self.roll(4) as usize].to_owned()
    }
}

/// Returns a value of a type with a few fields set.
fn draw(ty: &Type, dice: &mut Dice, depth: u32) -> Value {
    match &ty.node().form {
        Form::Scalar(scalar) => match scalar {
            Scalar::Bool => json!(dice.roll(2) == 0),
            Scalar::Int32 | Scalar::Int64 | Scalar::Float64 | Scalar::Number => json!(dice.roll(3)),
            Scalar::Bytes => json!("YQ=="),
            Scalar::Time => json!("2024-01-01T00:00:00Z"),
            Scalar::MicroTime => json!("2024-01-01T00:00:00.000000Z"),
            Scalar::Duration => json!("1s"),
            Scalar::Quantity => json!(["1", "500m", "1Gi"][dice.roll(3) as usize]),
            Scalar::IntOrString if dice.roll(2) == 0 => json!(dice.roll(3)),
            _ => json!(dice.word()),
        },
        Form::List(list) => {
            let item = ty.item().expect("a list has items");
            let mut items: Vec<Value> = Vec::new();
            for _ in 0..dice.roll(3) {
                let mut drawn = draw(&item, dice, depth + 1);
                if let (Listing::Map(keys), Value::Object(map)) = (&list.listing, &mut drawn) {
                    for key in keys {
                        let value = item.field(key).map_or(Value::Null, |ty| draw(&ty, dice, depth + 1));
                        map.insert(key.clone().into_owned(), value);
                    }
                }
                let is_same = |other: &Value| match &list.listing {
                    Listing::Map(keys) => keys.iter().all(|key| other.get(&**key) == drawn.get(&**key)),
                    _ => *other == drawn,
                };
                if !items.iter().any(is_same) {
                    items.push(drawn);
                }
            }
            Value::Array(items.into())
        }
        Form::Object(object) => {
            let mut map = Map::new();
            if object.rest.is_some() {
                for _ in 0..dice.roll(3) {
                    let key = dice.word();
                    let value = ty.field(&key).map_or(Value::Null, |ty| draw(&ty, dice, depth + 1));
                    map.insert(key, value);
                }
            }
            let sparse = 2 + u64::from(depth) * 2;
            for field in &object.fields {
                if depth < 8 && dice.roll(sparse) == 0 && field.name != "managedFields" {
                    let value = ty.field(&field.name).map_or(Value::Null, |ty| draw(&ty, dice, depth + 1));
                    map.insert(field.name.clone().into_owned(), value);
                }
            }
            Value::Object(map)
        }
        Form::Raw => json!({"free": dice.word()}),
        Form::Any { .. } => json!(dice.word()),
        Form::Either(_) => json!({}),
    }
}

const KINDS: [(&str, &str, &str); 6] = [
    ("", "v1", "Pod"),
    ("", "v1", "ConfigMap"),
    ("", "v1", "Service"),
    ("apps", "v1", "Deployment"),
    ("rbac.authorization.k8s.io", "v1", "Role"),
    ("networking.k8s.io", "v1", "NetworkPolicy"),
];

fn kind(at: usize) -> (GroupVersionKind, Type) {
    let (group, version, kind) = KINDS[at % KINDS.len()];
    let gvk = GroupVersionKind::new(group, version, kind);
    let ty = Types::get().kind(&gvk).expect("a built-in kind");
    (gvk, ty)
}

/// Returns a configuration that a client could apply.
fn configuration(gvk: &GroupVersionKind, ty: &Type, seed: u64) -> Value {
    let mut config = draw(ty, &mut Dice(seed | 1), 0);
    config["apiVersion"] = json!(gvk.group_version().to_string());
    config["kind"] = json!(gvk.kind);
    let labels = config.pointer("/metadata/labels").cloned().unwrap_or(json!({}));
    let finalizers = config.pointer("/metadata/finalizers").cloned().unwrap_or(json!([]));
    config["metadata"] = json!({"name": "x", "labels": labels, "finalizers": finalizers});
    config.as_object_mut().expect("an object").shift_remove("status");
    config
}

fn object(gvk: &GroupVersionKind, ty: &Type, seed: u64) -> Value {
    let mut object = configuration(gvk, ty, seed);
    decode::normalise(ty, &mut object, None).expect("drawn from the type");
    object
}

fn writer(manager: &str) -> Writer<'_> {
    Writer { manager, subresource: "", time: "2024-01-01T00:00:00Z" }
}

fn apply(
    gvk: &GroupVersionKind,
    ty: &Type,
    live: Option<&Value>,
    config: &Value,
    manager: &str,
    force: bool,
) -> Result<Value, ApplyError> {
    let subject = Subject { gvk, ty, custom: false, has_status: false, convert: None };
    let mut applied = managed::apply(&subject, live, config, &writer(manager), force)?;
    if let Some(live) = live {
        managed::keep_times_if_unchanged(live, &mut applied);
    }
    applied["metadata"]["uid"] = json!("u");
    Ok(applied)
}

fn fields_of(object: &Value, manager: &str) -> Value {
    let list = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let entry = list.into_iter().flatten().find(|entry| entry["manager"] == manager);
    entry.map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

/// Returns the object without managed fields.
fn content(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.shift_remove("managedFields");
    }
    object
}

/// Returns a merge patch that turns one object into another.
fn merge_diff(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let mut patch = Map::new();
    for key in from.keys().filter(|key| !to.contains_key(key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in to {
        match from.get(key) {
            Some(old) if old == value => {}
            Some(old) => {
                patch.insert(key.clone(), merge_diff(old, value));
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn normal_form_is_reached_at_once(at in 0usize..6, seed: u64) {
        let (gvk, ty) = kind(at);
        let once = object(&gvk, &ty, seed);
        let mut twice = once.clone();
        decode::normalise(&ty, &mut twice, None).unwrap();
        prop_assert_eq!(once.to_string(), twice.to_string());
        let decoded = decode::decode(&ty, &gvk, once.to_string().as_bytes(), MediaType::Json, FieldValidation::Strict, None).unwrap();
        prop_assert_eq!(decoded.value.to_string(), once.to_string());
    }

    #[test]
    fn json_and_yaml_mean_the_same(at in 0usize..6, seed: u64) {
        let (gvk, ty) = kind(at);
        let body = object(&gvk, &ty, seed).to_string();
        let json = decode::decode(&ty, &gvk, body.as_bytes(), MediaType::Json, FieldValidation::Strict, None).unwrap().value;
        let yaml = decode::decode(&ty, &gvk, body.as_bytes(), MediaType::Yaml, FieldValidation::Strict, None).unwrap().value;
        prop_assert_eq!(json, yaml);
    }

    #[test]
    fn applying_again_changes_nothing(at in 0usize..6, seed: u64) {
        let (gvk, ty) = kind(at);
        let config = configuration(&gvk, &ty, seed);
        let once = apply(&gvk, &ty, None, &config, "a", false).unwrap();
        let twice = apply(&gvk, &ty, Some(&once), &config, "a", false).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn a_forced_apply_wins_and_the_loser_lets_go(at in 0usize..6, one: u64, two: u64) {
        let (gvk, ty) = kind(at);
        let (first, second) = (configuration(&gvk, &ty, one), configuration(&gvk, &ty, two));
        let live = apply(&gvk, &ty, None, &first, "a", false).unwrap();
        let forced = apply(&gvk, &ty, Some(&live), &second, "b", true).unwrap();
        // No field of the winner has a conflict any more.
        let again = apply(&gvk, &ty, Some(&forced), &second, "b", false).unwrap();
        prop_assert_eq!(&again, &forced);
        // The loser cannot take the fields back without force, unless the values agree.
        if let Err(ApplyError::Conflicts(conflicts)) = apply(&gvk, &ty, Some(&forced), &first, "a", false) {
            prop_assert!(conflicts.iter().all(|conflict| conflict.manager == "\"b\""));
        }
    }

    #[test]
    fn managers_without_conflict_commute(at in 0usize..6, one: u64, two: u64) {
        let (gvk, ty) = kind(at);
        let (first, second) = (configuration(&gvk, &ty, one), configuration(&gvk, &ty, two));
        let both = |x: (&Value, &str), y: (&Value, &str)| {
            let live = apply(&gvk, &ty, None, x.0, x.1, false).ok()?;
            apply(&gvk, &ty, Some(&live), y.0, y.1, false).ok()
        };
        let (Some(ab), Some(ba)) = (both((&first, "a"), (&second, "b")), both((&second, "b"), (&first, "a"))) else {
            return Ok(());
        };
        for manager in ["a", "b"] {
            prop_assert_eq!(fields_of(&ab, manager), fields_of(&ba, manager));
        }
    }

    #[test]
    fn giving_everything_up_leaves_what_the_other_states(at in 0usize..6, one: u64, two: u64) {
        let (gvk, ty) = kind(at);
        let (first, second) = (configuration(&gvk, &ty, one), configuration(&gvk, &ty, two));
        let alone = apply(&gvk, &ty, None, &second, "b", false).unwrap();
        let live = apply(&gvk, &ty, None, &first, "a", false).unwrap();
        let Ok(live) = apply(&gvk, &ty, Some(&live), &second, "b", false) else { return Ok(()) };
        let nothing = json!({"apiVersion": gvk.group_version().to_string(), "kind": gvk.kind, "metadata": {"name": "x"}});
        let left = apply(&gvk, &ty, Some(&live), &nothing, "a", false).unwrap();
        prop_assert_eq!(fields_of(&left, "a"), Value::Null);
        prop_assert_eq!(fields_of(&left, "b"), fields_of(&alone, "b"));
    }

    #[test]
    fn every_field_an_update_changes_is_owned(at in 0usize..6, one: u64, two: u64) {
        let (gvk, ty) = kind(at);
        let subject = Subject { gvk: &gvk, ty: &ty, custom: false, has_status: false, convert: None };
        let mut live = object(&gvk, &ty, one);
        managed::track_update(&subject, None, &mut live, &writer("a"));
        live["metadata"]["uid"] = json!("u");
        let mut new = object(&gvk, &ty, two);
        managed::track_update(&subject, Some(&live), &mut new, &writer("b"));
        if content(&new) == content(&live) {
            prop_assert_eq!(fields_of(&new, "b"), Value::Null);
        }
        // The same update again changes nothing.
        let stored = new.clone();
        let mut again = new.clone();
        managed::track_update(&subject, Some(&stored), &mut again, &writer("c"));
        prop_assert_eq!(again, stored);
    }

    #[test]
    fn a_diff_as_a_merge_patch_leads_there(at in 0usize..6, one: u64, two: u64) {
        let (gvk, ty) = kind(at);
        let target = Target { ty: &ty, gvk: &gvk, custom: false, version: None, validation: FieldValidation::Strict };
        let (from, to) = (object(&gvk, &ty, one), object(&gvk, &ty, two));
        let patch = merge_diff(&from, &to);
        let patched = patch::merge::apply(&target, &from, patch.to_string().as_bytes()).unwrap();
        prop_assert_eq!(patched.value, to);
    }

    #[test]
    fn an_object_as_a_patch_of_itself_settles(at in 0usize..6, seed: u64) {
        let (gvk, ty) = kind(at);
        let target = Target { ty: &ty, gvk: &gvk, custom: false, version: None, validation: FieldValidation::Strict };
        let object = object(&gvk, &ty, seed);
        let body = object.to_string();
        let merged = patch::merge::apply(&target, &object, body.as_bytes()).unwrap();
        prop_assert_eq!(&merged.value, &object);
        // Strategic merge identifies some list items by fewer fields than their keys (ports by number alone) and merges
        // them. After that, nothing changes any more.
        if let Ok(merged) = patch::strategic::apply(&target, &object, body.as_bytes()) {
            let again = patch::strategic::apply(&target, &merged.value, body.as_bytes()).unwrap();
            prop_assert_eq!(&again.value, &merged.value);
        }
    }

    /// Any input gives a result or an error.
    #[test]
    fn odd_bodies_do_not_panic(at in 0usize..6, seed: u64, body in "[\\[\\]{}:,\"\\\\a-c0-9 \n$/-]{0,80}", keys in prop::collection::vec("[a-z$/]{1,12}", 1..6)) {
        let (gvk, ty) = kind(at);
        let target = Target { ty: &ty, gvk: &gvk, custom: false, version: None, validation: FieldValidation::Warn };
        let live = object(&gvk, &ty, seed);
        let mut nested = json!([{"op": "add", "path": format!("/{}", keys.join("/")), "value": body}]);
        for key in &keys {
            nested = json!({key.clone(): nested});
        }
        for body in [body.clone().into_bytes(), nested.to_string().into_bytes()] {
            let _ = decode::decode(&ty, &gvk, &body, MediaType::Json, FieldValidation::Warn, None);
            let _ = decode::decode(&ty, &gvk, &body, MediaType::Yaml, FieldValidation::Warn, None);
            let _ = patch::json::apply(&target, &live, &body);
            let _ = patch::merge::apply(&target, &live, &body);
            let _ = patch::strategic::apply(&target, &live, &body);
            if let Ok(config) = managed::read(&body) {
                let _ = apply(&gvk, &ty, Some(&live), &config.value, "a", true);
            }
        }
    }
}
