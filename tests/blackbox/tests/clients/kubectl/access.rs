//! kubectl auth, create role and rolebinding, and the commands of dogwatch about rights.

use blackbox::Server;
use blackbox::process::run;

/// Columns of a line, whatever their width.
fn columns(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn az_140_az_144_can_i_follows_roles_that_kubectl_creates() {
    let server = Server::start();
    let can = |line: &str| server.kubectl(&format!("auth can-i {line} --as alice"));
    assert_eq!(can("list pods").stdout, "no\n");
    assert_eq!(can("list pods").refused(), "");
    server.kubectl("create role reader --verb=get,list --resource=pods,deployments.apps,pods/log").ok();
    let bound = server.kubectl("create rolebinding reader --role=reader --user=alice").ok();
    assert_eq!(bound, "rolebinding.rbac.authorization.k8s.io/reader created\n");
    assert_eq!(can("list pods").ok(), "yes\n");
    assert_eq!(can("get deployments.apps").ok(), "yes\n");
    assert_eq!(can("get pods --subresource=log").ok(), "yes\n");
    assert_eq!(can("get pods --subresource=exec").stdout, "no\n");
    assert_eq!(can("list pods -n kube-system").stdout, "no\n");
    assert_eq!(can("get /metrics").stdout, "no\n");
    assert_eq!(server.kubectl("auth can-i '*' '*' -A").ok(), "yes\n");
    assert_eq!(server.kubectl("get pods --as alice").ok(), "");
    let refused = server.kubectl("create configmap c --as alice").refused();
    assert!(
        refused.contains("configmaps is forbidden: User \"alice\" cannot create resource \"configmaps\""),
        "{refused}"
    );
    server.kubectl("create clusterrole health --verb=get --non-resource-url=/metrics").ok();
    server.kubectl("create clusterrolebinding health --clusterrole=health --user=alice").ok();
    assert_eq!(can("get /metrics").ok(), "yes\n");
    let described = server.kubectl("describe clusterrole health").ok();
    assert!(described.lines().any(|line| columns(line) == ["[/metrics]", "[]", "[get]"]), "{described}");
    let described = server.kubectl("describe rolebinding reader").ok();
    assert!(described.lines().any(|line| columns(line) == ["User", "alice"]), "{described}");
}

#[test]
fn az_141_can_i_lists_all_rights() {
    let server = Server::start();
    server.kubectl("create role reader --verb=get --resource=configmaps --resource-name=settings").ok();
    server.kubectl("create rolebinding reader --role=reader --user=alice").ok();
    let list = server.kubectl("auth can-i --list --as alice").ok();
    assert!(list.lines().any(|line| columns(line) == ["configmaps", "[]", "[settings]", "[get]"]), "{list}");
    assert!(list.contains("selfsubjectaccessreviews.authorization.k8s.io"), "{list}");
    assert!(list.lines().any(|line| columns(line) == ["[/healthz]", "[]", "[get]"]), "{list}");
    let elsewhere = server.kubectl("auth can-i --list --as alice -n kube-system").ok();
    assert!(!elsewhere.contains("configmaps"), "{elsewhere}");
    let all = server.kubectl("auth can-i --list").ok();
    assert!(all.lines().any(|line| columns(line) == ["*.*", "[]", "[]", "[*]"]), "{all}");
}

#[test]
fn az_142_whoami_names_the_user_and_its_groups() {
    let server = Server::start();
    let table = server.kubectl("auth whoami --as alice --as-group devs").ok();
    let lines: Vec<Vec<&str>> = table.lines().map(columns).collect();
    assert_eq!(lines[0], ["ATTRIBUTE", "VALUE"]);
    assert!(lines.contains(&vec!["Username", "alice"]), "{table}");
    assert!(lines.contains(&vec!["Groups", "[devs", "system:authenticated]"]), "{table}");
    let own = server.kubectl("auth whoami -o jsonpath={.status.userInfo.groups}").ok();
    assert!(own.contains("system:masters"), "{own}");
}

#[test]
fn az_143_reconcile_adds_what_is_missing_and_keeps_the_rest() {
    let server = Server::start();
    let role = |verbs: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: r}}\n\
             rules: [{{apiGroups: [\"\"], resources: [pods], verbs: [{verbs}]}}]\n"
        )
    };
    let first = server.kubectl_with("auth reconcile -f -", &role("get")).ok();
    assert!(first.contains("clusterrole.rbac.authorization.k8s.io/r reconciled"), "{first}");
    server.kubectl_with("auth reconcile -f -", &role("list")).ok();
    let verbs = "get clusterrole r -o jsonpath={.rules[*].verbs}";
    let kept = server.kubectl(verbs).ok();
    assert!(kept.contains("get") && kept.contains("list"), "{kept}");
    server.kubectl_with("auth reconcile --remove-extra-permissions -f -", &role("watch")).ok();
    assert_eq!(server.kubectl(verbs).ok(), "[\"watch\"]");
}

#[test]
fn ba_1_ba_5_ba_6_the_rights_of_an_operator_from_refusal_to_role() {
    let server = Server::start();
    let dogwatch = |line: &str| run(server.dogwatch_command(line), "");
    // A kubeconfig of the operator's own account, in one line.
    dogwatch("access kubeconfig --as-serviceaccount shop/operator --out operator.yaml").ok();
    let operator = |line: &str| server.kubectl(&format!("--kubeconfig operator.yaml {line}"));
    assert_eq!(
        operator("auth whoami -o jsonpath={.status.userInfo.username}").ok(),
        "system:serviceaccount:shop:operator"
    );
    let refused = operator("get configmaps").refused();
    assert!(refused.contains("cannot list resource \"configmaps\" in API group \"\" in the namespace \"shop\""));
    operator("get --raw /api/v1/namespaces/shop/services").refused();
    let user = "system:serviceaccount:shop:operator";
    server.kubectl("create role partial -n shop --verb=get,delete --resource=configmaps").ok();
    server.kubectl("create rolebinding partial -n shop --role=partial --serviceaccount=shop:operator").ok();
    let why = dogwatch(&format!("access why --as {user} list configmaps -n shop")).ok();
    assert!(why.starts_with("refused: configmaps is forbidden: User \"system:serviceaccount:shop:operator\""), "{why}");
    let nearest = "  RoleBinding \"partial\" in namespace \"shop\" of Role \"partial\": verb \"list\" is not among";
    assert!(why.contains(nearest), "{why}");
    // What it did, as roles; applied, they let it do just that.
    let roles = dogwatch(&format!("access roles --user {user}")).ok();
    assert!(roles.contains("kind: Role\n"), "{roles}");
    assert!(roles.contains("# was refused in namespace shop: list configmaps,services"), "{roles}");
    assert!(roles.contains("# its present roles grant beyond that in namespace shop: delete"), "{roles}");
    server.kubectl_with("apply -f -", &roles).ok();
    operator("get configmaps").ok();
    operator("get --raw /api/v1/namespaces/shop/services").ok();
    let missing = dogwatch(&format!("access roles --user {user} --missing")).ok();
    assert_eq!(missing, format!("# {user} lacks nothing\n"));
    let why = dogwatch(&format!("access why --as {user} list configmaps -n shop")).ok();
    assert!(why.starts_with(&format!("allowed for {user}\n")), "{why}");
}

#[test]
fn az_6_a_wrong_mode_or_file_ends_the_start_with_one_sentence() {
    let server = Server::start();
    for (flags, expected) in [
        ("--authorization-mode Roles", "error: --authorization-mode \"Roles\" is not a mode"),
        ("--authorization-mode Webhook", "error: --authorization-mode Webhook needs"),
        ("--authorization-config missing.yaml", "error: --authorization-config missing.yaml: "),
    ] {
        let mut command = server.dogwatch_command(&format!("up --listen 127.0.0.1:0 --data-dir other {flags}"));
        let output = command.output().expect("dogwatch can be started");
        assert_eq!(output.status.code(), Some(2), "{flags}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.starts_with(expected) && stderr.lines().count() <= 2, "{flags}: {stderr}");
    }
}
