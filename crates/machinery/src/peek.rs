//! Extracts labels and selected fields from an object's JSON, in one pass and without building the object.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::encoded::Malformed;
use crate::json::Value;
use crate::scan::Scan;

/// Paths to extract, as a tree. Built once for a kind.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    /// Indexes of the values of this node, if it is the end of a path.
    leaf: Vec<usize>,
    /// Members to descend into; a decimal name is an index where the JSON has an array.
    members: BTreeMap<String, Paths>,
    /// Every member of this object is a label.
    labels: bool,
    count: usize,
}

impl Paths {
    /// Creates the tree for `metadata.labels` and each of these paths; values are returned in the order given here.
    #[must_use]
    pub fn new<'a>(paths: impl IntoIterator<Item = &'a [String]>) -> Self {
        let mut root = Paths::default();
        root.members.entry("metadata".to_owned()).or_default().members.entry("labels".to_owned()).or_default().labels =
            true;
        for path in paths {
            let slot = root.count;
            root.count += 1;
            let mut node = &mut root;
            for member in path {
                node = node.members.entry(member.clone()).or_default();
            }
            node.leaf.push(slot);
        }
        root
    }
}

/// The extracted labels and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peeked {
    /// Sorted by key.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// One for each path; `None` if the object has no scalar there. Numbers and booleans as in JSON.
    pub values: Vec<Option<Box<str>>>,
}

/// Extracts from the text of one object that this project wrote. Text without an end is an error; an absent path is not.
///
/// Parts that no path leads to are skipped without being parsed: this runs at every write, and most of an object is not
/// needed.
pub fn peek(json: &[u8], paths: &Paths) -> Result<Peeked, Malformed> {
    let mut found = Peeked { labels: Vec::new(), values: vec![None; paths.count] };
    let mut scan = Scan::new(json);
    walk(&mut scan, paths, &mut found)?;
    if scan.peek().is_some() {
        return Err(Malformed);
    }
    found.labels.sort();
    Ok(found)
}

/// As [`peek`], from a value. `None` if a path leads into raw text. Values below members of the object that are not `wanted`
/// stay `None`.
#[must_use]
pub fn peek_value(object: &Value, paths: &Paths, wanted: impl Fn(&str) -> bool) -> Option<Peeked> {
    let mut found = Peeked { labels: Vec::new(), values: vec![None; paths.count] };
    for (name, value) in object.as_object()?.iter().filter(|(name, _)| wanted(name)) {
        if let Some(node) = paths.members.get(name.as_str()) {
            look(value, node, &mut found)?;
        }
    }
    found.labels.sort();
    Some(found)
}

fn look(value: &Value, node: &Paths, found: &mut Peeked) -> Option<()> {
    let scalar: Box<str> = match value {
        Value::Object(members) => {
            for (name, value) in members {
                if node.labels {
                    if let Value::String(value) = value {
                        found.labels.push((name.as_str().into(), value.as_str().into()));
                    }
                } else if let Some(node) = node.members.get(name.as_str()) {
                    look(value, node, found)?;
                }
            }
            return Some(());
        }
        Value::Array(items) => {
            if !node.members.is_empty() {
                for (index, item) in items.iter().enumerate() {
                    if let Some(node) = node.members.get(&index.to_string()) {
                        look(item, node, found)?;
                    }
                }
            }
            return Some(());
        }
        Value::Raw(_) => return None,
        Value::Null => return Some(()),
        Value::String(text) => text.as_str().into(),
        Value::Bool(value) => value.to_string().into(),
        Value::Number(number) => number.to_string().into(),
    };
    for slot in &node.leaf {
        found.values[*slot] = Some(scalar.clone());
    }
    Some(())
}

fn walk(scan: &mut Scan<'_>, node: &Paths, found: &mut Peeked) -> Result<(), Malformed> {
    match scan.peek() {
        Some(b'{') if node.labels || !node.members.is_empty() => {
            scan.expect(b'{')?;
            let mut first = true;
            while let Some(name) = scan.member(std::mem::take(&mut first))? {
                let name = decode_string(name)?;
                if node.labels {
                    let value = scan.value()?;
                    if let Some(value) = inside(value) {
                        found.labels.push((name.into(), decode_string(value)?.into()));
                    }
                } else if let Some(node) = node.members.get(&*name) {
                    walk(scan, node, found)?;
                } else {
                    scan.value()?;
                }
            }
        }
        Some(b'[') if !node.members.is_empty() => {
            scan.expect(b'[')?;
            let mut index = 0_usize;
            while scan.item(index == 0)? {
                match node.members.get(&index.to_string()) {
                    Some(node) => walk(scan, node, found)?,
                    None => drop(scan.value()?),
                }
                index += 1;
            }
        }
        _ => {
            let value = scan.value()?;
            let is_scalar = !matches!(value.first(), Some(b'{' | b'[')) && value != b"null";
            if is_scalar && !node.leaf.is_empty() {
                let value = decode_string(inside(value).unwrap_or(value))?;
                for slot in &node.leaf {
                    found.values[*slot] = Some(value.as_ref().into());
                }
            }
        }
    }
    Ok(())
}

/// Returns the text between quotes.
fn inside(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// Decodes the inside of a string.
fn decode_string(inside: &[u8]) -> Result<Cow<'_, str>, Malformed> {
    if inside.contains(&b'\\') {
        let quoted = [b"\"", inside, b"\""].concat();
        return serde_json::from_slice(&quoted).map(Cow::Owned).map_err(|_| Malformed);
    }
    std::str::from_utf8(inside).map(Cow::Borrowed).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &str) -> Vec<String> {
        path.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn labels_and_paths_are_found_in_one_pass() {
        let wanted = [
            path("spec.nodeName"),
            path("status.podIPs.0.ip"),
            path("spec.hostNetwork"),
            path("status.n"),
            path("spec"),
        ];
        let paths = Paths::new(wanted.iter().map(Vec::as_slice));
        let json = br#"{"metadata":{"labels":{"b":"2","a":"1","bad":3}},"spec":{"nodeName":"n\u0031","hostNetwork":true,"x":[1,{"y":2}]},"status":{"podIPs":[{"ip":"10.0.0.1"},{"ip":"::1"}],"n":7}}"#;
        let found = peek(json, &paths).unwrap();
        assert_eq!(found.labels, [("a".into(), "1".into()), ("b".into(), "2".into())]);
        let values: Vec<_> = found.values.iter().map(|v| v.as_deref()).collect();
        assert_eq!(values, [Some("n1"), Some("10.0.0.1"), Some("true"), Some("7"), None]);
        let object = crate::json::from_slice(json).unwrap();
        assert_eq!(peek_value(&object, &paths, |_| true), Some(found), "the object says the same as its text");
        let metadata_alone = peek_value(&object, &paths, |name| name == "metadata").unwrap();
        assert!(!metadata_alone.labels.is_empty() && metadata_alone.values.iter().all(Option::is_none));
    }

    #[test]
    fn what_was_not_read_is_not_looked_into() {
        let wanted = [path("spec.nodeName")];
        let paths = Paths::new(wanted.iter().map(Vec::as_slice));
        let mut object = crate::json::json!({"metadata": {}, "spec": {"nodeName": "n", "args": [1]}});
        assert_eq!(peek_value(&object, &paths, |_| true).unwrap().values, [Some("n".into())]);
        object["spec"] = Value::Raw(r#"{"nodeName":"n"}"#.into());
        assert_eq!(peek_value(&object, &paths, |_| true), None);
        object["spec"] = Value::Null;
        object["status"] = Value::Raw("{}".into());
        assert_eq!(peek_value(&object, &paths, |_| true).unwrap().values, [None], "no path leads there");
    }

    #[test]
    fn text_that_does_not_end_is_an_error_and_absence_is_not() {
        let paths = Paths::new([]);
        assert!(peek(b"{", &paths).is_err());
        assert_eq!(peek(b"{}", &paths).unwrap(), Peeked::default());
    }
}
