//! Draws terminals as an SVG. Each line appears at its time; a viewer that plays no animations shows all of them.

use std::fmt::Write as _;
use std::time::Duration;

use super::session::{Line, Terminal};

/// Sizes in pixels. A character of the fixed-width fonts below is 0.6 of the font size wide.
const FONT: f64 = 13.0;
const CHARACTER: f64 = FONT * 0.602;
const LINE: f64 = 19.0;
const MARGIN: f64 = 12.0;
/// Height of a terminal's title bar.
const BAR: f64 = 26.0;

const TITLES: [&str; 3] = ["the server", "commands", "a watch"];

/// Rectangle of a terminal.
struct Frame {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// Draws the server above the commands, and the watch beside both.
pub(super) fn draw(terminals: &[Terminal; 3]) -> String {
    let [server, commands, watch] = terminals;
    let left = width(server).max(width(commands));
    let right = width(watch);
    let heights = [height(server), height(commands)];
    let all = (heights[0] + MARGIN + heights[1]).max(height(watch));
    let x = MARGIN + left + MARGIN;
    let frames = [
        Frame { x: MARGIN, y: MARGIN, width: left, height: heights[0] },
        Frame { x: MARGIN, y: MARGIN + heights[0] + MARGIN, width: left, height: all - heights[0] - MARGIN },
        Frame { x, y: MARGIN, width: right, height: all },
    ];
    let (width, height) = (x + right + MARGIN, all + 2.0 * MARGIN);
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}" role="img">
<title>A first minute with dogwatch: the server starts, a Deployment is created, and a watch shows its pods until they run</title>
<style>
text {{ font: {FONT}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d8dee9; white-space: pre; }}
.title {{ fill: #8b95a7; }}
.prompt {{ fill: #7fb069; }}
.command {{ fill: #ffffff; font-weight: bold; }}
.line {{ animation: appear 1ms linear backwards; }}
@keyframes appear {{ from {{ opacity: 0; }} }}
@media (prefers-reduced-motion: reduce) {{ .line {{ animation: none; }} }}
</style>
"##
    );
    for ((terminal, frame), title) in terminals.iter().zip(&frames).zip(TITLES) {
        draw_terminal(&mut svg, terminal, frame, title);
    }
    svg.push_str("</svg>\n");
    svg
}

fn width(terminal: &Terminal) -> f64 {
    let columns = terminal.lines.iter().map(|line| shown(line).chars().count()).max().unwrap_or(0);
    columns as f64 * CHARACTER + 2.0 * MARGIN
}

fn height(terminal: &Terminal) -> f64 {
    BAR + terminal.lines.len() as f64 * LINE + MARGIN
}

/// The text with its prompt.
fn shown(line: &Line) -> String {
    if line.is_command { format!("$ {}", line.text) } else { line.text.clone() }
}

fn draw_terminal(svg: &mut String, terminal: &Terminal, frame: &Frame, title: &str) {
    let Frame { x, y, width, height } = frame;
    let _ = writeln!(
        svg,
        r##"<rect x="{x:.0}" y="{y:.0}" width="{width:.0}" height="{height:.0}" rx="6" fill="#1e2430"/>"##
    );
    let _ = writeln!(svg, r#"<text class="title" x="{:.0}" y="{:.0}">{title}</text>"#, x + MARGIN, y + 18.0);
    for (index, line) in terminal.lines.iter().enumerate() {
        let top = y + BAR + LINE * (index as f64 + 0.75);
        let text = if line.is_command {
            let start = x + MARGIN + 2.0 * CHARACTER;
            format!(
                r#"<tspan class="prompt">$</tspan><tspan class="command" x="{start:.0}">{}</tspan>"#,
                escape(&line.text)
            )
        } else {
            escape(&line.text)
        };
        let _ = writeln!(
            svg,
            r#"<text class="line" style="animation-delay:{}" x="{:.0}" y="{top:.0}">{text}</text>"#,
            seconds(line.at),
            x + MARGIN,
        );
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.2}s", time.as_secs_f64())
}

/// Makes text safe for XML. Spaces at the start and double spaces must be kept by viewers that ignore `white-space`.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            ' ' => escaped.push('\u{a0}'),
            c if c.is_control() => {}
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::session::{Line, Terminal};
    use super::draw;

    fn terminal(lines: &[(u64, bool, &str)]) -> Terminal {
        let line = |&(at, is_command, text): &(u64, bool, &str)| Line {
            at: Duration::from_millis(at),
            is_command,
            text: text.into(),
        };
        Terminal { lines: lines.iter().map(line).collect() }
    }

    #[test]
    fn lines_are_escaped_and_have_their_time() {
        let terminals = || {
            [
                terminal(&[(0, true, "dogwatch up"), (20, false, "ready in 20 ms")]),
                terminal(&[(900, true, "a <b> & c")]),
                terminal(&[(1000, false, "NAME   READY")]),
            ]
        };
        let svg = draw(&terminals());
        assert_eq!(svg, draw(&terminals()), "the same session gives the same picture");
        assert!(svg.contains("a\u{a0}&lt;b&gt;\u{a0}&amp;\u{a0}c"), "{svg}");
        assert!(svg.contains("animation-delay:0.02s"), "{svg}");
        assert!(svg.contains("NAME\u{a0}\u{a0}\u{a0}READY"), "{svg}");
    }
}
