//! `dogwatch get`: prints objects as a table, JSON, YAML or names.

use http::Method;
use machinery::json::Value;

use super::remote::Remote;
use crate::args::{Get, Output};
use crate::failure::Failure;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

pub(super) async fn get(args: Get) -> Result<(), Failure> {
    let remote = Remote::connect(args.scope.kubeconfig.as_deref()).await?;
    let resource = remote.resource(&args.resource).await?;
    let namespace = args.scope.namespace(&remote.namespace);
    let mut path = resource.path(namespace, args.name.as_deref());
    if let Some(query) = args.scope.query() {
        path.push_str(&format!("?{query}"));
    }
    match args.output {
        Output::Table | Output::Wide => {
            let response = remote.call_ok(Method::GET, &path, TABLE, None).await?.value()?;
            print!(
                "{}",
                table(&response, args.output == Output::Wide, args.scope.all_namespaces && resource.namespaced)
            );
        }
        Output::Json => {
            let response = remote.call_ok(Method::GET, &path, "application/json", None).await?.value()?;
            println!("{response:#}");
        }
        Output::Yaml => {
            let response = remote.call_ok(Method::GET, &path, "application/yaml", None).await?;
            print!("{}", String::from_utf8_lossy(&response.body));
        }
        Output::Name => {
            let response = remote.call_ok(Method::GET, &path, "application/json", None).await?.value()?;
            let one = [response.clone()];
            let items = response["items"].as_array().map_or(&one[..], Vec::as_slice);
            for item in items {
                println!("{}", resource.display(item["metadata"]["name"].as_str().unwrap_or_default()));
            }
        }
    }
    Ok(())
}

/// Formats a server's table, with columns padded to their widest cell.
fn table(response: &Value, wide: bool, with_namespace: bool) -> String {
    let columns: Vec<(usize, &str)> = response["columnDefinitions"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .filter(|(_, column)| wide || column["priority"].as_i64().unwrap_or_default() == 0)
        .map(|(at, column)| (at, column["name"].as_str().unwrap_or_default()))
        .collect();
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut head: Vec<String> = columns.iter().map(|(_, name)| name.to_uppercase()).collect();
    if with_namespace {
        head.insert(0, "NAMESPACE".to_owned());
    }
    lines.push(head);
    for row in response["rows"].as_array().into_iter().flatten() {
        let mut line: Vec<String> = columns.iter().map(|(at, _)| cell(&row["cells"][*at])).collect();
        if with_namespace {
            line.insert(0, cell(&row["object"]["metadata"]["namespace"]));
        }
        lines.push(line);
    }
    if lines.len() == 1 {
        return "nothing found\n".to_owned();
    }
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|at| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or_default())
        .collect();
    let mut text = String::new();
    for line in lines {
        let padded: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(padded.join("   ").trim_end());
        text.push('\n');
    }
    text
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        Value::Null => "<none>".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::table;

    #[test]
    fn a_table_is_padded_and_hides_wide_columns() {
        let response = json!({
            "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Data", "priority": 0}, {"name": "X", "priority": 1}],
            "rows": [
                {"cells": ["long-name", 1, "w"], "object": {"metadata": {"namespace": "a"}}},
                {"cells": ["b", null, "w"], "object": {"metadata": {"namespace": "b"}}},
            ],
        });
        assert_eq!(table(&response, false, false), "NAME        DATA\nlong-name   1\nb           <none>\n");
        assert!(table(&response, true, true).starts_with("NAMESPACE   NAME        DATA     X\n"));
    }
}
