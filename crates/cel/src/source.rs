//! Errors in the text of an expression, with their positions and the text that clients see.
//!
//! ```text
//! ERROR: <input>:1:6: undeclared reference to 'foo' (in container '')
//!  | 1 == foo
//!  | .....^
//! ```

use std::fmt::Write;

/// Further issues are only counted.
const SHOWN_MAX: usize = 100;
/// Longer lines are not printed below the message.
const LINE_MAX: usize = 16_384;

/// An error in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Offset in characters; `None` if the issue concerns the whole expression.
    pub offset: Option<u32>,
    pub message: String,
}

/// All errors of an expression.
#[derive(Clone, Debug, Default)]
pub struct Issues {
    list: Vec<Issue>,
    hidden: usize,
}

impl Issues {
    pub(crate) fn report(&mut self, offset: u32, message: impl Into<String>) {
        self.push(Issue { offset: Some(offset), message: message.into() });
    }

    /// Reports an issue with the whole expression: too long, too deep.
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

    /// Formats all issues in the order of the text, each with its source line.
    #[must_use]
    pub fn render(&self, source: &str) -> String {
        let mut positioned: Vec<(Option<Position<'_>>, &str)> = self
            .list
            .iter()
            .map(|issue| (issue.offset.map(|offset| position(source, offset)), &*issue.message))
            .collect();
        positioned.sort_by_key(|(position, _)| {
            position.as_ref().map_or((-1, -1), |position| (position.line, position.column))
        });
        let mut text = String::new();
        for (position, message) in positioned {
            if !text.is_empty() {
                text.push('\n');
            }
            render_issue(&mut text, position.as_ref(), message);
        }
        if self.hidden > 0 {
            let _ = write!(text, "\n{} more errors were truncated", self.hidden);
        }
        text
    }
}

struct Position<'s> {
    line: i64,
    column: i64,
    text: &'s str,
}

fn position(source: &str, offset: u32) -> Position<'_> {
    if source.is_empty() {
        return Position { line: 1, column: -1, text: "" };
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
    Position { line, column, text: rest.split('\n').next().unwrap_or("") }
}

fn render_issue(text: &mut String, position: Option<&Position<'_>>, message: &str) {
    let Some(position) = position else {
        let _ = write!(text, "ERROR: <input>:-1:0: {message}");
        return;
    };
    let _ = write!(text, "ERROR: <input>:{}:{}: {message}", position.line, position.column + 1);
    if position.column < 0 || position.text.len() > LINE_MAX {
        return;
    }
    let _ = write!(text, "\n | {}\n | ", position.text.replace('\t', " "));
    let mut characters = position.text.chars();
    for _ in 0..position.column {
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
            issues.render("'é' == 1\n&& foo"),
            "ERROR: <input>:1:5: first\n | 'é' == 1\n | .\u{ff0e}..^\nERROR: <input>:2:4: second\n | && foo\n | ...^"
        );
    }

    #[test]
    fn the_empty_text_and_the_whole_have_no_line() {
        let mut issues = Issues::default();
        issues.report(0, "nothing");
        assert_eq!(issues.render(""), "ERROR: <input>:1:0: nothing");
        let mut issues = Issues::default();
        issues.report_whole("too long");
        assert_eq!(issues.render("a"), "ERROR: <input>:-1:0: too long");
    }
}
