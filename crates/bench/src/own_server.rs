//! Our own server: the same program as a child process, in a temporary folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::target::Target;
use crate::trouble::Trouble;
use crate::wire::{Connection, Protocol, Request};

/// Far above the duration of a start, so that only a server that hangs reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct OwnServer {
    program: PathBuf,
    flags: Vec<String>,
    folder: TempDir,
    child: Child,
    /// Not read after the server is ready, and kept so that the server can still write.
    _stdout: Lines<BufReader<ChildStdout>>,
    pub(crate) target: Target,
    /// Time from the start to the first 200 of /readyz.
    pub(crate) ready_after: Duration,
}

impl OwnServer {
    pub(crate) async fn start(program: &Path, below: &Path, flags: &[&str]) -> Result<Self, Trouble> {
        let folder = tempfile::Builder::new().prefix("dogwatch-bench-").tempdir_in(below).map_err(|error| {
            Trouble::impossible(format!("no folder can be made below {}: {error}", below.display()))
        })?;
        let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        let up = up(program, folder.path(), "127.0.0.1:0", &flags).await?;
        let program = program.to_owned();
        let Up { child, stdout, target, ready_after } = up;
        Ok(OwnServer { program, flags, folder, child, _stdout: stdout, target, ready_after })
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Kills it without a warning and starts it again on the same port and data.
    pub(crate) async fn kill_and_restart(&mut self) -> Result<(), Trouble> {
        let address = self.target.address;
        self.child.kill().await.map_err(Trouble::impossible)?;
        self.come_back(address).await
    }

    /// Stops it gracefully, and starts it again on the same port and data.
    pub(crate) async fn stop_and_restart(&mut self) -> Result<(), Trouble> {
        let address = self.target.address;
        self.signal(Signal::TERM);
        self.child.wait().await.map_err(Trouble::impossible)?;
        self.come_back(address).await
    }

    async fn come_back(&mut self, address: SocketAddr) -> Result<(), Trouble> {
        let up = up(&self.program, self.folder.path(), &address.to_string(), &self.flags).await?;
        (self.child, self._stdout, self.target, self.ready_after) = (up.child, up.stdout, up.target, up.ready_after);
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
        }
    }
}

struct Up {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    target: Target,
    ready_after: Duration,
}

async fn up(program: &Path, folder: &Path, listen: &str, flags: &[String]) -> Result<Up, Trouble> {
    let started = Instant::now();
    let mut child = Command::new(program)
        .args(["up", "--log", "error", "--listen", listen, "--data-dir"])
        .arg(folder.join("data"))
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Trouble::impossible(format!("{} did not start: {error}", program.display())))?;
    let stdout = child.stdout.take().ok_or_else(|| Trouble::impossible("a piped child has no stdout"))?;
    let mut stdout = BufReader::new(stdout).lines();
    let ready = async {
        let mut kubeconfig = None;
        while let Some(line) = stdout.next_line().await.map_err(Trouble::gone)? {
            if let Some(path) = line.strip_prefix("export KUBECONFIG=") {
                kubeconfig = Some(PathBuf::from(path.trim_matches(['\'', '"'])));
            } else if line.starts_with("url") {
                break;
            }
        }
        let kubeconfig = kubeconfig.ok_or_else(|| Trouble::gone("it ended before it was ready"))?;
        let target = Target::from_kubeconfig(&kubeconfig)?;
        wait_until_ready(&target).await?;
        Ok(target)
    };
    let target = match tokio::time::timeout(PATIENCE, ready).await {
        Ok(target) => target?,
        Err(_) => return Err(Trouble::gone(format!("it was not ready after {PATIENCE:?}"))),
    };
    Ok(Up { child, stdout, target, ready_after: started.elapsed() })
}

async fn wait_until_ready(target: &Target) -> Result<(), Trouble> {
    loop {
        if let Ok(mut connection) = Connection::open(target, Protocol::Http1).await
            && connection.ask(&Request::get("/readyz")).await.is_ok_and(|answer| answer.status == 200)
        {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
