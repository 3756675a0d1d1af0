//! The report of a run: one record for each case, as text and as JSON for comparisons.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::sample::Latency;

/// All results of one run, also of an incomplete one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// `dogwatch`, or the version another server gives.
    pub server: String,
    pub url: String,
    /// False when something stopped the run; what was measured until then is here.
    pub complete: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Skipped scenarios, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub skipped: Vec<String>,
    pub cases: Vec<Case>,
}

/// One way of asking one question.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Case {
    pub scenario: String,
    pub case: String,
    pub complete: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    pub parameters: Map<String, Value>,
    /// The unit of `operations`: request, event, list, …
    pub unit: String,
    pub operations: u64,
    pub seconds: f64,
    pub per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server: Option<ServerFigures>,
    /// Processor time of the load generator for each operation.
    pub generator_cpu_us_each: f64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub floor: Option<FloorFigures>,
    /// Whatever else the scenario counts; the unit ends the name.
    pub figures: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ServerFigures {
    pub cpu_us_each: f64,
    pub memory_mb: f64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_peak_mb: Option<f64>,
}

/// A program that does nothing but encrypt and write the same bytes to as many connections, in the same run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct FloorFigures {
    pub cpu_us_each: f64,
    /// The server's processor time over the floor's.
    pub ratio: f64,
}

impl Case {
    #[must_use]
    pub fn new(scenario: &str, case: impl Into<String>, unit: &str) -> Self {
        Case {
            scenario: scenario.to_owned(),
            case: case.into(),
            unit: unit.to_owned(),
            complete: true,
            ..Case::default()
        }
    }

    #[must_use]
    pub(crate) fn with(mut self, parameter: &str, value: impl Into<Value>) -> Self {
        self.parameters.insert(parameter.to_owned(), value.into());
        self
    }

    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        // Four digits are more than any of this is worth.
        let digits = if value == 0.0 { 0 } else { 3 - value.abs().log10().floor() as i32 };
        let scale = 10_f64.powi(digits.clamp(0, 6));
        self.figures.insert(name.to_owned(), Value::from((value * scale).round() / scale));
    }

    /// Says what the floor of the same work cost.
    pub(crate) fn over_floor(&mut self, floor_cpu_us_each: f64) {
        let server = self.server.map_or(f64::NAN, |server| server.cpu_us_each);
        let ratio = if floor_cpu_us_each > 0.0 && server.is_finite() { server / floor_cpu_us_each } else { 0.0 };
        self.floor = Some(FloorFigures { cpu_us_each: floor_cpu_us_each, ratio });
    }

    pub(crate) fn failed(mut self, why: impl ToString) -> Self {
        self.complete = false;
        self.error = Some(why.to_string());
        self
    }
}

/// The columns that [`row`] fills.
#[must_use]
pub fn heading() -> String {
    format!(
        "{:<18}{:<24}{:>9} {:>9}  {:>9} {:>9} {:>9}  {:>11} {:>9} {:>6}  {:>8}\n",
        "scenario", "case", "count", "per s", "p50 ms", "p99 ms", "max ms", "CPU µs each", "floor µs", "ratio", "MB"
    )
}

/// A case as a line of a table, with a second line for what has no column.
#[must_use]
pub fn row(case: &Case) -> String {
    let ms = |pick: fn(&Latency) -> f64| case.latency.as_ref().map_or(String::new(), |l| short(pick(l) / 1e3));
    let server = |pick: fn(&ServerFigures) -> f64| case.server.as_ref().map_or(String::new(), |s| short(pick(s)));
    let floor = |pick: fn(&FloorFigures) -> f64| case.floor.as_ref().map_or(String::new(), |f| short(pick(f)));
    let mut text = format!(
        "{:<18}{:<24}{:>9} {:>9}  {:>9} {:>9} {:>9}  {:>11} {:>9} {:>6}  {:>8}\n",
        case.scenario,
        case.case,
        case.operations,
        short(case.per_second),
        ms(|l| l.p50_us),
        ms(|l| l.p99_us),
        ms(|l| l.max_us),
        server(|s| s.cpu_us_each),
        floor(|f| f.cpu_us_each),
        floor(|f| f.ratio),
        server(|s| s.memory_mb),
    );
    let mut others: Vec<String> =
        case.figures.iter().map(|(name, value)| format!("{} {value}", name.replace('_', " "))).collect();
    others.extend(case.server.and_then(|s| s.memory_peak_mb).map(|peak| format!("memory peak mb {}", short(peak))));
    if !others.is_empty() {
        let _ = writeln!(text, "{:18}{}", "", others.join(" · "));
    }
    if let Some(error) = &case.error {
        let _ = writeln!(text, "{:18}incomplete: {error}", "");
    }
    text
}

/// Three digits that count.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => String::new(),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_its_file() {
        let mut case = Case::new("get", "http1", "request").with("callers", 8);
        case.server = Some(ServerFigures { cpu_us_each: 30.0, memory_mb: 20.0, memory_peak_mb: None });
        case.over_floor(10.0);
        case.figure("bytes_each", 3512.347);
        let case = case.failed("the server went away");
        let report = Report { cases: vec![case], ..Report::default() };
        let text = serde_json::to_string(&report).expect("it is JSON");
        let read: Report = serde_json::from_str(&text).expect("it is read again");
        assert!(!read.complete && !read.cases[0].complete);
        assert_eq!(read.cases[0].floor.map(|floor| floor.ratio), Some(3.0));
        assert_eq!(read.cases[0].figures["bytes_each"], 3512.0);
        let text = row(&read.cases[0]);
        assert!(text.contains("bytes each 3512") && text.contains("incomplete: the server went away"), "{text}");
    }

    #[test]
    fn columns_stand_below_their_headings() {
        let row = row(&Case::new("list", "rv unset", "list"));
        assert_eq!(heading().chars().count(), row.chars().count());
    }

    #[test]
    fn numbers_are_short() {
        let numbers = [0.123_4, 9.99, 9.996, 99.96, 1234.5];
        assert_eq!(numbers.map(short), ["0.12", "9.99", "10.0", "100", "1234"]);
    }
}
