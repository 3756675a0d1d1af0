//! The line of a field, for errors about files that people write.

use granit_parser::{Event, Parser, StrInput};

/// A step on the way to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step<'a> {
    Member(&'a str),
    Item(usize),
}

/// Puts the line before an error that begins with the path of a field: `rules[0].level: Required value` becomes
/// `line 4: rules[0].level: Required value`. A field that is missing has the line of the object that lacks it. Other errors
/// stay as they are.
#[must_use]
pub fn with_line(text: &[u8], why: &str) -> String {
    let path = why.split([':', ' ']).next().unwrap_or_default();
    match line_of(text, path) {
        Some(line) => format!("line {line}: {why}"),
        None => why.to_owned(),
    }
}

/// Returns the line of a field of the first document, or of the nearest object around it that exists. None if not even the
/// first step of the path exists.
#[must_use]
pub fn line_of(text: &[u8], path: &str) -> Option<usize> {
    let mut finder = Finder { parser: Parser::new_from_str(std::str::from_utf8(text).ok()?), line: None };
    // Stops with what was found so far when the text ends or is no YAML.
    let _ = finder.document(&steps(path)?);
    finder.line
}

/// Parses `authorizers[2].webhook.timeout`.
fn steps(path: &str) -> Option<Vec<Step<'_>>> {
    let mut steps = Vec::new();
    for part in path.split('.') {
        let (name, items) = part.split_once('[').unwrap_or((part, ""));
        if name.is_empty() {
            return None;
        }
        steps.push(Step::Member(name));
        for item in items.split('[').filter(|item| !item.is_empty()) {
            steps.push(Step::Item(item.strip_suffix(']')?.parse().ok()?));
        }
    }
    Some(steps)
}

struct Finder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// The line of the last step that was found.
    line: Option<usize>,
}

impl<'a> Finder<'a> {
    fn next(&mut self) -> Option<(Event<'a>, usize)> {
        loop {
            let (event, span) = self.parser.next_event()?.ok()?;
            // Comments, which the parser reports if another crate of the build enables them, are not part of the structure.
            if !matches!(event, Event::StreamStart | Event::DocumentStart(..)) && super::read::is_structure(&event) {
                return Some((event, span.start.line()));
            }
        }
    }

    fn document(&mut self, steps: &[Step<'_>]) -> Option<()> {
        let (mut node, _) = self.next()?;
        for step in steps {
            node = match (node, *step) {
                (Event::MappingStart(..), Step::Member(name)) => self.member(name)?,
                (Event::SequenceStart(..), Step::Item(at)) => self.item(at)?,
                _ => return None,
            };
        }
        Some(())
    }

    /// Moves to a member of the mapping that was entered; its line is that of its name.
    fn member(&mut self, name: &str) -> Option<Event<'a>> {
        loop {
            let (key, line) = self.next()?;
            let is_wanted = match &key {
                Event::MappingEnd => return None,
                Event::Scalar(word, ..) => word == name,
                _ => false,
            };
            self.skip(&key)?;
            let (value, _) = self.next()?;
            if is_wanted {
                self.line = Some(line);
                return Some(value);
            }
            self.skip(&value)?;
        }
    }

    /// Moves to an item of the sequence that was entered.
    fn item(&mut self, at: usize) -> Option<Event<'a>> {
        for _ in 0..at {
            let (skipped, _) = self.next()?;
            if skipped == Event::SequenceEnd {
                return None;
            }
            self.skip(&skipped)?;
        }
        let (item, line) = self.next()?;
        if item == Event::SequenceEnd {
            return None;
        }
        self.line = Some(line);
        Some(item)
    }

    /// Skips the rest of a node.
    fn skip(&mut self, node: &Event<'_>) -> Option<()> {
        let begins = |event: &Event<'_>| matches!(event, Event::MappingStart(..) | Event::SequenceStart(..));
        let mut open = usize::from(begins(node));
        while open > 0 {
            let (event, _) = self.next()?;
            if begins(&event) {
                open += 1;
            } else if matches!(event, Event::MappingEnd | Event::SequenceEnd) {
                open -= 1;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
# a comment
apiVersion: v1
rules:
- level: None
  {a: b}: [c]
  users:
  - alice
  - bob
- {level: All,
   verbs: [get, list]}
last: 7
";

    #[test]
    fn fields_have_the_line_of_their_name() {
        for (path, line) in [
            ("apiVersion", Some(2)),
            ("rules", Some(3)),
            ("rules[0].level", Some(4)),
            ("rules[0].users[1]", Some(8)),
            ("rules[1]", Some(9)),
            ("rules[1].verbs[1]", Some(10)),
            ("last", Some(11)),
            ("rules[0].namespaces", Some(4)),
            ("rules[2].level", Some(3)),
            ("last.deeper", Some(11)),
            ("nothing", None),
            ("", None),
            ("rules[x]", None),
        ] {
            assert_eq!(line_of(TEXT, path), line, "{path}");
        }
        assert_eq!(line_of(b"a: [", "a"), Some(1), "a text that ends too early");
        assert_eq!(line_of(b"\xff", "a"), None);
        assert_eq!(line_of(b"", "a"), None);
    }

    #[test]
    fn errors_begin_with_the_line_of_their_field() {
        assert_eq!(with_line(TEXT, "rules[1].level: must be x"), "line 9: rules[1].level: must be x");
        assert_eq!(with_line(TEXT, "apiVersion must be v2"), "line 2: apiVersion must be v2");
        for other in ["yaml: line 3: wrong", "line 3: key \"a\" already set in map", "not an object", ""] {
            assert_eq!(with_line(TEXT, other), other);
        }
    }
}
