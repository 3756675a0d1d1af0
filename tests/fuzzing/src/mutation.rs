//! Random changes of a seed: of its bytes, or of the values in a document.

use machinery::json::{Map, Value, json};
use rand::Rng;

/// Words that have a meaning to some parser.
const WORDS: [&str; 28] = [
    "=",
    "==",
    "!=",
    "!",
    ",",
    "(",
    ")",
    "in",
    "notin",
    "\\",
    "%",
    "%2",
    "%00",
    "&",
    ";",
    "q=",
    "*/*",
    "null",
    "-1",
    "0",
    "18446744073709551616",
    "\u{0}",
    "\u{e9}",
    "\u{1f415}",
    "{",
    "[",
    "\"",
    "$patch",
];

/// Changes bytes at a few random positions.
pub fn bytes(rng: &mut impl Rng, seed: &[u8]) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..rng.random_range(1..5) {
        let at = rng.random_range(0..=data.len());
        let to = rng.random_range(at..=data.len().min(at + 16));
        match rng.random_range(0..7) {
            0 => drop(data.drain(at..to)),
            1 => data.insert(at, rng.random()),
            2 => drop(data.splice(at..at, WORDS[rng.random_range(0..WORDS.len())].bytes())),
            3 => data.truncate(at),
            4 => {
                let again = data[at..to].to_vec();
                data.splice(at..at, again);
            }
            _ => {
                if let Some(byte) = data.get_mut(at) {
                    *byte = if rng.random() { rng.random() } else { *byte ^ 1 << rng.random_range(0..8) };
                }
            }
        }
    }
    data
}

/// Changes some values of a document and leaves it valid JSON, so that more than the JSON parser is tested.
pub fn document(rng: &mut impl Rng, seed: &Value) -> Value {
    let mut value = seed.clone();
    for _ in 0..rng.random_range(1..4) {
        let steps = rng.random_range(0..8);
        change(rng, &mut value, steps);
    }
    value
}

/// Descends some random steps and changes the value there.
fn change(rng: &mut impl Rng, value: &mut Value, steps: usize) {
    match value {
        Value::Object(members) if steps > 0 && !members.is_empty() => {
            let key = members.keys().nth(rng.random_range(0..members.len())).cloned().unwrap_or_default();
            match rng.random_range(0..12) {
                0 => drop(members.remove(&key)),
                1 => drop(members.insert(format!("{key}x"), strange(rng))),
                2 => drop(members.insert("$patch".to_owned(), json!("replace"))),
                _ => members.get_mut(&key).into_iter().for_each(|member| change(rng, member, steps - 1)),
            }
        }
        Value::Array(items) if steps > 0 && !items.is_empty() => {
            let at = rng.random_range(0..items.len());
            match rng.random_range(0..10) {
                0 => drop(items.remove(at)),
                1 => {
                    let again = items[at].clone();
                    items.push(again);
                }
                2 => items.push(strange(rng)),
                _ => change(rng, &mut items[at], steps - 1),
            }
        }
        Value::String(text) if rng.random() => {
            let changed = bytes(rng, text.as_bytes());
            *text = String::from_utf8_lossy(&changed).into_owned().into();
        }
        _ => *value = strange(rng),
    }
}

/// An unusual value.
fn strange(rng: &mut impl Rng) -> Value {
    match rng.random_range(0..16) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(i64::MAX),
        4 => json!(u64::MAX),
        5 => json!(1e300),
        6 => json!(0.5),
        7 => json!(""),
        8 => json!("9".repeat(400)),
        9 => json!("1.2.3.4/33"),
        10 => json!("-5Ei"),
        11 => json!([]),
        12 => json!([null, {}]),
        13 => json!({"": ""}),
        14 => Value::Object((0..3).map(|n| (format!("k{n}"), json!({"k": [n]}))).collect::<Map>()),
        _ => json!("0001-01-01T00:00:00Z"),
    }
}
