//! The fields of an object that list-watch itself needs, found without reading the rest.
//!
//! Servers write `kind`, `apiVersion` and the names first and the large parts after them, so only a few hundred bytes of many
//! thousand are read. Text that is written in another way (members in another order, escapes, values of another type) either
//! gives the same result or is left to a reader of the whole object.

use machinery::scan::Scan;

/// The fields as they are written in the text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Envelope<'a> {
    pub(crate) api_version: Option<&'a str>,
    pub(crate) kind: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) uid: Option<&'a str>,
    pub(crate) version: Option<&'a str>,
}

impl<'a> Envelope<'a> {
    /// Reads as far as it has to; the text after that is not checked. `None` if the whole object has to be read instead.
    pub(crate) fn peek(text: &'a [u8]) -> Option<Self> {
        let mut found = Self::default();
        let mut has_metadata = false;
        let mut scan = Scan::new(text);
        scan.expect(b'{').ok()?;
        let mut first = true;
        while let Some(member) = scan.member(std::mem::take(&mut first)).ok()? {
            match member {
                b"apiVersion" => found.api_version = Some(plain_string(&mut scan)?),
                b"kind" => found.kind = Some(plain_string(&mut scan)?),
                b"metadata" => {
                    has_metadata = true;
                    found.read_metadata(&mut scan)?;
                }
                other => skip(&mut scan, other)?,
            }
            if has_metadata && found.api_version.is_some() && found.kind.is_some() {
                return Some(found);
            }
        }
        scan.peek().is_none().then_some(found)
    }

    /// Reads `metadata` to its end, or until nothing is missing: then `peek` returns and the rest is not read either.
    fn read_metadata(&mut self, scan: &mut Scan<'a>) -> Option<()> {
        scan.expect(b'{').ok()?;
        let mut first = true;
        while let Some(member) = scan.member(std::mem::take(&mut first)).ok()? {
            match member {
                b"name" => self.name = Some(plain_string(scan)?),
                b"namespace" => self.namespace = Some(plain_string(scan)?),
                b"uid" => self.uid = Some(plain_string(scan)?),
                b"resourceVersion" => self.version = Some(plain_string(scan)?),
                other => skip(scan, other)?,
            }
            if self.is_complete() {
                break;
            }
        }
        Some(())
    }

    /// True if every field was found. Never true of an object without a namespace.
    fn is_complete(&self) -> bool {
        let Self { api_version, kind, name, namespace, uid, version } = self;
        [api_version, kind, name, namespace, uid, version].into_iter().all(Option::is_some)
    }
}

/// The next value, if it is a string without escapes.
fn plain_string<'a>(scan: &mut Scan<'a>) -> Option<&'a str> {
    let inside = scan.string().ok()?;
    if inside.contains(&b'\\') {
        return None;
    }
    std::str::from_utf8(inside).ok()
}

/// Steps over the value of `member`. A name with escapes may be one of ours: `None`.
fn skip(scan: &mut Scan<'_>, member: &[u8]) -> Option<()> {
    if member.contains(&b'\\') {
        return None;
    }
    scan.value().ok().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::seq::SliceRandom;
    use rand::{Rng, SeedableRng};
    use serde_json::Value;

    fn peek(text: &str) -> Option<Envelope<'_>> {
        Envelope::peek(text.as_bytes())
    }

    /// The fields by a full parse.
    fn whole(value: &Value) -> Envelope<'_> {
        let meta = |name: &str| value["metadata"][name].as_str();
        Envelope {
            api_version: value["apiVersion"].as_str(),
            kind: value["kind"].as_str(),
            name: meta("name"),
            namespace: meta("namespace"),
            uid: meta("uid"),
            version: meta("resourceVersion"),
        }
    }

    #[test]
    fn an_object_as_servers_write_it_is_read_no_further_than_its_names() {
        let head =
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7""#;
        let found = peek(&format!("{head}, and what follows is not looked at")).map(|found| format!("{found:?}"));
        let value = serde_json::from_str::<Value>(&format!("{head}}}}}")).expect("JSON");
        assert_eq!(found, Some(format!("{:?}", whole(&value))));
    }

    #[test]
    fn an_object_without_a_namespace_is_read_to_the_end_of_its_metadata() {
        let text = r#"{"apiVersion":"v1","kind":"Node","metadata":{"annotations":{"name":"no"},"name":"a","uid":"u"},"#;
        assert_eq!(peek(text).map(|found| (found.name, found.namespace)), Some((Some("a"), None)));
    }

    #[test]
    fn what_is_unusual_is_left_to_a_reader_of_the_whole() {
        for text in [
            "",
            "null",
            "[]",
            r#"{"kind":"Pod""#,
            r#"{"kind":7,"apiVersion":"v1","metadata":{}}"#,
            r#"{"kind":"P\u006fd","apiVersion":"v1","metadata":{}}"#,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":null}"#,
            r#"{"metadata":{"name":"a"}} trailing"#,
            r#"{"metadata":{"name":"a"}},"more":{}"#,
            r#"{"metadata":{"name":"a\"#,
            r#"{"x":"\"#,
            r#"{"met\u0061data":{"name":"a"}}"#,
        ] {
            assert_eq!(peek(text), None, "{text}");
        }
        assert_eq!(Envelope::peek(b"{\"kind\":\"\xff\",\"apiVersion\":\"v1\",\"metadata\":{}}"), None);
    }

    fn any(random: &mut StdRng, depth: u32) -> Value {
        const TEXTS: [&str; 7] = ["", "a", "\"}", "\\", "{[", "name", "ü\n"];
        match random.random_range(0..if depth == 0 { 4 } else { 6 }) {
            0 => Value::Null,
            1 => random.random::<bool>().into(),
            2 => random.random_range(-9.5..9.5).into(),
            3 => TEXTS[random.random_range(0..TEXTS.len())].into(),
            4 => (0..random.random_range(0..3)).map(|_| any(random, depth - 1)).collect(),
            _ => object(random, &["name", "kind", "metadata", "x"], |random| any(random, depth - 1)),
        }
    }

    fn object(random: &mut StdRng, names: &[&str], mut value: impl FnMut(&mut StdRng) -> Value) -> Value {
        let mut names = names.to_vec();
        names.shuffle(random);
        names.truncate(random.random_range(0..=names.len()));
        Value::Object(names.into_iter().map(|name| (name.to_owned(), value(random))).collect())
    }

    #[test]
    fn what_is_found_is_what_a_reader_of_the_whole_finds() {
        let mut found = 0;
        for seed in 0..20_000 {
            let random = &mut StdRng::seed_from_u64(seed);
            let text = |random: &mut StdRng| format!("v{}", random.random_range(0..100)).into();
            let mut metadata = object(random, &["name", "namespace", "uid", "resourceVersion"], text);
            metadata["labels"] = any(random, 3);
            let mut members: Vec<(&str, Value)> = vec![
                ("metadata", metadata),
                ("spec", any(random, 3)),
                ("kind", text(random)),
                ("apiVersion", text(random)),
            ];
            members.shuffle(random);
            members.truncate(random.random_range(1..=4));
            let value = Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
            for written in [serde_json::to_string(&value), serde_json::to_string_pretty(&value)] {
                let written = written.expect("JSON");
                if let Some(peeked) = peek(&written) {
                    assert_eq!(peeked, whole(&value), "{written}");
                    found += 1;
                }
                // No cut makes it find anything else.
                let cut = random.random_range(0..written.len());
                if let Some(peeked) = written.get(..cut).and_then(peek) {
                    assert_eq!(peeked, whole(&value), "{} of {written}", cut);
                }
            }
        }
        assert!(found > 35_000, "only {found} of 40 000 were usual");
    }
}
