//! helm from its published module: install, test, upgrade and uninstall a chart on simulated nodes.

use blackbox::process::Output;
use blackbox::{Server, run, tools};

fn helm(server: &Server, line: &str) -> Output {
    let mut command = server.command(tools::installed("bin/helm"));
    let home = server.folder().join("helm");
    command.args(line.split_whitespace()).current_dir(tools::tests().join("helm"));
    for place in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(place, &home);
    }
    run(command, "")
}

#[test]
fn cmd_13_a_chart_is_installed_tested_upgraded_and_removed() {
    let server = Server::with_controllers(&["--memory"]);
    helm(&server, "install web chart --wait --timeout 2m --set replicas=2").ok();
    assert_eq!(server.kubectl("get deployment web -o jsonpath={.status.readyReplicas}").ok(), "2");
    let tested = helm(&server, "test web --logs --timeout 2m").ok();
    assert!(tested.contains("Phase:          Succeeded"), "{tested}");
    assert!(tested.contains("hello"), "the log of the test pod is shown: {tested}");
    helm(&server, "upgrade web chart --wait --timeout 2m --set replicas=3,greeting=bye").ok();
    let failed = helm(&server, "test web --timeout 2m").refused();
    assert!(failed.contains("web-connection failed"), "{failed}");
    helm(&server, "rollback web 1 --wait --timeout 2m").ok();
    assert_eq!(server.kubectl("get deployment web -o jsonpath={.spec.replicas}").ok(), "2");
    helm(&server, "uninstall web --wait --timeout 2m").ok();
    assert_eq!(server.kubectl("get deployments,services -l app.kubernetes.io/managed-by=Helm -o name").ok(), "");
}
