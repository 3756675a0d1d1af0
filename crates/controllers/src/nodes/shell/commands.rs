//! Programs that scripts call: each as a function of its words, its input and the files.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::Environment;
use super::files::{FileError, Files, absolute};
use super::output::OUTPUT_BYTES_MAX;
use super::text_commands;

/// A call of a program.
pub(super) struct Call<'a> {
    /// Without the name of the program.
    pub(super) words: &'a [String],
    pub(super) input: &'a [u8],
    pub(super) files: &'a Files,
    pub(super) environment: &'a Environment,
    pub(super) variables: &'a BTreeMap<String, (String, bool)>,
    pub(super) directory: &'a str,
    pub(super) now: Timestamp,
}

/// What a program does.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ran {
    pub(super) status: i32,
    pub(super) output: Vec<u8>,
    pub(super) errors: Vec<u8>,
    /// How long it runs before it ends: `Some(None)` for ever, none where it takes no time.
    pub(super) runs_for: Option<Option<Duration>>,
}

/// Programs that [`run`] knows.
pub(super) const PROGRAMS: [&str; 51] = [
    "true", "false", ":", "echo", "printf", "cat", "touch", "rm", "mkdir", "rmdir", "mv", "cp", "ls", "env",
    "printenv", "hostname", "date", "expr", "seq", "pwd", "whoami", "id", "uname", "basename", "dirname", "which",
    "nslookup", "wget", "curl", "nc", "ping", "chmod", "chown", "sync", "ln", "tail", "head", "wc", "grep", "sort",
    "uniq", "tee", "tr", "cut", "rev", "yes", "type", "getent", "host", "pause", "stty",
];

/// The name of a program without its directory.
pub(super) fn base(name: &str) -> &str {
    let known = ["/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/", "/usr/local/bin/"];
    known.iter().find_map(|directory| name.strip_prefix(directory)).filter(|base| !base.contains('/')).unwrap_or(name)
}

impl Call<'_> {
    pub(super) fn path(&self, name: &str) -> String {
        absolute(self.directory, name)
    }

    /// True if one of the letters is among the options.
    pub(super) fn has(&self, letters: &str) -> bool {
        let options = self.words.iter().take_while(|word| *word != "--").filter(|word| word.starts_with('-'));
        options.filter(|word| !word.starts_with("--")).any(|word| word.contains(|c| letters.contains(c)))
    }

    /// The words that are no options.
    pub(super) fn operands(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str).filter(|word| !word.starts_with('-') || *word == "-")
    }

    /// The bytes of a file, or of the input for `-`.
    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        if name == "-" {
            return Ok(self.input.to_vec());
        }
        match self.path(name).as_str() {
            "/dev/null" => Ok(Vec::new()),
            "/etc/hostname" => Ok(format!("{}\n", self.environment.hostname).into_bytes()),
            path => self.files.read(path).map(|bytes| bytes.to_vec()),
        }
    }
}

impl Ran {
    pub(super) fn wrote(text: impl Into<Vec<u8>>) -> Self {
        Ran { output: text.into(), ..Ran::default() }
    }

    pub(super) fn status(status: i32) -> Self {
        Ran { status, ..Ran::default() }
    }

    /// Adds a message and fails.
    pub(super) fn complain(&mut self, text: &str) {
        if self.errors.len() < OUTPUT_BYTES_MAX {
            self.errors.extend_from_slice(text.as_bytes());
            self.errors.push(b'\n');
        }
        self.status = 1;
    }
}

/// Runs a program; none if there is no such one.
pub(super) fn run(name: &str, call: &Call<'_>) -> Option<Ran> {
    Some(match name {
        "true" | ":" | "chmod" | "chown" | "sync" | "ln" | "stty" => Ran::default(),
        // The network of a simulated pod answers.
        "nslookup" | "wget" | "curl" | "nc" | "ping" | "getent" | "host" => Ran::default(),
        "false" => Ran::status(1),
        "pause" => Ran { runs_for: Some(None), ..Ran::default() },
        "yes" => Ran { runs_for: Some(None), ..Ran::wrote("y\n") },
        "touch" => each(call, "touch", |path, name, ran| {
            if let Err(why) = call.files.write(path, b"", true)
                && why != FileError::IsDirectory
            {
                ran.complain(&format!("touch: {name}: {why}"));
            }
        }),
        "rm" => each(call, "rm", |path, name, ran| {
            let forced = call.has("f");
            match call.files.remove(path, call.has("rR")) {
                Ok(()) => {}
                Err(FileError::NotFound) if forced => {}
                Err(FileError::IsDirectory) => ran.complain(&format!("rm: '{name}' is a directory")),
                Err(why) => ran.complain(&format!("rm: can't remove '{name}': {why}")),
            }
        }),
        "mkdir" => each(call, "mkdir", |path, name, ran| {
            if let Err(why) = call.files.make_directory(path, call.has("p")) {
                ran.complain(&format!("mkdir: can't create directory '{name}': {why}"));
            }
        }),
        "rmdir" => each(call, "rmdir", |path, name, ran| {
            if let Err(why) = call.files.remove_directory(path) {
                ran.complain(&format!("rmdir: '{name}': {why}"));
            }
        }),
        "mv" | "cp" => copy(name, call),
        "ls" => list(call),
        "env" | "printenv" => variables(name, call),
        "hostname" => Ran::wrote(format!("{}\n", call.environment.hostname)),
        "date" => date(call),
        "expr" => expr(call),
        "pwd" => Ran::wrote(format!("{}\n", call.directory)),
        "whoami" => Ran::wrote(if call.environment.user == 0 { "root\n" } else { "nobody\n" }),
        "id" => {
            let user = call.environment.user;
            if call.has("ug") {
                Ran::wrote(format!("{user}\n"))
            } else {
                Ran::wrote(format!("uid={user} gid={user}\n"))
            }
        }
        "uname" => {
            let host = &call.environment.hostname;
            let all = format!("Linux {host} simulated #1 SMP x86_64 GNU/Linux\n");
            Ran::wrote(if call.has("a") {
                all
            } else if call.has("m") {
                "x86_64\n".into()
            } else {
                "Linux\n".into()
            })
        }
        "which" | "type" => {
            let found = |word: &str| PROGRAMS.contains(&word);
            let paths: String =
                call.operands().filter(|word| found(word)).map(|word| format!("/bin/{word}\n")).collect();
            Ran { status: i32::from(!call.operands().all(found)), ..Ran::wrote(paths) }
        }
        _ => return text_commands::run(name, call),
    })
}

fn each(call: &Call<'_>, name: &str, mut act: impl FnMut(&str, &str, &mut Ran)) -> Ran {
    let mut ran = Ran::default();
    let mut any = false;
    for operand in call.operands() {
        any = true;
        act(&call.path(operand), operand, &mut ran);
    }
    if !any && !call.has("f") {
        ran.complain(&format!("{name}: missing operand"));
    }
    ran
}

fn copy(name: &str, call: &Call<'_>) -> Ran {
    let mut ran = Ran::default();
    let operands: Vec<&str> = call.operands().collect();
    let Some((target, sources)) = operands.split_last().filter(|(_, sources)| !sources.is_empty()) else {
        ran.complain(&format!("{name}: missing file operand"));
        return ran;
    };
    for source in sources {
        let from = call.path(source);
        let to = call.path(target);
        let last = source.rsplit('/').next().unwrap_or(source);
        let to = if call.files.is_directory(&to) { absolute(&to, last) } else { to };
        let moved = call.files.read(&from).and_then(|bytes| call.files.write(&to, &bytes, false));
        match moved {
            Ok(()) => {
                if name == "mv" && from != to {
                    let _ = call.files.remove(&from, false);
                }
                if call.has("v") {
                    ran.output.extend_from_slice(format!("'{source}' -> '{}'\n", to).as_bytes());
                }
            }
            Err(why) if name == "mv" => ran.complain(&format!("mv: can't rename '{source}': {why}")),
            Err(why) => ran.complain(&format!("cp: can't stat '{source}': {why}")),
        }
    }
    ran
}

fn list(call: &Call<'_>) -> Ran {
    let mut ran = Ran::default();
    let mut operands: Vec<&str> = call.operands().collect();
    if operands.is_empty() {
        operands.push(".");
    }
    for operand in operands {
        if ran.output.len() >= OUTPUT_BYTES_MAX {
            break;
        }
        let path = call.path(operand);
        let names = match call.files.list(&path) {
            Ok(names) => names,
            Err(_) if call.files.exists(&path) => vec![operand.to_owned()],
            Err(why) => {
                ran.complain(&format!("ls: {operand}: {why}"));
                continue;
            }
        };
        for name in names.iter().filter(|name| call.has("aA") || !name.starts_with('.')) {
            ran.output.extend_from_slice(name.as_bytes());
            ran.output.push(b'\n');
        }
    }
    ran
}

fn variables(name: &str, call: &Call<'_>) -> Ran {
    let exported = call.variables.iter().filter(|(_, (_, exported))| *exported);
    if let Some(wanted) = call.operands().next().filter(|_| name == "printenv") {
        return match call.variables.get(wanted) {
            Some((value, true)) => Ran::wrote(format!("{value}\n")),
            _ => Ran::status(1),
        };
    }
    Ran::wrote(exported.map(|(name, (value, _))| format!("{name}={value}\n")).collect::<String>())
}

fn date(call: &Call<'_>) -> Ran {
    let format = call.words.iter().find_map(|word| word.strip_prefix('+')).unwrap_or("%a %b %e %H:%M:%S UTC %Y");
    let zoned = call.now.to_zoned(jiff::tz::TimeZone::UTC);
    match jiff::fmt::strtime::format(format, &zoned) {
        Ok(text) => Ran::wrote(format!("{text}\n")),
        Err(_) => Ran::wrote(format!("{}\n", call.now)),
    }
}

/// Three words: two numbers and an operator, or two texts that are compared.
fn expr(call: &Call<'_>) -> Ran {
    let mut ran = Ran::default();
    let words: Vec<&str> = call.words.iter().map(String::as_str).collect();
    let value = match words.as_slice() {
        [one] => Ok((*one).to_owned()),
        [left, sign @ ("=" | "==" | "!="), right] => Ok(i64::from((left == right) == (*sign != "!=")).to_string()),
        [_, _, ..] => super::arithmetic::evaluate(&words.join(" ").replace("\\*", "*"), &|_| "x".to_owned())
            .map(|n| n.to_string()),
        [] => Err("too few arguments".to_owned()),
    };
    match value {
        Ok(value) => {
            ran.status = i32::from(value == "0" || value.is_empty());
            ran.output = format!("{value}\n").into_bytes();
        }
        Err(why) => {
            ran.complain(&format!("expr: {why}"));
            ran.status = 2;
        }
    }
    ran
}
