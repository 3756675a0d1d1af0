//! Phrases in comments and pages that make a reader stop.

use std::fs;
use std::path::Path;

use super::files;

/// Each phrase with what to write instead. Written apart, so that this file does not report itself.
const PHRASES: [(&str, &str); 5] = [
    (concat!("nob", "ody"), "name the reader, caller or client, or use \"no\""),
    (concat!("someb", "ody"), "name the reader, caller or client"),
    (concat!("whoe", "ver"), "name the reader, caller or client"),
    (concat!(" is to", "ld"), "say which message is sent or returned"),
    (concat!(" says", " so"), "say which message is sent or returned"),
];

/// Returns the offenders with their lines.
pub(super) fn check(root: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files::all(root) {
        let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        let Ok(text) = fs::read_to_string(&file) else { continue };
        if checked(&shown) {
            complaints.extend(offenders(&shown, &text));
        }
    }
    complaints
}

/// The Rust sources of the workspace, and all pages.
fn checked(file: &str) -> bool {
    file.ends_with(".md")
        || (file.ends_with(".rs") && ["crates/", "xtask/", "tests/"].iter().any(|at| file.starts_with(at)))
}

fn offenders(file: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (at, line) in text.lines().enumerate() {
        // Of a source file only the comments: a message may quote what the reference sends.
        let start = if file.ends_with(".rs") { line.find("//") } else { Some(0) };
        let Some(start) = start else { continue };
        let comment = line[start..].to_lowercase();
        for (phrase, instead) in PHRASES.iter().filter(|(phrase, _)| comment.contains(phrase)) {
            complaints.push(format!("{file}:{}: \"{}\": {instead}", at + 1, phrase.trim()));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::{PHRASES, checked, offenders};

    #[test]
    fn every_phrase_is_reported_with_its_line() {
        for (phrase, _) in PHRASES {
            let line = format!("\n/// The store{phrase} it.\n");
            let found = offenders("crates/a.rs", &line);
            assert!(found.len() == 1 && found[0].starts_with("crates/a.rs:2: "), "{found:?}");
            assert_eq!(offenders("docs/a.md", &line.to_uppercase()).len(), 1);
            assert!(offenders("crates/a.rs", &format!("let text = \"it{phrase}\";")).is_empty());
        }
    }

    #[test]
    fn sources_and_pages_are_checked() {
        assert!(checked("docs/a.md") && checked("crates/a/src/b.rs"));
        assert!(!checked("fuzz/a.rs") && !checked("tests/go/main.go"));
    }
}
