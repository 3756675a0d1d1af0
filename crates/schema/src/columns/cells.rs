//! Builder of a row, and formats that many kinds share.

use machinery::json::{Map, Value};

use crate::walk::Walk as _;

pub(super) const NONE: &str = "<none>";
pub(super) const UNSET: &str = "<unset>";
const UNKNOWN: &str = "<unknown>";

/// The cells of one object. Each method appends one.
pub(super) struct Cells<'a> {
    pub(super) object: &'a Value,
    now: i64,
    cells: Vec<Value>,
}

impl<'a> Cells<'a> {
    pub(super) fn new(object: &'a Value, now: i64) -> Self {
        Cells { object, now, cells: Vec::with_capacity(12) }
    }

    pub(super) fn finish(self) -> Vec<Value> {
        self.cells
    }

    pub(super) fn push(&mut self, cell: impl Into<Value>) -> &mut Self {
        self.cells.push(cell.into());
        self
    }

    pub(super) fn name(&mut self) -> &mut Self {
        self.text("metadata.name")
    }

    /// Appends a string of the object, or the empty string.
    pub(super) fn text(&mut self, path: &str) -> &mut Self {
        self.text_or(path, "")
    }

    pub(super) fn text_or(&mut self, path: &str, absent: &str) -> &mut Self {
        let text = self.object.text(path);
        self.push(if text.is_empty() { absent } else { text })
    }

    /// Appends a number of the object, or zero.
    pub(super) fn number(&mut self, path: &str) -> &mut Self {
        self.push(self.object.int(path).unwrap_or(0))
    }

    pub(super) fn count(&mut self, path: &str) -> &mut Self {
        self.push(self.object.list(path).len())
    }

    /// Appends the time since creation.
    pub(super) fn age(&mut self) -> &mut Self {
        let age = self.since("metadata.creationTimestamp");
        self.push(age)
    }

    /// Formats the time since a timestamp of the object.
    pub(super) fn since(&self, path: &str) -> String {
        since(self.object.text(path), self.now)
    }

    pub(super) fn now(&self) -> i64 {
        self.now
    }

    /// Appends names and images of the containers of a list.
    pub(super) fn containers(&mut self, path: &str) -> &mut Self {
        let containers = self.object.list(path);
        let join = |field| containers.iter().map(|c| c.text(field)).collect::<Vec<_>>().join(",");
        self.push(join("name")).push(join("image"))
    }
}

/// Returns the seconds since 1970 of an RFC 3339 time.
pub(super) fn seconds(time: &str) -> Option<i64> {
    time.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

pub(super) fn since(time: &str, now: i64) -> String {
    match seconds(time) {
        Some(then) => duration(now.saturating_sub(then)),
        None => UNKNOWN.to_owned(),
    }
}

/// Formats a number of seconds for people.
pub(super) fn duration(seconds: i64) -> String {
    machinery::age::human(jiff::SignedDuration::from_secs(seconds))
}

/// Formats `a=1,b=2`, sorted by key.
pub(super) fn labels(map: Option<&Map>) -> String {
    let mut pairs: Vec<String> =
        map.into_iter().flatten().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() {
        return NONE.to_owned();
    }
    pairs.sort_unstable();
    pairs.join(",")
}

/// Formats a label selector; empty if it selects everything or is absent.
pub(super) fn selector(selector: &Value) -> String {
    let mut terms: Vec<(&str, String)> = Vec::new();
    for (key, value) in selector.map("matchLabels").into_iter().flatten() {
        terms.push((key, format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for term in selector.list("matchExpressions") {
        let key = term.text("key");
        let values = || {
            let mut values: Vec<&str> = term.list("values").iter().filter_map(Value::as_str).collect();
            values.sort_unstable();
            values.join(",")
        };
        let text = match term.text("operator") {
            "In" => format!("{key} in ({})", values()),
            "NotIn" => format!("{key} notin ({})", values()),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return "<error>".to_owned(),
        };
        terms.push((key, text));
    }
    terms.sort_by_key(|(key, _)| *key);
    terms.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

/// Formats the first `few` items of a list, and the number of further ones.
pub(super) fn first_few(items: Vec<String>, few: usize, separator: &str) -> String {
    let more = items.len().saturating_sub(few);
    let text = items[..items.len() - more].join(separator);
    if more > 0 { format!("{text} + {more} more...") } else { text }
}

/// Returns the condition of a type in a list of conditions.
pub(super) fn condition<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| condition.text("type") == kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::json::json;

    #[test]
    fn lists_are_cut() {
        let items = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>();
        assert_eq!(first_few(items(2), 3, ","), "0,1");
        assert_eq!(first_few(items(5), 3, ","), "0,1,2 + 2 more...");
    }

    #[test]
    fn selectors_with_unknown_operators_are_errors() {
        assert_eq!(selector(&json!({"matchExpressions": [{"key": "a", "operator": "Near"}]})), "<error>");
        assert_eq!(selector(&json!(null)), "");
    }
}
