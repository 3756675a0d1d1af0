//! Discovery bodies.

use machinery::json::Value;
use schema::{discovery, kinds};

use super::{scenarios, steps, text};

fn body(path: &str, aggregated: bool) -> Option<Value> {
    let kinds = kinds::builtin();
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    match segments[..] {
        ["api"] if aggregated => Some(discovery::aggregated_core(kinds)),
        ["api"] => Some(discovery::core_versions("$ADDRESS")),
        ["api", version] => discovery::resources(kinds, "", version),
        ["apis"] => Some(discovery::groups(kinds)),
        ["apis", group] => discovery::group(kinds, group),
        ["apis", group, version] => discovery::resources(kinds, group, version),
        _ => None,
    }
}

#[test]
fn discovery_bodies_agree() {
    for scenario in scenarios("wire.json").iter().filter(|s| text(s, "name").starts_with("discovery: ")) {
        for step in steps(scenario).iter().filter(|step| step["answer"]["status"] == 200 && step["method"] == "GET") {
            let expected = &step["answer"]["body"];
            if !expected.is_object() {
                continue;
            }
            let aggregated = expected["kind"] == "APIGroupDiscoveryList";
            let got = body(text(step, "path"), aggregated);
            assert_eq!(got.as_ref(), Some(expected), "{}: {}", scenario["name"], step["path"]);
        }
    }
}
