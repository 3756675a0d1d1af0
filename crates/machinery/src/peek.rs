//! Reads out of an object's JSON what selection needs, in one pass and without building the object.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Paths to read, as a tree. Built once for a kind.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    /// Where the values of this node go, if it is the end of a path.
    leaf: Vec<usize>,
    /// Members to descend into; a decimal name is an index where the JSON has an array.
    members: BTreeMap<String, Paths>,
    /// Collect every member of this object as a label.
    labels: bool,
    count: usize,
}

impl Paths {
    /// Reads `metadata.labels` and then each of these paths; the values come back in the order given here.
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

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peeked {
    /// Sorted by key.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// One for each path; `None` where the object has no scalar there. Numbers and booleans as JSON writes them.
    pub values: Vec<Option<Box<str>>>,
}

/// Reads one object. Bad JSON is an error; a path that is not there is not.
pub fn peek(json: &[u8], paths: &Paths) -> Result<Peeked, serde_json::Error> {
    let mut found = Peeked { labels: Vec::new(), values: vec![None; paths.count] };
    let mut reader = serde_json::Deserializer::from_slice(json);
    Walk { node: paths, found: &mut found }.deserialize(&mut reader)?;
    reader.end()?;
    found.labels.sort();
    Ok(found)
}

struct Walk<'p, 'f> {
    node: &'p Paths,
    found: &'f mut Peeked,
}

impl Walk<'_, '_> {
    fn scalar(&mut self, text: &str) {
        for slot in &self.node.leaf {
            self.found.values[*slot] = Some(text.into());
        }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: de::Error>(mut self, value: bool) -> Result<(), E> {
        self.scalar(if value { "true" } else { "false" });
        Ok(())
    }

    fn visit_i64<E: de::Error>(mut self, value: i64) -> Result<(), E> {
        self.scalar(&value.to_string());
        Ok(())
    }

    fn visit_u64<E: de::Error>(mut self, value: u64) -> Result<(), E> {
        self.scalar(&value.to_string());
        Ok(())
    }

    fn visit_f64<E: de::Error>(mut self, value: f64) -> Result<(), E> {
        self.scalar(&value.to_string());
        Ok(())
    }

    fn visit_str<E: de::Error>(mut self, value: &str) -> Result<(), E> {
        self.scalar(value);
        Ok(())
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Name<'de>>()? {
            if self.node.labels {
                if let Text::Is(value) = map.next_value::<Text<'de>>()? {
                    self.found.labels.push((name.0.into(), value.into()));
                }
            } else if let Some(node) = self.node.members.get(&*name.0) {
                map.next_value_seed(Walk { node, found: &mut *self.found })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut index = 0_usize;
        loop {
            let node = if self.node.members.is_empty() { None } else { self.node.members.get(&index.to_string()) };
            let more = match node {
                Some(node) => seq.next_element_seed(Walk { node, found: &mut *self.found })?.is_some(),
                None => seq.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                return Ok(());
            }
            index += 1;
        }
    }
}

/// A member name, borrowed where it has no escapes.
struct Name<'de>(Cow<'de, str>);

impl<'de> de::Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member name")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }
        reader.deserialize_str(NameVisitor)
    }
}

/// A label's value; anything but a string is passed over.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Text<'a> {
    Is(#[serde(borrow)] Cow<'a, str>),
    Other(IgnoredAny),
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
    }

    #[test]
    fn bad_json_is_an_error_and_absence_is_not() {
        let paths = Paths::new([]);
        assert!(peek(b"{", &paths).is_err());
        assert_eq!(peek(b"{}", &paths).unwrap(), Peeked::default());
    }
}
