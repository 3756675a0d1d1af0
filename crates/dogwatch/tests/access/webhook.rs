//! Webhook authorizers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser as _;
use dogwatch::args::{Cli, Command};
use dogwatch::testing::Authorization;
use machinery::json::{Value, json};
use outbound::testing::{Authority, Reply, TestServer, free_address};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::world::World;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A webhook that decides by the user: `friend` is allowed, `enemy` denied, others get no opinion.
struct Hook {
    folder: TempDir,
    reviews: Arc<Mutex<Vec<Value>>>,
    _server: TestServer,
}

impl Hook {
    async fn start() -> Self {
        let authority = Authority::new();
        let reviews: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = Arc::clone(&reviews);
        let server = TestServer::start(authority.leaf(&["localhost"]), move |seen| {
            let review: Value = serde_json::from_str(&seen.body).unwrap();
            let status = match review["spec"]["user"].as_str().unwrap_or_default() {
                "friend" => json!({"allowed": true, "reason": "a friend"}),
                "enemy" => json!({"allowed": false, "denied": true, "reason": "an enemy"}),
                _ => json!({"allowed": false, "reason": "unknown"}),
            };
            let answer = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "status": status});
            kept.lock().push(review);
            Reply::text(&answer.to_string())
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        let port = server.address().rsplit(':').next().unwrap().to_owned();
        write_kubeconfig(
            &folder.path().join("hook.yaml"),
            &format!("https://localhost:{port}/authorize"),
            &authority.pem,
        );
        Hook { folder, reviews, _server: server }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("hook.yaml")
    }
}

fn write_kubeconfig(path: &Path, url: &str, ca_pem: &str) {
    let ca = path.with_extension("pem");
    std::fs::write(&ca, ca_pem).unwrap();
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: hook\n  cluster: {{server: \"{url}\", certificate-authority: {}}}\n\
         users:\n- name: me\n  user: {{token: secret}}\ncontexts:\n- name: c\n  context: {{cluster: hook, user: me}}\n\
         current-context: c\n",
        ca.display()
    );
    std::fs::write(path, text).unwrap();
}

fn authorization(flags: &[&str]) -> Authorization {
    let words = ["dogwatch", "up"].iter().chain(flags);
    let Command::Up(up) = Cli::try_parse_from(words).unwrap().command else { panic!("not up") };
    Authorization::from_args(&up.authorization).unwrap()
}

fn file(hook: &Hook, settings: &str) -> PathBuf {
    let path = hook.folder.path().join("authorization.yaml");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n\
         - type: Webhook\n  name: hook\n  webhook:\n    timeout: 3s\n    subjectAccessReviewVersion: v1\n\
         \x20   connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {}}}\n{settings}\
         - type: RBAC\n  name: rbac\n",
        hook.kubeconfig().display()
    );
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test]
async fn az_8_az_9_a_webhook_is_asked_in_its_turn_and_its_answers_are_kept() {
    let hook = Hook::start().await;
    let path = hook.kubeconfig();
    let flags = ["--authorization-mode", "Webhook,RBAC", "--authorization-webhook-version", "v1"];
    let file = ["--authorization-webhook-config-file", path.to_str().unwrap()];
    let world = World::with(authorization(&[flags.as_slice(), file.as_slice()].concat())).await;
    let rules = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]}]);
    world.grant("enemy", false, rules.clone()).await;
    world.grant("alice", false, rules).await;
    hook.reviews.lock().clear();
    for _ in 0..3 {
        assert_eq!(world.get("friend", MAPS).await.code, 200, "allowed by the webhook");
        let denied = world.get("enemy", MAPS).await;
        assert_eq!(denied.code, 403, "denied before roles are asked");
        assert!(denied.message().ends_with(": an enemy"), "{}", denied.message());
        assert_eq!(world.get("alice", MAPS).await.code, 200, "no opinion, then roles");
        assert_eq!(world.get("root", MAPS).await.code, 200);
    }
    let reviews = hook.reviews.lock().clone();
    let users: Vec<&str> = reviews.iter().filter_map(|review| review["spec"]["user"].as_str()).collect();
    assert_eq!(users, ["friend", "enemy", "alice"], "each question is asked once, and never for masters");
    let about = json!({
        "namespace": "default", "verb": "list", "version": "v1", "resource": "configmaps",
    });
    assert_eq!(reviews[0]["spec"]["resourceAttributes"], about);
    assert_eq!(reviews[0]["apiVersion"], "authorization.k8s.io/v1");
    let selected = format!("{MAPS}?labelSelector=a%3Db&fieldSelector=metadata.name%3Dx");
    assert_eq!(world.get("friend", &selected).await.code, 200);
    let about = hook.reviews.lock().last().unwrap()["spec"]["resourceAttributes"].clone();
    assert_eq!(about["labelSelector"]["requirements"], json!([{"key": "a", "operator": "In", "values": ["b"]}]));
    assert_eq!(about["fieldSelector"]["requirements"][0]["key"], "metadata.name");
    assert_eq!(about["name"], "x");
    let rules = world.get("root", "/debug/access?as=friend&verb=list&resource=configmaps&namespace=default").await;
    assert_eq!(rules.json()["reason"], "a friend");
}

#[tokio::test]
async fn az_8_conditions_decide_whether_a_webhook_is_asked() {
    let hook = Hook::start().await;
    let settings = "    failurePolicy: Deny\n    matchConditionSubjectAccessReviewVersion: v1\n    matchConditions:\n\
                    \x20   - expression: has(request.resourceAttributes)\n\
                    \x20   - expression: request.resourceAttributes.namespace == 'default'\n";
    let path = file(&hook, settings);
    let world = World::with(authorization(&["--authorization-config", path.to_str().unwrap()])).await;
    hook.reviews.lock().clear();
    assert_eq!(world.get("friend", MAPS).await.code, 200);
    assert_eq!(world.get("friend", "/api/v1/namespaces/kube-system/configmaps").await.code, 403);
    assert_eq!(world.get("friend", "/metrics").await.code, 403);
    assert_eq!(hook.reviews.lock().len(), 1);
}

#[tokio::test]
async fn az_5_a_webhook_that_cannot_be_asked_is_an_internal_error() {
    for (policy, allowed_by_role) in [("NoOpinion", 200), ("Deny", 500)] {
        let hook = Hook::start().await;
        let gone = free_address().await;
        write_kubeconfig(&hook.kubeconfig(), &format!("https://{gone}/authorize"), &Authority::new().pem);
        let path = file(&hook, &format!("    failurePolicy: {policy}\n"));
        let world = World::with(authorization(&["--authorization-config", path.to_str().unwrap()])).await;
        let refused = world.get("alice", MAPS).await;
        assert_eq!(refused.code, 500, "{policy}: {}", refused.text());
        let text = refused.text();
        let expected = format!("Internal Server Error: \"{MAPS}\": Post \"https://{gone}/authorize");
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.ends_with("connection refused\n"), "{text}");
        assert_eq!(refused.headers["content-type"], "text/plain; charset=utf-8");
        assert_eq!(refused.headers["x-content-type-options"], "nosniff");
        let rules = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]}]);
        world.grant("alice", false, rules).await;
        assert_eq!(world.get("alice", MAPS).await.code, allowed_by_role, "{policy}");
    }
}

#[tokio::test]
async fn az_6_az_7_wrong_flags_and_files_are_usage_errors() {
    let hook = Hook::start().await;
    let wrong = file(
        &hook,
        "    failurePolicy: Deny\n    matchConditionSubjectAccessReviewVersion: v1\n    matchConditions: [{expression: request.nope}]\n",
    );
    let wrong = wrong.to_str().unwrap();
    let failure = |flags: &[&str]| {
        let words = ["dogwatch", "up"].iter().chain(flags);
        let Command::Up(up) = Cli::try_parse_from(words).unwrap().command else { panic!("not up") };
        match Authorization::from_args(&up.authorization).and_then(|authorization| authorization.build().map(|_| ())) {
            Ok(()) => panic!("{flags:?} was accepted"),
            Err(failure) => failure,
        }
    };
    for (flags, expected) in [
        (vec!["--authorization-mode", "Roles"], "--authorization-mode \"Roles\" is not a mode"),
        (vec!["--authorization-config", "/nonexistent/file"], "--authorization-config /nonexistent/file: "),
        (vec!["--authorization-config", wrong], "the condition \"request.nope\" is wrong"),
        (
            vec!["--authorization-mode", "Webhook", "--authorization-webhook-config-file", "/nonexistent/file"],
            "/nonexistent/file: ",
        ),
    ] {
        let failure = failure(&flags);
        assert!(failure.is_usage, "{flags:?}");
        assert!(failure.sentence.contains(expected), "{}", failure.sentence);
    }
    assert!(
        Cli::try_parse_from(["dogwatch", "up", "--authorization-mode", "RBAC", "--authorization-config", "f"]).is_err()
    );
}
