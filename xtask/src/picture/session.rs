//! The recorded session: three terminals with the real output of the program and of kubectl, and the time of each line.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of any step: far longer than it takes.
const DEADLINE: Duration = Duration::from_secs(60);
/// Time between the end of a command and the next one, for the reader's eye.
const PAUSE: Duration = Duration::from_millis(900);
/// Silence after which the watch is taken to have shown everything.
const QUIET: Duration = Duration::from_secs(2);

/// A terminal with the commands typed into it and their output.
pub(super) struct Terminal {
    pub(super) lines: Vec<Line>,
}

pub(super) struct Line {
    /// Since the start of the session.
    pub(super) at: Duration,
    pub(super) is_command: bool,
    pub(super) text: String,
}

/// Runs the session: the server, commands, and a watch of pods.
pub(super) fn record(program: &Path, kubectl: &Path) -> Result<[Terminal; 3], String> {
    let folder = Folder::new()?;
    let session = Session { started: Instant::now(), folder: &folder.0, kubectl };

    let mut server_lines = Vec::new();
    session.type_command(&mut server_lines, "dogwatch up");
    let mut up = Command::new(program);
    up.arg("up");
    let server = session.start(up, &mut server_lines, |line| line.starts_with("ready in "))?;
    thread::sleep(PAUSE);

    let mut watch_lines = Vec::new();
    session.type_command(&mut watch_lines, "kubectl get pods --watch");
    let mut command = session.kubectl_command();
    command.args(["get", "pods", "--watch"]);
    let watch = Running::new(command)?;
    thread::sleep(PAUSE);

    let mut command_lines = Vec::new();
    for words in
        ["create deployment web --image=nginx --replicas=3", "rollout status deployment/web", "get deployments"]
    {
        session.run(words, &mut command_lines)?;
        thread::sleep(PAUSE);
    }
    while let Ok((at, text)) = watch.lines.recv_timeout(QUIET) {
        watch_lines.push(Line { at: at.duration_since(session.started), is_command: false, text });
    }
    drop((server, watch));
    Ok([server_lines, command_lines, watch_lines].map(|lines| Terminal { lines }))
}

struct Session<'a> {
    started: Instant,
    folder: &'a Path,
    kubectl: &'a Path,
}

impl Session<'_> {
    fn type_command(&self, lines: &mut Vec<Line>, text: &str) {
        lines.push(Line { at: self.started.elapsed(), is_command: true, text: text.into() });
    }

    fn kubectl_command(&self) -> Command {
        let mut command = Command::new(self.kubectl);
        // As the line that the server prints; the home folder has kubectl's cache.
        command.env("KUBECONFIG", self.folder.join(".dogwatch/kubeconfig")).env("HOME", self.folder);
        command
    }

    /// Runs kubectl to its end.
    fn run(&self, words: &str, lines: &mut Vec<Line>) -> Result<(), String> {
        self.type_command(lines, &format!("kubectl {words}"));
        let mut command = self.kubectl_command();
        command.args(words.split(' '));
        let mut child = Running::new(command)?;
        self.take(&child, lines, |_| false)?;
        let status = child.process.wait().map_err(|e| format!("kubectl: {e}"))?;
        if status.success() { Ok(()) } else { Err(format!("kubectl {words} failed")) }
    }

    /// Starts a program and waits for a line.
    fn start(&self, mut command: Command, lines: &mut Vec<Line>, last: fn(&str) -> bool) -> Result<Running, String> {
        command.current_dir(self.folder);
        let child = Running::new(command)?;
        self.take(&child, lines, last)?;
        if lines.last().is_some_and(|line| last(&line.text)) {
            Ok(child)
        } else {
            Err("the server ended during its start; is its port in use?".into())
        }
    }

    /// Takes lines until `last` is true for one, or the output ends.
    fn take(&self, child: &Running, lines: &mut Vec<Line>, last: fn(&str) -> bool) -> Result<(), String> {
        loop {
            match child.lines.recv_timeout(DEADLINE) {
                Ok((at, text)) => {
                    let end = last(&text);
                    lines.push(Line { at: at.duration_since(self.started), is_command: false, text });
                    if end {
                        return Ok(());
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
                Err(mpsc::RecvTimeoutError::Timeout) => return Err("a command prints nothing and does not end".into()),
            }
        }
    }
}

/// A process with the lines of its output. Killed when dropped.
struct Running {
    process: Child,
    lines: Receiver<(Instant, String)>,
}

impl Running {
    fn new(mut command: Command) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(|e| format!("{name} did not start: {e}"))?;
        let output = process.stdout.take().ok_or("a piped child has no stdout")?;
        let (sender, lines) = mpsc::sync_channel(1000);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send((Instant::now(), line)).is_err() {
                    break;
                }
            }
        });
        Ok(Self { process, lines })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An empty folder with a short name, since the program prints its path.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let folder = std::env::temp_dir().join("try");
        fs::create_dir(&folder).map_err(|e| format!("{} cannot be created: {e}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
