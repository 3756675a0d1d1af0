//! The server that the conformance tests run against: a program of this tree with its own nodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the server may take to start.
const START: Duration = Duration::from_secs(120);

/// A server with its own nodes, stopped when dropped.
pub(super) struct Server {
    process: Child,
    pub(super) kubeconfig: PathBuf,
}

impl Server {
    pub(super) fn start(program: &Path, folder: &Path) -> Result<Server, String> {
        let kubeconfig = folder.join("kubeconfig");
        let _ = fs::remove_file(&kubeconfig);
        let process = Command::new(program)
            .args(["up", "--memory", "--listen", "127.0.0.1:0", "--kubeconfig"])
            .arg(&kubeconfig)
            .arg("--data-dir")
            .arg(folder.join("data"))
            .stdout(Stdio::from(log(folder, "server.log")?))
            .stderr(Stdio::from(log(folder, "server.err")?))
            .spawn()
            .map_err(|e| format!("{} did not start: {e}", program.display()))?;
        let server = Server { process, kubeconfig };
        let deadline = Instant::now() + START;
        let log = folder.join("server.log");
        while !fs::read_to_string(&log).unwrap_or_default().contains("ready in") {
            if Instant::now() > deadline {
                return Err(format!("the server is not ready after {} s; see {}", START.as_secs(), log.display()));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(super) fn log(folder: &Path, name: &str) -> Result<fs::File, String> {
    let file = folder.join(name);
    fs::File::create(&file).map_err(|e| format!("{}: {e}", file.display()))
}
