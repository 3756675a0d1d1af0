//! The examples of docs/lab.md.

use http::Request;
use serde_json::Value;

use crate::world::World;

const PAGE: &str = include_str!("../../../../docs/lab.md");

/// The blocks of YAML in the page.
fn blocks() -> Vec<&'static str> {
    PAGE.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[tokio::test]
async fn lab_1_every_object_of_the_page_is_accepted() {
    let world = World::start().await;
    let blocks = blocks();
    assert!(blocks.len() >= 3, "{blocks:?}");
    for block in blocks {
        let kind = block.lines().find_map(|line| line.strip_prefix("kind: ")).unwrap();
        let path = format!("/apis/lab.dogwatch.dev/v1/{}s", kind.to_lowercase());
        let request = Request::post(path).header("content-type", "application/yaml");
        let made: Value = world.client.request(request.body(block.as_bytes().to_vec()).unwrap()).await.unwrap();
        assert_eq!(made["kind"], kind, "{block}");
    }
}

#[test]
fn lab_1_every_effect_of_the_page_is_one_that_a_fault_has() {
    let rows = PAGE.lines().filter(|line| line.starts_with("| ") && line.matches('|').count() == 4);
    let effects: Vec<&str> =
        rows.filter_map(|row| row.split('|').nth(2)?.trim().strip_prefix('`')?.split(':').next()).collect();
    assert!(effects.len() >= 12, "{effects:?}");
    let schema = include_str!("../../../lab/src/kinds/fault.yaml");
    for effect in effects {
        assert!(
            schema.contains(&format!("                {effect}: "))
                || schema.contains(&format!("                {effect}:\n")),
            "{effect}"
        );
    }
}
