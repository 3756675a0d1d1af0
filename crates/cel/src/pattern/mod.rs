//! Regular expressions of schemas and rules: in the syntax of Go, linear in time, bounded in size, and shared.
//!
//! The versions of a definition share most of their patterns, and so do the definitions of an operator. A pattern is
//! compiled once for all uses, on first use.
//!
//! `regex-automata` does the matching. The translation is written by hand: no crate reads the dialect of Go, and its
//! error texts are visible to clients.
//!
//! - this file: [`Pattern`]
//! - `go`: Go's dialect translated, and its error texts

mod go;

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock, OnceLock, Weak};

use parking_lot::Mutex;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;

/// Largest compiled program, in bytes.
const SIZE_MAX: usize = 2 * 1024 * 1024;
const NEST_MAX: u32 = 200;
/// Largest table of the one-pass engine for anchored patterns; larger patterns use another engine.
const ONE_PASS_MAX: usize = 32 * 1024;

/// All patterns in use, by text.
static POOL: LazyLock<Mutex<HashMap<Box<str>, Weak<Shared>>>> = LazyLock::new(Mutex::default);

/// A regular expression, shared by all uses of the same text.
#[derive(Clone)]
pub struct Pattern(Arc<Shared>);

struct Shared {
    text: Box<str>,
    compiled: OnceLock<Result<Regex, Box<str>>>,
}

impl Pattern {
    pub fn new(text: &str) -> Pattern {
        let mut pool = POOL.lock();
        if let Some(known) = pool.get(text).and_then(Weak::upgrade) {
            return Pattern(known);
        }
        let made = Arc::new(Shared { text: text.into(), compiled: OnceLock::new() });
        pool.insert(text.into(), Arc::downgrade(&made));
        Pattern(made)
    }

    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Returns Go's error text if the pattern is invalid.
    pub fn error(&self) -> Option<&str> {
        self.regex().err()
    }

    /// Returns the compiled expression, or Go's error text.
    pub fn regex(&self) -> Result<&Regex, &str> {
        self.0.compiled.get_or_init(|| compile(&self.0.text).map_err(Into::into)).as_ref().map_err(|why| &**why)
    }

    /// Reports whether the pattern occurs in a text; an invalid pattern never does.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex().is_ok_and(|regex| regex.is_match(text))
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for Pattern {}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.text.hash(state);
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.0.text).finish()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut pool = POOL.lock();
        // The entry may have been replaced in the meantime.
        if pool.get(&self.text).is_some_and(|known| known.strong_count() == 0) {
            pool.remove(&self.text);
        }
    }
}

fn compile(text: &str) -> Result<Regex, String> {
    let translated = go::translate(text)?;
    // Values are short and there are many patterns: engines that build tables during a search are not worth their
    // memory.
    let config =
        Regex::config().nfa_size_limit(Some(SIZE_MAX)).onepass_size_limit(Some(ONE_PASS_MAX)).hybrid(false).dfa(false);
    let syntax = syntax::Config::new().nest_limit(NEST_MAX);
    let built = Regex::builder().configure(config).syntax(syntax).build(&translated);
    built.map_err(|error| go::error_text(text, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_go_mean_what_they_mean_there() {
        for (pattern, text, want) in [
            (r"^\d+$", "١", false),
            (r"^\d+$", "12", true),
            (r"^[\d_]+$", "1_2", true),
            (r"^[[a]$", "[", true),
            (r"^[a&&b]+$", "&a", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"a{,2}", "a{,2}", true),
            (r"^a{2}$", "aa", true),
            (r"^\<\>$", "<>", true),
            (r"\bfoo\b", "a foo b", true),
            (r"^[]a]+$", "]a", true),
            (r"^[a\-z]+$", "-", true),
            (r"^[^\s/]+$", "a/b", false),
            (r"^\x41\101$", "AA", true),
            (r"(?i)^ABC$", "abc", true),
            (r"^[[:alpha:]]+$", "abc", true),
            (r"^\pL+$", "é", true),
            (r"^[a-]$", "-", true),
        ] {
            assert_eq!(Pattern::new(pattern).regex().map(|regex| regex.is_match(text)), Ok(want), "{pattern} {text}");
        }
    }

    #[test]
    fn patterns_that_go_refuses_are_refused() {
        for (pattern, want) in [
            ("[a", "error parsing regexp: missing closing ]: `[a`"),
            ("(a", "error parsing regexp: missing closing ): `(a`"),
            ("a)", "error parsing regexp: unexpected ): `a)`"),
            ("*a", "error parsing regexp: missing argument to repetition operator: `*a`"),
            ("a{1001}", "error parsing regexp: invalid repeat count: `{1001}`"),
            (r"\1", r"error parsing regexp: invalid escape sequence: `\1`"),
            ("(?=a)", "error parsing regexp: invalid or unsupported Perl syntax: `(?=`"),
        ] {
            assert_eq!(Pattern::new(pattern).error(), Some(want), "{pattern}");
        }
        assert!(Pattern::new(&"(a{1000}){1000}".repeat(20)).error().is_some());
        assert!(Pattern::new(&"(".repeat(5_000)).error().is_some());
    }

    #[test]
    fn a_text_is_compiled_once_for_all_who_use_it_and_forgotten_after_the_last() {
        let text = "^only-in-this-test[0-9]+$";
        let first = Pattern::new(text);
        let second = Pattern::new(text);
        assert!(Arc::ptr_eq(&first.0, &second.0));
        assert!(first.0.compiled.get().is_none(), "compiled on first use");
        assert!(first.is_match("only-in-this-test1") && second.0.compiled.get().is_some());
        drop(first);
        assert!(POOL.lock().contains_key(text));
        drop(second);
        assert!(!POOL.lock().contains_key(text));
    }
}
