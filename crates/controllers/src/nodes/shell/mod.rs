//! The shell of simulated containers: scripts of a container's command mean what they say.
//!
//! ```text
//!   text ─lexer─► tokens ─parser─► syntax tree ─code─► operations ─process─► output, files, exit code
//! ```
//!
//! - `lexer`, `parser`, `syntax`: from text to a tree; what is not understood is named in the error
//! - `code`: the tree as operations with jumps, so that a script can stop anywhere and go on later
//! - [`process`]: the state machine that runs them, driven by a clock; `control`: the commands of the shell itself
//! - `expand`, `arithmetic`, `pattern`, `conditions`: words, `$(( ))`, `*.log`, `[ ]`
//! - `commands`, `text_commands`: the programs that scripts call
//! - [`files`]: what a container sees of its root and its volumes; `output`: what it wrote
//!
//! Everything is bounded: depth, operations, words, output, files, background commands. No threads, no waiting, no access
//! to the host.

mod arithmetic;
mod code;
mod commands;
mod conditions;
mod control;
mod expand;
pub mod files;
mod lexer;
mod output;
mod parser;
mod pattern;
pub mod process;
mod syntax;
mod text_commands;
mod understood;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

pub use files::Files;
pub use output::{Chunk, OutputLine};
pub use process::Process;

/// The longest script.
pub const SCRIPT_BYTES_MAX: usize = 64 * 1024;

/// What a process starts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    pub variables: BTreeMap<String, String>,
    pub hostname: String,
    /// The working directory.
    pub directory: String,
    pub user: i64,
    /// Decides what `$RANDOM` is.
    pub seed: u64,
    /// True for the first process of a container that has its own process namespace: it ignores signals that it does not
    /// handle.
    pub is_first_process: bool,
    /// `$0`, `$1`, …
    pub arguments: Vec<String>,
    /// `sh -e`
    pub stops_on_error: bool,
}

impl Default for Environment {
    fn default() -> Self {
        let variables = [("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ("HOME", "/root")];
        Environment {
            variables: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            hostname: "localhost".to_owned(),
            directory: "/".to_owned(),
            user: 0,
            seed: 1,
            is_first_process: true,
            arguments: vec!["sh".to_owned()],
            stops_on_error: false,
        }
    }
}

/// A command that is understood.
#[derive(Debug, Clone)]
pub struct Script {
    code: code::Code,
    /// `$0`, `$1`, …
    arguments: Vec<String>,
    stops_on_error: bool,
}

impl Script {
    /// Reads the command of a container: `sh -c TEXT`, or one program with its words. The error names what is not
    /// understood.
    pub fn of(words: &[String]) -> Result<Self, String> {
        let Some((name, rest)) = words.split_first() else { return Err("an empty command".to_owned()) };
        if words.iter().map(String::len).sum::<usize>() > SCRIPT_BYTES_MAX {
            return Err("a command of more than 64 KiB".to_owned());
        }
        if !is_shell(name) {
            let command = syntax::Command::Simple(syntax::Simple {
                words: words.iter().map(|word| syntax::Word::quoted(word)).collect(),
                ..syntax::Simple::default()
            });
            understood::check(&command, name)?;
            return Ok(Script { code: code::compile(&command), arguments: vec![name.clone()], stops_on_error: false });
        }
        let mut stops_on_error = false;
        let mut rest = rest.iter();
        while let Some(option) = rest.next() {
            let Some(letters) = option.strip_prefix('-').filter(|letters| !letters.starts_with('-')) else {
                return Err(format!("the file `{option}`"));
            };
            stops_on_error |= letters.contains('e');
            if letters.contains('o') {
                rest.next();
            }
            if letters.contains('c') {
                let Some(text) = rest.next() else { return Err("`-c` without a script".to_owned()) };
                let command = parser::parse(text, 0)?;
                understood::check(&command, "")?;
                let more: Vec<String> = rest.cloned().collect();
                let arguments = if more.is_empty() { vec![name.clone()] } else { more };
                return Ok(Script { code: code::compile(&command), arguments, stops_on_error });
            }
        }
        // A shell without a terminal reads the end of its input and ends.
        Ok(Script {
            code: code::compile(&syntax::Command::Sequence(Vec::new())),
            arguments: vec![name.clone()],
            stops_on_error,
        })
    }

    /// Starts the command.
    #[must_use]
    pub fn start(&self, environment: &Environment, files: &Files, now: Timestamp) -> Process {
        let mut environment = environment.clone();
        environment.arguments.clone_from(&self.arguments);
        environment.stops_on_error = self.stops_on_error;
        Process::new(Arc::clone(&self.code), Arc::new(environment), files.clone(), now)
    }
}

/// True for the names of shells.
#[must_use]
pub fn is_shell(name: &str) -> bool {
    matches!(commands::base(name), "sh" | "bash" | "ash" | "dash")
}

/// What a command did that was run to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// None if it never ends.
    pub status: Option<i32>,
    /// What it wrote, with the times at which it would have done so.
    pub chunks: Vec<Chunk>,
    /// The time of the end; for one that never ends the time it has come to.
    pub ends_at: Timestamp,
}

/// Runs a command in a container to its end, in simulated time: the caller waits until the times that it reports. The error
/// names what is not understood. It may take many milliseconds, so callers run it on a thread of its own.
pub fn run(
    words: &[String],
    environment: &Environment,
    files: &Files,
    stdin: &[u8],
    now: Timestamp,
) -> Result<Ran, String> {
    run_within(process::STEPS_AT_ONCE_MAX, words, environment, files, stdin, now)
}

/// As [`run`], for probes and hooks, which run in the task of all nodes: with as many operations as one advance of a container.
pub fn run_briefly(words: &[String], environment: &Environment, files: &Files, now: Timestamp) -> Result<Ran, String> {
    run_within(process::STEPS_MAX, words, environment, files, b"", now)
}

fn run_within(
    steps: u32,
    words: &[String],
    environment: &Environment,
    files: &Files,
    stdin: &[u8],
    now: Timestamp,
) -> Result<Ran, String> {
    let script = Script::of(words)?;
    let environment = Environment { is_first_process: false, ..environment.clone() };
    let mut process = script.start(&environment, files, now);
    process.give_input(stdin);
    let finished = process.complete(steps);
    let chunks = process.take_chunks();
    let last = chunks.last().map_or(now, |chunk| chunk.at);
    Ok(Ran { status: finished.map(|(status, _)| status), chunks, ends_at: finished.map_or(last, |(_, at)| at) })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "measures how long a script takes")]
mod tests;
