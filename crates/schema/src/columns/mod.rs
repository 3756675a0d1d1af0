//! Tables: the columns of each kind and the cells of an object, as `kubectl get` shows them (spec 01 §11).
//!
//! - `builtin.tsv`: the columns of each built-in kind: `name[:type][*][@field]`, with `*` in wide tables only; the field's
//!   documentation describes the column
//! - `cells.rs`: builder of a row; ages, selectors and other formats that many kinds share
//! - `pod.rs`, `workload.rs`, `network.rs`, `storage.rs`, `cluster.rs`: the cells of the kinds
//!
//! Cells are built from the stored form of an object, so both kinds of events and both versions of autoscalers share them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use machinery::json::{Value, json};

use crate::custom;
use crate::kind::Kind;
use crate::openapi::Texts;
use crate::walk::Walk as _;

mod cells;
mod cluster;
mod network;
mod pod;
mod storage;
mod workload;

use cells::Cells;

/// The row of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub cells: Vec<Value>,
    /// Set for pods that have finished.
    pub conditions: Vec<Value>,
}

const TABLE: &str = include_str!("builtin.tsv");

/// Returns the columns of a kind, in the form of `columnDefinitions`.
#[must_use]
pub fn definitions(kind: &Kind) -> Value {
    if let Some(definition) = &kind.definition {
        return custom::columns::definitions(&definition.columns);
    }
    columns(&kind.gvk.group, &kind.gvk.kind)
}

/// Returns the columns of the scale subresource.
#[must_use]
pub fn scale_definitions() -> Value {
    columns("autoscaling", "Scale")
}

/// Returns whether a kind has only the two columns that every kind has: its empty list has `rows: null`.
#[must_use]
pub fn is_plain(kind: &Kind) -> bool {
    kind.definition.is_none() && table_line(&kind.gvk.group, &kind.gvk.kind).is_none()
}

/// Builds the row of an object in its stored form. `now` is in seconds since 1970.
#[must_use]
pub fn row(kind: &Kind, object: &Value, now: i64) -> Row {
    if let Some(definition) = &kind.definition {
        return custom::columns::row(&definition.columns, object, now);
    }
    if is_plain(kind) {
        return Row {
            cells: vec![object.at("metadata.name").clone(), object.at("metadata.creationTimestamp").clone()],
            conditions: Vec::new(),
        };
    }
    let mut cells = Cells::new(object, now);
    let conditions = match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod") => pod::row(&mut cells),
        (group, kind) => {
            let _ = workload::row(group, kind, &mut cells)
                || network::row(group, kind, &mut cells)
                || storage::row(group, kind, &mut cells)
                || cluster::row(group, kind, &mut cells);
            Vec::new()
        }
    };
    Row { cells: cells.finish(), conditions }
}

/// Builds the row of a Scale.
#[must_use]
pub fn scale_row(scale: &Value, now: i64) -> Row {
    let mut cells = Cells::new(scale, now);
    cells.name().number("spec.replicas").number("status.replicas").age();
    Row { cells: cells.finish(), conditions: Vec::new() }
}

/// Returns the columns of a kind in the table.
fn table_line(group: &str, kind: &str) -> Option<&'static str> {
    // Both kinds of events and both versions of autoscalers are one kind here.
    let group = if kind == "Event" { "" } else { group };
    TABLE.lines().find_map(|line| line.strip_prefix(group)?.strip_prefix('\t')?.strip_prefix(kind)?.strip_prefix('\t'))
}

fn columns(group: &str, kind: &str) -> Value {
    let Some(line) = table_line(group, kind) else {
        return json!([column("Name", "string", "name", 0, None), column("Created At", "date", "", 0, None)]);
    };
    let is_scale = kind == "Scale";
    line.split(';')
        .map(|text| {
            let (text, source) = text.split_once('@').map_or((text, None), |(text, source)| (text, Some(source)));
            let (text, priority) = text.strip_suffix('*').map_or((text, 0), |text| (text, 1));
            let (name, kind) = text.split_once(':').unwrap_or((text, "string"));
            // The reference has no format `name` for a Scale, but has one for an attacher.
            let format = if (name == "Name" && !is_scale) || name == "Attacher" { "name" } else { "" };
            column(name, kind, format, priority, source)
        })
        .collect()
}

fn column(name: &str, kind: &str, format: &str, priority: u8, source: Option<&str>) -> Value {
    let description = description(name, source);
    json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority})
}

/// Field that documents the names of all objects; `CREATED` that of their ages.
const NAME: &str = "apimachinery.pkg.apis.meta.v1.ObjectMeta.name";
const CREATED: &str = "apimachinery.pkg.apis.meta.v1.ObjectMeta.creationTimestamp";

/// Returns the description of a column: the documentation of its field, if it shows a single one, or a short text.
pub(crate) fn description(column: &str, source: Option<&str>) -> Cow<'static, str> {
    let source = match (source, column) {
        (Some(source), _) => source,
        (None, "Name") => NAME,
        (None, "Age" | "Created At") => CREATED,
        (None, _) => return short_description(column),
    };
    documented().get(source).map_or_else(|| short_description(column), |text| Cow::Borrowed(text.as_str()))
}

/// Returns the documentation of the fields that columns show, some 30 KB. That of all fields is unpacked once, and dropped.
fn documented() -> &'static HashMap<&'static str, String> {
    static TEXTS: OnceLock<HashMap<&'static str, String>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let all = Texts::unpack();
        let named = TABLE.lines().flat_map(|line| line.split(';')).filter_map(|column| Some(column.split_once('@')?.1));
        let text = |source: &'static str| {
            let (definition, field) = source.rsplit_once('.')?;
            let package = if definition.starts_with("apimachinery.") { "io.k8s" } else { "io.k8s.api" };
            Some((source, all.of_field(&format!("{package}.{definition}"), field)?))
        };
        named.chain([NAME, CREATED]).filter_map(text).collect()
    })
}

/// Returns the description of a column that shows no single field.
fn short_description(column: &str) -> Cow<'static, str> {
    Cow::Borrowed(match column {
        "Name" => "Name of the object.",
        "Age" => "Time since the object was created.",
        "Created At" => "When the object was created.",
        "Ready" => "How many are ready, of how many.",
        "Status" => "The state the object is in.",
        "Restarts" => "How often containers were restarted, and when last.",
        "Containers" => "Names of the containers in the template.",
        "Images" => "Images of the containers in the template.",
        other => return Cow::Owned(format!("{other}.")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::builtin;

    const NOW: i64 = 1_767_225_600; // 2026-01-01T00:00:00Z

    fn cells(group: &str, version: &str, plural: &str, object: Value) -> Value {
        row(builtin().get(group, version, plural).unwrap(), &object, NOW).cells.into()
    }

    #[test]
    fn every_kind_has_as_many_cells_as_columns() {
        let object = json!({"metadata": {"name": "a", "creationTimestamp": "2025-12-31T23:59:00Z"}});
        for kind in builtin().iter() {
            let (columns, row) = (definitions(kind), row(kind, &object, NOW));
            // An IPAddress has an age without a column, as in the reference.
            let extra = usize::from(kind.gvk.kind == "IPAddress");
            assert_eq!(columns.as_array().unwrap().len() + extra, row.cells.len(), "{}", kind.gvk);
        }
    }

    #[test]
    fn odd_objects_still_have_a_row() {
        for object in [json!(null), json!([]), json!({"metadata": 3, "spec": "x", "status": {"conditions": {}}})] {
            for kind in builtin().iter() {
                let (columns, row) = (definitions(kind), row(kind, &object, NOW));
                let extra = usize::from(kind.gvk.kind == "IPAddress");
                assert_eq!(columns.as_array().unwrap().len() + extra, row.cells.len(), "{} {object}", kind.gvk);
            }
        }
    }

    #[test]
    fn columns_are_described_by_the_field_behind_them() {
        let pods = definitions(builtin().get("", "v1", "pods").unwrap());
        assert!(pods[0]["description"].as_str().unwrap().starts_with("Name must be unique"), "{}", pods[0]);
        assert!(pods[6]["description"].as_str().unwrap().starts_with("NodeName "), "{}", pods[6]);
        assert_eq!(pods[2]["description"], "The state the object is in.");
        let named = TABLE.lines().flat_map(|line| line.split(';')).filter_map(|column| Some(column.split_once('@')?.1));
        for source in named {
            assert!(documented().contains_key(source), "{source} is described nowhere");
        }
    }

    #[test]
    fn priority_and_format_of_columns() {
        let pods = definitions(builtin().get("", "v1", "pods").unwrap());
        assert_eq!(
            (&pods[0]["name"], &pods[0]["format"], &pods[0]["priority"]),
            (&json!("Name"), &json!("name"), &json!(0))
        );
        assert_eq!((&pods[5]["name"], &pods[5]["priority"]), (&json!("IP"), &json!(1)));
        assert_eq!(scale_definitions()[0]["format"], "");
        assert_eq!(definitions(builtin().get("", "v1", "limitranges").unwrap())[1]["type"], "date");
    }

    #[test]
    fn a_pod_waiting_for_its_container() {
        let pod = json!({
            "metadata": {"name": "p", "creationTimestamp": "2025-12-31T23:55:00Z"},
            "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
            "status": {"phase": "Pending", "podIPs": [{"ip": "10.0.0.1"}], "containerStatuses": [{
                "name": "c", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2025-12-31T23:59:30Z"}},
            }]},
        });
        assert_eq!(
            cells("", "v1", "pods", pod),
            json!(["p", "0/1", "CrashLoopBackOff", "2 (30s ago)", "5m", "10.0.0.1", "n1", "<none>", "<none>"])
        );
    }

    #[test]
    fn finished_pods_carry_a_condition() {
        let pod = json!({"metadata": {"name": "p"}, "status": {"phase": "Succeeded"}});
        let row = row(builtin().get("", "v1", "pods").unwrap(), &pod, NOW);
        assert_eq!(row.conditions[0]["reason"], "Succeeded");
        assert_eq!(row.cells[4], "<unknown>");
    }

    #[test]
    fn services_show_addresses_and_ports() {
        let service = json!({
            "metadata": {"name": "s", "creationTimestamp": "2025-12-31T00:00:00Z"},
            "spec": {"type": "NodePort", "clusterIPs": ["10.96.0.9"], "selector": {"b": "2", "a": "1"},
                     "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30001}, {"port": 53, "protocol": "UDP"}]},
        });
        assert_eq!(
            cells("", "v1", "services", service),
            json!(["s", "NodePort", "10.96.0.9", "<none>", "80:30001/TCP,53/UDP", "24h", "a=1,b=2"])
        );
    }

    #[test]
    fn deployments_show_their_selector() {
        let deployment = json!({
            "metadata": {"name": "d", "creationTimestamp": "2025-12-29T00:00:00Z"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "x"}, "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["b", "a"]}, {"key": "gone", "operator": "DoesNotExist"}]},
                "template": {"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}}},
            "status": {"readyReplicas": 2, "updatedReplicas": 3},
        });
        assert_eq!(
            cells("apps", "v1", "deployments", deployment),
            json!(["d", "2/3", 3, 0, "3d", "c,d", "i,j", "app=x,!gone,tier in (a,b)"])
        );
    }
}
