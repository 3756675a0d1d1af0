//! What is wrong with the text of an expression, where, and how that is shown.
//!
//! ```text
//! ERROR: <input>:1:6: undeclared reference to 'foo' (in container '')
//!  | 1 == foo
//!  | .....^
//! ```

use std::fmt::Write;

/// More are counted and not shown.
const SHOWN_MAX: usize = 100;
/// A longer line is not repeated under the message.
const LINE_MAX: usize = 16_384;

/// One thing that is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// In characters from the start; none where it is the expression as a whole.
    pub offset: Option<u32>,
    pub message: String,
}

/// Everything found wrong with one expression.
#[derive(Clone, Debug, Default)]
pub struct Issues {
    list: Vec<Issue>,
    hidden: usize,
}

impl Issues {
    pub(crate) fn report(&mut self, offset: u32, message: impl Into<String>) {
        self.push(Issue { offset: Some(offset), message: message.into() });
    }

    /// Wrong as a whole: too long, too deep.
    pub(crate) fn report_whole(&mut self, message: impl Into<String>) {
        self.push(Issue { offset: None, message: message.into() });
    }

    fn push(&mut self, issue: Issue) {
        if self.list.len() < SHOWN_MAX {
            self.list.push(issue);
        } else {
            self.hidden += 1;
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    #[must_use]
    pub fn list(&self) -> &[Issue] {
        &self.list
    }

    /// All of them with the lines they concern, in the order of the text.
    #[must_use]
    pub fn show(&self, source: &str) -> String {
        let mut places: Vec<(Option<Place<'_>>, &str)> =
            self.list.iter().map(|issue| (issue.offset.map(|offset| place(source, offset)), &*issue.message)).collect();
        places.sort_by_key(|(place, _)| place.as_ref().map_or((-1, -1), |place| (place.line, place.column)));
        let mut text = String::new();
        for (place, message) in places {
            if !text.is_empty() {
                text.push('\n');
            }
            show_one(&mut text, place.as_ref(), message);
        }
        if self.hidden > 0 {
            let _ = write!(text, "\n{} more errors were truncated", self.hidden);
        }
        text
    }
}

struct Place<'s> {
    line: i64,
    column: i64,
    text: &'s str,
}

fn place(source: &str, offset: u32) -> Place<'_> {
    if source.is_empty() {
        return Place { line: 1, column: -1, text: "" };
    }
    let mut line = 1;
    let mut column = 0;
    let mut start = 0;
    for (count, (at, c)) in source.char_indices().enumerate() {
        if count as u64 == u64::from(offset) {
            break;
        }
        column += 1;
        if c == '\n' {
            line += 1;
            column = 0;
            start = at + 1;
        }
    }
    let rest = source.get(start..).unwrap_or("");
    Place { line, column, text: rest.split('\n').next().unwrap_or("") }
}

fn show_one(text: &mut String, place: Option<&Place<'_>>, message: &str) {
    let Some(place) = place else {
        let _ = write!(text, "ERROR: <input>:-1:0: {message}");
        return;
    };
    let _ = write!(text, "ERROR: <input>:{}:{}: {message}", place.line, place.column + 1);
    if place.column < 0 || place.text.len() > LINE_MAX {
        return;
    }
    let _ = write!(text, "\n | {}\n | ", place.text.replace('\t', " "));
    let mut characters = place.text.chars();
    for _ in 0..place.column {
        match characters.next() {
            None => break,
            Some(c) if c.is_ascii() => text.push('.'),
            Some(_) => text.push('\u{ff0e}'),
        }
    }
    text.push(if characters.next().is_none_or(|c| c.is_ascii()) { '^' } else { '\u{ff3e}' });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issues_are_shown_in_the_order_of_the_text_under_the_line_they_concern() {
        let mut issues = Issues::default();
        issues.report(12, "second");
        issues.report(4, "first");
        assert_eq!(
            issues.show("'é' == 1\n&& foo"),
            "ERROR: <input>:1:5: first\n | 'é' == 1\n | .\u{ff0e}..^\nERROR: <input>:2:4: second\n | && foo\n | ...^"
        );
    }

    #[test]
    fn the_empty_text_and_the_whole_have_no_line() {
        let mut issues = Issues::default();
        issues.report(0, "nothing");
        assert_eq!(issues.show(""), "ERROR: <input>:1:0: nothing");
        let mut issues = Issues::default();
        issues.report_whole("too long");
        assert_eq!(issues.show("a"), "ERROR: <input>:-1:0: too long");
    }
}
