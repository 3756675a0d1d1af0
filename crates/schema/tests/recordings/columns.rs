//! Tables: columns, and cells of objects that occur in the same scenario.

use machinery::json::Value;
use schema::kind::Kind;
use schema::{columns, kinds};

use super::{scenarios, steps, text};

/// Returns kind, name and subresource of a path.
fn kind_of(path: &str) -> Option<(&'static Kind, String, String)> {
    let path = path.split('?').next().unwrap_or_default();
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    let kind = kinds::builtin().get(group, version, rest.first()?)?;
    let segment = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
    Some((kind, segment(1), segment(2)))
}

fn cells_agree(expected: &[Value], got: &[Value]) -> bool {
    let same = |e: &Value, g: &Value| match e.as_str() {
        Some("$AGE" | "$TIME" | "$IP") => g.is_string() || g.is_null(),
        _ => e == g,
    };
    expected.len() == got.len() && expected.iter().zip(got).all(|(e, g)| same(e, g))
}

#[test]
fn tables_agree() {
    let (mut compared, mut wrong) = (0, Vec::new());
    let (mut described, mut otherwise) = (0, std::collections::BTreeSet::new());
    for scenario in scenarios("wire.json").iter().filter(|s| text(s, "name").starts_with("table")) {
        let mut last: Option<&Value> = None;
        for step in steps(scenario) {
            let body = &step["answer"]["body"];
            let Some((kind, name, sub)) = kind_of(text(step, "path")) else { continue };
            if body["kind"] != "Table" {
                if step["method"] != "GET" && step["answer"]["status"].as_u64() < Some(300) {
                    last = Some(body);
                }
                continue;
            }
            let scale = sub == "scale";
            let definitions = if scale { columns::scale_definitions() } else { columns::definitions(kind) };
            let strip = |columns: &Value| -> Vec<Value> {
                let without = |column: &Value| {
                    let mut column = column.clone();
                    column.as_object_mut().map(|map| map.shift_remove("description"));
                    column
                };
                columns.as_array().into_iter().flatten().map(without).collect()
            };
            compared += 1;
            let both = definitions.as_array().into_iter().flatten();
            for (ours, theirs) in both.zip(body["columnDefinitions"].as_array().into_iter().flatten()) {
                if ours["description"] == theirs["description"] {
                    described += 1;
                } else {
                    otherwise.insert(format!("{} {}", kind.gvk.kind, text(ours, "name")));
                }
            }
            if strip(&definitions) != strip(&body["columnDefinitions"]) {
                wrong.push(format!("{}: columns of {}", scenario["name"], kind.gvk));
            }
            let (Some(object), [row]) = (last, body["rows"].as_array().map(Vec::as_slice).unwrap_or_default()) else {
                continue;
            };
            if name.is_empty() || scale {
                continue;
            }
            let got = columns::row(kind, object, 1_900_000_000);
            let conditions = row["conditions"].as_array().cloned().unwrap_or_default();
            if !cells_agree(row["cells"].as_array().unwrap(), &got.cells) || conditions != got.conditions {
                wrong.push(format!("{}:\n  {}\n  {}", scenario["name"], row["cells"], Value::from(got.cells)));
            }
        }
    }
    // Columns that do not belong to a single field have descriptions of our own.
    println!("{described} columns described alike; otherwise: {otherwise:?}");
    assert!(compared == 0 || described > 200 && otherwise.len() < 60, "{described} alike; otherwise: {otherwise:?}");
    println!("{compared} tables compared, {} differ", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
