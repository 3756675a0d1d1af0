//! Simple commands: their redirections, and the commands that a shell does itself.

use std::time::Duration;

use super::code::{Code, compile};
use super::commands::{self, Call};
use super::conditions;
use super::files::{FileError, absolute};
use super::output::OUTPUT_BYTES_MAX;
use super::parser;
use super::process::{Block, Process, Stopped, TERMINATED, Thread};
use super::syntax::{Redirect, Simple, Target, Word};

/// Commands of the shell itself.
pub(super) const BUILTINS: [&str; 22] = [
    "exit", "return", "sleep", "wait", "trap", "exec", "eval", "export", "readonly", "local", "declare", "unset",
    "set", "shift", "cd", "read", "kill", "command", "[", "test", "ulimit", "umask",
];

/// Where the output of a command goes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sink {
    Out,
    Error,
    Null,
    File(String),
}

/// Input and outputs of a command after its redirections.
struct Streams {
    input: Option<Vec<u8>>,
    output: Sink,
    errors: Sink,
}

impl Process {
    pub(super) fn simple(&mut self, thread: &mut Thread, command: &Simple) -> Result<(), Stopped> {
        let words = self.words(thread, &command.words)?;
        let (mut assigned, mut bytes) = (Vec::new(), 0);
        for (name, word) in &command.assignments {
            let value = self.text(thread, word)?;
            bytes += value.len();
            if bytes > OUTPUT_BYTES_MAX {
                return Err(self.fail(thread, "argument list too long"));
            }
            assigned.push((name.clone(), value));
        }
        let Some(streams) = self.redirect(thread, &command.redirects)? else {
            thread.status = 1;
            return Ok(());
        };
        if words.is_empty() {
            // The status of `x=$(false)` is that of the command.
            if !command.assignments.iter().any(|(_, word)| has_output(word)) {
                thread.status = 0;
            }
            assigned.iter().for_each(|(name, value)| thread.set(name, value));
            return Ok(());
        }
        // Assignments before a command are for that command only.
        let before = (!assigned.is_empty()).then(|| thread.shell.variables.clone());
        for (name, value) in assigned {
            thread.shell.variables.insert(name, (value, true));
        }
        let done = self.command(thread, words, &streams);
        if let Some(before) = before {
            thread.shell.variables = before;
        }
        done
    }

    fn command(&mut self, thread: &mut Thread, words: Vec<String>, streams: &Streams) -> Result<(), Stopped> {
        if let Some(code) = thread.shell.functions.get(&words[0]).cloned() {
            self.call_function(thread, code, words);
            return Ok(());
        }
        let name = commands::base(&words[0]).to_owned();
        if BUILTINS.contains(&name.as_str()) {
            return self.builtin(thread, &name, &words[1..], streams);
        }
        let input = match &streams.input {
            Some(input) => input.clone(),
            None => std::mem::take(&mut thread.stdin).into(),
        };
        let call = Call {
            words: &words[1..],
            input: &input,
            files: self.files(),
            environment: &self.environment,
            variables: &thread.shell.variables,
            directory: thread.directory(),
            now: thread.time,
        };
        let Some(result) = commands::run(&name, &call) else {
            return self.not_found(thread, &words, streams);
        };
        self.charge(input.len() + result.output.len() + result.errors.len());
        self.deliver(thread, streams, &result.output, &result.errors);
        thread.status = result.status;
        if let Some(wait) = result.runs_for {
            thread.sleep(wait);
        }
        Ok(())
    }

    fn not_found(&mut self, thread: &mut Thread, words: &[String], streams: &Streams) -> Result<(), Stopped> {
        match words[0].as_str() {
            // A script that is given to another shell.
            "sh" | "bash" | "ash" | "dash" | "/bin/sh" | "/bin/bash" | "/bin/ash" | "/bin/dash" => {
                let at = words.iter().position(|word| word.starts_with('-') && word.ends_with('c'));
                let Some(text) = at.and_then(|at| words.get(at + 1)) else {
                    thread.status = 0;
                    return Ok(());
                };
                match parser::parse(text, 0) {
                    Ok(script) => {
                        let code = compile(&super::syntax::Command::Subshell(Box::new(script)));
                        self.run_here(thread, code);
                        Ok(())
                    }
                    Err(why) => Err(self.fail(thread, &format!("syntax error: unexpected {why}"))),
                }
            }
            name => {
                self.deliver(thread, streams, b"", format!("sh: {name}: not found\n").as_bytes());
                thread.status = 127;
                Ok(())
            }
        }
    }

    /// Opens the files of redirections. None if one of them cannot be opened, which fails the command.
    fn redirect(&mut self, thread: &mut Thread, redirects: &[Redirect]) -> Result<Option<Streams>, Stopped> {
        let mut streams = Streams { input: None, output: Sink::Out, errors: Sink::Error };
        for redirect in redirects {
            let sink = match &redirect.to {
                Target::Same(1) => streams.output.clone(),
                Target::Same(_) => streams.errors.clone(),
                Target::Read(word) => {
                    let name = self.text(thread, word)?;
                    let path = absolute(thread.directory(), &name);
                    let read = if path == "/dev/null" { Ok([].into()) } else { self.files().read(&path) };
                    match read {
                        Ok(bytes) => streams.input = Some(bytes.to_vec()),
                        Err(_) => return Ok(self.cannot_open(thread, &format!("can't open {name}: no such file"))),
                    }
                    continue;
                }
                Target::Write(word) | Target::Append(word) => {
                    let name = self.text(thread, word)?;
                    match self.open(thread, &name, matches!(redirect.to, Target::Append(_))) {
                        Ok(sink) => sink,
                        Err(FileError::NotFound) => {
                            let why = format!("can't create {name}: nonexistent directory");
                            return Ok(self.cannot_open(thread, &why));
                        }
                        Err(why) => return Ok(self.cannot_open(thread, &format!("can't create {name}: {why}"))),
                    }
                }
            };
            match redirect.descriptor {
                2 => streams.errors = sink,
                _ => streams.output = sink,
            }
        }
        Ok(Some(streams))
    }

    fn cannot_open(&mut self, thread: &Thread, why: &str) -> Option<Streams> {
        self.output.write(thread.time, true, format!("sh: {why}\n").as_bytes());
        None
    }

    /// Opens a file for writing; a new or replaced one is empty.
    fn open(&self, thread: &Thread, name: &str, append: bool) -> Result<Sink, FileError> {
        Ok(match absolute(thread.directory(), name).as_str() {
            "/dev/null" => Sink::Null,
            "/dev/stdout" | "/proc/1/fd/1" | "/proc/self/fd/1" => Sink::Out,
            "/dev/stderr" | "/proc/1/fd/2" | "/proc/self/fd/2" => Sink::Error,
            path => {
                self.files().write(path, b"", append)?;
                Sink::File(path.to_owned())
            }
        })
    }

    fn deliver(&mut self, thread: &Thread, streams: &Streams, output: &[u8], errors: &[u8]) {
        for (bytes, sink) in [(output, &streams.output), (errors, &streams.errors)] {
            match sink {
                Sink::Out => self.output.write(thread.time, false, bytes),
                Sink::Error => self.output.write(thread.time, true, bytes),
                Sink::Null => {}
                Sink::File(path) => {
                    if let Err(why) = self.files().write(path, bytes, true) {
                        self.output.write(thread.time, true, format!("sh: write error: {why}\n").as_bytes());
                    }
                }
            }
        }
    }

    fn builtin(&mut self, thread: &mut Thread, name: &str, words: &[String], streams: &Streams) -> Result<(), Stopped> {
        let first = words.first().map(String::as_str);
        let mut status = 0;
        match name {
            "exit" | "return" => {
                let code = first.map_or(Some(thread.status), |word| word.parse().ok());
                let Some(code) = code else {
                    return Err(self.fail(thread, &format!("{name}: Illegal number: {}", first.unwrap_or_default())));
                };
                if name == "exit" {
                    self.exit(thread, code);
                    return Err(Stopped);
                }
                thread.leave_function();
                status = code & 0xff;
            }
            "sleep" => match sleep_time(words) {
                Some(time) => {
                    thread.status = 0;
                    thread.sleep(time);
                    return Ok(());
                }
                None => {
                    let text = format!("sleep: invalid number '{}'\n", first.unwrap_or_default());
                    self.deliver(thread, streams, b"", text.as_bytes());
                    status = 1;
                }
            },
            "wait" => return self.wait(thread, first),
            "trap" => status = self.trap(thread, words)?,
            "kill" => status = self.kill_command(thread, words, streams),
            "exec" if words.is_empty() => {}
            // The command takes the place of the shell, so nothing after it runs.
            "exec" | "eval" | "command" => {
                let text: Vec<String> = words.iter().map(|word| quote(word)).collect();
                let text = if name == "eval" { words.join(" ") } else { text.join(" ") };
                let text = if name == "exec" { format!("{text}; exit $?") } else { text };
                match parser::parse(&text, 0) {
                    Ok(script) => self.run_here(thread, compile(&script)),
                    Err(why) => return Err(self.fail(thread, &format!("syntax error: unexpected {why}"))),
                }
                return Ok(());
            }
            "export" | "readonly" | "local" | "declare" => {
                for word in words.iter().filter(|word| !word.starts_with('-')) {
                    let (name_of, value) = match word.split_once('=') {
                        Some((name_of, value)) => (name_of, value.to_owned()),
                        None => (word.as_str(), self.variable(thread, word).unwrap_or_default()),
                    };
                    let exported = name == "export" || thread.shell.variables.get(name_of).is_some_and(|known| known.1);
                    thread.shell.variables.insert(name_of.to_owned(), (value, exported));
                }
            }
            "unset" => words.iter().for_each(|word| drop(thread.shell.variables.remove(word))),
            "set" => set(thread, words),
            "shift" => {
                let count = first.and_then(|word| word.parse().ok()).unwrap_or(1).min(thread.arguments().len());
                drop(thread.shell.arguments.drain(1..1 + count));
            }
            "cd" => {
                let path = absolute(thread.directory(), first.unwrap_or("/root"));
                if self.files().is_directory(&path) {
                    thread.set("PWD", &path);
                    thread.shell.directory = path;
                } else {
                    let text = format!("sh: cd: can't cd to {}: {}\n", first.unwrap_or_default(), FileError::NotFound);
                    self.deliver(thread, streams, b"", text.as_bytes());
                    status = 2;
                }
            }
            "read" => status = self.read(thread, words, streams),
            "[" | "test" => {
                let words = if name == "[" { words.strip_suffix(&["]".to_owned()]).unwrap_or(words) } else { words };
                match conditions::test(words, self.files(), thread.directory(), false) {
                    Ok(true) => {}
                    Ok(false) => status = 1,
                    Err(why) => {
                        self.deliver(thread, streams, b"", format!("sh: {why}\n").as_bytes());
                        status = 2;
                    }
                }
            }
            _ => {}
        }
        thread.status = status;
        Ok(())
    }

    fn wait(&mut self, thread: &mut Thread, which: Option<&str>) -> Result<(), Stopped> {
        thread.status = 0;
        let child = which.and_then(|word| word.parse().ok());
        let waits = child.map_or_else(|| self.has_children(), |id| self.has_child(id));
        if waits {
            thread.block = Block::Child(child);
        }
        Ok(())
    }

    fn trap(&mut self, thread: &mut Thread, words: &[String]) -> Result<i32, Stopped> {
        let Some((action, signals)) = words.split_first() else { return Ok(0) };
        let handler: Option<Option<Code>> = match action.as_str() {
            "-" => None,
            "" => Some(None),
            text => match parser::parse(text, 0) {
                Ok(script) => Some(Some(compile(&script))),
                Err(why) => return Err(self.fail(thread, &format!("syntax error: unexpected {why}"))),
            },
        };
        for signal in signals {
            let signal = match signal.trim_start_matches("SIG") {
                "TERM" | "15" => "TERM",
                "EXIT" | "0" => "EXIT",
                // The other signals are never sent.
                _ => continue,
            };
            match &handler {
                Some(handler) => drop(self.traps.insert(signal, handler.clone())),
                None => drop(self.traps.remove(signal)),
            }
        }
        Ok(0)
    }

    fn kill_command(&mut self, thread: &mut Thread, words: &[String], streams: &Streams) -> i32 {
        let mut status = 0;
        let hard = words.iter().any(|word| matches!(word.as_str(), "-9" | "-KILL" | "-SIGKILL"));
        for word in words.iter().filter(|word| !word.starts_with('-') && !word.is_empty()) {
            let id = word.trim_start_matches('%').parse::<u32>();
            if !id.is_ok_and(|id| self.kill(thread, id)) {
                let text = format!("sh: can't kill pid {word}: No such process\n");
                self.deliver(thread, streams, b"", text.as_bytes());
                status = 1;
            } else if hard && word == "1" {
                thread.block = Block::Ended(TERMINATED - 6);
            }
        }
        status
    }

    fn read(&mut self, thread: &mut Thread, words: &[String], streams: &Streams) -> i32 {
        let mut line = Vec::new();
        let mut complete = false;
        let mut given = streams.input.clone().map(std::collections::VecDeque::from);
        let input = given.as_mut().unwrap_or(&mut thread.stdin);
        while let Some(byte) = input.pop_front() {
            if byte == b'\n' {
                complete = true;
                break;
            }
            line.push(byte);
        }
        let text = String::from_utf8_lossy(&line).into_owned();
        let names: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
        let mut rest = text.trim();
        for (at, name) in names.iter().enumerate() {
            let (value, after) = match rest.split_once(char::is_whitespace).filter(|_| at + 1 < names.len()) {
                Some((value, after)) => (value, after.trim_start()),
                None => (rest, ""),
            };
            thread.set(name, value);
            rest = after;
        }
        i32::from(!complete)
    }

    /// `[[ … ]]`: words are not split, and the right side of a comparison is a pattern.
    pub(super) fn test(&mut self, thread: &mut Thread, words: &[Word]) -> Result<(), Stopped> {
        let mut texts: Vec<String> = Vec::new();
        for word in words {
            let compares = matches!(texts.last().map(String::as_str), Some("==" | "=" | "!="));
            texts.push(if compares { self.pattern(thread, word)? } else { self.text(thread, word)? });
        }
        thread.status = match conditions::test(&texts, self.files(), thread.directory(), true) {
            Ok(value) => i32::from(!value),
            Err(why) => {
                self.output.write(thread.time, true, format!("sh: {why}\n").as_bytes());
                2
            }
        };
        Ok(())
    }

    /// Each command runs to its end with the output of the one before as its input.
    pub(super) fn pipeline(&mut self, thread: &mut Thread, commands: &[Code]) -> Result<(), Stopped> {
        let mut bytes = Vec::new();
        for code in commands {
            bytes = self.capture(thread, code.clone(), bytes)?;
        }
        self.output.write(thread.time, false, &bytes);
        Ok(())
    }
}

fn has_output(word: &Word) -> bool {
    word.0.iter().any(|part| matches!(part, super::syntax::Part::Output { .. }))
}

/// A word that the shell reads as itself.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// `set -e`, `set -eu -o pipefail`, `set -- a b`
fn set(thread: &mut Thread, words: &[String]) {
    let name = thread.shell.arguments.first().cloned().unwrap_or_else(|| "sh".to_owned());
    for (at, word) in words.iter().enumerate() {
        match word.as_str() {
            "--" => {
                thread.shell.arguments = std::iter::once(name).chain(words[at + 1..].iter().cloned()).collect();
                return;
            }
            word if word.starts_with('-') && word.contains('e') => thread.shell.stops_on_error = true,
            word if word.starts_with('+') && word.contains('e') => thread.shell.stops_on_error = false,
            "errexit" => thread.shell.stops_on_error = words.get(at.wrapping_sub(1)).is_none_or(|sign| sign == "-o"),
            _ => {}
        }
    }
}

/// `sleep 1.5`, `sleep 2m`, `sleep infinity`: the time, or none for ever. Outer none if it is no time.
fn sleep_time(words: &[String]) -> Option<Option<Duration>> {
    let mut total = Duration::ZERO;
    if words.is_empty() {
        return None;
    }
    for word in words {
        if matches!(word.as_str(), "infinity" | "inf") {
            return Some(None);
        }
        let (number, unit) = match word.char_indices().next_back()? {
            (at, 's') => (&word[..at], 1.0),
            (at, 'm') => (&word[..at], 60.0),
            (at, 'h') => (&word[..at], 3600.0),
            (at, 'd') => (&word[..at], 86_400.0),
            _ => (word.as_str(), 1.0),
        };
        let seconds = number.parse::<f64>().ok().filter(|number| *number >= 0.0)? * unit;
        match Duration::try_from_secs_f64(seconds).ok().and_then(|time| total.checked_add(time)) {
            Some(time) => total = time,
            None => return Some(None),
        }
    }
    Some(Some(total))
}
