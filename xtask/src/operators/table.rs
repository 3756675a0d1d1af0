//! The table of suites: tests passed and failed, seconds, and the same for the reference.

use std::fmt::Write as _;

use super::list::Suite;
use super::run::SuiteResult;

/// One suite in the table.
pub(super) struct Row {
    name: String,
    ours: Option<Counts>,
    reference: Option<Counts>,
    /// Tests that fail here, do not fail on the reference, and are not in the list of known failures.
    defects: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct Counts {
    passed: u64,
    failed: usize,
    seconds: f64,
}

impl Row {
    pub(super) fn new(suite: &Suite, ours: SuiteResult, reference: Option<SuiteResult>) -> Self {
        let counts = |result: &SuiteResult| Counts {
            passed: result.passed,
            failed: result.failures.len(),
            seconds: result.time.as_secs_f64(),
        };
        let fails_there = |test: &String| reference.as_ref().is_some_and(|reference| reference.failures.contains(test));
        let defects = ours.failures.iter().filter(|test| !fails_there(test) && suite.known(test).is_none()).cloned();
        Row {
            name: suite.name.clone(),
            ours: Some(counts(&ours)),
            defects: defects.collect(),
            reference: reference.as_ref().map(counts),
        }
    }

    pub(super) fn not_built(suite: &Suite) -> Self {
        Row { name: suite.name.clone(), ours: None, reference: None, defects: vec!["it could not be built".to_owned()] }
    }

    /// Whether every failure here is one of the reference, or known.
    pub(super) fn is_good(&self) -> bool {
        self.defects.is_empty()
    }
}

pub(super) fn render(rows: &[Row]) -> String {
    let mut text = String::new();
    let with_reference = rows.iter().any(|row| row.reference.is_some());
    let head = ["suite", "passed", "failed", "seconds"].map(str::to_owned);
    let more = ["ref. passed", "ref. failed", "ref. seconds", "ratio"].map(str::to_owned);
    let mut lines = vec![if with_reference { [head, more].concat() } else { head.to_vec() }];
    for row in rows {
        let mut cells = vec![row.name.clone()];
        cells.extend(counts(row.ours));
        if with_reference {
            cells.extend(counts(row.reference));
            cells.push(match (row.ours, row.reference) {
                (Some(ours), Some(reference)) if reference.seconds > 0.0 => {
                    format!("{:.2}", ours.seconds / reference.seconds)
                }
                _ => "-".to_owned(),
            });
        }
        lines.push(cells);
    }
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|column| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0))
        .collect();
    for cells in lines {
        for (at, cell) in cells.iter().enumerate() {
            let width = widths[at];
            let _ = if at == 0 { write!(text, "{cell:<width$}") } else { write!(text, "  {cell:>width$}") };
        }
        text.push('\n');
    }
    for row in rows {
        for test in &row.defects {
            let _ = writeln!(text, "differs: {}: {test}", row.name);
        }
    }
    text
}

fn counts(counts: Option<Counts>) -> [String; 3] {
    match counts {
        Some(counts) => [counts.passed.to_string(), counts.failed.to_string(), format!("{:.1}", counts.seconds)],
        None => ["-", "-", "-"].map(str::to_owned),
    }
}

/// The names of the suites, their modules and what they ask of a server.
pub(super) fn list(suites: &[Suite]) -> String {
    let mut text = String::new();
    for suite in suites {
        let _ = writeln!(text, "{}  {}\n    {}", suite.name, suite.module, suite.style);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn result(passed: u64, failures: &[&str], seconds: u64) -> SuiteResult {
        SuiteResult {
            passed,
            failures: failures.iter().map(|&test| test.to_owned()).collect(),
            time: Duration::from_secs(seconds),
        }
    }

    fn suite() -> Suite {
        Suite {
            name: "jobset".to_owned(),
            module: "m@v1".to_owned(),
            style: String::new(),
            packages: Vec::new(),
            in_tests: Vec::new(),
            prepare: Vec::new(),
            arguments: Vec::new(),
            variables: Default::default(),
            known: vec![super::super::list::Known { test: "needs the net".to_owned(), why: "no net".to_owned() }],
        }
    }

    #[test]
    fn only_what_the_reference_passes_is_a_defect() {
        let row = Row::new(&suite(), result(8, &["a", "b", "needs the net"], 3), Some(result(9, &["b"], 6)));
        assert_eq!(row.defects, ["a"]);
        let text = render(&[row]);
        assert!(text.contains("0.50") && text.contains("differs: jobset: a"), "{text}");
        assert!(Row::new(&suite(), result(9, &["needs the net"], 3), None).is_good());
        assert!(!Row::not_built(&suite()).is_good());
    }
}
