//! A comparison as a picture: processor time for each operation, two bars a case, on a scale of powers of ten.

use std::fmt::Write as _;

use crate::compare::pairs;
use crate::report::Report;

const LEFT: f64 = 250.0;
const WIDTH: f64 = 560.0;
const ROW: f64 = 40.0;
const BAR: f64 = 14.0;
const TOP: f64 = 62.0;
const COLOURS: [&str; 2] = ["#9aa5b1", "#2563eb"];

/// Bars of every case that has processor time in both reports; none when there is no such case.
#[must_use]
pub fn svg(a_name: &str, b_name: &str, a: &Report, b: &Report) -> Option<String> {
    let cpu = |case: &crate::report::Case| case.server.map(|server| server.cpu_us_each).filter(|cpu| *cpu > 0.0);
    let bars: Vec<(String, [f64; 2])> = pairs(a, b)
        .filter_map(|(left, right)| Some((format!("{} {}", left.scenario, left.case), [cpu(left)?, cpu(right)?])))
        .collect();
    let values = || bars.iter().flat_map(|(_, values)| *values);
    let low = values().fold(f64::INFINITY, f64::min).log10().floor();
    let high = values().fold(0.0, f64::max).log10().ceil().max(low + 1.0);
    if bars.is_empty() {
        return None;
    }
    let at = |value: f64| (value.log10() - low) / (high - low) * WIDTH;

    let height = TOP + ROW * bars.len() as f64 + 30.0;
    let full = LEFT + WIDTH + 90.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {full} {height}\" width=\"{full}\" height=\"{height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"{full}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"15\" font-weight=\"600\" fill=\"#111827\">Server CPU for each operation \
         (less is better, each line is ten times the last)</text>\n"
    );
    for (position, (name, colour)) in [a_name, b_name].iter().zip(COLOURS).enumerate() {
        let x = LEFT + 200.0 * position as f64;
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"36\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"46\" fill=\"#111827\">{}</text>",
            x + 18.0,
            escaped(name)
        );
    }
    for power in low as i32..=high as i32 {
        let x = LEFT + at(10_f64.powi(power));
        let bottom = height - 24.0;
        let _ = writeln!(
            text,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#e5e7eb\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#6b7280\">{}</text>",
            height - 8.0,
            time(10_f64.powi(power))
        );
    }
    for (row, (name, values)) in bars.iter().enumerate() {
        let y = TOP + ROW * row as f64 + 4.0;
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#111827\">{}</text>",
            LEFT - 10.0,
            y + BAR + 4.0,
            escaped(name)
        );
        for (position, (value, colour)) in values.iter().zip(COLOURS).enumerate() {
            let (y, width) = (y + (BAR + 1.0) * position as f64, at(*value).max(1.0));
            let _ = writeln!(
                text,
                "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"#374151\">{}</text>",
                LEFT + width + 5.0,
                y + BAR - 3.0,
                time(*value)
            );
        }
    }
    text.push_str("</svg>\n");
    Some(text)
}

/// Microseconds in the unit they are read most easily in.
fn time(microseconds: f64) -> String {
    let (value, unit) = match microseconds {
        ..1e3 => (microseconds, "µs"),
        ..1e6 => (microseconds / 1e3, "ms"),
        _ => (microseconds / 1e6, "s"),
    };
    // Whole numbers have no fraction.
    let digits = usize::from(value < 10.0 && value.fract() >= 0.05);
    format!("{value:.digits$} {unit}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Case, ServerFigures};

    fn report(cpus: &[f64]) -> Report {
        let case = |(number, cpu): (usize, &f64)| {
            let mut case = Case::new("get", format!("<{number}>"), "request");
            case.server = Some(ServerFigures { cpu_us_each: *cpu, memory_mb: 1.0, memory_peak_mb: None });
            case
        };
        Report { cases: cpus.iter().enumerate().map(case).collect(), ..Report::default() }
    }

    #[test]
    fn longer_bars_are_larger_figures() {
        let picture = svg("old & slow", "new", &report(&[1000.0, 0.0]), &report(&[10.0, 5.0])).expect("a case");
        assert!(picture.contains("old &amp; slow") && picture.contains("get &lt;0&gt;"), "{picture}");
        let width = |colour: &str| {
            let end = picture.rfind(&format!("fill=\"{colour}\"")).expect("a bar");
            let start = picture[..end].rfind("width=\"").expect("it has a width") + 7;
            picture[start..].split('"').next().and_then(|text| text.parse::<f64>().ok()).expect("a number")
        };
        assert!(width(COLOURS[0]) > width(COLOURS[1]));
        // A case without processor time has no bars.
        assert!(!picture.contains("get &lt;1&gt;"));
    }

    #[test]
    fn times_are_short() {
        for (microseconds, text) in
            [(2.53, "2.5 µs"), (10.0, "10 µs"), (14.2, "14 µs"), (1000.0, "1 ms"), (4475.0, "4.5 ms"), (2.1e6, "2.1 s")]
        {
            assert_eq!(time(microseconds), text);
        }
    }

    #[test]
    fn nothing_in_common_is_no_picture() {
        assert_eq!(svg("a", "b", &report(&[]), &report(&[1.0])), None);
    }
}
