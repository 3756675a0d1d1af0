//! The program as kube-apiserver, etcd and kubectl: started by envtest, unmodified, and by hand where envtest hides something.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use blackbox::{Server, tools};
use tempfile::TempDir;

/// Long enough for a busy machine: nothing here is about speed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of assets in a cache of its own.
struct Assets {
    cache: TempDir,
    folder: PathBuf,
}

impl Assets {
    fn new() -> Self {
        let cache = TempDir::new().expect("the temporary folder can be written");
        let printed = Command::new(tools::dogwatch()).arg("assets").env("XDG_CACHE_HOME", cache.path()).output();
        let printed = printed.expect("the program starts");
        assert!(printed.status.success(), "{}", text(&printed.stderr));
        let folder = PathBuf::from(text(&printed.stdout).trim());
        Assets { cache, folder }
    }

    fn command(&self, name: &str) -> Command {
        Command::new(self.folder.join(name))
    }

    fn run(&self, name: &str, words: &[&str]) -> Output {
        self.command(name).args(words).output().expect("the program starts")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs one test of the suite in tests/envtest.
fn suite(test: &str, variables: &[(&str, &str)]) {
    let assets = Assets::new();
    let mut command = Command::new(tools::installed("bin/envtest-suite"));
    command.args(["-test.v", "-test.run", &format!("^{test}$")]).env("KUBEBUILDER_ASSETS", &assets.folder);
    command.envs(variables.iter().copied());
    let output = command.output().expect("the suite starts");
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}\n{}", text(&output.stderr));
    assert!(printed.contains(&format!("--- PASS: {test}")), "{printed}");
}

#[test]
fn a_manager_with_webhooks_runs_unchanged() {
    suite("TestManagerWithWebhooks", &[]);
}

#[test]
fn a_user_of_the_harness_has_the_rights_of_its_bindings() {
    suite("TestUserWithARole", &[]);
}

#[test]
fn a_suite_sees_no_controllers_unless_it_asks() {
    suite("TestNoControllersByDefault", &[]);
}

#[test]
fn controllers_are_a_variable_away() {
    suite("TestNamespacesEndWithControllers", &[("DOGWATCH_CONTROLLERS", "gc,namespace")]);
}

#[test]
fn the_probes_of_a_harness_are_answered() {
    let assets = Assets::new();
    let help = assets.run("kube-apiserver", &["--help"]);
    assert!(help.status.success());
    assert!(!text(&help.stdout).lines().any(|line| line.trim_start().starts_with("--insecure-port")));
    let help = assets.run("etcd", &["--help"]);
    assert!(help.status.success() && text(&help.stdout).contains("unsafe-no-fsync"));
    let version = assets.run("kube-apiserver", &["--version"]);
    assert!(text(&version.stdout).starts_with("Kubernetes v1.36"), "{}", text(&version.stdout));
    let again = Command::new(tools::dogwatch()).arg("assets").env("XDG_CACHE_HOME", assets.cache.path()).output();
    assert_eq!(text(&again.expect("the program starts").stdout).trim(), assets.folder.display().to_string());
}

#[test]
fn bad_input_is_one_sentence_and_an_end() {
    let assets = Assets::new();
    let folder = TempDir::new().expect("the temporary folder can be written");
    let certs = format!("--cert-dir={}", folder.path().display());
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = format!("--secure-port={}", taken.local_addr().expect("an address").port());
    let unreadable = format!("--client-ca-file={}", folder.path().join("none.pem").display());
    let certificate = format!("--tls-cert-file={}", folder.path().join("none.crt").display());
    let key = format!("--tls-private-key-file={}", folder.path().join("none.key").display());
    let newer = data_of_a_newer_version();
    let newer = newer.path().to_string_lossy().into_owned();
    for (words, variables, expected) in [
        (vec!["--bind-address=127.0.0.1", &port, &certs], vec![], "cannot listen on 127.0.0.1:"),
        (vec!["--bind-address=127.0.0.1", "--secure-port=0", &certs, &unreadable], vec![], "none.pem"),
        (
            vec!["--bind-address=127.0.0.1", "--secure-port=0", &certs],
            vec![("DOGWATCH_CONTROLLERS", "gc,nope")],
            "there is no controller \"nope\"",
        ),
        (vec!["--bind-address=127.0.0.1", "--secure-port=0", &certs, "--authorization-mode=Nope"], vec![], "Nope"),
        (vec!["--bind-address=127.0.0.1", "--secure-port=0", &certificate, &key], vec![], "none.crt"),
        (
            vec!["--bind-address=127.0.0.1", "--secure-port=0", &certs],
            vec![("DOGWATCH_DATA", newer.as_str())],
            "storage format 99, newer than",
        ),
    ] {
        let output =
            assets.command("kube-apiserver").args(&words).envs(variables).output().expect("the program starts");
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{words:?} {said}");
        assert!(said.contains(expected), "{words:?}: {said}");
        let is_short = said.starts_with("error: ") && said.lines().skip(1).all(|line| line.starts_with("hint: "));
        assert!(is_short, "{words:?}: one sentence and a hint, not {said}");
    }
}

/// A folder for `DOGWATCH_DATA` whose store has the mark of a later format.
fn data_of_a_newer_version() -> TempDir {
    let folder = Server::start().stop_keeping_data();
    let data = folder.path().join("dogwatch");
    std::fs::rename(folder.path().join("data"), &data).expect("the data can be moved");
    let file = data.join("store.db");
    let mut store = std::fs::read(&file).expect("the store is there");
    // SQLite keeps the number of the format in these bytes of its header.
    store[60..64].copy_from_slice(&99_u32.to_be_bytes());
    std::fs::write(&file, store).expect("the store can be written");
    folder
}

/// A control plane that is started by hand: the two processes, and the address of the API server.
struct ControlPlane {
    etcd: Child,
    server: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl ControlPlane {
    fn start(assets: &Assets) -> Self {
        let folder = TempDir::new().expect("the temporary folder can be written");
        let (client, secure) = (free_port(), free_port());
        let url = format!("http://127.0.0.1:{client}");
        let mut etcd = assets.command("etcd");
        etcd.args([
            format!("--advertise-client-urls={url}"),
            format!("--listen-client-urls={url}"),
            format!("--data-dir={}", folder.path().join("etcd").display()),
            "--unsafe-no-fsync=true".to_owned(),
        ]);
        let etcd = quiet(&mut etcd).spawn().expect("etcd starts");
        wait_for(|| health(&format!("127.0.0.1:{client}")));
        let mut server = assets.command("kube-apiserver");
        let mut server = Self::server(&mut server, folder.path(), &url, secure).spawn().expect("the server starts");
        let address = SocketAddr::from(([127, 0, 0, 1], secure));
        wait_for(|| {
            assert!(server.try_wait().expect("a child").is_none(), "the server ended");
            TcpStream::connect(address).is_ok()
        });
        ControlPlane { etcd, server, address, folder }
    }

    /// The kubeconfig that the server writes to the data directory of its etcd.
    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("etcd/dogwatch/kubeconfig")
    }

    fn server<'a>(command: &'a mut Command, folder: &Path, etcd: &str, port: u16) -> &'a mut Command {
        quiet(command.args([
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--etcd-servers={etcd}"),
            format!("--cert-dir={}", folder.join("certs").display()),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--some-flag-of-another-version=true".to_owned(),
        ]))
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for child in [&mut self.server, &mut self.etcd] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

fn wait_for(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "nothing happens");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether the etcd at an address is healthy.
fn health(address: &str) -> bool {
    let Ok(mut connection) = TcpStream::connect(address) else { return false };
    let mut answer = String::new();
    let asked = connection.write_all(b"GET /health HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n");
    asked.and_then(|()| connection.read_to_string(&mut answer)).is_ok() && answer.contains(r#""health":"true""#)
}

#[test]
fn both_processes_end_on_a_signal() {
    let assets = Assets::new();
    let mut plane = ControlPlane::start(&assets);
    for child in [&mut plane.server, &mut plane.etcd] {
        let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        assert!(killed.expect("kill is installed").success());
        let mut status = None;
        wait_for(|| {
            status = child.try_wait().expect("a child");
            status.is_some()
        });
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
    }
}

#[test]
fn a_killed_parent_leaves_no_server_behind() {
    let assets = Assets::new();
    let folder = TempDir::new().expect("the temporary folder can be written");
    let port = free_port();
    let mut server = assets.command("kube-apiserver");
    let server = ControlPlane::server(&mut server, folder.path(), "", port);
    // A shell is the parent, and is killed.
    let mut parent = Command::new("sh");
    parent.arg("-c").arg("\"$0\" \"$@\" & wait").arg(server.get_program()).args(server.get_args());
    let mut parent = quiet(&mut parent).spawn().expect("a shell starts");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    wait_for(|| TcpStream::connect(address).is_ok());
    parent.kill().expect("it runs");
    parent.wait().expect("it ended");
    wait_for(|| TcpStream::connect(address).is_err());
}

#[test]
fn many_control_planes_at_once_take_different_ports() {
    let assets = Assets::new();
    let planes: Vec<ControlPlane> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..4).map(|_| scope.spawn(|| ControlPlane::start(&assets))).collect();
        starting.into_iter().map(|started| started.join().expect("it starts")).collect()
    });
    let mut addresses: Vec<SocketAddr> = planes.iter().map(|plane| plane.address).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 4);
}

/// A folder without programs, so that no kubectl of this machine is found.
fn without_kubectl(command: &mut Command) -> &mut Command {
    command.env("PATH", "/nowhere")
}

#[test]
fn the_kubectl_of_the_folder_creates_waits_and_deletes() {
    let assets = Assets::new();
    let plane = ControlPlane::start(&assets);
    wait_for(|| plane.kubeconfig().exists());
    let start = |words: &str| {
        let mut command = assets.command("kubectl");
        without_kubectl(&mut command).args(words.split(' ')).env("KUBECONFIG", plane.kubeconfig());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl starts");
        let map = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n";
        let _ = child.stdin.take().expect("a pipe").write_all(map);
        child
    };
    let run = |words: &str| {
        let output = start(words).wait_with_output().expect("it ends");
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    let ok = |words: &str, expected: &str| {
        let (success, printed) = run(words);
        assert!(success && printed.contains(expected), "{words}: {printed}");
    };
    let refused = |words: &str, expected: &str| {
        let (success, printed) = run(words);
        assert!(!success && printed.contains(expected), "{words}: {printed}");
    };
    ok("create -f -", "configmap/a created");
    refused("create -f -", "already exists");
    ok("get configmap/a -o name", "configmap/a");
    ok("apply --server-side -f -", "configmap/a applied");
    ok("wait --for=jsonpath={.data.k}=v configmap/a --timeout=60s", "configmap/a condition met");
    refused(
        "wait --for=condition=Ready configmap/a --timeout=1s",
        "timed out waiting for the condition on configmaps/a",
    );
    refused("wait --for=condition=Ready configmap/b --timeout=60s", "configmaps \"b\" not found");
    refused("wait --for=ready configmap/a", "condition=NAME");
    let waiting = start("wait --for=delete configmap/a --timeout=60s");
    ok("delete configmap/a --wait=false", "configmap/a deleted");
    let waited = waiting.wait_with_output().expect("it ends");
    assert!(waited.status.success(), "{}", text(&waited.stderr));
    ok("delete configmap a --ignore-not-found", "");
    refused("delete configmap a", "not found");
    refused("rollout status deployment/d", "this kubectl is dogwatch");
    ok("version --client", "dogwatch");
}

/// Writes a certificate that is its own issuer and no authority, and its key.
fn write_pair(folder: &Path, name: &str, addresses: &[&str], subject: &[(rcgen::DnType, &str)]) {
    let names: Vec<String> = addresses.iter().map(|&address| address.to_owned()).collect();
    let mut params = rcgen::CertificateParams::new(names).expect("valid names");
    params.distinguished_name = rcgen::DistinguishedName::new();
    for (kind, value) in subject {
        params.distinguished_name.push(kind.clone(), *value);
    }
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    let write = |end: &str, pem: String| std::fs::write(folder.join(format!("{name}.{end}")), pem);
    write("crt", certificate.pem())
        .and_then(|()| write("key", key.serialize_pem()))
        .expect("the folder can be written");
}

/// The harness of fabric8: flags and values as two words, some of them twice; the server's key also signs tokens; the client's
/// certificate is its own authority; kubectl without a kubeconfig. A harness in Rust adds a file of tokens.
#[test]
fn the_flags_of_other_harnesses_are_understood() {
    let assets = Assets::new();
    let folder = TempDir::new().expect("the temporary folder can be written");
    let file = |name: &str| folder.path().join(name).display().to_string();
    write_pair(folder.path(), "apiserver", &["127.0.0.1"], &[(rcgen::DnType::CommonName, "example.org")]);
    let client = [(rcgen::DnType::OrganizationName, "system:masters"), (rcgen::DnType::CommonName, "kubeapitest")];
    write_pair(folder.path(), "client", &[], &client);
    std::fs::write(file("tokens"), "secret,robot,1,system:masters\n").expect("the folder can be written");
    let (etcd_port, port) = (free_port().to_string(), free_port().to_string());
    let client_url = format!("http://0.0.0.0:{etcd_port}");
    let mut etcd = assets.command("etcd");
    etcd.args([
        "--listen-client-urls",
        &client_url,
        "--advertise-client-urls",
        &client_url,
        "--data-dir",
        &file("etcd"),
    ]);
    let etcd = quiet(&mut etcd).spawn().expect("etcd starts");
    let mut server = assets.command("kube-apiserver");
    let (key, certificate) = (file("apiserver.key"), file("apiserver.crt"));
    server.args(["--cert-dir", &file(""), "--secure-port", &port, "--etcd-servers", &client_url]);
    server.args(["--authorization-mode", "RBAC", "--service-account-issuer", "https://localhost"]);
    server.args(["--service-account-signing-key-file", &key, "--service-account-signing-key-file", &key]);
    server.args(["--service-account-key-file", &key, "--service-account-issuer", &certificate]);
    server.args(["--disable-admission-plugins", "ServiceAccount", "--client-ca-file", &file("client.crt")]);
    server.args([
        "--token-auth-file",
        &file("tokens"),
        "--service-cluster-ip-range",
        "10.0.0.0/24",
        "--allow-privileged",
    ]);
    wait_for(|| health(&format!("127.0.0.1:{etcd_port}")));
    let server = quiet(&mut server).spawn().expect("the server starts");
    let address = SocketAddr::from(([127, 0, 0, 1], port.parse().expect("a port")));
    let plane = ControlPlane { etcd, server, address, folder };
    wait_for(|| TcpStream::connect(plane.address).is_ok());
    let kubectl = |words: &[String]| {
        let mut command = assets.command("kubectl");
        without_kubectl(&mut command).args(words).env("KUBECONFIG", "/nowhere/kubeconfig");
        command.args([&format!("--server=https://127.0.0.1:{port}"), "--request-timeout=5s", "get", "ns", "default"]);
        let output = command.output().expect("kubectl starts");
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    let file = |name: &str| plane.folder.path().join(name).display().to_string();
    let mut printed = String::new();
    wait_for(|| {
        let (success, text) = kubectl(&[
            format!("--client-certificate={}", file("client.crt")),
            format!("--client-key={}", file("client.key")),
            format!("--certificate-authority={}", file("apiserver.crt")),
        ]);
        printed = text;
        success
    });
    assert!(printed.contains("default"), "{printed}");
    let with_token = kubectl(&["--token=secret".to_owned(), "--insecure-skip-tls-verify=true".to_owned()]);
    assert!(with_token.0, "{}", with_token.1);
}
