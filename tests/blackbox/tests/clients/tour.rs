//! `docs/tour.md` and `docs/access.md`, step by step: runs every command and compares its output with the page.
//!
//! In the page, a block `sh` is a command that ends, `sh NAME` one that keeps running in a terminal of that name, `text` is the
//! output of the last command, and `text NAME` the output of the terminal: these lines in this order, with others between
//! them; lines that no block has matched yet may be matched by a later one. `…` matches anything. `<!-- cut NAME -->` is the
//! reader's Ctrl-C.

use std::collections::HashMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use blackbox::process::DEADLINE;
use blackbox::{Process, run, tools};
use tempfile::TempDir;

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Run(String),
    Start { terminal: String, command: String },
    Printed(Vec<String>),
    Shown { terminal: String, lines: Vec<String> },
    Cut(String),
}

/// The steps of a page, in order.
fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(terminal) = line.strip_prefix("<!-- cut ").and_then(|rest| rest.strip_suffix(" -->")) {
            steps.push(Step::Cut(terminal.to_owned()));
        }
        let Some(info) = line.strip_prefix("```") else { continue };
        let block: Vec<String> = lines.by_ref().take_while(|line| *line != "```").map(str::to_owned).collect();
        let (language, terminal) = info.split_once(' ').map_or((info, None), |(one, two)| (one, Some(two.to_owned())));
        // Examples that are not commands.
        if matches!(language, "rust" | "yaml") {
            continue;
        }
        steps.push(match (language, terminal) {
            ("sh", None) => Step::Run(block.join("\n")),
            ("sh", Some(terminal)) => Step::Start { terminal, command: block.join("\n") },
            ("text", None) => Step::Printed(block),
            ("text", Some(terminal)) => Step::Shown { terminal, lines: block },
            other => panic!("a block of the tour is {other:?}"),
        });
    }
    steps
}

/// True if a line matches the page, where `…` matches anything.
fn is_as(said: &str, line: &str) -> bool {
    let parts: Vec<&str> = said.split('…').collect();
    let (first, last) = (parts[0], parts[parts.len() - 1]);
    if parts.len() == 1 {
        return line == said;
    }
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for part in &parts[1..parts.len() - 1] {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// True if these lines are in a text, in this order.
fn are_in(said: &[String], text: &str) -> bool {
    let mut lines = text.lines();
    said.iter().all(|said| lines.any(|line| is_as(said, line)))
}

/// A reader of the page, with a folder, terminals, and another port than the one in the page.
struct Reader {
    folder: TempDir,
    port: u16,
    terminals: HashMap<String, Terminal>,
}

struct Terminal {
    process: Process,
    /// Lines that no block has matched yet.
    unread: Vec<String>,
}

impl Terminal {
    /// Waits until these lines have appeared, in this order.
    fn shows(&mut self, lines: &[String]) {
        let mut at = 0;
        for said in lines {
            match self.unread[at..].iter().position(|line| is_as(said, line)) {
                Some(found) => {
                    at += found;
                    self.unread.remove(at);
                }
                None => {
                    loop {
                        let line = self.process.line();
                        if is_as(said, &line) {
                            break;
                        }
                        self.unread.push(line);
                    }
                    at = self.unread.len();
                }
            }
        }
    }
}

impl Reader {
    fn new(tools: &[(&str, PathBuf)]) -> Self {
        let folder = TempDir::new().expect("the temporary folder can be written");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).expect("the folder can be written");
        for (name, file) in tools {
            std::os::unix::fs::symlink(file, bin.join(name)).expect("the folder can be written");
        }
        Self { folder, port: free.expect("some port is free").port(), terminals: HashMap::new() }
    }

    /// The command of the page, with names and ports that other tests on this machine do not use.
    fn here(&self, text: &str) -> String {
        let text = text.replace("8001", &self.port.to_string());
        text.replace("dogwatch up", "dogwatch up --listen 127.0.0.1:0")
    }

    fn bash(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        let bin = self.folder.path().join("bin");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        command.args(["-e", "-c", &self.here(script)]).current_dir(self.folder.path());
        // The pages export the kubeconfig that the server names; each of their commands has a shell of its own.
        let kubeconfig = self.folder.path().join(".dogwatch/kubeconfig");
        command.env("PATH", path).env("HOME", self.folder.path()).env("KUBECONFIG", kubeconfig);
        command
    }

    /// Runs a command until it prints these lines: the state that it shows may take a moment.
    fn run(&self, command: &str, lines: &[String]) {
        let end = Instant::now() + DEADLINE;
        loop {
            let output = run(self.bash(command), "");
            if output.success && are_in(lines, &output.stdout) {
                return;
            }
            let retry = !lines.is_empty() && Instant::now() < end;
            assert!(retry, "{command}\nprinted\n{}{}instead of\n{}", output.stdout, output.stderr, lines.join("\n"));
        }
    }
}

#[test]
fn every_command_of_the_tour_does_what_the_page_says() {
    follow("docs/tour.md", Reader::new(&[("dogwatch", tools::dogwatch())]));
}

#[test]
fn csr_9_csr_22_every_command_about_access_does_what_the_page_says() {
    let tools = [("dogwatch", tools::dogwatch()), ("kubectl", tools::installed("bin/kubectl"))];
    follow("docs/access.md", Reader::new(&tools));
}

/// Runs the commands of a page.
fn follow(page: &str, mut reader: Reader) {
    let page = tools::tests().parent().expect("tests/ is in the root").join(page);
    let page = std::fs::read_to_string(page).expect("the page is there");
    let mut steps = steps(&page).into_iter().peekable();
    while let Some(step) = steps.next() {
        match step {
            Step::Run(command) => {
                let lines = match steps.next_if(|next| matches!(next, Step::Printed(_))) {
                    Some(Step::Printed(lines)) => lines,
                    _ => Vec::new(),
                };
                reader.run(&command, &lines);
            }
            Step::Printed(lines) => panic!("nothing was run that could print {lines:?}"),
            Step::Start { terminal, command } => {
                let process = Process::start_group(reader.bash(&command));
                reader.terminals.insert(terminal, Terminal { process, unread: Vec::new() });
            }
            Step::Shown { terminal, lines } => {
                let lines: Vec<String> = lines.iter().map(|said| reader.here(said)).collect();
                reader.terminals.get_mut(&terminal).expect("a terminal of that name").shows(&lines);
            }
            Step::Cut(terminal) => drop(reader.terminals.remove(&terminal).expect("a terminal of that name")),
        }
    }
}

#[test]
fn the_reader_of_the_tour_notices_what_is_not_as_the_page_says() {
    let page = "```sh\na\n```\n\n```text\nb…\n```\n<!-- cut w -->\n```sh w\nc\n```\n```text w\nd\n```\n";
    let expected = [
        Step::Run("a".into()),
        Step::Printed(vec!["b…".into()]),
        Step::Cut("w".into()),
        Step::Start { terminal: "w".into(), command: "c".into() },
        Step::Shown { terminal: "w".into(), lines: vec!["d".into()] },
    ];
    assert_eq!(steps(page), expected);
    assert!(is_as("a…b…c", "a1b2c") && is_as("…x", "x") && is_as("ab", "ab"));
    assert!(!is_as("a…b…c", "a1c2b") && !is_as("ab", "abc") && !is_as("…x", "xy"));
    let lines = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert!(are_in(&lines(&["a", "c"]), "a\nb\nc") && !are_in(&lines(&["c", "a"]), "a\nb\nc"));
}
