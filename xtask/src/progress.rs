//! Runs commands with their progress and duration on stderr.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// A message for the person who ran the command.
pub(crate) type Failure = String;
pub(crate) type Outcome = Result<(), Failure>;

/// The failure of a command that has printed its own message.
pub(crate) const REPORTED: &str = "";

/// Silence of a command after which a line reports that it still runs.
const HEARTBEAT: Duration = Duration::from_secs(15);

static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Prints a line with the time since the start, on stderr: stdout is for results.
pub(crate) fn say(text: &str) {
    eprintln!("[{:>4}s] {text}", STARTED.elapsed().as_secs());
}

/// One named piece of work.
pub(crate) struct Step<'a> {
    name: &'a str,
    started: Instant,
}

impl<'a> Step<'a> {
    pub(crate) fn new(name: &'a str) -> Self {
        say(&format!("{name} ..."));
        Self { name, started: Instant::now() }
    }

    /// Runs a command that shows its own progress.
    pub(crate) fn run(&self, command: &mut Command) -> Outcome {
        let status = command.status().map_err(|e| self.not_started(command, &e))?;
        self.end(status.success(), &format!("{status}"))
    }

    /// Runs a command with its output in `log`, which is shown when it fails.
    pub(crate) fn run_logged(&self, command: &mut Command, log: &Path) -> Outcome {
        let file = File::create(log).map_err(|e| format!("cannot write {}: {e}", log.display()))?;
        let errors = file.try_clone().map_err(|e| format!("cannot write {}: {e}", log.display()))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .map_err(|e| self.not_started(command, &e))?;
        let (done, ended) = mpsc::sync_channel(1);
        let status = thread::scope(|scope| {
            scope.spawn(move || {
                while ended.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                    self.still_running();
                }
            });
            let status = child.wait();
            let _ = done.send(());
            status
        });
        let status = status.map_err(|e| format!("{}: {e}", self.name))?;
        if !status.success() {
            eprint!("{}", std::fs::read_to_string(log).unwrap_or_default());
        }
        self.end(status.success(), &format!("{status}"))
    }

    /// Runs a command, passes each line of its stdout to `each`, and returns whether it succeeded.
    pub(crate) fn run_lines(&self, command: &mut Command, mut each: impl FnMut(&str)) -> Result<bool, Failure> {
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| self.not_started(command, &e))?;
        let stdout = child.stdout.take().ok_or("a piped child has no stdout")?;
        let (lines, inbox) = mpsc::sync_channel::<String>(1024);
        let reader = thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        loop {
            match inbox.recv_timeout(HEARTBEAT) {
                Ok(line) => each(&line),
                Err(RecvTimeoutError::Timeout) => self.still_running(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let _ = reader.join();
        let status = child.wait().map_err(|e| format!("{}: {e}", self.name))?;
        Ok(status.success())
    }

    fn still_running(&self) {
        say(&format!("{} still running, {} s", self.name, self.started.elapsed().as_secs()));
    }

    fn not_started(&self, command: &Command, error: &std::io::Error) -> Failure {
        format!("{}: {} did not start: {error}", self.name, command.get_program().to_string_lossy())
    }

    fn end(&self, success: bool, status: &str) -> Outcome {
        let seconds = self.started.elapsed().as_secs_f64();
        if success {
            say(&format!("{} ok, {seconds:.1} s", self.name));
            Ok(())
        } else {
            Err(format!("{} failed after {seconds:.1} s ({status})", self.name))
        }
    }
}
