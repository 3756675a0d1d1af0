//! Words after their expansion: variables, output of commands, numbers, patterns of file names.

use super::arithmetic;
use super::code::compile;
use super::files::absolute;
use super::pattern;
use super::process::{Process, Stopped, Thread};
use super::syntax::{Default, Part, Word};

/// Bytes of one word, or of all words of a command.
const WORDS_BYTES_MAX: usize = 256 * 1024;

/// A piece of a word: its text, and whether it was quoted.
type Piece = (String, bool);

impl Process {
    /// The words of a command: unquoted expansions are split at blanks, and patterns become the names of files.
    pub(super) fn words(&mut self, thread: &mut Thread, words: &[Word]) -> Result<Vec<String>, Stopped> {
        let mut all: Vec<String> = Vec::new();
        let mut bytes = 0;
        let mut work = pattern::TRIM_WORK_MAX;
        for word in words {
            let fields = self.fields(thread, word)?;
            for field in fields {
                let names = self.names(thread, field, &mut work);
                bytes += names.iter().map(|name| name.len() + 1).sum::<usize>();
                if bytes > WORDS_BYTES_MAX {
                    return Err(self.fail(thread, "argument list too long"));
                }
                all.extend(names);
            }
        }
        self.charge(bytes);
        Ok(all)
    }

    /// A word as one text, as in an assignment.
    pub(super) fn text(&mut self, thread: &mut Thread, word: &Word) -> Result<String, Stopped> {
        let mut text = String::new();
        for part in &word.0 {
            text.extend(self.pieces(thread, part)?.into_iter().map(|(text, _)| text));
            if text.len() > WORDS_BYTES_MAX {
                return Err(self.fail(thread, "argument list too long"));
            }
        }
        self.charge(text.len());
        Ok(text)
    }

    /// A word as a pattern: what was quoted means itself.
    pub(super) fn pattern(&mut self, thread: &mut Thread, word: &Word) -> Result<String, Stopped> {
        let mut found = String::new();
        for part in &word.0 {
            for (text, quoted) in self.pieces(thread, part)? {
                found.push_str(&if quoted { pattern::escape(&text) } else { text });
            }
            if found.len() > WORDS_BYTES_MAX {
                return Err(self.fail(thread, "argument list too long"));
            }
        }
        Ok(found)
    }

    /// The fields of a word, each as its pieces.
    fn fields(&mut self, thread: &mut Thread, word: &Word) -> Result<Vec<Vec<Piece>>, Stopped> {
        let mut fields: Vec<Vec<Piece>> = Vec::new();
        let mut current: Option<Vec<Piece>> = None;
        let mut bytes = 0;
        for part in &word.0 {
            if bytes > WORDS_BYTES_MAX {
                return Err(self.fail(thread, "argument list too long"));
            }
            let splits = matches!(part, Part::Variable { quoted: false, .. } | Part::Output { quoted: false, .. });
            if let Part::Variable { name, quoted: true, default: None } = part
                && name == "@"
            {
                for (at, argument) in thread.arguments().iter().enumerate() {
                    if at > 0 {
                        fields.extend(current.take());
                    }
                    bytes += argument.len() + 1;
                    current.get_or_insert_default().push((argument.clone(), true));
                }
                continue;
            }
            for (text, quoted) in self.pieces(thread, part)? {
                bytes += text.len();
                if !splits || quoted {
                    current.get_or_insert_default().push((text, quoted));
                    continue;
                }
                if text.starts_with(char::is_whitespace) {
                    fields.extend(current.take());
                }
                for (at, piece) in text.split_whitespace().enumerate() {
                    if at > 0 {
                        fields.extend(current.take());
                    }
                    current.get_or_insert_default().push((piece.to_owned(), false));
                }
                if text.ends_with(char::is_whitespace) {
                    fields.extend(current.take());
                }
            }
        }
        fields.extend(current);
        Ok(fields)
    }

    /// The names of files that a field means, or its text. Only the last part of a path may be a pattern.
    fn names(&self, thread: &Thread, field: Vec<Piece>, work: &mut usize) -> Vec<String> {
        let text: String = field.iter().map(|(text, _)| text.as_str()).collect();
        if *work == 0 || !field.iter().any(|(text, quoted)| !quoted && text.contains(['*', '?', '['])) {
            return vec![text];
        }
        let whole: String =
            field.iter().map(|(text, quoted)| if *quoted { pattern::escape(text) } else { text.clone() }).collect();
        let (directory, last) =
            whole.rsplit_once('/').map_or(("", whole.as_str()), |(directory, last)| (directory, last));
        if directory.contains(['*', '?', '[', '\\']) {
            return vec![text];
        }
        let prefix = if whole.contains('/') { format!("{directory}/") } else { String::new() };
        *work = work.saturating_sub(10_000);
        let listed = self.files().list(&absolute(thread.directory(), &format!("{prefix}."))).unwrap_or_default();
        let found =
            listed.into_iter().filter(|name| !name.starts_with('.') && pattern::matches_within(last, name, work));
        let found: Vec<String> = found.map(|name| format!("{prefix}{name}")).collect();
        if found.is_empty() { vec![text] } else { found }
    }

    fn pieces(&mut self, thread: &mut Thread, part: &Part) -> Result<Vec<Piece>, Stopped> {
        Ok(match part {
            Part::Text { text, quoted: false } if text == "~" || text.starts_with("~/") => {
                let home = self.variable(thread, "HOME").unwrap_or_else(|| "/root".to_owned());
                vec![(format!("{home}{}", &text[1..]), true)]
            }
            Part::Text { text, quoted } => vec![(text.clone(), *quoted)],
            Part::Variable { name, default: None, quoted } => {
                vec![(self.variable(thread, name).unwrap_or_default(), *quoted)]
            }
            Part::Variable { name, default: Some(default), quoted } => {
                let (text, word_quoted) = self.with_default(thread, name, default)?;
                vec![(text, *quoted || word_quoted)]
            }
            Part::Output { command, quoted } => {
                let output = self.capture(thread, compile(command), Vec::new())?;
                let text = String::from_utf8_lossy(&output).into_owned();
                vec![(text.trim_end_matches('\n').to_owned(), *quoted)]
            }
            Part::Number(word) => {
                let text = self.text(thread, word)?;
                let result = {
                    let variable = |name: &str| self.variable(thread, name).unwrap_or_default();
                    arithmetic::evaluate(&text, &variable)
                };
                match result {
                    Ok(number) => vec![(number.to_string(), true)],
                    Err(why) => return Err(self.fail(thread, &why)),
                }
            }
        })
    }

    fn with_default(&mut self, thread: &mut Thread, name: &str, default: &Default) -> Result<Piece, Stopped> {
        let value = self.variable(thread, name);
        let missing = |also_empty: bool| value.as_ref().is_none_or(|value| also_empty && value.is_empty());
        let there = || value.clone().unwrap_or_default();
        Ok(match default {
            Default::Use { word, also_empty } => {
                if missing(*also_empty) {
                    (self.text(thread, word)?, false)
                } else {
                    (there(), false)
                }
            }
            Default::Assign { word, also_empty } => {
                if missing(*also_empty) {
                    let text = self.text(thread, word)?;
                    thread.set(name, &text);
                    (text, false)
                } else {
                    (there(), false)
                }
            }
            Default::Fail { word, also_empty } => {
                if missing(*also_empty) {
                    let text = self.text(thread, word)?;
                    let text = if text.is_empty() { "parameter not set".to_owned() } else { text };
                    return Err(self.fail(thread, &format!("{name}: {text}")));
                }
                (there(), false)
            }
            Default::Instead { word, also_empty } => {
                if missing(*also_empty) {
                    (String::new(), false)
                } else {
                    (self.text(thread, word)?, false)
                }
            }
            Default::Length => (there().chars().count().to_string(), true),
            Default::TrimEnd { pattern, longest } => {
                let (pattern, text) = (self.pattern(thread, pattern)?, there());
                if text.len() > pattern::LENGTH_MAX {
                    return Ok((text, false));
                }
                let mut work = pattern::TRIM_WORK_MAX;
                let mut ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
                if !longest {
                    ends.reverse();
                }
                let at = ends.into_iter().find(|at| pattern::matches_within(&pattern, &text[*at..], &mut work));
                (text[..at.unwrap_or(text.len())].to_owned(), false)
            }
            Default::TrimStart { pattern, longest } => {
                let (pattern, text) = (self.pattern(thread, pattern)?, there());
                if text.len() > pattern::LENGTH_MAX {
                    return Ok((text, false));
                }
                let mut work = pattern::TRIM_WORK_MAX;
                let mut ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
                if *longest {
                    ends.reverse();
                }
                let at = ends.into_iter().find(|at| pattern::matches_within(&pattern, &text[..*at], &mut work));
                (text[at.unwrap_or_default()..].to_owned(), false)
            }
        })
    }
}
