//! `cargo xtask counts --scaling [TEXT]`: holds the growth of the instructions with each doubling of an input below a bound.
//!
//! The steps are those of `crates/schema/tests/scaling/cases.rs`, or those with TEXT in their names. Each runs by itself under
//! callgrind, which counts the instructions in the function `measured` of `crates/schema/examples/scaling.rs` and writes a
//! profile after each call. A step that does not end within [`CASE_MAX`] fails.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::progress::{Failure, Outcome, Step, say};
use crate::workspace::Workspace;

/// Largest growth of the instructions when an input is doubled. Proportional work doubles, quadratic work is four times as much.
const DOUBLING_MAX: f64 = 2.5;

/// The sizes of the inputs.
const SIZES: [&str; 3] = ["500", "1000", "2000"];

/// Longest time of one step with all sizes. Counting slows a program down about fifty times; the slowest step takes seconds.
const CASE_MAX: Duration = Duration::from_secs(180);

const POLL: Duration = Duration::from_millis(50);

pub(crate) fn scaling(workspace: &Workspace, text: &str) -> Outcome {
    Step::new("scaling: build").run(&mut workspace.cargo(&[
        "build",
        "--quiet",
        "--profile",
        "counts",
        "--package",
        "dogwatch-schema",
        "--example",
        "scaling",
    ]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.root.join("target"), Into::into);
    let run = Run { workspace, program: target.join("counts/examples/scaling"), profiles: target.join("scaling") };
    let listed = std::process::Command::new(&run.program).output();
    let listed = listed.map_err(|e| format!("{}: {e}", run.program.display()))?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    let names: Vec<&str> = listed.lines().filter(|name| name.contains(text)).collect();
    if names.is_empty() {
        return Err(format!("no step has {text:?} in its name"));
    }
    let mut exceeded = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let counts = match run.counts(name) {
            Ok(counts) => counts,
            Err(why) => {
                say(&format!("{:>3} of {} {why}", at + 1, names.len()));
                exceeded.push(why);
                continue;
            }
        };
        let growth = counts.windows(2).map(|pair| pair[1] / pair[0].max(1.0)).fold(0.0, f64::max);
        let last = counts.last().copied().unwrap_or_default();
        say(&format!("{:>3} of {} {growth:5.2} {last:>13} {name}", at + 1, names.len()));
        if growth > DOUBLING_MAX {
            exceeded.push(format!("{name}: {growth:.2} times the instructions for twice the input"));
        }
    }
    if exceeded.is_empty() { Ok(()) } else { Err(exceeded.join("; ")) }
}

struct Run<'a> {
    workspace: &'a Workspace,
    program: PathBuf,
    /// The folder of the profiles of the step that runs.
    profiles: PathBuf,
}

impl Run<'_> {
    /// Counts the instructions of a step for each size.
    fn counts(&self, name: &str) -> Result<Vec<f64>, Failure> {
        // The profiles of the step before would be counted as this one's.
        let _ = std::fs::remove_dir_all(&self.profiles);
        std::fs::create_dir_all(&self.profiles).map_err(|e| format!("{}: {e}", self.profiles.display()))?;
        let mut command = self.workspace.command(
            "valgrind",
            &["--quiet", "--tool=callgrind", "--toggle-collect=scaling::measured*", "--dump-after=*scaling::measured*"],
        );
        command.arg(format!("--callgrind-out-file={}", self.profiles.join("profile").display()));
        command.arg(&self.program).arg(name).args(SIZES).stdin(Stdio::null());
        let child = command.spawn().map_err(|e| format!("valgrind does not start: {e}"))?;
        end(child).map_err(|why| format!("{name}: {why}"))?;
        (1..=SIZES.len()).map(|number| total(&self.profiles.join(format!("profile.{number}")))).collect()
    }
}

/// Waits for a process, and kills it after [`CASE_MAX`].
fn end(mut child: Child) -> Outcome {
    let began = Instant::now();
    loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(status.to_string()),
            None if began.elapsed() < CASE_MAX => thread::sleep(POLL),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("not done after {} s", CASE_MAX.as_secs()));
            }
        }
    }
}

/// The instructions of a profile.
fn total(profile: &Path) -> Result<f64, Failure> {
    let text = std::fs::read_to_string(profile).map_err(|e| format!("{}: {e}", profile.display()))?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    total.and_then(|total| total.trim().parse().ok()).ok_or_else(|| format!("{} has no total", profile.display()))
}
