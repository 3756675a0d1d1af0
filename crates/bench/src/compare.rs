//! Comparison of two reports: the cases they share, and the ratio of their figures.

use crate::report::{Case, Report, short};

/// One figure of a case that is in both reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub scenario: String,
    pub case: String,
    pub figure: &'static str,
    pub a: f64,
    pub b: f64,
}

impl Line {
    /// B over A.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.b / self.a
    }
}

type Pick = fn(&Case) -> Option<f64>;

/// The compared figures, with their units. Zero is a figure that was not measured.
const FIGURES: [(&str, Pick); 7] = [
    ("per s", |case| Some(case.per_second)),
    ("p50 ms", |case| case.latency.map(|latency| latency.p50_us / 1e3)),
    ("p99 ms", |case| case.latency.map(|latency| latency.p99_us / 1e3)),
    ("CPU µs each", |case| case.server.map(|server| server.cpu_us_each)),
    ("memory MB", |case| case.server.map(|server| server.memory_mb)),
    ("memory peak MB", |case| case.server.and_then(|server| server.memory_peak_mb)),
    ("memory KB each", |case| case.figures.get("memory_each_kb").and_then(serde_json::Value::as_f64)),
];

/// Every figure of every case that both have, in A's order.
#[must_use]
pub fn lines(a: &Report, b: &Report) -> Vec<Line> {
    let mut lines = Vec::new();
    for (left, right) in pairs(a, b) {
        for (figure, pick) in FIGURES {
            let (Some(a), Some(b)) = (pick(left), pick(right)) else { continue };
            if a > 0.0 && b > 0.0 {
                lines.push(Line { scenario: left.scenario.clone(), case: left.case.clone(), figure, a, b });
            }
        }
    }
    lines
}

/// Complete cases of the same name.
pub(crate) fn pairs<'a>(a: &'a Report, b: &'a Report) -> impl Iterator<Item = (&'a Case, &'a Case)> {
    a.cases.iter().filter(|case| case.complete).filter_map(|left| {
        let same = |right: &&Case| right.complete && right.scenario == left.scenario && right.case == left.case;
        b.cases.iter().find(same).map(|right| (left, right))
    })
}

/// The lines as a table; the last column is B / A.
#[must_use]
pub fn table(a_name: &str, b_name: &str, lines: &[Line]) -> String {
    let mut text =
        format!("{:<18}{:<26}{:<16}{:>14} {:>14} {:>8}\n", "scenario", "case", "figure", a_name, b_name, "B / A");
    let mut last = (String::new(), String::new());
    for line in lines {
        let now = (line.scenario.clone(), line.case.clone());
        let (scenario, case) = if now == last { ("", "") } else { (line.scenario.as_str(), line.case.as_str()) };
        text.push_str(&format!(
            "{scenario:<18}{case:<26}{:<16}{:>14} {:>14} {:>8}\n",
            line.figure,
            short(line.a),
            short(line.b),
            short_ratio(line.ratio()),
        ));
        last = now;
    }
    text
}

fn short_ratio(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.4}") } else { short(ratio) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ServerFigures;

    fn report(cpu: f64) -> Report {
        let mut get = Case::new("get", "http1", "request");
        get.per_second = 1000.0 * cpu;
        get.server = Some(ServerFigures { cpu_us_each: cpu, memory_mb: 0.0, memory_peak_mb: None });
        let broken = Case::new("patch", "http1", "request").failed("gone");
        Report { cases: vec![get, broken, Case::new("list", format!("{cpu}"), "list")], ..Report::default() }
    }

    #[test]
    fn shared_cases_are_compared() {
        let lines = lines(&report(10.0), &report(25.0));
        let figures: Vec<_> = lines.iter().map(|line| (line.figure, line.ratio())).collect();
        assert_eq!(figures, [("per s", 2.5), ("CPU µs each", 2.5)]);
        let table = table("A", "B", &lines);
        assert_eq!(table.lines().count(), 3);
        assert!(table.contains("CPU µs each") && table.contains("2.50"), "{table}");
    }
}
