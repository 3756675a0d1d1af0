//! `cargo xtask counts`: compares the instructions of the hot paths with a record, since times are noise on a busy machine.
//!
//! The programs are `crates/registry/examples/hot_paths.rs`, and `crates/server/examples/request_paths.rs` for the paths that begin with
//! `request-`; callgrind counts the instructions in their function `measured`. The record is `xtask/counts.tsv`, with one line for each
//! path: name, number of runs, instructions of one run. A change that makes a path more expensive on purpose writes the record again
//! (`cargo xtask counts --write`). The paths of the server are counted with `--requests` only: its program takes minutes to build.
//!
//! `cargo xtask counts --lab` compares requests through a server with an unused lab with those through one without
//! (`crates/lab/examples/lab_paths.rs`). `cargo xtask counts --scaling` is in `scaling.rs`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::progress::{Failure, Outcome, Step, say};
use crate::scaling::scaling;
use crate::workspace::Workspace;

const RECORD: &str = "xtask/counts.tsv";

/// Percent by which a path may exceed its record. Hash seeds and the C library of the machine change the count by about two
/// percent, as measured.
const TOLERANCE: u64 = 10;

/// Paths of `lab_paths`, each with the number of runs.
const LAB_PATHS: [(&str, u64); 5] = [("get", 200), ("list", 50), ("create", 200), ("patch", 200), ("fan-out", 20)];
/// Percent by which an unused lab may add to a path.
const LAB_MAX: f64 = 3.0;

/// A program that runs paths.
struct Program {
    package: &'static str,
    example: &'static str,
}

const REGISTRY: Program = Program { package: "dogwatch-registry", example: "hot_paths" };
const SERVER: Program = Program { package: "dogwatch-server", example: "request_paths" };
const LAB: Program = Program { package: "dogwatch-lab", example: "lab_paths" };

/// A line of the record.
struct Line<'a> {
    path: &'a str,
    times: u64,
    instructions: u64,
}

impl Line<'_> {
    /// The program that runs the path.
    fn program(&self) -> &'static Program {
        if self.path.starts_with("request-") { &SERVER } else { &REGISTRY }
    }
}

pub(crate) fn counts(workspace: &Workspace, args: &[&str]) -> Outcome {
    if !workspace.command("valgrind", &["--version"]).output().is_ok_and(|output| output.status.success()) {
        say("counts skipped: valgrind is not installed here (in Debian: apt install valgrind)");
        return Ok(());
    }
    let (program, write) = match args {
        [] => (&REGISTRY, false),
        ["--write"] => (&REGISTRY, true),
        ["--requests"] => (&SERVER, false),
        ["--requests", "--write"] => (&SERVER, true),
        ["--lab"] => return lab(workspace),
        ["--scaling"] => return scaling(workspace, ""),
        ["--scaling", text] => return scaling(workspace, text),
        _ => return Err("usage: cargo xtask counts [--requests] [--write] | --lab | --scaling [TEXT]".into()),
    };
    let target = build(workspace, program)?;
    let record = workspace.read(RECORD);
    let (mut written, mut exceeded) = (String::new(), Vec::new());
    for line in record.lines().map(line) {
        let line = line?;
        if line.program().example != program.example {
            let _ = writeln!(written, "{}\t{}\t{}", line.path, line.times, line.instructions);
            continue;
        }
        let now = count(workspace, &target, line.program(), line.path, line.times)?;
        let change = now as f64 / line.instructions.max(1) as f64 * 100.0 - 100.0;
        say(&format!("{:16} {now:>9} instructions, {change:+.1} % of the record", line.path));
        if now * 100 > line.instructions * (100 + TOLERANCE) {
            exceeded.push(format!("{} takes {now} instructions; the record has {}", line.path, line.instructions));
        }
        // Writing to a String cannot fail.
        let _ = writeln!(written, "{}\t{}\t{now}", line.path, line.times);
    }
    if write {
        return std::fs::write(workspace.root.join(RECORD), written).map_err(|e| format!("cannot write {RECORD}: {e}"));
    }
    if exceeded.is_empty() { Ok(()) } else { Err(exceeded.join("; ")) }
}

fn line(text: &str) -> Result<Line<'_>, Failure> {
    let malformed = || format!("{RECORD} has a line that is not `path, times, instructions`: {text}");
    let mut parts = text.split('\t');
    let (path, times, instructions) = (parts.next(), parts.next(), parts.next());
    let number = |text: Option<&str>| text.and_then(|text| text.parse().ok()).ok_or_else(malformed);
    Ok(Line { path: path.ok_or_else(malformed)?, times: number(times)?, instructions: number(instructions)? })
}

/// Builds a program; returns the target directory.
fn build(workspace: &Workspace, program: &Program) -> Result<PathBuf, Failure> {
    let Program { package, example } = program;
    let build = ["build", "--quiet", "--profile", "counts", "--package", package, "--example", example];
    Step::new("counts: build").run(&mut workspace.cargo(&build))?;
    Ok(std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.root.join("target"), Into::into))
}

/// Compares paths with an unused lab with the same ones without.
fn lab(workspace: &Workspace) -> Outcome {
    let target = build(workspace, &LAB)?;
    let mut exceeded = Vec::new();
    for (path, times) in LAB_PATHS {
        let plain = count(workspace, &target, &LAB, &format!("{path}-plain"), times)?;
        let with_lab = count(workspace, &target, &LAB, &format!("{path}-lab"), times)?;
        let more = with_lab as f64 / plain.max(1) as f64 * 100.0 - 100.0;
        say(&format!("{path:16} {plain:>9} instructions, {with_lab:>9} with a lab, {more:+.1} %"));
        if more > LAB_MAX {
            exceeded.push(format!("a lab adds {more:.1} % to {path}; {LAB_MAX} % are allowed"));
        }
    }
    if exceeded.is_empty() { Ok(()) } else { Err(exceeded.join("; ")) }
}

/// Counts the instructions of one run of a path.
fn count(workspace: &Workspace, target: &Path, program: &Program, path: &str, times: u64) -> Result<u64, Failure> {
    let example = program.example;
    let toggle = format!("--toggle-collect={example}::measured*");
    let mut command = workspace.command("valgrind", &["--tool=callgrind", &toggle, "--callgrind-out-file=/dev/null"]);
    let file = target.join("counts/examples").join(example);
    let output = command.arg(file).args([path, &times.to_string()]).output();
    let output = output.map_err(|e| format!("valgrind cannot be started: {e}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let collected = stderr.lines().find_map(|line| line.split_once("Collected :")).map(|(_, number)| number.trim());
    let collected: Option<u64> = collected.and_then(|number| number.parse().ok());
    match collected {
        Some(collected) if output.status.success() && collected > 0 => Ok(collected / times.max(1)),
        _ => Err(format!("no instructions were counted for {path}:\n{stderr}")),
    }
}
