//! Parsing of YAML: the first document, anchors resolved within bounds, duplicate keys recorded.

use std::collections::HashMap;

use crate::json::{DEPTH_MAX, Map, Value};
use granit_parser::{Event, Parser, ScalarStyle, ScanError, Tag};

use super::scalar::{self, Scalar};
use crate::go_text::quote;

/// Most nodes that aliases may add, so that a few lines cannot become gigabytes.
const ALIAS_NODES_MAX: usize = 100_000;
const ALIAS_BYTES_MAX: usize = 3 << 20;

/// A parsed YAML document.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The last value of a duplicate key counts.
    pub value: Value,
    /// `line 7: key "a" already set in map`, in the order found.
    pub duplicates: Vec<String>,
}

/// Parses the first document of a text; an empty text is null. The error begins with `yaml: `.
pub fn read(text: &[u8]) -> Result<Document, String> {
    let text = std::str::from_utf8(text).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    let mut reader = Reader {
        text,
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        duplicates: Vec::new(),
        alias_nodes: 0,
        alias_bytes: 0,
    };
    loop {
        match reader.next()? {
            Some((Event::StreamStart | Event::DocumentStart(..), _)) => {}
            None | Some((Event::StreamEnd | Event::DocumentEnd, _)) => {
                return Ok(Document { value: Value::Null, duplicates: Vec::new() });
            }
            Some(first) => {
                let value = reader.node(first, 0)?.value;
                // The document has to end here. Text after its end is ignored.
                reader.next()?;
                return Ok(Document { value, duplicates: reader.duplicates });
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    parser: Parser<'a, granit_parser::StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    duplicates: Vec<String>,
    alias_nodes: usize,
    alias_bytes: usize,
}

/// A value, and its word if it is a plain scalar: as a key, `1` is not the number one.
#[derive(Clone)]
struct Node {
    value: Value,
    key: Option<String>,
    is_merge: bool,
}

impl Node {
    fn collection(value: Value) -> Self {
        Node { value, key: None, is_merge: false }
    }
}

pub(super) fn is_structure(event: &Event<'_>) -> bool {
    matches!(
        event,
        Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(..)
            | Event::DocumentEnd
            | Event::Alias(_)
            | Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::SequenceEnd
            | Event::MappingStart(..)
            | Event::MappingEnd
    )
}

type Located<'a> = (Event<'a>, usize);

impl<'a> Reader<'a> {
    /// Returns the next event and its line.
    fn next(&mut self) -> Result<Option<Located<'a>>, String> {
        loop {
            return match self.parser.next_event() {
                None => Ok(None),
                Some(Err(error)) => Err(describe(&error, self.text)),
                Some(Ok((event, span))) if is_structure(&event) => Ok(Some((event, span.start.line()))),
                // Comments, which the parser reports if another crate of the build enables them.
                Some(Ok(_)) => continue,
            };
        }
    }

    fn must(&mut self) -> Result<Located<'a>, String> {
        self.next()?.ok_or_else(|| "yaml: unexpected end of stream".to_owned())
    }

    fn node(&mut self, (event, _): Located<'a>, depth: usize) -> Result<Node, String> {
        if depth > DEPTH_MAX {
            return Err(format!("yaml: exceeded max depth of {DEPTH_MAX}"));
        }
        let (node, anchor) = match event {
            Event::Scalar(word, style, anchor, tag) => (scalar_node(&word, style, tag.as_deref())?, anchor),
            Event::SequenceStart(_, anchor, _) => (Node::collection(self.sequence(depth)?), anchor),
            Event::MappingStart(_, anchor, _) => (Node::collection(self.mapping(depth)?), anchor),
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                let node = node.ok_or_else(|| "yaml: anchor value contains itself".to_owned())?;
                self.account(&node.value, depth)?;
                return Ok(node);
            }
            _ => return Err("yaml: did not find expected node content".to_owned()),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn account(&mut self, value: &Value, depth: usize) -> Result<(), String> {
        let (nodes, bytes, deep) = size(value);
        self.alias_nodes += nodes;
        self.alias_bytes += bytes;
        if self.alias_nodes > ALIAS_NODES_MAX || self.alias_bytes > ALIAS_BYTES_MAX || depth + deep > DEPTH_MAX {
            return Err("yaml: document contains excessive aliasing".to_owned());
        }
        Ok(())
    }

    fn sequence(&mut self, depth: usize) -> Result<Value, String> {
        let mut items = Vec::new();
        loop {
            match self.must()? {
                (Event::SequenceEnd, _) => return Ok(Value::Array(items.into())),
                item => items.push(self.node(item, depth + 1)?.value),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, String> {
        let mut members = Map::new();
        let mut merged: Vec<Map> = Vec::new();
        loop {
            let (event, line) = self.must()?;
            if event == Event::MappingEnd {
                break;
            }
            let key = self.node((event, line), depth + 1)?;
            let first_value = self.must()?;
            let value = self.node(first_value, depth + 1)?.value;
            if key.is_merge {
                merge_sources(value, &mut merged)?;
                continue;
            }
            let Some(name) = key.key else {
                return Err(format!("yaml: invalid map key: {}", crate::go_text::json(&key.value)));
            };
            if members.insert(name.clone(), value).is_some() {
                let shown = if key.value.is_string() { quote(&name) } else { name };
                self.duplicates.push(format!("line {line}: key {shown} already set in map"));
            }
        }
        // A mapping's own member wins over a merged one, and an earlier source over a later one.
        for source in merged {
            for (name, value) in source {
                members.entry(name).or_insert(value);
            }
        }
        Ok(Value::Object(members))
    }
}

fn merge_sources(value: Value, merged: &mut Vec<Map>) -> Result<(), String> {
    let refused = || Err("yaml: map merge requires map or sequence of maps as the value".to_owned());
    match value {
        Value::Object(members) => merged.push(members),
        Value::Array(sources) => {
            for source in sources {
                match source {
                    Value::Object(members) => merged.push(members),
                    _ => return refused(),
                }
            }
        }
        _ => return refused(),
    }
    Ok(())
}

fn scalar_node(word: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Node, String> {
    let suffix = tag.and_then(Tag::core_suffix);
    let resolved = match (style, suffix, tag) {
        (_, Some("str"), _) => Scalar::Text,
        (ScalarStyle::Plain, None, Some(_)) => Scalar::Text,
        (ScalarStyle::Plain, _, _) | (_, Some("int" | "float" | "bool" | "null"), _) => scalar::resolve(word),
        _ => Scalar::Text,
    };
    let resolved = match (suffix, resolved) {
        (Some("float"), Scalar::Int(value)) => Scalar::Float(value as f64),
        (Some(wanted @ ("int" | "float" | "bool" | "null")), resolved) => {
            let found = match resolved {
                Scalar::Null => "null",
                Scalar::Bool(_) => "bool",
                Scalar::Int(_) => "int",
                Scalar::Float(_) => "float",
                Scalar::Merge => "merge",
                Scalar::Text => "str",
            };
            if found != wanted {
                return Err(format!("yaml: cannot decode !!{found} `{word}` as a !!{wanted}"));
            }
            resolved
        }
        (_, resolved) => resolved,
    };
    let is_merge = resolved == Scalar::Merge;
    Ok(Node { value: scalar::to_json(&resolved, word)?, key: scalar::to_key(&resolved, word), is_merge })
}

/// Returns the number of nodes, the bytes of text, and the depth.
fn size(value: &Value) -> (usize, usize, usize) {
    let fold = |children: &mut dyn Iterator<Item = &Value>| {
        children.fold((1, 0, 0), |(nodes, bytes, depth), child| {
            let (n, b, d) = size(child);
            (nodes + n, bytes + b, depth.max(d + 1))
        })
    };
    match value {
        Value::String(text) => (1, text.len(), 0),
        Value::Array(items) => fold(&mut items.iter()),
        Value::Object(members) => {
            let (nodes, bytes, depth) = fold(&mut members.values());
            (nodes, bytes + members.keys().map(|name| name.len()).sum::<usize>(), depth)
        }
        _ => (1, 0, 0),
    }
}

/// Describes an error: common ones in the reference's words, others in the parser's.
///
/// An error on the first line is reported without a line, as in the reference.
fn describe(error: &ScanError, text: &str) -> String {
    let info = error.info();
    // `while parsing a block collection, did not find …`: the reference reports the second part only.
    let problem = match info.split_once(", ") {
        Some((context, problem)) if context.starts_with("while ") => problem,
        _ => &info,
    };
    let mut line = error.marker().line();
    let problem = if problem.starts_with("unexpected character") || problem.starts_with("tabs disallowed") {
        "found character that cannot start any token"
    } else if problem == "unclosed quote" || problem.starts_with("invalid indentation in multiline quoted") {
        "found unexpected end of stream"
    } else if let Some(bracket) = problem.strip_prefix("unclosed bracket ") {
        // Found only at the end of the text, and counted from zero there.
        line = text.matches('\n').count().max(1);
        match (text.trim_end().ends_with(['[', '{', ',']), bracket.contains('[')) {
            (true, _) => return format!("yaml: line {line}: did not find expected node content"),
            (false, true) => return format!("yaml: line {line}: did not find expected ',' or ']'"),
            (false, false) => return format!("yaml: line {line}: did not find expected ',' or '}}'"),
        }
    } else {
        problem
    };
    match line {
        0 | 1 => format!("yaml: {problem}"),
        line => format!("yaml: line {line}: {problem}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    #[track_caller]
    fn value(text: &str) -> Value {
        read(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}")).value
    }

    #[test]
    fn words_mean_what_yaml_1_1_says() {
        for (word, want) in [
            ("yes", json!(true)),
            ("y", json!(true)),
            ("off", json!(false)),
            ("~", json!(null)),
            ("12", json!(12)),
            ("1.50", json!(1.5)),
            ("2.0", json!(2)),
            ("0x10", json!(16)),
            ("0o7", json!(7)),
            ("0777", json!(511)),
            ("1_000", json!(1000)),
            ("2020-01-01", json!("2020-01-01")),
            ("'yes'", json!("yes")),
            ("\"1\"", json!("1")),
            ("!!str 1", json!("1")),
            ("08", json!(8)),
            ("18446744073709551615", json!(u64::MAX)),
            ("truely", json!("truely")),
        ] {
            assert_eq!(value(&format!("a: {word}\n"))["a"], want, "{word}");
        }
    }

    #[test]
    fn bodies_of_the_recordings() {
        assert_eq!(
            value("# c\napiVersion: v1\nmetadata: {name: yam}\ndata:\n  a: b\n  c: |\n    two\n    lines\n"),
            json!({"apiVersion": "v1", "metadata": {"name": "yam"}, "data": {"a": "b", "c": "two\nlines\n"}})
        );
        assert_eq!(value("a: 1\n---\na: 2\n"), json!({"a": 1}), "only the first document counts");
        assert_eq!(value(""), Value::Null);
        assert_eq!(
            read(b"a: b: c").map(|document| document.value),
            Err("yaml: mapping values are not allowed in this context".to_owned())
        );
    }

    #[test]
    fn faults_in_the_words_of_the_reference() {
        for (text, want) in [
            ("a: [\n", "yaml: line 1: did not find expected node content"),
            ("apiVersion: v1\n  kind: [ConfigMap\n", "yaml: line 2: mapping values are not allowed in this context"),
            ("{a: 1", "yaml: line 1: did not find expected ',' or '}'"),
            ("@a", "yaml: found character that cannot start any token"),
            ("a: \"x", "yaml: found unexpected end of stream"),
        ] {
            assert_eq!(read(text.as_bytes()), Err(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn repeated_keys_are_noted_and_the_last_counts() {
        let document = read(b"metadata:\n  name: z\ndata:\n  a: b\n  a: c\nx: 1\n").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(document.value["data"], json!({"a": "c"}));
        assert_eq!(document.duplicates, ["line 5: key \"a\" already set in map"]);
    }

    #[test]
    fn anchors_and_merges() {
        assert_eq!(
            value("base: &b {x: 1, z: 2}\nuse:\n  <<: *b\n  z: 3\nagain: *b\n"),
            json!({"base": {"x": 1, "z": 2}, "use": {"z": 3, "x": 1}, "again": {"x": 1, "z": 2}})
        );
        assert_eq!(value("1: a\ntrue: b\n1.5: c\n"), json!({"1": "a", "true": "b", "1.5": "c"}));
    }

    #[test]
    fn aliases_cannot_multiply_without_bound() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..10 {
            let previous = format!("*a{}", i - 1);
            text.push_str(&format!("a{i}: &a{i} [{}]\n", vec![previous; 10].join(", ")));
        }
        assert_eq!(read(text.as_bytes()), Err("yaml: document contains excessive aliasing".to_owned()));
        assert!(read(&vec![b'['; 10_000]).is_err());
        assert!(read("- ".repeat(5000).as_bytes()).is_err());
    }
}
