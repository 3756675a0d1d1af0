//! A timeline as one web page that needs nothing else.

use std::fmt::Write as _;

use crate::timeline::Step;

const STYLE: &str = "body{font:14px system-ui,sans-serif;margin:2rem;color:#222;background:#fff}\
    table{border-collapse:collapse}td,th{text-align:left;padding:.2rem .8rem;border-bottom:1px solid #ddd;vertical-align:top}\
    td.n{text-align:right;font-variant-numeric:tabular-nums}.ADDED{color:#06702b}.DELETED{color:#a11}.loop{background:#fff3c4}\
    code{font:13px ui-monospace,monospace}@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}\
    td,th{border-color:#333}.ADDED{color:#5c9}.DELETED{color:#f77}.loop{background:#443a10}a{color:#8bf}}";

/// The page of an object.
pub(super) fn page(title: &str, steps: &[Step]) -> String {
    let title = escaped(title);
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style>\
        <h1>{title}</h1><p>Each write of the object and of all that it owns. “After” is the newest of these changes that a watch \
        had sent to the writer before it wrote: a guess at the cause.</p><table><tr><th>Time<th>Revision<th>Change<th>By\
        <th>Fields<th>After</tr>"
    );
    for step in steps {
        let class = if step.is_loop { " class=\"loop\"" } else { "" };
        let mark = if step.is_loop { " (hot loop)" } else { "" };
        let cause = step.cause.as_ref().map_or_else(String::new, |(revision, object)| {
            format!("<a href=\"#r{revision}\">{revision}</a> {}", escaped(object))
        });
        let _ = write!(
            page,
            "<tr id=\"r{0}\"{class}><td>{1}<td class=\"n\">{0}<td style=\"padding-left:{2}em\"><span class=\"{3}\">{3}</span> {4}{mark}\
            <td>{5}<td><code>{6}</code><td>{cause}</tr>",
            step.revision,
            escaped(step.time.get(11..26).unwrap_or(&step.time)),
            step.depth * 2 + 1,
            escaped(&step.kind),
            escaped(&step.object),
            escaped(&step.writer),
            escaped(&step.fields),
        );
    }
    page.push_str("</table></html>\n");
    page
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn see_4_a_page_is_whole_and_texts_are_escaped() {
        let step = Step {
            time: "2026-01-01T10:00:00.123456Z".to_owned(),
            revision: 7,
            kind: "ADDED".to_owned(),
            object: "Pod/<b>".to_owned(),
            depth: 1,
            writer: "a&b".to_owned(),
            fields: String::new(),
            cause: Some((5, "Deployment/web".to_owned())),
            is_loop: false,
        };
        let page = page("deployment.apps/web", &[step]);
        assert!(page.contains("Pod/&lt;b&gt;") && page.contains("a&amp;b") && page.contains("href=\"#r5\""), "{page}");
        assert!(!page.contains("http"), "nothing is loaded from elsewhere");
    }
}
