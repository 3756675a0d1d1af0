//! A single etcd process for a test, on loopback, with temporary data.

use std::net::TcpListener;
use std::process::Command;

use tempfile::TempDir;

use crate::process::Process;
use crate::tools;

/// A running etcd. Killed when dropped.
pub struct Etcd {
    _process: Process,
    _folder: TempDir,
    url: String,
}

impl Etcd {
    pub fn start() -> Self {
        let folder = TempDir::new().expect("the temporary folder can be written");
        let (url, peers) = (free_url(), free_url());
        let mut command = Command::new(tools::installed("bin/etcd"));
        command.arg("--data-dir").arg(folder.path()).arg("--unsafe-no-fsync");
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url, "--listen-peer-urls", &peers]);
        let mut process = Process::start(command);
        process.stderr_line_where("etcd's readiness", |line| line.contains("ready to serve client requests"));
        Self { _process: process, _folder: folder, url }
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

/// A URL with a port that was free a moment ago: etcd cannot choose a port itself.
fn free_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    format!("http://{}", listener.local_addr().expect("a listener has an address"))
}
