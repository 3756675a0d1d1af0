//! Child processes: one whose output lines can be waited for, and one that is run to its end. Both have a time limit, so
//! that a hanging client fails its test with its output instead of stopping the whole run.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of any step: far longer than it takes, so that only a hang reaches it.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Unread lines of a process at most, before its pipe blocks it.
const LINES_MAX: usize = 10_000;

/// A running child. Killed when dropped.
pub struct Process {
    name: String,
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    /// Lines read so far, for the message of a failure.
    seen: Vec<String>,
    stderr_seen: Vec<String>,
    /// Processes that it has started are killed with it.
    group: bool,
}

impl Process {
    /// Starts it in a process group, so that a shell is killed with its pipeline.
    pub fn start_group(mut command: Command) -> Self {
        command.process_group(0);
        let mut process = Self::start(command);
        process.group = true;
        process
    }

    pub fn start(mut command: Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{name} did not start: {e}"));
        let stdout = lines(child.stdout.take().expect("stdout is piped"));
        let stderr = lines(child.stderr.take().expect("stderr is piped"));
        Self { name, child, stdout, stderr, seen: Vec::new(), stderr_seen: Vec::new(), group: false }
    }

    /// The next line of stdout.
    pub fn line(&mut self) -> String {
        match self.stdout.recv_timeout(DEADLINE) {
            Ok(line) => {
                self.seen.push(line.clone());
                line
            }
            Err(error) => panic!("no next line: {error}; {}", self.transcript()),
        }
    }

    /// The next line that satisfies `wanted`; lines before it are skipped.
    pub fn line_where(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        self.line_within(DEADLINE, what, wanted)
    }

    /// As [`Process::line_where`], with another time limit.
    pub fn line_within(&mut self, time_limit: Duration, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + time_limit;
        loop {
            match self.stdout.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(error) => panic!("{what} did not appear: {error}; {}", self.transcript()),
            }
        }
    }

    /// Asserts that the next lines are exactly these.
    pub fn expect(&mut self, lines: &[&str]) {
        for wanted in lines {
            let line = self.line();
            assert_eq!(line, *wanted, "{}", self.transcript());
        }
    }

    /// Waits until stderr has a line that satisfies `wanted`.
    pub fn stderr_line_where(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        if let Some(line) = self.stderr_seen.iter().find(|line| wanted(line)) {
            return line.clone();
        }
        let end = Instant::now() + DEADLINE;
        loop {
            match self.stderr.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.stderr_seen.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(error) => panic!("{what} did not appear: {error}; {}", self.transcript()),
            }
        }
    }

    /// The lines on stderr so far.
    pub fn stderr_lines(&mut self) -> &[String] {
        self.stderr_seen.extend(self.stderr.try_iter());
        &self.stderr_seen
    }

    /// Waits for the process to end by itself. Returns its status and the unread lines.
    pub fn end(mut self) -> (ExitStatus, Vec<String>) {
        let end = Instant::now() + DEADLINE;
        let mut rest = Vec::new();
        loop {
            match self.stdout.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    rest.push(line);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(error) => panic!("it did not end: {error}; {}", self.transcript()),
            }
        }
        let status = self.child.wait().expect("a child can be waited for");
        (status, rest)
    }

    /// Sends SIGTERM and waits for its end.
    pub fn terminate(self) -> (ExitStatus, Vec<String>) {
        // Every shell has kill built in; as a program it may be missing.
        let kill = format!("kill -TERM {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().expect("every system has a shell");
        assert!(sent.success(), "{} had ended before the signal", self.name);
        self.end()
    }

    /// As [`Process::terminate`], without consuming it; asserts a clean exit.
    pub fn interrupt(&mut self) {
        // Every shell has kill built in; as a program it may be missing.
        let kill = format!("kill -TERM {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().expect("every system has a shell");
        assert!(sent.success(), "{} had ended before the signal", self.name);
        let status = self.child.wait().expect("a child can be waited for");
        assert!(status.success(), "a clean stop ends with 0, not {status}; {}", self.transcript());
    }

    /// Sends SIGKILL and waits for its end.
    pub fn kill(&mut self) {
        if self.group {
            let kill = format!("kill -KILL -- -{}", self.child.id());
            let _ = Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status();
        }
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn transcript(&mut self) -> String {
        let name = self.name.clone();
        let seen = self.seen.join("\n  ");
        format!("{name} printed:\n  {seen}\nand on stderr:\n  {}", self.stderr_lines().join("\n  "))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads a pipe line by line, in a thread of its own.
fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(LINES_MAX);
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// The output of a finished command.
#[derive(Debug)]
pub struct Output {
    pub success: bool,
    /// None if a signal ended the command.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    command: String,
}

impl Output {
    /// The output of a command that must succeed.
    pub fn ok(self) -> String {
        assert!(self.success, "{} failed:\n{}{}", self.command, self.stdout, self.stderr);
        self.stdout
    }

    /// The stderr of a command that must fail.
    pub fn refused(self) -> String {
        assert!(!self.success, "{} succeeded:\n{}{}", self.command, self.stdout, self.stderr);
        self.stderr
    }

    pub fn json(self) -> serde_json::Value {
        let command = self.command.clone();
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{command} printed no JSON: {e}\n{text}"))
    }
}

/// Runs a command to its end with `input` on stdin.
pub fn run(command: Command, input: &str) -> Output {
    run_within(DEADLINE, command, input)
}

/// Runs a command that may take so long, with `input` on stdin.
pub fn run_within(limit: Duration, mut command: Command, input: &str) -> Output {
    let shown = format!("{command:?}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{shown} did not start: {e}"));
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // A command that does not read its input may have closed it.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let stdout = whole(child.stdout.take().expect("stdout is piped"));
    let stderr = whole(child.stderr.take().expect("stderr is piped"));
    let text = stdout.recv_timeout(limit).unwrap_or_else(|_| {
        let _ = child.kill();
        panic!("{shown} did not end in {limit:?}")
    });
    let status = child.wait().expect("a child can be waited for");
    let stderr = stderr.recv_timeout(DEADLINE).unwrap_or_default();
    Output { success: status.success(), code: status.code(), stdout: text, stderr, command: shown }
}

fn whole(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}
