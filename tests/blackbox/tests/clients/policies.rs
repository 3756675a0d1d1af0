//! Webhooks and policies of well-known projects, from their published modules: `tests/python/policies.py` shows for each what it admits
//! and what it refuses.

use blackbox::{Server, run, tools};

/// The names under which the projects' webhooks are called.
const HOOKS: [&str; 2] = ["gatekeeper-webhook-service.gatekeeper-system.svc", "cert-manager-webhook.cert-manager.svc"];

/// Runs a project on a server of its own, and returns the lines about what was admitted and refused.
fn lines(project: &str, serves_hooks: bool) -> Vec<String> {
    let server = Server::start();
    let mut command = server.command(tools::installed("python/bin/python"));
    command.arg(tools::tests().join("python/policies.py")).arg(project);
    command.arg(tools::installed(&format!("policies/{project}")));
    if serves_hooks {
        let pair = rcgen::generate_simple_self_signed(HOOKS.map(str::to_owned)).expect("a certificate");
        for (name, text) in [("hook.crt", pair.cert.pem()), ("hook.key", pair.signing_key.serialize_pem())] {
            let file = server.folder().join(name);
            std::fs::write(&file, text).expect("the folder can be written");
            command.arg(file);
        }
    }
    run(command, "").ok().lines().map(str::to_owned).collect()
}

fn count(lines: &[String], verdict: &str) -> usize {
    lines.iter().filter(|line| line.ends_with(verdict)).count()
}

/// The tests of its command line, each with the results that the project expects.
#[test]
fn kyverno_policies_have_the_results_of_their_tests() {
    let lines = lines("kyverno", false);
    assert_eq!(lines.last().map(String::as_str), Some("kyverno: 10 fail, 25 pass, 9 skip"));
    assert_eq!((count(&lines, " admitted"), count(&lines, " refused")), (34, 10));
}

#[test]
fn kubernetes_keeps_agents_to_their_node() {
    let lines = lines("kubernetes", false);
    assert_eq!((count(&lines, " admitted"), count(&lines, " refused")), (2, 3), "{lines:?}");
}

#[test]
fn gateway_api_guards_its_definitions() {
    let lines = lines("gateway-api", false);
    assert_eq!((count(&lines, " admitted"), count(&lines, " refused")), (1, 2), "{lines:?}");
}

#[test]
fn gatekeeper_webhooks_are_called() {
    let lines = lines("gatekeeper", true);
    assert_eq!((count(&lines, " admitted"), count(&lines, " refused")), (2, 2), "{lines:?}");
}

#[test]
fn cert_manager_webhooks_are_called() {
    let lines = lines("cert-manager", true);
    assert_eq!((count(&lines, " admitted"), count(&lines, " refused")), (3, 1), "{lines:?}");
}
