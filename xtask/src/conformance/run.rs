//! Runs conformance tests in processes of the suite, follows what they print, and ends a test that takes too long.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::server::log;
use parking_lot::Mutex;

use crate::progress::{Failure, Outcome, say};

/// Time for the suite to read its tests and look at the cluster before a test begins.
const PREPARATION: Duration = Duration::from_secs(300);

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    Passed,
    Failed,
    TimedOut,
    DidNotRun,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::TimedOut => "timed out",
            Verdict::DidNotRun => "did not run",
        }
    }
}

/// Tests that ended, by name, with their duration in seconds.
pub(super) type Results = BTreeMap<String, (Verdict, u64)>;

/// What every process of the suite gets.
pub(super) struct Suite {
    pub(super) program: PathBuf,
    pub(super) kubeconfig: PathBuf,
    pub(super) folder: PathBuf,
    /// Longest duration of one test.
    pub(super) limit: Duration,
    /// Number of tests of this run, for the lines of progress.
    pub(super) total: usize,
    pub(super) results: Mutex<Results>,
}

impl Suite {
    /// Runs tests in `jobs` processes at a time.
    pub(super) fn run(&self, names: &[String], jobs: usize, log_name: &str) -> Outcome {
        let shares: Vec<Vec<String>> =
            (0..jobs).map(|job| names.iter().skip(job).step_by(jobs).cloned().collect()).collect();
        std::thread::scope(|scope| {
            let running: Vec<_> = shares
                .iter()
                .enumerate()
                .filter(|(_, share)| !share.is_empty())
                .map(|(job, share)| scope.spawn(move || self.run_share(share, &format!("{log_name}-{job}.log"))))
                .collect();
            running.into_iter().try_for_each(|job| job.join().map_err(|_| "a thread of the run panicked")?)
        })
    }

    /// Runs tests in one process after the other; a process whose test exceeds the limit is ended, and the next one runs the rest.
    fn run_share(&self, names: &[String], log_name: &str) -> Outcome {
        let mut file = log(&self.folder, log_name)?;
        let mut left = names.to_vec();
        while !left.is_empty() {
            let before = left.len();
            self.run_process(&mut left, &mut file)?;
            if left.len() == before {
                left.drain(..).for_each(|name| self.end(name, Verdict::DidNotRun, 0));
            }
        }
        Ok(())
    }

    /// Runs one process of the suite and removes the tests that ended from `left`.
    fn run_process(&self, left: &mut Vec<String>, file: &mut File) -> Outcome {
        let mut child = self.spawn(left)?;
        let lines = lines(&mut child)?;
        let mut current: Option<String> = None;
        let mut since = Instant::now();
        loop {
            let limit = if current.is_some() { self.limit } else { PREPARATION };
            match lines.recv_timeout(limit.saturating_sub(since.elapsed())) {
                Ok(line) => {
                    // Such a line has one letter for each test that is not selected.
                    if !line.starts_with("SS") {
                        let _ = writeln!(file, "{line}");
                    }
                    match (&current, verdict(&line)) {
                        (Some(name), Some(verdict)) => {
                            left.retain(|other| other != name);
                            self.end(name.clone(), verdict, since.elapsed().as_secs());
                            (current, since) = (None, Instant::now());
                        }
                        (None, _) if left.iter().any(|name| name == plain_name(&line)) => {
                            (current, since) = (Some(plain_name(&line).to_owned()), Instant::now());
                        }
                        _ => {}
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let _ = child.kill();
                    if let Some(name) = current.take() {
                        left.retain(|other| *other != name);
                        self.end(name, Verdict::TimedOut, since.elapsed().as_secs());
                    }
                    break;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        child.wait().map(|_| ()).map_err(|e| format!("{}: {e}", self.program.display()))
    }

    fn spawn(&self, names: &[String]) -> Result<Child, Failure> {
        Command::new(&self.program)
            .args(["--provider=local", "--ginkgo.no-color", "--ginkgo.v", "--ginkgo.timeout=24h"])
            .args(["--allowed-not-ready-nodes=-1", "--disable-log-dump"])
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .arg(format!("--ginkgo.focus={}", focus(names)))
            .current_dir(&self.folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{}: {e}", self.program.display()))
    }

    fn end(&self, name: String, verdict: Verdict, seconds: u64) {
        let mut results = self.results.lock();
        let again = results.insert(name.clone(), (verdict, seconds)).is_some();
        let number = if again { "again".to_owned() } else { format!("{}/{}", results.len(), self.total) };
        say(&format!("{number:>7} {:<11} {seconds:>4} s  {name}", verdict.word()));
    }
}

fn lines(child: &mut Child) -> Result<Receiver<String>, Failure> {
    let stdout = child.stdout.take().ok_or("a piped child has no stdout")?;
    let (sender, lines) = mpsc::sync_channel(1024);
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
    Ok(lines)
}

/// Returns how a test ended if this is the line that ends it.
fn verdict(line: &str) -> Option<Verdict> {
    let status = line.strip_prefix("• [")?;
    Some(if status.starts_with(|c: char| c.is_ascii_digit()) { Verdict::Passed } else { Verdict::Failed })
}

/// Returns the name of a test without its tags, from the line that begins it.
fn plain_name(line: &str) -> &str {
    line.split(" [Conformance]").next().unwrap_or_default().trim()
}

/// Returns the expression that selects exactly these tests.
fn focus(names: &[String]) -> String {
    let escaped = names.iter().map(|name| {
        name.chars().fold(String::new(), |mut text, c| {
            if !(c.is_alphanumeric() || c == ' ' || c == '_') {
                text.push('\\');
            }
            text.push(c);
            text
        })
    });
    // The tag keeps out tests whose names begin with that of another.
    format!(r"(?:{}) \[Conformance\]", escaped.collect::<Vec<_>>().join("|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_expressions() {
        let names = ["[sig-apps] a.b".to_owned(), "c".to_owned()];
        assert_eq!(focus(&names), r"(?:\[sig\-apps\] a\.b|c) \[Conformance\]");
    }

    #[test]
    fn lines_of_the_suite_begin_and_end_tests() {
        assert_eq!(plain_name("[sig-apps] a \"b\" [Conformance] [sig-apps, Conformance]"), "[sig-apps] a \"b\"");
        assert_eq!(verdict("• [1.234 seconds]"), Some(Verdict::Passed));
        assert_eq!(verdict("• [FAILED] [60.1 seconds]"), Some(Verdict::Failed));
        assert_eq!(verdict("  STEP: wait • [1 seconds]"), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_test_that_exceeds_the_limit_ends_and_the_rest_runs() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("conformance-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join("suite");
        // The first process hangs in test b; the second has only c and d to run.
        let script = "#!/bin/sh\nif [ ! -e ran ]; then touch ran; printf 'a [Conformance]\\n\\342\\200\\242 [0.1 seconds]\\nb [Conformance]\\n'; exec sleep 600; fi\n\
                      printf 'c [Conformance] [x]\\n\\342\\200\\242 [FAILED] [0.1 seconds]\\n'\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let suite = Suite {
            program,
            kubeconfig: folder.join("kubeconfig"),
            folder: folder.clone(),
            limit: Duration::from_secs(2),
            total: 4,
            results: Mutex::default(),
        };
        suite.run(&["a", "b", "c", "d"].map(str::to_owned), 1, "test").unwrap();
        let results = suite.results.into_inner();
        let verdicts: Vec<Verdict> = results.values().map(|(verdict, _)| *verdict).collect();
        assert_eq!(verdicts, [Verdict::Passed, Verdict::TimedOut, Verdict::Failed, Verdict::DidNotRun]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
