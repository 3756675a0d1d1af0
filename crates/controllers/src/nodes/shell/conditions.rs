//! `test`, `[ … ]` and `[[ … ]]`.

use super::files::{Files, absolute};
use super::pattern;

/// Longest condition, in words.
const WORDS_MAX: usize = 256;

/// Evaluates a condition. In `[[ ]]` the right side of `==` is a pattern.
pub(super) fn test(words: &[String], files: &Files, directory: &str, double: bool) -> Result<bool, String> {
    if words.len() > WORDS_MAX {
        return Err("too many arguments".to_owned());
    }
    let mut parser = Parser { words, at: 0, files, directory, double };
    if words.is_empty() {
        return Ok(false);
    }
    let value = parser.or()?;
    match words.get(parser.at) {
        None => Ok(value),
        Some(word) => Err(format!("{word}: unknown operand")),
    }
}

struct Parser<'a> {
    words: &'a [String],
    at: usize,
    files: &'a Files,
    directory: &'a str,
    double: bool,
}

const BINARY: [&str; 13] = ["=", "==", "!=", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "<", ">", "-nt", "=~"];

impl Parser<'_> {
    fn word(&self, ahead: usize) -> Option<&str> {
        self.words.get(self.at + ahead).map(String::as_str)
    }

    fn take(&mut self, wanted: &[&str]) -> bool {
        let is_it = self.word(0).is_some_and(|word| wanted.contains(&word));
        self.at += usize::from(is_it);
        is_it
    }

    fn or(&mut self) -> Result<bool, String> {
        let mut value = self.and()?;
        while self.take(&["-o", "||"]) {
            let right = self.and()?;
            value = value || right;
        }
        Ok(value)
    }

    fn and(&mut self) -> Result<bool, String> {
        let mut value = self.not()?;
        while self.take(&["-a", "&&"]) {
            let right = self.not()?;
            value = value && right;
        }
        Ok(value)
    }

    fn not(&mut self) -> Result<bool, String> {
        // `! = x` compares; a single `!` is a text.
        let mut negated = false;
        while self.word(0) == Some("!") && self.word(1).is_some() && !self.word(1).is_some_and(|w| BINARY.contains(&w))
        {
            self.at += 1;
            negated = !negated;
        }
        Ok(self.primary()? != negated)
    }

    fn primary(&mut self) -> Result<bool, String> {
        if let Some(operator) = self.word(1).filter(|word| BINARY.contains(word)).map(str::to_owned)
            && let (Some(left), Some(right)) = (self.word(0), self.word(2))
        {
            let result = self.compare(left, &operator, right);
            self.at += 3;
            return result;
        }
        if self.take(&["("]) {
            let value = self.or()?;
            return if self.take(&[")"]) { Ok(value) } else { Err("closing paren expected".to_owned()) };
        }
        let (Some(first), second) = (self.word(0).map(str::to_owned), self.word(1).map(str::to_owned)) else {
            return Err("argument expected".to_owned());
        };
        if let Some(operand) = second
            && first.len() == 2
            && first.starts_with('-')
            && let Some(value) = self.unary(&first, &operand)
        {
            self.at += 2;
            return Ok(value);
        }
        self.at += 1;
        Ok(!first.is_empty())
    }

    fn unary(&self, operator: &str, operand: &str) -> Option<bool> {
        let path = absolute(self.directory, operand);
        let files = self.files;
        Some(match operator {
            "-z" => operand.is_empty(),
            "-n" => !operand.is_empty(),
            "-e" | "-r" | "-w" => !operand.is_empty() && files.exists(&path),
            "-f" => !operand.is_empty() && files.read(&path).is_ok(),
            "-d" => !operand.is_empty() && files.is_directory(&path),
            "-s" => files.read(&path).is_ok_and(|bytes| !bytes.is_empty()),
            "-x" => files.is_directory(&path),
            "-h" | "-L" | "-p" | "-S" | "-b" | "-c" | "-t" => false,
            _ => return None,
        })
    }

    fn compare(&self, left: &str, operator: &str, right: &str) -> Result<bool, String> {
        let number = |text: &str| text.trim().parse::<i64>().map_err(|_| format!("{text}: bad number"));
        let numbers = || Ok::<_, String>((number(left)?, number(right)?));
        let same = || if self.double { pattern::matches(right, left) } else { left == right };
        Ok(match operator {
            "=" | "==" => same(),
            "!=" => !same(),
            "<" => left < right,
            ">" => left > right,
            "-eq" => numbers().map(|(left, right)| left == right)?,
            "-ne" => numbers().map(|(left, right)| left != right)?,
            "-lt" => numbers().map(|(left, right)| left < right)?,
            "-le" => numbers().map(|(left, right)| left <= right)?,
            "-gt" => numbers().map(|(left, right)| left > right)?,
            "-ge" => numbers().map(|(left, right)| left >= right)?,
            other => return Err(format!("{other}: unknown operand")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_files_texts_and_numbers() {
        let files = Files::default();
        files.write("/tmp/full", b"x", false).unwrap();
        files.write("/tmp/empty", b"", false).unwrap();
        let check = |text: &str, double: bool| {
            let words: Vec<String> = text.split(' ').map(|word| word.replace('_', "")).collect();
            test(&words, &files, "/tmp", double)
        };
        for (text, expected) in [
            ("-f /tmp/full", true),
            ("-f full", true),
            ("-f none", false),
            ("-s empty", false),
            ("-d /tmp", true),
            ("! -f none", true),
            ("-z _", true),
            ("a = a", true),
            ("a != a", false),
            ("3 -ge 2", true),
            ("-f full -a -f none", false),
            ("-f full -o -f none", true),
            ("( -f none ) -o x", true),
            ("x", true),
        ] {
            assert_eq!(check(text, false), Ok(expected), "{text}");
        }
        assert_eq!(check("abc == a*", true), Ok(true));
        assert_eq!(check("abc = a*", false), Ok(false));
        assert_eq!(check("x -eq 1", false), Err("x: bad number".to_owned()));
    }
}
