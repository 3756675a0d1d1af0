//! `dogwatch lab` against a running server, and how such a server ends.

use std::path::Path;
use std::process::{Command, Output};

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::wire::up;
use crate::world::{fault, fault_resource, map};

fn lab(dir: &Path, words: &[&str]) -> Output {
    lab_with(&dir.join("kubeconfig"), words)
}

/// As [`lab`], with another kubeconfig.
fn lab_with(kubeconfig: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dogwatch"));
    command.arg("lab").args(words).arg("--kubeconfig").arg(kubeconfig).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn set_4_see_4_settle_timeline_and_report_are_commands_and_an_unmet_expectation_is_exit_code_3() {
    let dir = tempfile::tempdir().unwrap();
    let (mut program, client) = up(dir.path(), &["--lab"]).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let owner = maps.create(&PostParams::default(), &map("owner")).await.unwrap();
    let mut owned = map("owned");
    let uid = owner.metadata.uid.unwrap();
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
    owned.metadata.owner_references = serde_json::from_value(reference).unwrap();
    maps.create(&PostParams::default(), &owned).await.unwrap();
    let patch = json!({"data": {"x": "1"}});
    maps.patch("owner", &PatchParams::apply("painter"), &Patch::Merge(&patch)).await.unwrap();

    let settled = lab(dir.path(), &["settle", "--quiet", "20ms"]);
    assert!(settled.status.success() && text(&settled).contains("settled at revision"), "{settled:?}");

    let shown = lab(dir.path(), &["timeline", "configmap/owner"]);
    let lines: Vec<String> = text(&shown).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3, "{shown:?}");
    assert!(lines[0].contains("ADDED ConfigMap/owner") && lines[1].contains("  ADDED ConfigMap/owned"), "{lines:?}");
    assert!(lines[2].contains("MODIFIED ConfigMap/owner  by painter  +data"), "{lines:?}");
    let file = dir.path().join("page.html");
    let written = lab(dir.path(), &["timeline", "cm/owner", "--html", file.to_str().unwrap()]);
    assert!(written.status.success(), "{written:?}");
    assert!(std::fs::read_to_string(file).unwrap().contains("ConfigMap/owned"));
    assert_eq!(lab(dir.path(), &["timeline", "configmap/none"]).status.code(), Some(1));
    assert_eq!(lab(dir.path(), &["timeline", "owner"]).status.code(), Some(2));

    let roles: Api<ClusterRole> = Api::all(client.clone());
    let rules = roles.get("dogwatch:lab").await.unwrap().rules.unwrap();
    assert_eq!(rules[0].api_groups, Some(vec!["lab.dogwatch.dev".to_owned()]), "LAB-1");

    let faults: Api<DynamicObject> = Api::all_with(client, &fault_resource());
    let spec = json!({
        "match": {"resources": ["secrets"]}, "effect": {"error": {"code": 500}}, "expect": {"hits": 1},
    });
    faults.create(&PostParams::default(), &fault("never", spec)).await.unwrap();
    let report = lab(dir.path(), &["report"]);
    assert_eq!(report.status.code(), Some(3), "{report:?}");
    assert!(text(&report).contains("never  error  0 hits of 1 expected  UNMET"), "{report:?}");
    let busy = lab(dir.path(), &["settle", "--quiet", "20s", "--timeout", "100ms"]);
    assert_eq!(busy.status.code(), Some(4), "{busy:?}");
    assert_eq!(program.stop(), Some(3), "the server names it when it ends");
}

#[tokio::test]
async fn wld_4_set_4_see_4_wld_10_the_commands_work_with_the_kubeconfig_of_a_world() {
    let dir = tempfile::tempdir().unwrap();
    let (mut program, client) = up(dir.path(), &["--lab"]).await;
    let worlds: Api<DynamicObject> = Api::all_with(client.clone(), &crate::worlds::resource("World", "worlds"));
    let mut wanted = DynamicObject::new("a", &crate::worlds::resource("World", "worlds"));
    wanted.data = json!({"spec": {"from": {}}});
    let made = worlds.create(&PostParams::default(), &wanted).await.unwrap();
    let file = dir.path().join("a.kubeconfig");
    std::fs::write(&file, made.data["status"]["kubeconfig"].as_str().unwrap()).unwrap();
    let config = kube::config::Kubeconfig::read_from(&file).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
    let of_world = kube::Client::try_from(config).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(of_world.clone(), "default");
    maps.create(&PostParams::default(), &map("owner")).await.unwrap();

    let settled = lab_with(&file, &["settle", "--quiet", "20ms"]);
    assert!(settled.status.success() && text(&settled).contains("settled at revision"), "{settled:?}");
    let shown = lab_with(&file, &["timeline", "configmap/owner"]);
    assert!(text(&shown).contains("ADDED ConfigMap/owner"), "{shown:?}");
    assert_eq!(lab(dir.path(), &["timeline", "configmap/owner"]).status.code(), Some(1), "main has no such object");
    let before = format!("a@{}", made.data["status"]["revision"].as_str().unwrap());
    let differ = lab_with(&file, &["diff", &before, "a"]);
    assert_eq!(text(&differ), "+ configmap/owner in default\n", "{differ:?}");
    assert_eq!(lab_with(&file, &["diff", "main", "a"]).status.code(), Some(2), "it may not read main");

    let faults: Api<DynamicObject> = Api::all_with(of_world, &fault_resource());
    let spec = json!({"match": {"resources": ["secrets"]}, "effect": {"error": {"code": 500}}, "expect": {"hits": 1}});
    faults.create(&PostParams::default(), &fault("never", spec)).await.unwrap();
    let report = lab_with(&file, &["report"]);
    assert_eq!((report.status.code(), &*text(&report)), (Some(3), "never  error  0 hits of 1 expected  UNMET\n"));
    let report = lab(dir.path(), &["report"]);
    assert_eq!(report.status.code(), Some(3), "{report:?}");
    assert!(text(&report).contains("world a: never  error  0 hits of 1 expected  UNMET"), "{report:?}");
    assert_eq!(program.stop(), Some(3), "the server names it when it ends");
}
