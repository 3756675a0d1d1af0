//! The output of a Go test program: how many tests passed, and the names of those that failed.
//!
//! Two kinds are counted: functions of the `testing` package with their subtests (`--- PASS: TestX/one`), and specs of Ginkgo, of
//! which one such function has many:
//!
//! ```text
//! Summarizing 1 Failure:
//!   [FAIL] JobSet validation [It] refuses two names
//!   /src/jobset_test.go:120
//! Ran 12 of 14 Specs in 3.175 seconds
//! FAIL! -- 11 Passed | 1 Failed | 2 Pending | 0 Skipped
//! --- FAIL: TestAPIs (3.21s)
//! ```

/// Marks of a failed spec in Ginkgo's summary.
const FAILED_SPECS: [&str; 5] = ["[FAIL] ", "[PANICKED!] ", "[TIMEDOUT] ", "[INTERRUPTED] ", "[ABORTED] "];

/// What one test program printed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Results {
    pub(super) passed: u64,
    pub(super) failures: Vec<String>,
    /// Functions of the `testing` package that failed; those that run specs fail with one of them.
    functions: Vec<String>,
    specs_failed: u64,
    /// Whether the lines of the summary of failed specs follow.
    in_summary: bool,
}

impl Results {
    pub(super) fn read(output: &str) -> Self {
        let mut results = Results::default();
        output.lines().for_each(|line| results.take(&without_colours(line)));
        // A function whose specs failed is named by these.
        if results.specs_failed == 0 || results.failures.is_empty() {
            results.failures.append(&mut results.functions);
        } else {
            results.functions.clear();
        }
        results
    }

    fn take(&mut self, line: &str) {
        let text = line.trim_start();
        if let Some(name) = text.strip_prefix("--- PASS: ") {
            self.passed += u64::from(!name.is_empty());
        } else if let Some(name) = text.strip_prefix("--- FAIL: ") {
            self.functions.push(name.split(' ').next().unwrap_or_default().to_owned());
        } else if text.starts_with("Summarizing ") {
            self.in_summary = true;
        } else if text.starts_with("Ran ") && text.contains(" Specs in ") {
            self.in_summary = false;
        } else if let Some((_, counts)) = text.split_once("! -- ") {
            self.passed += count(counts, "Passed");
            self.specs_failed += count(counts, "Failed");
        } else if self.in_summary
            && let Some(name) = FAILED_SPECS.iter().find_map(|mark| text.strip_prefix(mark))
        {
            self.failures.push(name.trim().to_owned());
        }
    }
}

/// Returns the number before a word in `11 Passed | 1 Failed`.
fn count(counts: &str, word: &str) -> u64 {
    let part = counts.split('|').map(str::trim).find_map(|part| part.strip_suffix(word));
    part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// Removes the escape sequences of colours.
fn without_colours(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut parts = line.split("\u{1b}[");
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        text.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_specs_are_counted() {
        let results = Results::read(
            "=== RUN   TestAPIs\n\u{1b}[1mRan 12 of 14 Specs in 3.1 seconds\u{1b}[0m\n\
             \u{1b}[1mSUCCESS!\u{1b}[0m -- \u{1b}[32m12 Passed\u{1b}[0m | 0 Failed | 2 Pending | 0 Skipped\n\
             --- PASS: TestAPIs (3.21s)\n--- FAIL: TestOther (0.00s)\n    --- FAIL: TestOther/one (0.00s)\n    --- PASS: TestOther/two (0.00s)\n",
        );
        assert_eq!(results.passed, 14);
        assert_eq!(results.failures, ["TestOther", "TestOther/one"]);
    }

    #[test]
    fn failed_specs_are_named_by_the_summary() {
        let results = Results::read(
            "  [FAIL] not in the summary\nSummarizing 1 Failure:\n  [FAIL] JobSet [It] refuses two names\n  /src/a_test.go:120\n\n\
             Ran 12 of 14 Specs in 3.1 seconds\nFAIL! -- 11 Passed | 1 Failed | 2 Pending | 0 Skipped\n--- FAIL: TestAPIs (3.21s)\nFAIL\n",
        );
        assert_eq!((results.passed, results.failures), (11, vec!["JobSet [It] refuses two names".to_owned()]));
    }
}
