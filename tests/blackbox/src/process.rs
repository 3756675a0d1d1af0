//! A child process whose lines can be waited for, and one that is run to its end. Both have a deadline: a hanging
//! client fails its test and says what it printed, instead of stopping the whole run.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Far above what any step takes, so that only something that hangs reaches it.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// How many unread lines a process may have before its pipe blocks it.
const LINES_MAX: usize = 10_000;

/// A running child. Killed when dropped.
pub struct Process {
    name: String,
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    /// What was read so far, for the message of a failure.
    seen: Vec<String>,
    complaints: Vec<String>,
    /// Whether what it started goes with it.
    group: bool,
}

impl Process {
    /// With all that it starts: a shell and its pipeline are one.
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
        Self { name, child, stdout, stderr, seen: Vec::new(), complaints: Vec::new(), group: false }
    }

    /// The next line of stdout.
    pub fn line(&mut self) -> String {
        match self.stdout.recv_timeout(DEADLINE) {
            Ok(line) => {
                self.seen.push(line.clone());
                line
            }
            Err(error) => panic!("no next line: {error}; {}", self.story()),
        }
    }

    /// The next line that satisfies `wanted`; lines before it are skipped.
    pub fn line_where(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        self.line_within(DEADLINE, what, wanted)
    }

    /// The same, of something that is known to take its time.
    pub fn line_within(&mut self, patience: Duration, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + patience;
        loop {
            match self.stdout.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(error) => panic!("{what} did not come: {error}; {}", self.story()),
            }
        }
    }

    /// The next lines must be exactly these.
    pub fn expect(&mut self, lines: &[&str]) {
        for wanted in lines {
            let line = self.line();
            assert_eq!(line, *wanted, "{}", self.story());
        }
    }

    /// Waits until stderr has a line that satisfies `wanted`.
    pub fn complaint_where(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        if let Some(line) = self.complaints.iter().find(|line| wanted(line)) {
            return line.clone();
        }
        let end = Instant::now() + DEADLINE;
        loop {
            match self.stderr.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.complaints.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(error) => panic!("{what} did not come: {error}; {}", self.story()),
            }
        }
    }

    /// Everything on stderr until now.
    pub fn complaints(&mut self) -> &[String] {
        self.complaints.extend(self.stderr.try_iter());
        &self.complaints
    }

    /// Waits for the process to end by itself; gives its status and the lines not read yet.
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
                Err(error) => panic!("it did not end: {error}; {}", self.story()),
            }
        }
        let status = self.child.wait().expect("our own child can be waited for");
        (status, rest)
    }

    /// Asks it to stop and waits until it has.
    pub fn terminate(self) -> (ExitStatus, Vec<String>) {
        // Every shell has kill built in; as a program it may be missing.
        let kill = format!("kill -TERM {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().expect("every system has a shell");
        assert!(sent.success(), "{} had ended before it was told to", self.name);
        self.end()
    }

    /// Asks it to stop and waits until it has, without letting go of it.
    pub fn interrupt(&mut self) {
        // Every shell has kill built in; as a program it may be missing.
        let kill = format!("kill -TERM {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().expect("every system has a shell");
        assert!(sent.success(), "{} had ended before it was told to", self.name);
        let status = self.child.wait().expect("our own child can be waited for");
        assert!(status.success(), "a clean stop ends with 0, not {status}; {}", self.story());
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        if self.group {
            let kill = format!("kill -KILL -- -{}", self.child.id());
            let _ = Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status();
        }
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn story(&mut self) -> String {
        let name = self.name.clone();
        let seen = self.seen.join("\n  ");
        format!("{name} printed:\n  {seen}\nand on stderr:\n  {}", self.complaints().join("\n  "))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads a pipe line by line as it comes, in a thread of its own.
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

/// What a command that ran to its end had to say.
#[derive(Debug)]
pub struct Output {
    pub success: bool,
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

    /// The complaint of a command that must fail.
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
pub fn run(mut command: Command, input: &str) -> Output {
    let shown = format!("{command:?}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{shown} did not start: {e}"));
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // A command that does not read its input may have closed it.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let stdout = whole(child.stdout.take().expect("stdout is piped"));
    let stderr = whole(child.stderr.take().expect("stderr is piped"));
    let text = stdout.recv_timeout(DEADLINE).unwrap_or_else(|_| {
        let _ = child.kill();
        panic!("{shown} did not end in {DEADLINE:?}")
    });
    let status = child.wait().expect("our own child can be waited for");
    let complaints = stderr.recv_timeout(DEADLINE).unwrap_or_default();
    Output { success: status.success(), stdout: text, stderr: complaints, command: shown }
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
