//! The envelope of an object: what list-watch itself needs of it, found without reading the rest.
//!
//! Servers write `kind`, `apiVersion` and the names first and the large parts after them, so that a few hundred bytes of many
//! thousand are looked at. Whatever is written in another way (members in another order, escapes, text where none is expected)
//! is either found all the same or left to a reader of the whole.

use memchr::memchr2;

/// What was found, as it stands in the text.
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
    /// Reads as far as it has to. `None`: this needs a reader of the whole. What comes after the envelope is not looked at, and
    /// may be anything.
    pub(crate) fn peek(text: &'a [u8]) -> Option<Self> {
        let mut found = Self::default();
        let mut cursor = Cursor { text, at: 0 };
        let mut metadata_seen = false;
        let ended = cursor.members(|cursor, member| {
            match member {
                "apiVersion" => found.api_version = Some(cursor.plain()?),
                "kind" => found.kind = Some(cursor.plain()?),
                "metadata" => {
                    metadata_seen = true;
                    cursor.members(|cursor, member| {
                        match member {
                            "name" => found.name = Some(cursor.plain()?),
                            "namespace" => found.namespace = Some(cursor.plain()?),
                            "uid" => found.uid = Some(cursor.plain()?),
                            "resourceVersion" => found.version = Some(cursor.plain()?),
                            _ => cursor.skip()?,
                        }
                        Some(if found.is_complete() { Next::Stop } else { Next::Go })
                    })?;
                }
                _ => cursor.skip()?,
            }
            let has_kind = found.api_version.is_some() && found.kind.is_some();
            Some(if has_kind && metadata_seen { Next::Stop } else { Next::Go })
        })?;
        match ended {
            Next::Stop => Some(found),
            Next::Go => {
                cursor.blank();
                (cursor.at == text.len()).then_some(found)
            }
        }
    }

    /// Nothing that may still come would be part of it. An object without a namespace never gets here.
    fn is_complete(&self) -> bool {
        let Self { api_version, kind, name, namespace, uid, version } = self;
        [api_version, kind, name, namespace, uid, version].into_iter().all(Option::is_some)
    }
}

enum Next {
    Go,
    Stop,
}

/// A place in JSON text. Every step is `None` where the text is not what it looks like.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn byte(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn blank(&mut self) {
        while self.byte().is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        (self.byte()? == byte).then(|| self.at += 1)
    }

    /// The members of an object, until `each` has enough.
    fn members(&mut self, mut each: impl FnMut(&mut Self, &'a str) -> Option<Next>) -> Option<Next> {
        self.blank();
        self.eat(b'{')?;
        self.blank();
        if self.eat(b'}').is_some() {
            return Some(Next::Go);
        }
        loop {
            let name = self.plain()?;
            self.blank();
            self.eat(b':')?;
            self.blank();
            if let Next::Stop = each(self, name)? {
                return Some(Next::Stop);
            }
            self.blank();
            if self.eat(b'}').is_some() {
                return Some(Next::Go);
            }
            self.eat(b',')?;
            self.blank();
        }
    }

    /// A string without escapes.
    fn plain(&mut self) -> Option<&'a str> {
        self.eat(b'"')?;
        let rest = &self.text[self.at..];
        let end = memchr2(b'"', b'\\', rest)?;
        (rest[end] == b'"').then_some(())?;
        self.at += end + 1;
        std::str::from_utf8(&rest[..end]).ok()
    }

    /// Steps over any value.
    fn skip(&mut self) -> Option<()> {
        let mut open = 0_usize;
        loop {
            match self.byte()? {
                b'"' => {
                    self.at += 1;
                    self.skip_string()?;
                }
                b'{' | b'[' => {
                    open += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    // The end of what this value is in.
                    if open == 0 {
                        return Some(());
                    }
                    open -= 1;
                    self.at += 1;
                }
                b',' if open == 0 => return Some(()),
                _ => {
                    self.at += 1;
                    continue;
                }
            }
            if open == 0 {
                return Some(());
            }
        }
    }

    /// The rest of a string.
    fn skip_string(&mut self) -> Option<()> {
        loop {
            let rest = &self.text[self.at..];
            let end = memchr2(b'"', b'\\', rest)?;
            if rest[end] == b'"' {
                self.at += end + 1;
                return Some(());
            }
            self.at += end + 2;
            (self.at <= self.text.len()).then_some(())?;
        }
    }
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

    /// What a reader of the whole finds.
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
