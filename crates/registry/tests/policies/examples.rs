//! The examples of docs/admission.md.

use machinery::json::{Value, json};

use super::world::{GROUP, World};

/// The objects of a policy group on the page, in its order.
fn examples() -> Vec<Value> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/admission.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let documents = blocks.flat_map(|block| block.split("---\n"));
    let objects = documents.map(|text| machinery::yaml::read(text.as_bytes()).unwrap().value);
    objects.filter(|object| object["apiVersion"].as_str().is_some_and(|version| version.starts_with(GROUP))).collect()
}

#[tokio::test]
async fn the_examples_of_the_page_do_what_it_says() {
    let world = World::new().await;
    let examples = examples();
    assert_eq!(examples.len(), 4);
    for object in examples {
        let plural = match object["kind"].as_str().unwrap_or_default() {
            "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
            "ValidatingAdmissionPolicyBinding" => "validatingadmissionpolicybindings",
            "MutatingAdmissionPolicy" => "mutatingadmissionpolicies",
            "MutatingAdmissionPolicyBinding" => "mutatingadmissionpolicybindings",
            other => panic!("{other} is no policy"),
        };
        world.create(&format!("{GROUP}:{plural}"), object).await.result.unwrap();
    }
    world.map("limits", json!({"max": "3"})).await.result.unwrap();
    let deployment = |name: &str, replicas: i64| {
        json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    };
    world.create("apps:deployments/default", deployment("few", 3)).await.result.unwrap();
    let refused = world.create("apps:deployments/default", deployment("many", 4)).await;
    assert!(refused.message().ends_with("denied request: at most 3"), "{}", refused.message());
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let created = world.create("pods/default", pod).await.result.unwrap();
    let beside = &created["spec"]["initContainers"];
    assert_eq!((&beside[0]["name"], beside.as_array().map(Vec::len)), (&json!("mesh"), Some(1)));
}
