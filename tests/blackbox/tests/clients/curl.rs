//! curl as in tutorials: through a proxy, with certificates, with the legacy watch paths. Events of a watch must arrive while
//! it stays open: a server that waits for a full buffer fails every test here.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blackbox::process::Output;
use blackbox::{Process, Server, Writer, run};
use serde_json::Value;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// curl with unbuffered output; errors on stderr, no progress meter.
fn curl(args: &[&str]) -> Command {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--no-buffer"]).args(args);
    command
}

/// The certificates and the key of the kubeconfig, as files.
struct Credentials {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

impl Credentials {
    fn of(server: &Server) -> Self {
        let view = server.kubectl("config view --raw --flatten --minify -o json").json();
        let write = |name: &str, value: &Value| {
            let bytes = STANDARD.decode(value.as_str().expect("the kubeconfig has it")).expect("it is base64");
            let file = server.folder().join(name);
            std::fs::write(&file, bytes).expect("the folder can be written");
            file
        };
        let user = &view["users"][0]["user"];
        Self {
            ca: write("ca.crt", &view["clusters"][0]["cluster"]["certificate-authority-data"]),
            cert: write("client.crt", &user["client-certificate-data"]),
            key: write("client.key", &user["client-key-data"]),
        }
    }

    fn curl(&self, args: &[&str]) -> Command {
        let mut command = curl(args);
        let option = |command: &mut Command, name: &str, file: &Path| {
            command.arg(name).arg(file);
        };
        option(&mut command, "--cacert", &self.ca);
        option(&mut command, "--cert", &self.cert);
        option(&mut command, "--key", &self.key);
        command
    }

    fn get(&self, args: &[&str]) -> Output {
        run(self.curl(args), "")
    }
}

/// The next event of a watch: its type and the name of its object.
fn event(watch: &mut Process) -> (String, String) {
    let line = watch.line();
    let event: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("not one event a line: {e}\n{line}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
}

fn expect(watch: &mut Process, kind: &str, name: &str) {
    assert_eq!(event(watch), (kind.to_owned(), name.to_owned()));
}

/// Expects an open watch to deliver the existing `one`, and then each change while the connection stays open.
fn follows(writer: &Writer, watch: &mut Process) {
    expect(watch, "ADDED", "one");
    writer.create("two");
    expect(watch, "ADDED", "two");
    writer.label("one", "app", "web");
    expect(watch, "MODIFIED", "one");
    // A pod is marked before it is removed, even without a grace period.
    writer.delete("two");
    expect(watch, "MODIFIED", "two");
    expect(watch, "DELETED", "two");
}

fn through_proxy(server: &Server, address: &str) {
    let writer = Writer::new(server);
    writer.create("one");
    let list = run(curl(&[&format!("http://{address}{PODS}")]), "").json();
    assert_eq!(list["kind"], "PodList");
    assert_eq!(list["items"][0]["metadata"]["name"], "one");
    let mut watch = Process::start(curl(&[&format!("http://{address}{PODS}?watch=True")]));
    follows(&writer, &mut watch);
}

/// The address that a proxy prints: `127.0.0.1:PORT` in one of its first lines.
fn address(proxy: &mut Process) -> String {
    let line = proxy.line_where("the address of the proxy", |line| line.contains("127.0.0.1:"));
    let from = line.find("127.0.0.1:").expect("the line has an address");
    line[from..].split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':')).next().unwrap_or_default().to_owned()
}

#[test]
fn through_kubectl_proxy() {
    let server = Server::start();
    let mut proxy = Process::start(server.kubectl_command("proxy --port=0"));
    let address = address(&mut proxy);
    through_proxy(&server, &address);
}

#[test]
fn through_dogwatch_proxy() {
    let server = Server::start();
    let mut proxy = Process::start(server.dogwatch_command("proxy --port 0"));
    let address = address(&mut proxy);
    through_proxy(&server, &address);
}

#[test]
fn directly_with_certificates() {
    let server = Server::start();
    let writer = Writer::new(&server);
    writer.create("one");
    let me = Credentials::of(&server);
    let list = me.get(&[&format!("{}{PODS}", server.url())]).json();
    assert_eq!(list["items"][0]["metadata"]["name"], "one");
    let one = me.get(&[&format!("{}{PODS}/one", server.url())]).json();
    assert_eq!((&one["kind"], &one["status"]["phase"]), (&"Pod".into(), &"Pending".into()));
    let mut watch = Process::start(me.curl(&[&format!("{}{PODS}?watch=True", server.url())]));
    follows(&writer, &mut watch);
}

#[test]
fn each_event_at_once_on_http1_and_http2() {
    let server = Server::start();
    let writer = Writer::new(&server);
    writer.create("one");
    let me = Credentials::of(&server);
    let url = format!("{}{PODS}?watch=1", server.url());
    let mut first = Process::start(me.curl(&["--http1.1", &url]));
    let mut second = Process::start(me.curl(&["--http2", &url]));
    expect(&mut first, "ADDED", "one");
    expect(&mut second, "ADDED", "one");
    for name in ["two", "three", "four"] {
        writer.create(name);
        expect(&mut first, "ADDED", name);
        expect(&mut second, "ADDED", name);
    }
}

#[test]
fn http_version_is_negotiated() {
    let server = Server::start();
    let me = Credentials::of(&server);
    let url = format!("{}/version", server.url());
    let version = |flag: &str| me.get(&[flag, "--output", "/dev/null", "--write-out", "%{http_version}", &url]).ok();
    assert_eq!(version("--http1.1"), "1.1");
    assert_eq!(version("--http2"), "2");
}

#[test]
fn old_watch_paths() {
    let server = Server::start();
    let writer = Writer::new(&server);
    writer.create("one");
    let me = Credentials::of(&server);
    let open = |path: &str| Process::start(me.curl(&[&format!("{}{path}", server.url())]));
    let mut everywhere = open("/api/v1/watch/pods?watch=yes");
    let mut namespace = open("/api/v1/watch/namespaces/default/pods");
    let mut single = open("/api/v1/watch/namespaces/default/pods/one");
    expect(&mut everywhere, "ADDED", "one");
    expect(&mut namespace, "ADDED", "one");
    expect(&mut single, "ADDED", "one");
    writer.create("two");
    expect(&mut everywhere, "ADDED", "two");
    expect(&mut namespace, "ADDED", "two");
    writer.delete("one");
    for kind in ["MODIFIED", "DELETED"] {
        expect(&mut everywhere, kind, "one");
        expect(&mut namespace, kind, "one");
        expect(&mut single, kind, "one");
    }
}

#[test]
fn watch_from_a_revision_and_with_initial_events() {
    let server = Server::start();
    let writer = Writer::new(&server);
    writer.create("one");
    let me = Credentials::of(&server);
    let list = me.get(&[&format!("{}{PODS}", server.url())]).json();
    let at = list["metadata"]["resourceVersion"].as_str().expect("a list has a revision");
    writer.create("two");
    let mut resumed = Process::start(me.curl(&[&format!("{}{PODS}?watch=1&resourceVersion={at}", server.url())]));
    expect(&mut resumed, "ADDED", "two");

    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut initial = Process::start(me.curl(&[&format!("{}{PODS}?{query}", server.url())]));
    expect(&mut initial, "ADDED", "one");
    expect(&mut initial, "ADDED", "two");
    let line = initial.line();
    let bookmark: Value = serde_json::from_str(&line).expect("a bookmark is an event");
    assert_eq!(bookmark["type"], "BOOKMARK", "{line}");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true", "{line}");
    writer.create("three");
    expect(&mut initial, "ADDED", "three");
    expect(&mut resumed, "ADDED", "three");
}

#[test]
fn strangers_see_health_and_version_only() {
    let server = Server::start();
    let me = Credentials::of(&server);
    let ca = me.ca.to_str().expect("the folder has a plain name");
    let code = |path: &str| {
        let url = format!("{}{path}", server.url());
        run(curl(&["--cacert", ca, "--output", "/dev/null", "--write-out", "%{http_code}", &url]), "").ok()
    };
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(code(path), "200", "{path}");
    }
    assert!(["401", "403"].contains(&code(PODS).as_str()));
    let body = run(curl(&["--cacert", ca, &format!("{}{PODS}", server.url())]), "").json();
    assert_eq!((&body["kind"], &body["status"]), (&"Status".into(), &"Failure".into()));
    let token =
        run(curl(&["--cacert", ca, "-H", "Authorization: Bearer wrong", &format!("{}{PODS}", server.url())]), "");
    assert_eq!(token.json()["code"], 401);
    // Without the authority, curl itself refuses the server.
    run(curl(&[&format!("{}/version", server.url())]), "").refused();
}

#[test]
fn yaml_tables_and_compression() {
    let server = Server::start();
    let writer = Writer::new(&server);
    writer.create("one");
    let me = Credentials::of(&server);
    let url = format!("{}{PODS}", server.url());
    let yaml = me.get(&["-H", "Accept: application/yaml", &format!("{url}/one")]).ok();
    assert!(yaml.contains("kind: Pod\n") && yaml.contains("  name: one\n"), "{yaml}");
    let table = me.get(&["-H", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io", &url]).json();
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["rows"][0]["cells"][0], "one");
    let plain = me.get(&[&url]).json();
    assert_eq!(me.get(&["--compressed", &url]).json(), plain);
    let posted = me.get(&[
        "-H",
        "Content-Type: application/yaml",
        "--data-binary",
        "{metadata: {name: made}}",
        &format!("{}/api/v1/namespaces/default/configmaps", server.url()),
    ]);
    assert_eq!(posted.json()["metadata"]["name"], "made");
}

#[test]
fn what_is_wrong_is_a_status() {
    let server = Server::start();
    let me = Credentials::of(&server);
    let status = |args: &[&str], path: &str| {
        let url = format!("{}{path}", server.url());
        let mut all = args.to_vec();
        all.push(&url);
        let body = me.get(&all).json();
        assert_eq!(body["kind"], "Status", "{body}");
        (body["code"].as_u64().unwrap_or_default(), body["reason"].as_str().unwrap_or_default().to_owned())
    };
    let is = |code: u64, reason: &str| (code, reason.to_owned());
    assert_eq!(status(&[], &format!("{PODS}/nope")), is(404, "NotFound"));
    assert_eq!(status(&[], "/api/v1/gadgets"), is(404, "NotFound"));
    assert_eq!(status(&[], &format!("{PODS}?labelSelector=%3D%3D")), is(400, "BadRequest"));
    assert_eq!(status(&[], &format!("{PODS}?resourceVersion=x")), is(400, "BadRequest"));
    assert_eq!(status(&["-X", "POST", "-H", "Content-Type: application/json", "-d", "{"], PODS), is(400, "BadRequest"));
    assert_eq!(status(&["-X", "PUT"], PODS), is(405, "MethodNotAllowed"));
    assert_eq!(status(&["-H", "Accept: text/x-nothing"], PODS), is(406, "NotAcceptable"));
}
